"""The local engine with everything going wrong that can. Every run is a process of its own."""

import json
import os
from pathlib import Path

import pytest

from mtlib.errors import UserError
from mtlib.runs.code import code_sha256
from mtlib.runs.locks import claim, lock_path
from mtlib.runs.records import read_records
from mtlib.sweeps import executors, store
from mtlib.sweeps.executors import LocalExecutor, Outcome
from mtlib.sweeps.store import Store
from mtlib.sweeps.sweep_file import GridRun, expand, identify
from tests.conftest import config
from tests.sweeps.faults import (
    a_worker_killed,
    check_each_recorded_once,
    kill_in_mid_run,
    needs_minutes,
    run_two_at_once,
    write_sweep,
)

RECORD = {"environment": {"code_sha256": code_sha256()}}


@needs_minutes
def test_killed_worker_failing_run_and_records_at_an_address(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(store.tempfile, "tempdir", None)
    place = Store(
        f"simplecache::file://{tmp_path}/records"
    )  # no folder to Store, and any process can write there
    file = write_sweep(tmp_path, model, "max_length: [64, 65]")  # the model reads 64
    with a_worker_killed(place.folder):
        outcomes = executors.execute(
            identify(expand(file)), LocalExecutor(place, processes=2), place
        )
        good, bad = sorted(outcomes, key=lambda outcome: outcome.run.config.max_length)
    assert (good.status, bad.status) == ("written", "failed")
    assert bad.detail.startswith("max_length is 65; ")
    assert bad.detail in place.log(bad.run.file).read_text()
    (record,) = read_records([tmp_path / "records"])
    assert record["cost"]["interruptions"] == 1 and record["cost"]["steps"] == 310
    names = {good.run.file, Path(good.run.file).with_suffix(".npz").name}
    assert {path.name for path in (tmp_path / "records").iterdir()} == names
    assert [path.name for path in place.folder.iterdir()] == [
        ".work"
    ]  # with what is left of the run that failed


@needs_minutes
def test_driver_killed_and_two_more_on_one_folder(model, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "_BUSY", 1.0)
    file, out = write_sweep(tmp_path, model, "max_length: 64\nseeds: 2"), tmp_path / "out"
    grid_runs = identify(expand(file))
    if not (driver := os.fork()):
        list(executors.execute(grid_runs, LocalExecutor(Store(str(out))), Store(str(out))))
        os._exit(0)
    kill_in_mid_run(driver, out)  # its run goes on without it
    outcomes = run_two_at_once(file, out, LocalExecutor)
    assert len(outcomes) == 4 and {outcome.status for outcome in outcomes} == {
        "there",
        "written",
    }, outcomes
    assert [
        record["cost"]["interruptions"] for record in check_each_recorded_once(out, outcomes)
    ] == [0, 0]


def execute(folder: Path, count=1, **options) -> list[Outcome]:
    place = Store(str(folder / "out"))
    grid_runs = [GridRun(config("x", seed=seed), f"{seed}.json") for seed in range(count)]
    return list(executors.execute(grid_runs, LocalExecutor(place, **options), place))


@pytest.fixture
def log(tmp_path) -> Path:
    return Store(str(tmp_path / "out")).log("0.json")


def replace_child(folder: Path, monkeypatch, script: str) -> None:
    """Have a shell script do each run of $order in place of a worker: $record goes into $out."""
    path = folder / "python"
    path.write_text(f"""#!/bin/bash
        exec 3>&1 1>&2; out={folder}/out; record='{json.dumps(RECORD)}'
        order=$(cat); [[ "$order" =~ seed\\":\\ ([0-9]) ]]; seed=${{BASH_REMATCH[1]}}
        answer=written
        {script}
        echo $answer >&3""")
    path.chmod(0o755)
    monkeypatch.setattr(executors.sys, "executable", str(path))


def test_a_run_killed_again_and_again(tmp_path, monkeypatch):
    replace_child(tmp_path, monkeypatch, 'echo started >> "$0.log"; kill -9 $$')
    (outcome,) = execute(tmp_path)
    assert outcome.status == "failed"
    assert outcome.detail == "its process was killed (signal 9) 3 times"
    assert (tmp_path / "python.log").read_text().split() == ["started"] * 3


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("exit 3", "its process ended with exit code 3"),
        ("echo Traceback >&2; echo KeyError: 7 >&2; exit 1", "KeyError: 7"),
        ("echo error: no such data >&2; echo at exit >&2; exit 2", "no such data"),
    ],
)
def test_why_a_run_failed(tmp_path, monkeypatch, log, script, detail):
    replace_child(tmp_path, monkeypatch, script)
    (outcome,) = execute(tmp_path)
    assert (outcome.status, outcome.detail) == ("failed", detail) and log.exists()
    # what an earlier attempt has printed is no reason of this one
    replace_child(tmp_path, monkeypatch, "exit 4")
    (outcome,) = execute(tmp_path)
    assert outcome.detail == "its process ended with exit code 4"


@pytest.mark.parametrize(("record", "status"), [({"diverged": True}, "diverged"), ({}, "written")])
def test_what_became_of_a_run(tmp_path, monkeypatch, log, record, status):
    replace_child(
        tmp_path,
        monkeypatch,
        f"echo noise; echo '{json.dumps(RECORD | record)}' > $out/0.json; answer={status}",
    )
    (outcome,) = execute(tmp_path)
    assert (outcome.status, outcome.detail) == (status, "") and not log.exists()
    replace_child(tmp_path, monkeypatch, "exit 1")
    log.touch()  # of a sweep that was killed
    (outcome,) = execute(tmp_path)  # a run that has diverged is done
    assert outcome.status == ("there" if status == "written" else status) and not log.exists()


