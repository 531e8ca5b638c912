"""What the tests of both engines do to a sweep: kill a worker, kill the driver, start two at once."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mtlib import engines
from mtlib.runs import read_records
from mtlib.store import Store
from mtlib.sweep import expand, plan
from tests.test_runs import write_testbed

STEPS = 310


def write_sweep(folder: Path, model: Path, rest: str) -> Path:
    """Runs of 310 steps with a checkpoint every 50, a few seconds each."""
    testbed = write_testbed(folder / "testbed", train=160)
    file = folder / "sweep.yaml"
    file.write_text(
        f"tasks: sentiment\nmethods: mask_tuning\nmodels: {model}\nsource: {testbed}\nepochs: 31\n"
        f"precision: float32\n{rest}\n"
    )
    return file


def checkpointed(folder: Path) -> list[Path]:
    """Lock files of the runs that have left a checkpoint behind and are not finished."""
    clocks = folder.glob(".work/*/clock.json")
    return [lock for clock in clocks if (lock := clock.parent.with_suffix(".lock")).exists()]


def kill_holder(lock: Path) -> None:
    os.kill(int(lock.read_text().rpartition(" ")[2]), signal.SIGKILL)


def run_with_a_killed_worker(file: Path, store: Store, engine: engines.Engine) -> list[engines.Outcome]:
    """Carry the sweep out; the first worker seen to have a checkpoint is killed."""
    killed = []

    def report(*_):
        if not killed and (locks := checkpointed(store.folder)):
            killed.append(locks[0])
            kill_holder(locks[0])

    outcomes = engines.execute(plan(expand(file))[0], engine, store, report)
    assert killed, "no checkpoint to interrupt at"
    return outcomes


def kill_in_mid_run(driver: int, out: Path) -> None:
    """Kill the process that drives a sweep once its first run has left a checkpoint."""
    deadline = time.monotonic() + 120
    while not checkpointed(out):
        assert os.waitpid(driver, os.WNOHANG) == (0, 0) and time.monotonic() < deadline, "no checkpoint to interrupt at"
        time.sleep(0.02)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    assert not list(out.glob("*.json"))


def run_two_at_once(file: Path, out: Path, make_engine) -> list[engines.Outcome]:
    """Two sweeps of one file into one folder, each in a thread and with an engine of its own."""
    planned, _ = plan(expand(file))

    def drive(_):
        place = Store(str(out))
        return engines.execute(planned, make_engine(place), place, lambda *_: None)

    with ThreadPoolExecutor(2) as pool:
        return [outcome for outcomes in pool.map(drive, range(2)) for outcome in outcomes]


def check_each_recorded_once(out: Path, file: Path) -> list[dict]:
    """Nothing but whole records, one for each run."""
    planned, _ = plan(expand(file))
    assert sorted(path.name for path in out.iterdir()) == sorted(run.file for run in planned)
    records = read_records([out])
    assert all(record["cost"]["steps"] == STEPS for record in records)
    return records
