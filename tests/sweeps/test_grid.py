"""Sweep files, what they mean and what they cost; claims and stores. Engines are tested elsewhere."""

import errno
import json
import os
import subprocess
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from mtlib import cli
from mtlib.data.registry import SETS
from mtlib.errors import UserError
from mtlib.runs import locks as claims
from mtlib.runs import run as runs
from mtlib.runs.config import METHODS, RunConfig
from mtlib.runs.locks import Busy, claim, holder
from mtlib.sweeps import engines, store
from mtlib.sweeps import progress as sweep_report
from mtlib.sweeps.engines import Outcome
from mtlib.sweeps.grid import Planned, columns, expand, options, plan, seconds
from mtlib.sweeps.store import Store
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_cli import call

SWEEPS = Path(__file__).resolve().parents[2] / "data" / "sweeps"


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


class TestExpand:
    def test_product(self, tmp_path):
        configs = expand(write(tmp_path, "tasks: [sentiment, nli]\nmethods: mask_tuning\nseeds: [0, 3]\nepochs: 1"))
        assert [(one.task, one.seed) for one in configs] == [("sentiment", 0), ("sentiment", 3), ("nli", 0), ("nli", 3)]
        assert {one.epochs for one in configs} == {1.0} and type(configs[0].epochs) is float

    def test_what_a_method_does_not_read_is_no_run_of_its_own(self, tmp_path):
        text = "tasks: sentiment\nmethods: [fine_tuning, mask_tuning, no_integrated_loss]\nalpha: [null, 0.6, 0.3]\n"
        configs = expand(write(tmp_path, text + "update: [joint, alternating]\nmask_rate: [0.05, 0.1]"))
        count = {method: sum(one.method == method for one in configs) for method in METHODS}
        # null is the paper's 0.6
        assert (count["fine_tuning"], count["mask_tuning"], count["no_integrated_loss"]) == (1, 2 * 2 * 2, 2)

    def test_values_that_are_lists_or_look_like_text(self, tmp_path):
        text = (
            "tasks: sentiment\nmethods: fine_tuning\nsource: hub\nsets: [sst2, imdb_cad]\nlearning_rate: [5e-5, 1.0e-4]"
        )
        configs = expand(write(tmp_path, text + "\nsplits: {imdb_cad: test}\nseeds: 2"))
        assert {one.learning_rate for one in configs} == {5e-5, 1e-4} and {one.seed for one in configs} == {0, 1}
        assert {one.sets for one in configs} == {("sst2", "imdb_cad")}
        several = expand(
            write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nsource: hub\nsets: [[sst2], [imdb_cad]]")
        )
        assert [one.sets for one in several] == [("sst2",), ("imdb_cad",)]

    def test_profile(self, tmp_path):
        configs = expand(write(tmp_path, "profile: smoke\ntasks: nli\nmethods: [mask_tuning, fine_tuning]\nseeds: 2"))
        assert {one.train_size for one in configs} == {32} and {one.seed for one in configs} == {0, 1}
        assert {one.alpha for one in configs if one.method == "mask_tuning"} == {None, 0.0}

    def test_learning_rates_of_a_profile(self, tmp_path):
        text = "profile: cpu\ntasks: sentiment\nmethods: [fine_tuning, sequential, mask_tuning]\nseeds: 1\nalpha: 0.1\n"
        configs = expand(write(tmp_path, text + "update: [joint, alternating]"))
        rates = {(one.method, one.update): one.learning_rate for one in configs}
        assert rates == {
            ("fine_tuning", "joint"): 2e-4, ("sequential", "joint"): 5e-4,
            ("mask_tuning", "joint"): 5e-4, ("mask_tuning", "alternating"): 2e-4,
        }  # fmt: skip
        assert {one.learning_rate for one in expand(write(tmp_path, text + "learning_rate: 1e-3"))} == {1e-3}
        # they were chosen for the profile's model
        assert {one.learning_rate for one in expand(write(tmp_path, text + "models: other"))} == {None}

    def test_names_mean_the_same_beside_folders_of_that_name(self, tmp_path, monkeypatch):
        for name in ("mini", "testbed"):
            (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path)
        (one,) = expand(write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nmodels: mini\nsource: testbed"))
        assert (one.model, one.source) == ("mini", "testbed")

    def test_files_of_this_repository(self):
        assert len(expand(SWEEPS / "testbed.yaml")) == 3 * 2 * 3
        # 10 values of alpha for Mask-tuning, of which the paper's is one; one of every other method
        found = expand(SWEEPS / "paper.yaml")
        assert len(found) == 3 * 3 * 5 * (10 + 4)
        remote = {name for name, data_set in SETS.items() if data_set.remote is not None}
        assert all(set(one.evaluation_sets) <= remote for one in found if one.source == "hub")

    def test_paths_become_absolute(self, tmp_path, monkeypatch):
        (tmp_path / "data").mkdir()
        monkeypatch.chdir(tmp_path)
        (one,) = expand(write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nsource: data"))
        assert one.source == str(tmp_path / "data")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("task: nli", r"unknown key 'task'; did you mean 'tasks'\? Known are profile, tasks, "),
            ("zzz: 1", "unknown key 'zzz'; expected profile, tasks, "),
            ("tasks: nli", "methods is missing; expected a list, for example `methods: "),
            ("tasks: nli\nmethods: masktuning", "methods: method is 'masktuning'; expected one of fine_tuning"),
            ("tasks: [nli, nil]\nmethods: fine_tuning", "tasks: unknown task 'nil'; expected one of sentiment"),
            ("tasks: nli\nmethods: fine_tuning\nalpha: [0.1, 2]", "alpha: alpha is 2.0; expected a number from 0 to 1"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: three", "epochs is 'three'; expected a number, or a list"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: .inf", "epochs is inf; expected a number"),
            ("tasks: nli\nmethods: fine_tuning\nepochs: 0", "epochs: epochs is 0.0; expected a number above 0"),
            ("tasks: nli\nmethods: fine_tuning\nbatch_size: 1.5", "batch_size is 1.5; expected a whole number or null"),
            ("tasks: nli\nmethods: fine_tuning\nmask_rate: null", "mask_rate is None; expected a number, or"),
            ("tasks: nli\nmethods: fine_tuning\nshared: 1", "shared is 1; expected true or false"),
            ("tasks: nli\nmethods: fine_tuning\nsets: sst2", "sets is 'sst2'; expected a list of names"),
            (
                "tasks: nli\nmethods: fine_tuning\nsets: [sst2]",
                "sets: 'sst2' is no evaluation set of nli from 'testbed'",
            ),
            ("tasks: nli\nmethods: fine_tuning\nsplits: {hans: 1}", "splits is .*; expected NAME: VALUE pairs"),
            ("tasks: nli\nmethods: fine_tuning\nseeds: 0", "seeds is 0; expected a number of seeds"),
            ("tasks: nli\nmethods: fine_tuning\nseeds: [-1]", "seeds: seed is -1; expected 0 or more"),
            ("tasks: []\nmethods: fine_tuning", "tasks is an empty list"),
            ("tasks: nli\ntasks: sentiment\nmethods: fine_tuning", "'tasks' is there twice"),
            ("profile: big\ntasks: nli\nmethods: fine_tuning", "profile: unknown profile 'big'; expected one of smoke"),
            ("- nli", "expected `key: value` lines, found list"),
            ("tasks: [", "is not YAML"),
        ],
    )
    def test_bad_input(self, tmp_path, text, message):
        with pytest.raises(UserError, match=rf"^{tmp_path}/sweep\.yaml.*{message}"):
            expand(write(tmp_path, text))

    def test_no_such_file(self, tmp_path):
        with pytest.raises(UserError, match=r"none\.yaml: No such file or directory; expected a sweep file"):
            expand(tmp_path / "none.yaml")


