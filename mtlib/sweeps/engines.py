"""Carrying out the runs of a sweep, and the engine that does so with processes of this machine."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

import torch

from mtlib.errors import UserError
from mtlib.runs.locks import Busy
from mtlib.sweeps.grid import Planned, options
from mtlib.sweeps.store import Store

_TICK = 0.2  # seconds between looks at what has ended
_BUSY = 5.0  # before a run that another process was at is tried again
_VISIBLE = 60.0  # until a record written by another machine must be seen here (network folders keep listings a while)


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Args:
        run: which.
        status: "there" (nothing to do), "written", "failed", or "busy" (another process is at it: try again later).
        detail: for a failed one its error.
        seconds: how long it took here.
        log: for a failed one the file with all it had to say, if there is one.
    """

    run: Planned
    status: str
    detail: str = ""
    seconds: float = 0.0
    log: str = ""


class Engine(Protocol):
    """Takes runs and says what became of them. A run whose process died is started again, `retries` times."""

    def has_room(self) -> bool: ...

    def start(self, run: Planned) -> None: ...

    def finished(self) -> list[Outcome]:
        """Those that have ended since the last call; returns at once."""

    def active(self) -> list[tuple[Planned, float]]:
        """Runs in hand, each with its seconds so far."""

    def close(self) -> None:
        """End what is still running."""


def execute(
    planned: Sequence[Planned],
    engine: Engine,
    store: Store,
    report: Callable[[list[Outcome], list[tuple[Planned, float]], int], None],
) -> list[Outcome]:
    """Have every run's record in the store, but for those that fail: the outcome of each, as they ended.

    Several calls may work on one store: a run that another is at is left for later, and looked for again then.

    Args:
        report: called again and again with what has just ended, the runs in hand and the number still waiting.
    """
    waiting, later, outcomes = deque(planned), {}, []
    try:
        while waiting or engine.active():
            ended = []
            for _ in range(len(waiting)):
                if not engine.has_room():
                    break
                run = waiting.popleft()
                if time.monotonic() < later.get(run.file, 0) or store.holder(run.file):
                    waiting.append(run)
                elif store.has(run.file):
                    ended.append(Outcome(run, "there"))
                else:
                    engine.start(run)
            for outcome in engine.finished():
                if outcome.status == "busy":
                    later[outcome.run.file] = time.monotonic() + _BUSY
                    waiting.append(outcome.run)
                else:
                    ended.append(outcome)
            for outcome in ended:
                if outcome.status != "failed":
                    store.remove_logs(outcome.run.file)
            outcomes += ended
            report(ended, engine.active(), len(waiting))
            if not ended:
                time.sleep(_TICK)
    finally:
        engine.close()
    return _checked(outcomes, store)


def _checked(outcomes: list[Outcome], store: Store) -> list[Outcome]:
    """With a failure in place of what a worker wrote where nobody else can see it."""
    deadline, checked = time.monotonic() + _VISIBLE, []
    for outcome in outcomes:
        while outcome.status == "written" and not store.has(outcome.run.file):
            if time.monotonic() > deadline:
                text = f"written, but not to be seen in {store.address} from here; --out must be a folder that all "
                outcome = replace(outcome, status="failed", detail=text + "machines share, or an address")
            time.sleep(_TICK)
        checked.append(outcome)
    return checked


class LocalEngine:
    """`mtlib run` in a process of its own for each run: a crash takes one run down, not the sweep.

    Processes share the cores evenly, and take turns at the GPUs.

    Args:
        processes: how many at once.
    """

    def __init__(self, store: Store, processes: int = 1, retries: int = 2):
        self.store, self.processes, self.retries = store, processes, retries
        self._free = list(range(processes))
        self._threads = max(1, torch.get_num_threads() // processes)
        self._gpus = _visible_gpus()
        self._children: list[_Child] = []

    def has_room(self) -> bool:
        return bool(self._free)

    def start(self, run: Planned) -> None:
        child = _Child(run, self._free.pop(0), time.monotonic())
        self._launch(child)
        self._children.append(child)

    def finished(self) -> list[Outcome]:
        outcomes = []
        for child in list(self._children):
            code = child.process.poll()
            if code is None:
                continue
            child.log.close()
            if code < 0 and child.deaths < self.retries:
                child.deaths += 1
                self._launch(child)
                continue
            self._children.remove(child)
            self._free.append(child.slot)
            outcomes.append(self._outcome(child, code))
        return outcomes

    def active(self) -> list[tuple[Planned, float]]:
        return [(child.run, time.monotonic() - child.begun) for child in self._children]

    def close(self) -> None:
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            try:
                child.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.log.close()

    def _launch(self, child: "_Child") -> None:
        log = self.store.log(child.run.file)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            child.log = open(log, "w", encoding="utf-8")  # noqa: SIM115  (open while the process runs)
        except OSError as error:
            raise UserError(f"cannot write to {log.parent}: {error.strerror}; the sweep is stopped.") from error
        environment = {"OMP_NUM_THREADS": str(self._threads)} | os.environ
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[child.slot % len(self._gpus)]
        child.process = subprocess.Popen(
            [sys.executable, "-m", "mtlib", "run", *options(child.run.config), "--out", str(self.store.folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=child.log,
        )

    def _outcome(self, child: "_Child", code: int) -> Outcome:
        took, log = time.monotonic() - child.begun, Path(child.log.name)
        if code == 0:
            record = self.store.folder / child.run.file
            try:
                if not record.exists() and not self.store.has(record.name):
                    raise UserError("its data or its model has changed since the sweep began; start the sweep again.")
                self.store.put(record)
            except UserError as error:
                return Outcome(child.run, "failed", str(error), took)
            return Outcome(child.run, "written", seconds=took)
        if code == Busy.EXIT_CODE:
            log.unlink()
            return Outcome(child.run, "busy")
        if code < 0:
            text = f"its process was killed (signal {-code}) {child.deaths + 1} times"
        else:
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            text = next((line for line in reversed(lines) if line.strip()), f"exit code {code}").removeprefix("error: ")
        return Outcome(child.run, "failed", text, took, str(log))


@dataclass
class _Child:
    run: Planned
    slot: int
    begun: float
    process: subprocess.Popen | None = None
    log: IO[str] | None = None
    deaths: int = 0


def _visible_gpus() -> list[str]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name]
    return [str(index) for index in range(torch.cuda.device_count())]
