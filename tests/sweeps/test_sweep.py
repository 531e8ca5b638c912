"""`mtlib sweep`: the list of a dry run, progress, summary and exit code, without engines."""

import json
import re
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from mtlib import cli
from mtlib.errors import UserError
from mtlib.runs import records
from mtlib.runs.code import code_sha256
from mtlib.runs.config import configure
from mtlib.runs.inputs import read_inputs
from mtlib.runs.run import run
from mtlib.sweeps import executors
from mtlib.sweeps.sweep_file import identify
from tests.conftest import call, config
from tests.sweeps.test_sweep_file import write


def test_a_dry_run_says_what_is_there(testbed, model, tmp_path):
    methods = "methods: [fine_tuning, mask_tuning]\nmax_length: 64\nepochs: 1\ntrain_size: 32"
    file = write(tmp_path, f"tasks: sentiment\nmodels: [{model}, mini]\n{methods}")
    trained = config(model, method="fine_tuning", epochs=1.0, train_size=32, learning_rate=None)
    record, _ = run(trained, tmp_path / "out")
    command = ["sweep", file, "--out", tmp_path / "out", "--dry-run"]
    output = call(*command)
    assert "4 runs" in output and output.count("there") == 1 and output.count("to do") == 3
    assert output.count("tiny-bert") == 2 and "learning_rate" in output
    assert "epochs" not in output, "all have the same"
    diverged = json.loads(record.read_text()) | {"diverged": True, "metrics": {}}
    record.write_text(json.dumps(diverged))
    assert call(*command).count("diverged") == 1


def test_a_dry_run_says_what_is_shipped(tmp_path):
    """Of this sweep one seed has a shipped record, made by `data/sweeps/testbed_probe.yaml`."""
    text = "tasks: sentiment\nmethods: fine_tuning\nlearning_rate: 1e-4\nprecision: bf16\nseeds: 2"
    command = ["sweep", write(tmp_path, text), "--dry-run", "--out", tmp_path / "out"]
    output = call(*command)
    assert "1 of those to do have a shipped record, which --reuse takes" in output
    output = call(*command, "--reuse")
    assert output.count("shipped") == 1 and output.count("to do") == 1
    # minutes, estimated from the records of its method and model
    (minutes,) = re.findall(r"to do\W+(\d+\.\d)\W*$", output, flags=re.MULTILINE)
    assert 1 <= float(minutes) <= 10 and f"\n{minutes} minutes one after the other" in output


def test_minutes_are_estimated_by_records_of_this_kind_of_device(tmp_path, monkeypatch):
    other = "a processor" if torch.cuda.is_available() else "NVIDIA H200"
    elsewhere = {"environment": {"device": other}}
    made = {name: record | elsewhere for name, record in records.shipped_records().items()}
    monkeypatch.setattr(records, "shipped_records", lambda: made)
    file = write(tmp_path, "tasks: sentiment\nmethods: fine_tuning")
    output = call("sweep", file, "--dry-run", "--out", tmp_path / "out")
    assert re.search(r"to do\W+\?", output)


def test_a_runs_file_is_its_record(testbed, model, tmp_path):
    """For a run with a subset of the data, so that the description of the subset counts in both."""
    subset = config(model, epochs=1, train_size=32)
    (planned,) = identify([subset])
    path, _ = run(subset, tmp_path / "out")
    assert path.name == planned.file
    assert read_inputs(subset).record_path(tmp_path / "out") == path
    as_a_worker_gets_it = json.loads(json.dumps(subset.values()))
    assert identify([configure(**as_a_worker_gets_it)]) == [planned]


class FakeExecutor:
    """Ends every run at once.

    Seed 1 fails, seed 2 is busy at first, seed 3 diverges, seed 4 is left.
    """

    def __init__(self, store, *_):
        self.store = store
        self.tried = set()

    def submit(self, run):
        future = Future()
        seed = run.config.seed
        is_first = run.file not in self.tried
        self.tried.add(run.file)
        if seed == 1:
            future.set_exception(KeyError("it broke"))
        elif seed == 2 and is_first:
            future.set_result("busy")
        elif seed == 4:
            future.set_result("left")
        else:
            made_by = {"code_sha256": code_sha256()}
            record = {"diverged": seed == 3, "environment": made_by}
            (self.store.folder / run.file).write_text(json.dumps(record))
            future.set_result("diverged" if seed == 3 else "written")
        return future

    def close(self):
        pass


def test_summary_and_exit_code(testbed, model, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "LocalExecutor", FakeExecutor)
    monkeypatch.setattr(executors, "_BUSY", 0.1)

    def sweep(seeds):
        settings = f"tasks: sentiment\nmethods: fine_tuning\nmodels: {model}\nmax_length: 64"
        file = write(tmp_path, f"{settings}\nseeds: {seeds}")
        command = ["sweep", str(file), "--out", str(tmp_path / "out")]
        return CliRunner().invoke(cli.app, command)

    result = sweep(4)
    assert result.exit_code == 1, result.output
    assert "4 runs: 0 there, 2 written, 1 diverged, 1 failed" in result.output
    assert "KeyError: 'it bro" in result.output
    (log,) = (line.strip() for line in result.output.splitlines() if line.startswith("  log: "))
    assert "KeyError" in Path(log.removeprefix("log: ")).read_text()
    result = sweep(4)
    assert result.exit_code == 1
    assert "4 runs: 2 there, 0 written, 1 diverged, 1 failed" in result.output
    result = sweep([0, 3])  # a run that diverged is done
    assert result.exit_code == 0
    assert "2 runs: 1 there, 0 written, 1 diverged, 0 failed" in result.output
    assert "try a lower learning rate" in result.output
    result = sweep([0, 4])
    assert result.exit_code == 75 and "1 left: time was up" in result.output


@pytest.mark.parametrize(("engine", "option"), [("ray", "--minutes"), ("local", "--cpus-per-run")])
def test_an_option_of_the_other_engine_is_refused(tmp_path, engine, option):
    file = write(tmp_path, "tasks: sentiment\nmethods: fine_tuning")
    with pytest.raises(UserError, match=rf"{option} is for --engine \w+, not {engine}"):
        call("sweep", file, "--dry-run", "--engine", engine, option, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "precision is 'auto', which each machine of a cluster may take for something"),
        ("source: /no/such", "source '/no/such' is no folder"),
    ],
)
def test_what_is_told_before_a_cluster_is_asked(testbed, tmp_path, text, message):
    file = write(tmp_path, f"tasks: sentiment\nmethods: fine_tuning\nmax_length: 64\n{text}")
    with pytest.raises(UserError, match=message):
        call("sweep", file, "--out", tmp_path, "--engine", "ray")
