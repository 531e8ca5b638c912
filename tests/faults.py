"""What the tests of both engines do to a sweep: kill a worker, kill the driver, start two at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mtlib import engines
from mtlib.runs import read_records
from mtlib.store import Store
from mtlib.sweep import expand, plan
from tests.test_runs import write_testbed

ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
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


def start_driver(file: Path, out: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "mtlib", "sweep", str(file), "--out", str(out), *arguments]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_driver_in_mid_run(driver: subprocess.Popen, out: Path) -> None:
    deadline = time.monotonic() + 120
    while not checkpointed(out):
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()[1]
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert not list(out.glob("*.json"))


def check_each_recorded_once(out: Path, planned: list) -> list[dict]:
    """Nothing but whole records, one for each run."""
    assert sorted(path.name for path in out.iterdir()) == sorted(run.file for run in planned)
    records = read_records([out])
    assert all(record["cost"]["steps"] == STEPS for record in records)
    return records