def test_a_resolved_configuration_resolves_to_itself():
    for method in METHODS:
        resolved = RunConfig(task="nli", method=method).resolved()
        assert resolved.resolved() == resolved


def test_options_give_the_configuration_back(monkeypatch):
    seen = []
    monkeypatch.setattr(runs, "run", lambda config, *_, **__: seen.append(config) or 1 / 0)
    for one in (
        RunConfig("sentiment", "fine_tuning"),
        RunConfig("nli", "mask_tuning", model="x/y", seed=3, alpha=0.0, fill="top_k", shared=False, epochs=2.5),
        RunConfig("sentiment", "mask_tuning", source="hub", sets=("sst2", "imdb_cad"), splits={"imdb_cad": "test"},
                  update="alternating", learning_rate=5e-5, precision="float32", gradient_diagnostics_steps=2),
    ):  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            call("run", *options(one))
        assert seen[-1] == one


def test_planned_names_are_those_of_the_records(testbed, model, tmp_path):  # noqa: F811
    """For a run with a subset of the data, so that the description of the subset counts in both."""
    one = config(model, epochs=1, train_size=32)
    ((planned,), trouble) = plan([one])
    assert trouble is None and (planned.examples, planned.tests) == (32, 20 + 16 + 16)
    path, _ = runs.run(one, tmp_path / "out")
    assert path.name == planned.file and runs.record_path(one, tmp_path / "out") == path