def test_a_run_that_fails_takes_no_other_down(tmp_path, monkeypatch):
    replace_child(tmp_path, monkeypatch, "[ $seed != 1 ] || exit 1; echo $record > $out/$seed.json")
    outcomes = [outcome.status for outcome in execute(tmp_path, 3)]
    assert outcomes == ["written", "failed", "written"]


def test_no_run_is_begun_when_time_is_up(tmp_path, monkeypatch):
    replace_child(tmp_path, monkeypatch, "sleep 1; echo $record > $out/0.json")
    outcomes = execute(tmp_path, 3, minutes=0.5 / 60)
    assert sorted((outcome.run.file, outcome.status) for outcome in outcomes) == [
        ("0.json", "written"),
        ("1.json", "left"),
        ("2.json", "left"),
    ]


def test_processes_share_a_gpu_by_a_service_that_is_stopped_afterwards(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    service = tmp_path / "nvidia-cuda-mps-control"
    service.write_text(
        '#!/bin/bash\necho "$CUDA_VISIBLE_DEVICES ${1:-$(cat)} $CUDA_MPS_PIPE_DIRECTORY"'
        f" >> {tmp_path}/service"
    )
    replace_child(
        tmp_path, monkeypatch, "echo gpu $CUDA_VISIBLE_DEVICES at $CUDA_MPS_PIPE_DIRECTORY; exit 1"
    )
    assert execute(tmp_path, processes=2)[0].detail == "gpu 4 at"
    assert "take turns" in capsys.readouterr().err
    service.chmod(0o755)
    (outcome,) = execute(tmp_path, processes=2)
    (_, start, place), (_, stop, same) = (
        line.split() for line in (tmp_path / "service").read_text().splitlines()
    )
    assert outcome.detail == f"gpu 0 at {place}"
    assert (start, stop) == ("-d", "quit")
    assert place == same
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "mine")  # a user's own service is used as it is
    assert execute(tmp_path, processes=2)[0].detail == "gpu 4 at mine"
    assert len(os.listdir(tmp_path / "out")) == 1
    assert len((tmp_path / "service").read_text().splitlines()) == 2


def test_a_run_that_another_process_does_is_left_for_later(tmp_path, monkeypatch):
    """Another process does run 0 until run 1 has been written; run 2 is busy at first."""
    monkeypatch.setattr(executors, "_BUSY", 0.1)
    place = Store(str(tmp_path / "out"))
    script = """
        if [ $seed = 2 ] && ! [ -e $0.tried ]; then touch $0.tried; echo busy >&3; exit; fi
        echo $seed >> $0.order; echo $record > $out/$seed.json"""
    replace_child(tmp_path, monkeypatch, script)
    grid_runs = [GridRun(config("x", seed=seed), f"{seed}.json") for seed in range(3)]
    lock = lock_path(place.folder / "0.json")
    lock.parent.mkdir(parents=True)
    outcomes = executors.execute(grid_runs, LocalExecutor(place), place)
    with claim(lock):
        first = next(outcomes)
    assert (first.run.file, first.status) == ("1.json", "written")
    assert {outcome.status for outcome in outcomes} == {"written"}
    order = (tmp_path / "python.order").read_text().split()
    assert sorted(order) == ["0", "1", "2"] and (tmp_path / "python.tried").exists()


def test_processes_share_cores_and_take_turns_at_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(executors.torch, "get_num_threads", lambda: 6)
    script = "echo gpu $CUDA_VISIBLE_DEVICES threads $OMP_NUM_THREADS; sleep 0.5; exit 1"
    replace_child(tmp_path, monkeypatch, script)
    details = sorted(outcome.detail for outcome in execute(tmp_path, 3, processes=3))
    assert details == ["gpu 4 threads 2"] * 2 + ["gpu 7 threads 2"]


def test_gpus_that_are_hidden_are_not_shared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    replace_child(tmp_path, monkeypatch, "echo gpu $CUDA_VISIBLE_DEVICES; exit 1")
    assert execute(tmp_path, processes=2)[0].detail == "gpu -1"
    assert "take turns" not in capsys.readouterr().err


def test_a_stopped_sweep_stops_its_runs(tmp_path, monkeypatch):
    replace_child(tmp_path, monkeypatch, f"touch {tmp_path}/begun; exec sleep 60")
    place = Store(str(tmp_path / "out"))
    engine = LocalExecutor(place)
    started, popen = [], executors.subprocess.Popen
    monkeypatch.setattr(
        executors.subprocess, "Popen", lambda *a, **b: started.append(popen(*a, **b)) or started[-1]
    )

    def interrupt(active, *_):
        if (tmp_path / "begun").exists():
            raise KeyboardInterrupt
        return wait(active, 0.1)

    wait = executors.wait
    monkeypatch.setattr(executors, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(executors.execute([GridRun(config("x"), "a.json")], engine, place))
    (child,) = started
    assert child.poll() == -15


def test_a_record_that_nobody_else_can_see(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "_VISIBLE", 0.1)
    replace_child(tmp_path, monkeypatch, "true")
    monkeypatch.setattr(
        Store, "finish", lambda *_: "written"
    )  # as a worker with a folder of its own would say
    with pytest.raises(UserError, match="must be a folder that all machines share"):
        execute(tmp_path)
