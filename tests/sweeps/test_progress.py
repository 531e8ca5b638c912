"""`mtlib sweep`: its options, the list of a dry run, progress, summary and exit code. Engines are tested elsewhere."""

import json

import pytest
from typer.testing import CliRunner

from mtlib import cli
from mtlib.errors import UserError
from mtlib.runs import run as runs
from mtlib.sweeps import engines, progress
from mtlib.sweeps.engines import Engine, Outcome
from mtlib.sweeps.grid import GridRun
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.sweeps.test_sweep_file import write
from tests.test_cli import call


def test_dry_run(testbed, model, tmp_path):  # noqa: F811
    file = write(tmp_path, f"tasks: sentiment\nmethods: [fine_tuning, mask_tuning]\nmodels: [{model}, mini]\n"
                 "max_length: 64\nepochs: 1\ntrain_size: 32")  # fmt: skip
    trained = config(model, method="fine_tuning", epochs=1.0, train_size=32, learning_rate=None)
    record, _ = runs.run(trained, tmp_path / "out")
    command = ["sweep", file, "--out", tmp_path / "out", "--dry-run"]
    lines = call(*command).splitlines()
    rows = [line for line in lines if "sentiment" in line or "tuning" in line]
    assert sum("there" in row for row in rows) == 1 and sum("to do" in row for row in rows) == 3
    assert sum("unknown" in row for row in rows) == 1  # mask_tuning with the tiny model: no record anywhere
    assert any("and 1 of unknown cost" in line for line in lines) and any("in data/results" in line for line in lines)
    assert list((tmp_path / "out").glob("*.json")) == [record]

    record.write_text(json.dumps(json.loads(record.read_text()) | {"diverged": True, "metrics": {}}))
    output = call(*command)
    assert output.count("diverged") == 1 and output.count("to do  ") == 3


def test_dry_run_without_the_data(tmp_path):
    file = write(tmp_path, f"tasks: sentiment\nmethods: fine_tuning\nsource: {tmp_path}")
    output = call("sweep", file, "--dry-run", "--out", tmp_path / "out")
    assert "cannot tell whether it is there" in output and "not found in" in output
    with pytest.raises(UserError, match=r"sweep\.yaml: .*not found in"):
        call("sweep", file, "--out", tmp_path / "out")


def test_dry_run_says_what_comes_with_the_project(tmp_path):
    """The records that are shipped are those of `data/sweeps/testbed_probe.yaml`; another seed is none of them."""
    text = "tasks: sentiment\nmethods: fine_tuning\nlearning_rate: 1e-4\nprecision: bf16\nseeds: 2"
    output = call("sweep", write(tmp_path, text), "--dry-run", "--out", tmp_path / "out")
    assert output.count("with mtlib") == 1 and output.count("to do  ") == 1


def test_costs_are_first_looked_for_on_a_device_of_this_kind(monkeypatch):
    """A GPU's seconds would tell the owner of a processor that the sweep takes a few minutes."""
    devices = ("NVIDIA H100 80GB HBM3", "Intel(R) Xeon(R) Processor", "AMD EPYC", "AMD Instinct MI300X")
    shipped = {device: {"environment": {"device": device}} for device in devices}
    monkeypatch.setattr(progress, "shipped_records", lambda: shipped)
    for gpu in (False, True):
        monkeypatch.setattr(progress.torch.cuda, "is_available", lambda gpu=gpu: gpu)
        found = [
            [record["environment"]["device"] for record in group] for group in progress._shipped_by_device().values()
        ]
        of_gpus, of_processors = [devices[0], devices[3]], [devices[1], devices[2]]
        assert found == ([of_gpus, of_processors] if gpu else [of_processors, of_gpus])


def test_only_some_runs(tmp_path):
    """They keep the numbers that they have in the whole list, and no other is done."""
    text = "tasks: sentiment\nmethods: fine_tuning\nlearning_rate: 1e-4\nprecision: bf16\nseeds: 4"
    command = ["sweep", write(tmp_path, text), "--out", tmp_path / "out", "--only", "3, 1"]
    rows = [line.split() for line in call(*command, "--dry-run").splitlines() if "sentiment" in line]
    assert [(row[1], row[9]) for row in rows] == [("3", "2"), ("1", "0")]
    command[-1] = "1"
    assert "1 runs: 0 were there, 1 written" in call(*command)  # its record comes with mtlib: nothing is trained
    assert len(list((tmp_path / "out").glob("*.json"))) == 1


def test_one_run_that_cannot_be_read_leaves_the_others_known(tmp_path):
    text = (
        "tasks: sentiment\nsource: testbed\ngrids:\n- {methods: ipt, treebank: no_treebank}\n- {methods: fine_tuning}"
    )
    output = call("sweep", write(tmp_path, text), "--dry-run", "--out", tmp_path / "out")
    assert "has no file *train*.conllu" in output and output.count("?  ") == 1 and output.count("with mtlib") == 1
    with pytest.raises(UserError, match=r"sweep\.yaml: .*has no file \*train\*\.conllu"):
        call("sweep", tmp_path / "sweep.yaml", "--out", tmp_path / "out")


class FakeEngine(Engine):
    """Ends every run at once. Seed 1 fails, seed 2 is busy at first, seed 3 diverges."""

    def __init__(self, store, *_):
        super().__init__(store)
        self.seen = set()

    def has_room(self):
        return not self._tasks

    def close(self):
        pass

    def _submit(self, run):
        return run.file

    def _ended(self):
        return list(self._tasks)

    def _answer(self, file, run):
        seed, is_first = run.config.seed, file not in self.seen
        self.seen.add(file)
        if seed == 1:
            return {"status": "failed", "detail": "it broke", "environment": {"OMP_NUM_THREADS": "3"}}
        if seed == 2 and is_first:
            return {"status": "busy"}
        (self.store.folder / file).write_text(json.dumps({"diverged": seed == 3}))
        return {"status": "diverged" if seed == 3 else "written"}


def test_summary_and_exit_code(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "LocalEngine", FakeEngine)
    monkeypatch.setattr(engines, "_BUSY", 0.1)

    def sweep(seeds):
        text = f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nmax_length: 64\nseeds: {seeds}"
        return CliRunner().invoke(cli.app, ["sweep", str(write(tmp_path, text)), "--out", str(tmp_path / "out")])

    result = sweep(4)
    assert result.exit_code == 1, result.output
    assert "4 runs: 0 were there, 2 written, 1 diverged, 1 failed" in result.output and "it broke" in result.output
    assert "by itself: OMP_NUM_THREADS=3 python -m mtlib run --task sentiment --method fine_tuning" in result.output
    result = sweep(4)
    assert result.exit_code == 1 and "4 runs: 2 were there, 0 written, 1 diverged, 1 failed" in result.output
    result = sweep([0, 3])  # a run that diverged is done
    assert result.exit_code == 0 and "2 runs: 1 were there, 0 written, 1 diverged, 0 failed" in result.output
    assert "diverged: sentiment-fine-tuning" in result.output.replace("_", "-")


def test_live_table_in_a_terminal(model):  # noqa: F811
    console = progress.Console(force_terminal=True, width=80, record=True)
    run = GridRun(config(model), "a.json")
    with progress.Progress(console, 3) as report:
        report([], [(run, 5.0)] * 9, 2)
        assert "and 1 more" in "".join(segment.text for segment in console.render(report._live.renderable))
        report([Outcome(run, "written", seconds=200.0)], [], 0)
    assert "[1 of 3] written  a  3 min" in console.export_text()


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
