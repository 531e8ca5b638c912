"""What tests of both executors do to a sweep: kill a worker or the driver, start two at once."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mtlib.runs.locks import holder
from mtlib.runs.records import read_records
from mtlib.sweeps import executors
from mtlib.sweeps.store import Store
from mtlib.sweeps.sweep_file import expand, identify
from tests.conftest import write_testbed

STEPS = 310
# minutes of killed processes, and a Ray cluster: `make faults` runs them
needs_minutes = pytest.mark.skipif(
    not os.environ.get("MTLIB_FAULTS"), reason="takes minutes: make faults"
)


def write_sweep(folder: Path, model: Path, rest: str) -> Path:
    """Runs of 310 steps with a checkpoint every 50, a few seconds each."""
    testbed = write_testbed(folder / "testbed", train=160)
    file = folder / "sweep.yaml"
    file.write_text(
        f"tasks: sentiment\nmethods: mask_tuning\nmodels: {model}\nsource: {testbed}\nepochs: 31\n"
        f"precision: float32\n{rest}\n"
    )
    return file


def at_work(folder: Path) -> list[int]:
    """Processes that are doing a run that has a checkpoint."""
    holders = [
        holder(clock.parent.with_suffix(".lock")) or ""
        for clock in folder.glob(".work/*/clock.json")
    ]
    return [int(who.rpartition(" ")[2]) for who in holders if ", process " in who]


@contextlib.contextmanager
def a_worker_killed(folder: Path) -> Iterator[None]:
    """Kill the first worker that is seen to have a checkpoint."""

    def kill_one():
        while not over.is_set():
            for process in at_work(folder)[:1]:
                with contextlib.suppress(
                    ProcessLookupError
                ):  # a lock taken over that still names the one before
                    os.kill(process, signal.SIGKILL)
                    return True
            time.sleep(0.02)

    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_one)
        yield
        over.set()
    assert killed.result(), "there was nothing to kill"


def kill_in_mid_run(driver: int, out: Path) -> None:
    """Kill the process that drives a sweep once its first run has left a checkpoint."""
    deadline = time.monotonic() + 600  # on a busy machine
    while not at_work(out):
        assert os.waitpid(driver, os.WNOHANG) == (0, 0) and time.monotonic() < deadline, (
            "no checkpoint to interrupt at"
        )
        time.sleep(0.02)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    assert not list(out.glob("*.json"))


def run_two_at_once(file: Path, out: Path, make_engine) -> list[executors.Outcome]:
    """Two sweeps of one file into one folder, each in a thread and with an engine of its own."""
    grid_runs = identify(expand(file))

    def drive(_):
        place = Store(str(out))
        return list(executors.execute(grid_runs, make_engine(place), place))

    with ThreadPoolExecutor(2) as pool:
        return [outcome for outcomes in pool.map(drive, range(2)) for outcome in outcomes]


def check_each_recorded_once(out: Path, outcomes: list[executors.Outcome]) -> list[dict]:
    """Nothing but whole records with probabilities, one for each run that has not failed."""
    names = {outcome.run.file for outcome in outcomes if outcome.status != "failed"}
    probabilities = {Path(name).with_suffix(".npz").name for name in names}
    assert {path.name for path in out.iterdir()} - {".work"} == names | probabilities
    records = read_records([out])
    assert [record["cost"]["steps"] for record in records] == [STEPS] * len(names)
    return records