def test_costs_come_from_records_of_the_same_task_method_and_model(tmp_path):
    def record(task="nli", method="fine_tuning", name="mini", train_seconds=60.0):
        return {"config": {"task": task, "method": method, "model": name, "epochs": 2},
                "data": {"train": {"rows": 500, "used_rows": 100}, "a": {"rows": 10}, "b": {"rows": 30}},
                "cost": {"train_seconds": train_seconds, "evaluation_seconds": 4.0}}  # fmt: skip

    run = Planned(RunConfig("nli", "fine_tuning", epochs=3), "x.json", examples=50, tests=20)
    assert seconds(run, [record()]) == pytest.approx(60 / 200 * 50 * 3 + 4 / 40 * 20)
    assert seconds(run, [record(), record(train_seconds=6e3), record(train_seconds=120.0)]) == pytest.approx(92)
    others = [record("sentiment"), record(method="mask_tuning"), record(name="bert")]
    assert seconds(run, others) is None and seconds(run, []) is None


def test_columns_of_a_list_of_runs():
    configs = [RunConfig("nli", "mask_tuning"), RunConfig("sentiment", "mask_tuning", alpha=0.2)]
    assert columns(configs) == {"task": ["nli", "sentiment"], "method": ["mask_tuning"] * 2, "model": ["mini"] * 2,
                                "seed": [0, 0], "alpha": [0.7, 0.2]}  # fmt: skip


# ------------------------------------------------------------------------------------------------------ command line


def test_dry_run(testbed, model, tmp_path):  # noqa: F811
    file = write(tmp_path, f"tasks: sentiment\nmethods: [fine_tuning, mask_tuning]\nmodels: [{model}, mini]\n"
                 "max_length: 64\nepochs: 1\ntrain_size: 32")  # fmt: skip
    runs.run(config(model, method="fine_tuning", epochs=1.0, train_size=32, learning_rate=None), tmp_path / "out")
    lines = call("sweep", file, "--out", tmp_path / "out", "--dry-run").splitlines()
    rows = [line for line in lines if "sentiment" in line or "tuning" in line]
    assert sum("there" in row for row in rows) == 1 and sum("to do" in row for row in rows) == 3
    assert sum("unknown" in row for row in rows) == 1  # mask_tuning with the tiny model: no record anywhere
    assert any("and 1 of unknown cost" in line for line in lines) and any("in data/results" in line for line in lines)
    assert len(list((tmp_path / "out").glob("*.json"))) == 1


def test_dry_run_without_the_data(tmp_path):
    file = write(tmp_path, f"tasks: sentiment\nmethods: fine_tuning\nsource: {tmp_path}")
    output = call("sweep", file, "--dry-run", "--out", tmp_path / "out")
    assert "cannot tell whether it is there" in output and "not found in" in output
    with pytest.raises(UserError, match=r"sweep\.yaml: .*not found in"):
        call("sweep", file, "--out", tmp_path / "out")


class FakeEngine:
    """Ends every run at once; the one with seed 1 fails, the one with seed 2 is busy at first."""

    def __init__(self, place: Store, *_):
        self.place, self.hand, self.seen = place, [], []

    def has_room(self):
        return not self.hand

    def start(self, run):
        self.hand.append(run)

    def active(self):
        return [(run, 0.0) for run in self.hand]

    def finished(self):
        outcomes = []
        while self.hand:
            run = self.hand.pop()
            first, seed = run.file not in self.seen, run.config.seed
            self.seen.append(run.file)
            status = "failed" if seed == 1 else "busy" if seed == 2 and first else "written"
            if status == "written":
                (self.place.folder / run.file).write_text("{}")
            outcomes.append(Outcome(run, status, "it broke" if status == "failed" else "", 1.0))
        return outcomes

    def close(self):
        pass


