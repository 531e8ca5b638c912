"""`mtlib sweep`: its options, the list of a dry run, progress, summary and exit code. Engines are tested elsewhere."""

import json
import re
from concurrent.futures import Future
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtlib import cli
from mtlib.errors import UserError
from mtlib.runs import run as runs
from mtlib.runs.config import configure
from mtlib.sweeps import engines, progress
from mtlib.sweeps.grid import GridRun
from mtlib.sweeps.store import Store
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
    assert any("and 1 of unknown cost" in line for line in lines)
    assert list((tmp_path / "out").glob("*.json")) == [record]

    record.write_text(json.dumps(json.loads(record.read_text()) | {"diverged": True, "metrics": {}}))
    output = call(*command)
    assert output.count("diverged") == 1 and output.count("to do  ") == 3


def test_dry_run_without_the_data(tmp_path):
    file = write(tmp_path, f"tasks: sentiment\nmethods: fine_tuning\nsource: {tmp_path}")
    output = call("sweep", file, "--dry-run", "--out", tmp_path / "out")
    assert "cannot tell whether it is there" in output and "not found in" in output
    with pytest.raises(UserError, match="not found in"):
        call("sweep", file, "--out", tmp_path / "out")


def test_dry_run_says_what_comes_with_the_project(tmp_path):
    """The records that are shipped are those of `data/sweeps/testbed_probe.yaml`; another seed is none of them."""
    text = "tasks: sentiment\nmethods: fine_tuning\nlearning_rate: 1e-4\nprecision: bf16\nseeds: 2"
    output = call("sweep", write(tmp_path, text), "--dry-run", "--out", tmp_path / "out")
    assert output.count("with mtlib") == 1 and output.count("to do  ") == 1


def test_costs_are_those_of_a_device_of_this_kind(monkeypatch, tmp_path):
    """A GPU's seconds would tell the owner of a processor that the sweep takes a few minutes."""
    devices = {"NVIDIA H100 80GB HBM3": True, "Intel(R) Xeon(R) Processor": False, "AMD Instinct MI300X": True}
    shipped = {device: {"environment": {"device": device}} for device in devices}
    monkeypatch.setattr(progress, "shipped_records", lambda: shipped)
    asked = []
    monkeypatch.setattr(progress, "columns", lambda _: {})  # which asks for the precision of the device
    monkeypatch.setattr(progress, "expected_seconds", lambda _, records: asked.append(records))
    console, run = progress.Console(quiet=True), GridRun(config("x"), "a.json")
    for gpu in (False, True):
        monkeypatch.setattr(progress.torch.cuda, "is_available", lambda gpu=gpu: gpu)
        progress.dry_run(console, [run], None, Store(str(tmp_path)))
        assert asked.pop() == [shipped[device] for device, is_gpu in devices.items() if is_gpu == gpu]


def test_one_run_that_cannot_be_read_leaves_the_others_known(tmp_path):
    text = (
        "tasks: sentiment\nsource: testbed\ngrids:\n- {methods: ipt, treebank: no_treebank}\n- {methods: fine_tuning}"
    )
    output = call("sweep", write(tmp_path, text), "--dry-run", "--out", tmp_path / "out")
    assert "has no file *train*.conllu" in output and output.count("?  ") == 1 and output.count("with mtlib") == 1
    with pytest.raises(UserError, match=r"has no file \*train\*\.conllu"):
        call("sweep", tmp_path / "sweep.yaml", "--out", tmp_path / "out")


class FakeEngine:
    """Ends every run at once. Seed 1 fails, seed 2 is busy at first, seed 3 diverges, seed 4 is left."""

    environment = {"OMP_NUM_THREADS": "3"}

    def __init__(self, store, *_):
        self.store, self.tried, self.closed = store, set(), False

    def submit(self, run):
        future, seed, is_first = Future(), run.config.seed, run.file not in self.tried
        self.tried.add(run.file)
        if seed == 1:
            future.set_exception(KeyError("it broke"))
        elif seed == 2 and is_first:
            future.set_result("busy")
        elif seed == 4:
            future.set_result("left")
        else:
            (self.store.folder / run.file).write_text(json.dumps({"diverged": seed == 3}))
            future.set_result("diverged" if seed == 3 else "written")
        return future

    def close(self):
        self.closed = True


def test_summary_and_exit_code(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "LocalEngine", FakeEngine)
    monkeypatch.setattr(engines, "_BUSY", 0.1)

    def sweep(seeds):
        text = f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nmax_length: 64\nseeds: {seeds}"
        return CliRunner().invoke(cli.app, ["sweep", str(write(tmp_path, text)), "--out", str(tmp_path / "out")])

    result = sweep(4)
    assert result.exit_code == 1, result.output
    assert "4 runs: 0 there, 2 written, 1 diverged, 1 failed" in result.output and "KeyError: 'it bro" in result.output
    assert "by itself: OMP_NUM_THREADS=3 python -m mtlib run --task sentiment --method fine_tuning" in result.output
    (log,) = re.findall("log: (.*)", result.output)
    assert "Traceback" in Path(log).read_text() or "KeyError" in Path(log).read_text()
    result = sweep(4)
    assert result.exit_code == 1 and "4 runs: 2 there, 0 written, 1 diverged, 1 failed" in result.output
    result = sweep([0, 3])  # a run that diverged is done
    assert result.exit_code == 0 and "2 runs: 1 there, 0 written, 1 diverged, 0 failed" in result.output
    assert "try a lower learning rate" in result.output
    result = sweep([0, 4])
    assert result.exit_code == 75 and "1 left: time was up" in result.output


def test_columns_are_what_tells_runs_apart():
    configs = [
        configure(task="nli", method="mask_tuning"),
        configure(task="sentiment", method="mask_tuning", alpha=0.2),
    ]
    assert progress.columns(configs) == {"task": ["nli", "sentiment"], "method": ["mask_tuning"] * 2,
                                         "model": ["mini"] * 2, "seed": [0, 0], "alpha": [0.7, 0.2]}  # fmt: skip


def test_a_cluster_is_told_the_precision(testbed, tmp_path):  # noqa: F811
    file = write(tmp_path, "tasks: sentiment\nmethods: fine_tuning\nmax_length: 64")
    with pytest.raises(UserError, match="precision is 'auto', which each machine of a cluster may take for something"):
        call("sweep", file, "--out", tmp_path, "--engine", "ray")
