"""The local engine, with everything going wrong that can. Every run is a process of its own."""

import os
from pathlib import Path

import fsspec
import pytest

from mtlib.sweeps import engines, store
from mtlib.sweeps.engines import LocalEngine, Outcome
from mtlib.sweeps.grid import Planned, expand, plan
from mtlib.sweeps.store import Store
from tests.runs.test_runs import config, model  # noqa: F401  (fixture)
from tests.sweeps.faults import (
    Killer,
    check_each_recorded_once,
    kill_in_mid_run,
    needs_minutes,
    run_two_at_once,
    write_sweep,
)


@needs_minutes
def test_killed_worker_failing_run_and_records_at_an_address(model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    place = Store("memory://faults/records")
    file = write_sweep(tmp_path, model, "max_length: [64, 65]")  # the model reads 64
    killer = Killer(place.folder)
    outcomes = engines.execute(plan(expand(file))[0], LocalEngine(place, processes=2), place, killer)
    good, bad = sorted(outcomes, key=lambda outcome: outcome.run.config.max_length)
    assert killer.killed and good.status == "written" and bad.status == "failed", outcomes
    assert bad.detail.startswith("max_length is 65; ") and bad.detail in Path(bad.log).read_text()
    (record,) = place.records()
    assert record["cost"]["interruptions"] == 1 and record["cost"]["steps"] == 310
    assert [path.rpartition("/")[2] for path in fsspec.filesystem("memory").find("/faults")] == [good.run.file]
    assert not place.has(bad.run.file) and not list(place.folder.glob("*.json"))


@needs_minutes
def test_driver_killed_and_two_more_on_one_folder(model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "_BUSY", 1.0)
    file, out = write_sweep(tmp_path, model, "max_length: 64\nseeds: 2"), tmp_path / "out"
    planned, _ = plan(expand(file))
    if not (driver := os.fork()):
        engines.execute(planned, LocalEngine(Store(str(out))), Store(str(out)), lambda *_: None)
        os._exit(0)
    kill_in_mid_run(driver, out)  # its run goes on without it
    outcomes = run_two_at_once(file, out, LocalEngine)
    assert len(outcomes) == 4 and {outcome.status for outcome in outcomes} == {"there", "written"}, outcomes
    assert [record["cost"]["interruptions"] for record in check_each_recorded_once(out, outcomes)] == [0, 0]


def test_a_worker_killed_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.sys, "executable", _script(tmp_path, 'echo started >> "$0.log"; kill -9 $$'))
    outcome = _one(tmp_path, retries=2)
    assert outcome.status == "failed" and outcome.detail == "its process was killed (signal 9) 3 times"
    assert (tmp_path / "python.log").read_text().split() == ["started"] * 3


def test_the_last_line_of_an_error_is_what_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(
        engines.sys, "executable", _script(tmp_path, "printf 'Traceback\\nKeyError: 7\\n\\n' >&2; exit 1")
    )
    assert _one(tmp_path).detail == "KeyError: 7"


def test_processes_share_cores_and_take_turns_at_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(engines.torch, "get_num_threads", lambda: 6)
    script = 'echo "gpu $CUDA_VISIBLE_DEVICES threads $OMP_NUM_THREADS" >&2; sleep 0.5; exit 1'
    monkeypatch.setattr(engines.sys, "executable", _script(tmp_path, script))
    place = Store(str(tmp_path / "out"))
    planned = [Planned(config("x", seed=seed), f"{seed}.json") for seed in range(3)]
    outcomes = engines.execute(planned, LocalEngine(place, processes=3), place, lambda *_: None)
    assert sorted(outcome.detail for outcome in outcomes) == ["gpu 4 threads 2"] * 2 + ["gpu 7 threads 2"]


def test_a_stopped_sweep_stops_its_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.sys, "executable", _script(tmp_path, "exec sleep 60"))
    place = Store(str(tmp_path / "out"))
    engine = LocalEngine(place)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.execute([Planned(config("x"), "a.json")], engine, place, interrupt)
    assert engine._children[0].process.poll() is not None


def test_a_record_that_nobody_else_can_see(tmp_path, monkeypatch):
    class Elsewhere(LocalEngine):
        def start(self, run):
            self.run = run

        def finished(self):
            return [Outcome(self.run, "written")]

    monkeypatch.setattr(engines, "_VISIBLE", 0.1)
    place = Store(str(tmp_path / "out"))
    (outcome,) = engines.execute([Planned(config("x"), "a.json")], Elsewhere(place), place, lambda *_: None)
    assert outcome.status == "failed" and "must be a folder that all machines share" in outcome.detail


def _script(folder, text):
    path = folder / "python"
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return str(path)


def _one(folder, retries=0):
    place = Store(str(folder / "out"))
    planned = [Planned(config("x"), "a.json")]
    (outcome,) = engines.execute(planned, LocalEngine(place, retries=retries), place, lambda *_: None)
    return outcome
