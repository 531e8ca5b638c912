"""Carrying out the runs of a sweep, and the engine that does so with processes of this machine."""

import json
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from mtlib.errors import UserError
from mtlib.sweeps.grid import GridRun
from mtlib.sweeps.store import Store

_TICK = 0.2  # seconds between looks at what has ended
_BUSY = 5.0  # before a run that another process was doing is tried again
_VISIBLE = 60.0  # until a record written by another machine must be seen here (network folders keep listings a while)


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Args:
        run: which.
        status: "there" (its record was), "written", "diverged" (its record says so), "failed", or "busy" (another
            process is doing it: try again later).
        detail: for a failed run its error.
        seconds: how long it took here.
        log: for a failed run the file with its error output, if there is one.
        environment: variables that the sweep set for it.
    """

    run: GridRun
    status: str
    detail: str = ""
    seconds: float = 0.0
    log: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def execute(
    runs: Sequence[GridRun],
    engine: "Engine",
    store: Store,
    report: Callable[[list[Outcome], list[tuple[GridRun, float]], int], None],
) -> list[Outcome]:
    """Have every run's record in the store, but for those that fail: the outcome of each, as they ended.

    Several calls may work on one store: a run that another is doing is left for later, and looked for again then.

    Args:
        report: called again and again with what has just ended, the active runs and the number still waiting.
    """
    waiting, outcomes = deque((run, 0.0) for run in runs), []
    try:
        while waiting or engine.active():
            ended = _start(waiting, engine, store) + _collect(waiting, engine)
            for outcome in ended:
                if outcome.status != "failed":
                    store.remove_logs(outcome.run.file)
            outcomes += ended
            report(ended, engine.active(), len(waiting))
            if not ended:
                time.sleep(_TICK)
    finally:
        engine.close()
    deadline = time.monotonic() + _VISIBLE
    return [_seen(outcome, store, deadline) for outcome in outcomes]


def _start(waiting: deque[tuple[GridRun, float]], engine: "Engine", store: Store) -> list[Outcome]:
    """Hand runs to the engine while it has room: the outcomes of those whose record is there.

    Args:
        waiting: runs, and the time before which they are not to be tried.
    """
    there = []
    for _ in range(len(waiting)):
        if not engine.has_room():
            break
        run, earliest = waiting.popleft()
        if time.monotonic() < earliest or store.holder(run.file):
            waiting.append((run, earliest))
        elif (state := store.state(run.file)) is not None:
            there.append(Outcome(run, state))
        else:
            engine.start(run)
    return there


def _collect(waiting: deque[tuple[GridRun, float]], engine: "Engine") -> list[Outcome]:
    """What has ended; a run that another process is doing waits again."""
    ended = engine.finished()
    waiting.extend((outcome.run, time.monotonic() + _BUSY) for outcome in ended if outcome.status == "busy")
    return [outcome for outcome in ended if outcome.status != "busy"]


def _seen(outcome: Outcome, store: Store, deadline: float) -> Outcome:
    """The outcome; a failure if a worker has written the record where nobody else can see it."""
    while outcome.status in ("written", "diverged") and not store.has(outcome.run.file):
        if time.monotonic() > deadline:
            text = f"its record was written, but is not to be seen in {store.address} from here; --out must be a "
            return replace(outcome, status="failed", detail=text + "folder that all machines share, or an address.")
        time.sleep(_TICK)
    return outcome


class Engine(ABC):
    """Takes runs and says what became of them. A run whose process died is started again, `retries` times.

    An engine says how a run is started, which have ended, and what became of one.
    """

    def __init__(self, store: Store):
        self.store = store
        self._tasks: dict[Any, tuple[GridRun, float]] = {}

    def has_room(self) -> bool:
        return True

    def start(self, run: GridRun) -> None:
        self._tasks[self._submit(run)] = run, time.monotonic()

    def active(self) -> list[tuple[GridRun, float]]:
        """Runs that have been started and have not ended, each with its seconds so far."""
        return [(run, time.monotonic() - begun) for run, begun in self._tasks.values()]

    def finished(self) -> list[Outcome]:
        """Those that have ended since the last call; returns at once."""
        outcomes = []
        for task in self._ended():
            run, begun = self._tasks.pop(task)
            outcomes.append(Outcome(run, seconds=time.monotonic() - begun, **self._answer(task, run)))
        return outcomes

    @abstractmethod
    def close(self) -> None:
        """End what is still running."""

    @abstractmethod
    def _submit(self, run: GridRun):
        """Start the run; returns what stands for it from then on."""

    @abstractmethod
    def _ended(self) -> list:
        """What stands for the runs that have ended since the last call."""

    @abstractmethod
    def _answer(self, task, run: GridRun) -> dict:
        """The fields of the `Outcome` of a run that has ended."""


class LocalEngine(Engine):
    """A process of its own for each run: a crash takes one run down, not the sweep.

    Processes share the cores evenly, and take turns at the GPUs.

    Args:
        processes: how many at once.
    """

    def __init__(self, store: Store, processes: int = 1, retries: int = 2):
        super().__init__(store)
        threads = max(1, torch.get_num_threads() // processes)
        self._environment = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
        self._gpus, self._retries, self._free = _visible_gpus(), retries, list(range(processes))

    def has_room(self) -> bool:
        return bool(self._free)

    def close(self) -> None:
        for child in self._tasks:
            child.process.terminate()
        for child in self._tasks:
            try:
                child.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def _submit(self, run: GridRun) -> "_Child":
        task = {"settings": run.config.values(), "out": self.store.address, "file": run.file}
        slot = self._free.pop(0)
        gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[slot % len(self._gpus)]} if self._gpus else {}
        child = _Child(json.dumps(task), self._environment | gpu, slot, self.store.log(run.file))
        child.launch()
        return child

    def _ended(self) -> list["_Child"]:
        ended = [child for child in self._tasks if child.process.poll() is not None]
        again = [child for child in ended if child.process.returncode < 0 and child.deaths < self._retries]
        for child in again:
            child.deaths += 1
            child.launch()
        return [child for child in ended if child not in again]

    def _answer(self, child: "_Child", run: GridRun) -> dict:
        self._free.append(child.slot)
        code = child.process.returncode
        if code == 0:
            child.output.seek(0)
            answer = json.loads(child.output.read().splitlines()[-1])
        else:
            killed = f"its process was killed (signal {-code}) {child.deaths + 1} times"
            answer = {"status": "failed", "detail": killed if code < 0 else f"its process ended with exit code {code}"}
        if answer["status"] == "failed":
            return answer | {"log": str(child.log), "environment": self._environment}
        child.log.unlink(missing_ok=True)  # another sweep that finished this run may have removed it
        return answer


@dataclass(eq=False)
class _Child:
    """A worker's process, its standard output (the answer) and its error output (the log).

    Args:
        task: what it is to do, as JSON.
        environment: variables beside this process's own.
        deaths: how often it was killed.
    """

    task: str
    environment: dict[str, str]
    slot: int
    log: Path
    deaths: int = 0

    def launch(self) -> None:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.output = tempfile.TemporaryFile()  # noqa: SIM115  (not a pipe: it is read when the process has ended)
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "mtlib.sweeps.worker", self.task],
                    env=os.environ | self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self.output,
                    stderr=log,
                )
        except OSError as error:
            raise UserError(f"cannot write to {self.log.parent}: {error.strerror}; the sweep is stopped.") from error


def _visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(index) for index in range(torch.cuda.device_count())]