def test_summary_and_exit_code(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "LocalEngine", FakeEngine)
    monkeypatch.setattr(engines, "_BUSY", 0.1)
    file = write(tmp_path, f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nmax_length: 64\nseeds: 3")
    result = CliRunner().invoke(cli.app, ["sweep", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1, result.output
    assert "3 runs: 0 were there, 2 written, 1 failed" in result.output and "it broke" in result.output
    assert "by itself: python -m mtlib run --task sentiment --method fine_tuning" in result.output
    result = CliRunner().invoke(cli.app, ["sweep", str(file), "--out", str(tmp_path / "out")])
    assert "3 runs: 2 were there, 0 written, 1 failed" in result.output and result.exit_code == 1


def test_live_table_in_a_terminal(model):  # noqa: F811
    console = sweep_report.Console(force_terminal=True, width=80, record=True)
    run = Planned(config(model), "a.json")
    with sweep_report.Progress(console, 3) as progress:
        progress([], [(run, 5.0)] * 9, 2)
        assert "and 1 more" in "".join(s.text for s in console.render(progress._live.renderable))
        progress([Outcome(run, "written", seconds=200.0)], [], 0)
    assert "[1 of 3] written a  3 min" in console.export_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--engine ray --processes 2", "--processes is 2, but --engine ray does not read it"),
        ("--gpus-per-run 1", r"--gpus-per-run is 1\.0, but --engine local does not read it"),
        ("--engine ray --gpus-per-run 2", "expected 0 to 1, .*accelerate launch"),
        ("--processes 0", "--processes is 0; expected a number above 0"),
        ("--retries -1", "--retries is -1; expected 0 or more"),
        ("--engine ray", "precision is 'auto'"),
        ("--out nosuch://a/b", "cannot write to nosuch://a/b"),
    ],
)
def test_bad_options(testbed, tmp_path, arguments, message):  # noqa: F811
    file = write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nmax_length: 64")
    with pytest.raises(UserError, match=message):
        call("sweep", file, *(["--out", tmp_path] if "--out" not in arguments else []), *arguments.split())


# --------------------------------------------------------------------------------------------------- claims and stores


def test_one_holder_at_a_time(tmp_path):
    lock = tmp_path / ".work" / "a.lock"
    assert holder(lock) is None
    with claim(lock):
        assert f"process {os.getpid()}" in holder(lock)
        with pytest.raises(Busy, match=rf"a is being run by .*process {os.getpid()}"), claim(lock):
            pass
        with claim(lock.with_name("b.lock")):
            pass
    assert not lock.parent.exists()


def test_what_a_killed_process_leaves_is_taken_over(tmp_path):
    (tmp_path / ".work").mkdir()
    lock = tmp_path / ".work" / "a.lock"
    lock.write_text("elsewhere, process 1\n")
    assert holder(lock) is None
    with claim(lock):
        assert holder(lock).endswith(f"process {os.getpid()}")


def test_file_system_without_locks(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(claims.fcntl, "flock", refuse)
    with claim(tmp_path / ".work" / "a.lock"):
        assert holder(tmp_path / ".work" / "a.lock") is None
    assert "see to it that each run is started once" in capsys.readouterr().err


def test_a_run_that_another_process_is_at(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    one = config(model, epochs=1.0)
    lock = runs.lock_path(runs.record_path(one, tmp_path))
    monkeypatch.setattr(cli.sys, "argv", ["mtlib", "run", *options(one), "--out", str(tmp_path)])
    with claim(lock), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Busy.EXIT_CODE and not list(tmp_path.glob("*.json"))


def test_full_disk_leaves_nothing_half_written(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"cannot write to .*No space left .*make room"):
        patch.setattr(runs.os, "fsync", full)
        runs.run(config(model, epochs=1), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".work"]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".part", ".lock")]
    assert not runs.run(config(model, epochs=1), tmp_path / "out")[1]


def test_truly_full_disk(testbed, model, tmp_path):  # noqa: F811
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        with pytest.raises(UserError, match=r"cannot write to .*No space left"):
            runs.run(config(model, epochs=20), small)  # checkpoints do not fit
        assert not list(small.glob("*.json"))
    finally:
        subprocess.run(["umount", small], check=True)


class TestAddress:
    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
        yield Store("memory://sweep/records")
        fsspec.filesystem("memory").rm("/sweep", recursive=True) if fsspec.filesystem("memory").exists(
            "/sweep"
        ) else None

    def test_put_and_read(self, place):
        place.check_writable()
        record = place.folder / "a.json"
        record.write_text(json.dumps({"metrics": {}}))
        assert not place.has("a.json")
        place.put(record)
        assert place.has("a.json") and not record.exists() and place.records() == [{"metrics": {}}]
        assert [Path(path).name for path in fsspec.filesystem("memory").ls("/sweep/records", detail=False)] == [
            "a.json"
        ]

    def test_what_cannot_be_put_is_kept(self, place, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError("403 forbidden")

        monkeypatch.setattr(type(place._system), "pipe_file", refuse)
        with pytest.raises(UserError, match="cannot write to memory://sweep/records: 403 forbidden"):
            place.check_writable()
        record = place.folder / "a.json"
        record.write_text("{}")
        with pytest.raises(UserError, match="403"):
            place.put(record)
        assert record.exists() and not place.has("a.json")

    def test_a_file_address_is_a_folder(self, tmp_path):
        place = Store(f"file://{tmp_path}/out")
        assert place.folder == tmp_path / "out" and place.address == str(tmp_path / "out")
