"""Which code made a record, and that none answers in silence for code that has changed."""

import json
import re
import shutil
from pathlib import Path

import pytest

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs import code, records
from mtlib.runs import run as runs
from mtlib.runs.code import UNCOMMITTED, code_sha256, origin
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from tests.conftest import call, config, record_identity
from tests.sweeps.test_sweep_file import write

PACKAGE = Path(code.__file__).parents[1]
OTHER = "0" * 64


def part_of_the_package(folder: Path) -> Path:
    for name in ("objectives.py", "methods/bias.py", "data/scoring.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(PACKAGE / name, folder / name)
    return folder


@pytest.fixture
def change_code(monkeypatch):
    """From now on the code has another hash, as after an edit and a new start."""

    def change(sha256: str = OTHER) -> None:
        for module in (code, runs):
            monkeypatch.setattr(module, "code_sha256", lambda: sha256)
        monkeypatch.setattr("mtlib.runs.environment.code_sha256", lambda: sha256)

    return change


class TestHash:
    def test_a_statement_counts_and_so_does_a_new_module(self, tmp_path):
        """Of a package with some of the modules."""
        hashes = [code_sha256.__wrapped__(part_of_the_package(tmp_path))]
        for file, old, new in (
            ("objectives.py", "1 - self.alpha", "0.0"),  # the weight of L_FT in equation 1
            ("methods/bias.py", "import", "import sys\nimport"),
            ("data/scoring.py", "import", "import sys\nimport"),
        ):
            text = (tmp_path / file).read_text()
            assert old in text
            (tmp_path / file).write_text(text.replace(old, new, 1))
            hashes.append(code_sha256.__wrapped__(tmp_path))
        (tmp_path / "methods" / "made_up.py").write_text("x = 1\n")
        hashes.append(code_sha256.__wrapped__(tmp_path))
        assert len({*hashes}) == 5

    def test_comments_docstrings_formatting_and_what_decides_no_number_do_not_count(self, tmp_path):
        ignored = shutil.ignore_patterns("__pycache__")
        copy = Path(shutil.copytree(PACKAGE, tmp_path / "mtlib", ignore=ignored))
        for folder in ("analysis", "cli", "sweeps", "tutorial", "diversity", "bundled/models"):
            (copy / folder).mkdir(parents=True, exist_ok=True)
            (copy / folder / "made_up.py").write_text("x = 1\n")
        for path in (copy / "objectives.py", copy / "runs" / "training.py"):
            first, _, rest = path.read_text().partition('"""\n')
            path.write_text(
                f'"""Other words."""\n# a comment\n\n\n{rest}\n# the end\n'.replace(" = ", "  =  ")
            )
            assert first.startswith('"""')
        assert code_sha256(copy) == code_sha256()

    def test_where_a_record_was_made_in_words(self):
        same = {"commit": "a" * 40, "code_sha256": code_sha256()}
        assert origin(same) == "commit aaaaaaaaaa, by the code that is here"
        changed = same | {"commit": "a" * 40 + UNCOMMITTED, "code_sha256": OTHER}
        words = "commit aaaaaaaaaa with uncommitted changes, whose code differs from the code that "
        words += "is here ("
        assert origin(changed).startswith(words)
        assert "whose code may differ" in origin({"commit": "a" * 40})
        assert (
            origin({"code_sha256": code_sha256()}) == "an installed mtlib, by the code that is here"
        )


class TestRun:
    def test_a_record_by_other_code_is_no_answer_and_stays(
        self, testbed, model, tmp_path, change_code
    ):
        path, _ = run(config(model), tmp_path / "out")
        before = path.read_bytes()
        environment = json.loads(before)["environment"]
        assert environment["code_sha256"] == code_sha256()
        change_code()
        for options in ({}, {"keep_model": True}):
            with pytest.raises(
                UserError,
                match=r"made at commit \w{10}.* differs from .*--reuse .*nothing was trained",
            ):
                run(config(model), tmp_path / "out", **options)
        assert run(config(model), tmp_path / "out", reuse=True) == (path, True)
        assert path.read_bytes() == before
        elsewhere, was_there = run(config(model), tmp_path / "elsewhere")
        assert not was_there
        assert json.loads(elsewhere.read_text())["environment"]["code_sha256"] == OTHER

    def test_a_shipped_record_answers_to_reuse_alone(self, testbed, model, tmp_path, monkeypatch):
        """One that was made in another precision too, where that was left to the machine."""
        chosen = config(model, precision="auto", epochs=1)
        made, _ = run(chosen, tmp_path / "made")
        (shipped,) = read_records([made])
        shipped["environment"]["commit"] = "a" * 40
        shipped["config"]["precision"] = (
            "float32" if shipped["config"]["precision"] == "bf16" else "bf16"
        )
        shipped["identity"] = record_identity(shipped)
        assert shipped["identity"][:10] not in made.name
        monkeypatch.setattr(records, "shipped_records", lambda: {shipped["identity"]: shipped})
        path, was_there = run(chosen, tmp_path / "trained")
        assert not was_there and path.name == made.name and read_records([path]) != [shipped]
        copied, was_there = run(chosen, tmp_path / "copied", reuse=True)
        assert was_there and read_records([copied]) == [shipped]
        (trained,) = read_records([path])
        in_one = chosen.model_copy(update={"precision": trained["config"]["precision"]})
        path, was_there = run(in_one, tmp_path / "copied", reuse=True)
        assert not was_there and read_records([path])[0]["config"] == trained["config"]
        with pytest.raises(UserError, match="either --reuse or --keep-model"):
            run(chosen, tmp_path / "copied", keep_model=True, reuse=True)

    def test_checkpoints_of_other_code_are_left_alone(
        self, testbed, model, tmp_path, capsys, change_code
    ):
        def fail(*_):
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(runs, "evaluate", fail)  # after training
            run(config(model), tmp_path)
        (begun,) = (tmp_path / ".work").glob("*/")
        files = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
        assert files
        change_code()
        (record,) = read_records([run(config(model), tmp_path)[0]])
        assert record["cost"]["interruptions"] == 0
        assert "checkpoints of other code" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == files


class TestSweep:
    @pytest.fixture
    def sweep(self, testbed, model, tmp_path):
        text = f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nsource: {testbed}\n"
        text += "epochs: 1\nmax_length: 64"
        return ["sweep", write(tmp_path, text), "--out", tmp_path / "out"]

    def test_begins_nothing_where_other_code_has_made_records(self, sweep, tmp_path, change_code):
        assert "1 runs: 0 there, 1 written" in call(*sweep)
        files = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
        assert "1 runs: 1 there, 0 written" in call(*sweep)
        change_code()
        with pytest.raises(
            UserError,
            match=r"of 1 runs 1 have a record in .* that other code made.*nothing was begun",
        ):
            call(*sweep)
        assert call(*sweep, "--dry-run").count("other code") == 1
        output = " ".join(call(*sweep, "--reuse").split())
        assert "1 runs: 1 there, 0 written" in output
        assert "nothing was trained for 1: made at commit" in output
        assert "whose code differs" in output
        assert {
            path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()
        } == files


# --- the project's own records ---


def test_shipped_records_are_of_committed_code():
    """Those of before the rule are listed, with the reason; the list holds no others."""
    made = {
        record["identity"][:10]: record["environment"]["commit"]
        for record in records.shipped_records().values()
    }
    lines = (DATA_DIR / "results" / "uncommitted.txt").read_text().splitlines()
    listed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    uncommitted = sorted(
        identity for identity, commit in made.items() if not re.fullmatch("[0-9a-f]{40}", commit)
    )
    assert uncommitted == sorted(listed), "make these runs again from a commit without changes"


def test_a_bundle_says_what_was_made_with_uncommitted_changes(tmp_path):
    """Trained or scored: of these records one is of a commit as it stands."""
    committed = {"environment": {"commit": "a" * 40}}
    changed = {"environment": {"commit": "a" * 40 + UNCOMMITTED}}
    scored_later = committed | {"scored_later": {"sst2": changed}}
    for name, made in (("a", committed), ("b", changed), ("c", scored_later)):
        record = {
            "schema_version": 2,
            "identity": name * 64,
            "config": {"method": "m"},
            "metrics": {},
            "data": {},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(record | made))
    output = " ".join(call("bundle", tmp_path, "--to", tmp_path / "all.jsonl.gz").split())
    assert "3 records" in output and "2 of them" in output and "uncommitted changes" in output
