"""The runs of a sweep: their configurations, their records and what they may cost."""

import json

import pytest

from mtlib.data.registry import SETS
from mtlib.methods import METHODS
from mtlib.runs import run as runs
from mtlib.runs.config import command_line, configure
from mtlib.runs.inputs import read_inputs
from mtlib.sweeps.grid import GridRun, expected_seconds, identify
from tests.data.made_up_releases import write_releases
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_cli import call


def test_a_resolved_configuration_resolves_to_itself():
    for method in METHODS:
        treebank = {"treebank": "folder"} if method == "ipt" else {}
        resolved = configure(task="nli", method=method, **treebank).resolved()
        assert resolved.resolved() == resolved


def test_options_and_plain_values_give_the_configuration_back(monkeypatch):
    seen = []
    monkeypatch.setattr(runs, "run", lambda config, *_, **__: seen.append(config) or 1 / 0)
    for settings in (
        {"task": "sentiment", "method": "fine_tuning"},
        {"task": "nli", "method": "mask_tuning", "model": "x/y", "seed": 3, "alpha": 0.0, "fill": "top_k",
         "shared": False, "fixed_masks": True, "epochs": 2.5},
        {"task": "sentiment", "method": "mask_tuning", "source": "hub", "sets": ("sst2", "imdb_cad"),
         "splits": {"imdb_cad": "test"}, "update": "alternating", "learning_rate": 5e-5, "precision": "float32"},
    ):  # fmt: skip
        written = configure(**settings)
        assert configure(**json.loads(json.dumps(written.values()))) == written
        with pytest.raises(ZeroDivisionError):
            call("run", *command_line(written))
        assert seen[-1] == written


def test_a_runs_file_is_its_record(testbed, model, tmp_path):  # noqa: F811
    """For a run with a subset of the data, so that the description of the subset counts in both."""
    subset = config(model, epochs=1, train_size=32)
    ((run,), trouble) = identify([subset])
    assert trouble is None and (run.examples, run.tests) == (32, 20 + 16 + 16)
    path, _ = runs.run(subset, tmp_path / "out")
    assert path.name == run.file and read_inputs(subset).record_path(tmp_path / "out") == path


def test_costs_come_from_records_of_the_same_task_method_and_model():
    def record(task="nli", method="fine_tuning", name="mini", train_seconds=60.0):
        return {"config": {"task": task, "method": method, "model": name, "epochs": 2},
                "data": {"train": {"rows": 500, "used_rows": 100}, "a": {"rows": 10}, "b": {"rows": 30}},
                "cost": {"train_seconds": train_seconds, "evaluation_seconds": 4.0}}  # fmt: skip

    config = configure(task="nli", method="fine_tuning", epochs=3)
    run = GridRun(config, "x.json", examples=50, tests=20)
    diverged = record(train_seconds=1.0) | {"diverged": True, "metrics": {}, "cost": {"train_seconds": 1.0}}
    assert expected_seconds(run, [record(), diverged]) == pytest.approx(60 / 200 * 50 * 3 + 4 / 40 * 20)
    records = [record(), record(train_seconds=6e3), record(train_seconds=120.0)]
    assert expected_seconds(run, records) == pytest.approx(92)
    with_spans = record() | {"data": record()["data"] | {"train_spans": {"rows": 3414}}}  # which are not tested on
    assert expected_seconds(run, [with_spans]) == expected_seconds(run, [record()])
    others = [record("sentiment"), record(method="mask_tuning"), record(name="bert")]
    assert expected_seconds(run, others) is expected_seconds(run, [diverged]) is expected_seconds(run, []) is None


def test_a_set_that_one_policy_reads_keeps_no_other_run_from_being_found(tmp_path, monkeypatch):
    source = write_releases(tmp_path, monkeypatch)
    supervised, exact = (
        configure("sentiment", "mask_tuning", source=str(source), masking=name) for name in ("supervised", "exact")
    )
    both, trouble = identify([supervised, exact])
    assert trouble is None and both[0].tests == both[1].tests
    (source / SETS["imdb_cad_train"].files[0].path).unlink()
    runs, trouble = identify([supervised, exact])
    assert "train_paired.tsv not found" in str(trouble) and [run.file for run in runs] == [None, both[1].file]
