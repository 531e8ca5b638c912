"""The worker, and the local engine with everything going wrong that can. Every run is a process of its own."""

import json
import os
from pathlib import Path

import pytest

from mtlib.runs import run as runs
from mtlib.runs.inputs import record_path
from mtlib.runs.locks import claim
from mtlib.sweeps import engines, store
from mtlib.sweeps.engines import LocalEngine, Outcome
from mtlib.sweeps.grid import GridRun, identify
from mtlib.sweeps.store import Store
from mtlib.sweeps.sweep_file import expand
from mtlib.sweeps.worker import carry_out
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
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
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(store.tempfile, "tempdir", None)
    place = Store(f"simplecache::file://{tmp_path}/records")  # no folder to Store, and any process can write there
    file = write_sweep(tmp_path, model, "max_length: [64, 65]")  # the model reads 64
    killer = Killer(place.folder)
    outcomes = engines.execute(identify(expand(file))[0], LocalEngine(place, processes=2), place, killer)
    good, bad = sorted(outcomes, key=lambda outcome: outcome.run.config.max_length)
    assert killer.killed and good.status == "written" and bad.status == "failed", outcomes
    assert bad.detail.startswith("max_length is 65; ") and bad.detail in Path(bad.log).read_text()
    (record,) = place.records()
    assert record["cost"]["interruptions"] == 1 and record["cost"]["steps"] == 310
    assert [path.name for path in (tmp_path / "records").iterdir()] == [good.run.file]
    assert not place.has(bad.run.file) and not list(place.folder.glob("*.json"))


@needs_minutes
def test_driver_killed_and_two_more_on_one_folder(model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "_BUSY", 1.0)
    file, out = write_sweep(tmp_path, model, "max_length: 64\nseeds: 2"), tmp_path / "out"
    grid_runs, _ = identify(expand(file))
    if not (driver := os.fork()):
        engines.execute(grid_runs, LocalEngine(Store(str(out))), Store(str(out)), lambda *_: None)
        os._exit(0)
    kill_in_mid_run(driver, out)  # its run goes on without it
    outcomes = run_two_at_once(file, out, LocalEngine)
    assert len(outcomes) == 4 and {outcome.status for outcome in outcomes} == {"there", "written"}, outcomes
    assert [record["cost"]["interruptions"] for record in check_each_recorded_once(out, outcomes)] == [0, 0]


# ---------------------------------------------------------------------------------------------------------- the worker


def test_worker_writes_a_record_once_and_says_when_another_is_at_it(testbed, model, tmp_path):  # noqa: F811
    settings = config(model, epochs=1.0).values()
    path = record_path(config(model, epochs=1.0), tmp_path)
    with claim(runs.lock_path(path)):
        answer = carry_out(settings, str(tmp_path), path.name)
        assert answer["status"] == "busy" and "is being run by" in answer["detail"]
    assert carry_out(settings, str(tmp_path), path.name) == {"status": "written", "detail": ""}
    content = path.read_bytes()
    assert carry_out(settings, str(tmp_path), path.name)["status"] == "written" and path.read_bytes() == content
    answer = carry_out(settings, str(tmp_path), "other.json")
    assert answer["status"] == "failed" and answer["detail"].startswith(f"the worker made {path.name} instead of other")


@pytest.mark.parametrize(("content", "status"), [("{}", "written"), ('{"diverged": true}', "diverged")])
def test_worker_leaves_a_run_that_another_has_recorded(tmp_path, monkeypatch, content, status):
    monkeypatch.setattr("mtlib.sweeps.worker.run", lambda *_: pytest.fail("it was trained again"))
    (tmp_path / "a.json").write_text(content)
    assert carry_out(config("x").values(), str(tmp_path), "a.json") == {"status": status, "detail": ""}


@pytest.mark.parametrize(
    ("record", "status", "detail"),
    [
        ({"metrics": {}, "diverged": True}, "diverged", ""),
        ({"metrics": {}, "diverged": False}, "written", ""),
        (KeyError(7), "failed", "KeyError: 7"),
    ],
)
def test_worker_answers_with_what_became_of_the_run(tmp_path, monkeypatch, record, status, detail):
    def run(_, folder):
        if isinstance(record, Exception):
            raise record
        (folder / "a.json").write_text(json.dumps(record))
        return folder / "a.json", False

    monkeypatch.setattr("mtlib.sweeps.worker.run", run)
    answer = json.loads(json.dumps(carry_out(config("x").values(), str(tmp_path), "a.json")))
    assert (answer["status"], answer["detail"]) == (status, detail)
    assert ("Traceback" in answer.get("traceback", "")) == (status == "failed")


# ---------------------------------------------------------------------------------------------------- the local engine


def execute(folder, count=1, **options) -> list[Outcome]:
    place = Store(str(folder / "out"))
    grid_runs = [GridRun(config("x", seed=seed), f"{seed}.json") for seed in range(count)]
    return engines.execute(grid_runs, LocalEngine(place, **options), place, lambda *_: None)


def replace_worker(folder, monkeypatch, script):
    """Have a shell script run in place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(engines.sys, "executable", str(path))


def test_a_process_of_its_own_answers(tmp_path):
    (outcome,) = execute(tmp_path)  # there is no model "x"
    assert outcome.status == "failed" and "x" in outcome.detail and outcome.seconds > 0
    assert "Traceback" in Path(outcome.log).read_text() and outcome.detail in Path(outcome.log).read_text()


def test_a_worker_killed_again_and_again(tmp_path, monkeypatch):
    replace_worker(tmp_path, monkeypatch, 'echo started >> "$0.log"; kill -9 $$')
    (outcome,) = execute(tmp_path, retries=2)
    assert outcome.status == "failed" and outcome.detail == "its process was killed (signal 9) 3 times"
    assert (tmp_path / "python.log").read_text().split() == ["started"] * 3


def test_a_worker_without_an_answer(tmp_path, monkeypatch):
    replace_worker(tmp_path, monkeypatch, "echo no such module >&2; exit 3")
    (outcome,) = execute(tmp_path)
    assert outcome.detail == "its process ended with exit code 3" and "no such module" in Path(outcome.log).read_text()


def test_processes_share_cores_and_take_turns_at_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(engines.torch, "get_num_threads", lambda: 6)
    answer = '{"status": "failed", "detail": "gpu %s threads %s"}\\n'
    script = f"echo noise; printf '{answer}' $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS; sleep 0.5"
    replace_worker(tmp_path, monkeypatch, script)
    outcomes = execute(tmp_path, 3, processes=3)
    assert sorted(outcome.detail for outcome in outcomes) == ["gpu 4 threads 2"] * 2 + ["gpu 7 threads 2"]
    assert all(outcome.environment == {"OMP_NUM_THREADS": "2"} for outcome in outcomes)


def test_a_stopped_sweep_stops_its_runs(tmp_path, monkeypatch):
    replace_worker(tmp_path, monkeypatch, "exec sleep 60")
    place = Store(str(tmp_path / "out"))
    engine = LocalEngine(place)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.execute([GridRun(config("x"), "a.json")], engine, place, interrupt)
    (child,) = engine._tasks
    assert child.process.poll() is not None


def test_a_record_that_nobody_else_can_see(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "_VISIBLE", 0.1)
    replace_worker(tmp_path, monkeypatch, """echo '{"status": "written", "detail": ""}'""")
    (outcome,) = execute(tmp_path)
    assert outcome.status == "failed" and "must be a folder that all machines share" in outcome.detail
