"""Executing the runs of a sweep: in processes of this machine, or on a Ray cluster."""

import contextlib
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import torch

from mtlib.errors import UserError
from mtlib.sweeps.store import OTHER_CODE, Store
from mtlib.sweeps.sweep_file import GridRun
from mtlib.sweeps.worker import execute_run

RETRIES = 2  # how often a run is taken up again whose process was killed
_TICK = 0.2  # seconds between looks at what may be started
_BUSY = 5.0  # before a run that another process was doing is tried again
# until a record written by another machine must be seen here: network folders keep listings a while
_VISIBLE = 60.0


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Args:
        run: which.
        status: "there" (its record was), "written", "diverged" (its record says so), "reused" (a
            record, in place of training), "other code" (which made the record that is there),
            "failed", or "left" (time was up).
        detail: for a failed run its error.
    """

    run: GridRun
    status: str
    detail: str = ""


class RunFailed(UserError):
    """A run's process ended with an error; its log says more."""


def execute(
    runs: Sequence[GridRun], executor: "LocalExecutor | RayExecutor", store: Store
) -> Iterator[Outcome]:
    """Have every run's record in the store, but for those that fail: each outcome, as it ends.

    Several calls may work on one store: a run that another is doing is left for later, and looked
    for again then.

    Raises:
        UserError: a record that was written cannot be seen in the store.
    """
    waiting = deque((run, 0.0) for run in runs)  # with the time from which it may be started
    active: dict[Future[str], GridRun] = {}
    try:
        while waiting or active:
            yield from _start_waiting(waiting, active, executor, store)
            for future in wait(active, _TICK, FIRST_COMPLETED).done:
                outcome = _outcome(active.pop(future), future, store)
                if outcome.status == "busy":
                    waiting.append((outcome.run, time.monotonic() + _BUSY))
                else:
                    yield outcome
            if waiting and not active:
                time.sleep(_TICK)
    finally:
        executor.close()


def _start_waiting(
    waiting: deque[tuple[GridRun, float]],
    active: dict[Future[str], GridRun],
    executor: "LocalExecutor | RayExecutor",
    store: Store,
) -> Iterator[Outcome]:
    """Start the runs that may be started; the outcomes of those whose record is there."""
    for _ in range(len(waiting)):
        run, earliest = waiting.popleft()
        if time.monotonic() < earliest or store.holder(run.file):
            waiting.append((run, earliest))
        elif (state := store.state(run.file, run.config.precision)) is not None:
            store.log(run.file).unlink(missing_ok=True)  # of a sweep that was killed
            yield Outcome(run, "there" if state == "written" else state)
        else:
            active[executor.submit(run)] = run


def _outcome(run: GridRun, future: Future[str], store: Store) -> Outcome:
    try:
        status = future.result()
    except Exception as error:
        if not isinstance(error, RunFailed):
            with contextlib.suppress(OSError), _open_log(store.log(run.file)) as log:  # a full disk
                log.write("".join(traceback.format_exception(error)).encode())
        return Outcome(run, "failed", _cause(error))
    if status in ("written", "diverged", "reused"):
        state = _state_once_visible(run, store)
        if state == OTHER_CODE:  # a machine of the cluster may have it
            status = state
        store.log(run.file).unlink(missing_ok=True)
    return Outcome(run, status)


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "ab")


def _cause(error: Exception) -> str:
    """Why a run failed, in one line."""
    cause = getattr(error, "cause", None) or error  # Ray wraps what another machine raised
    message = str(cause).strip()
    if not isinstance(cause, UserError):
        message = f"{type(cause).__name__}: {message}"
    return message.splitlines()[0]


def _state_once_visible(run: GridRun, store: Store) -> str:
    """What the record of a run says that has been written."""
    deadline = time.monotonic() + _VISIBLE
    while (state := store.state(run.file, run.config.precision)) is None:
        if time.monotonic() > deadline:
            raise UserError(
                f"{run.file} was written, but is not to be seen in {store.address} from here; "
                "--out must be a folder that all machines share, or an address."
            )
        time.sleep(_TICK)
    return state


class LocalExecutor:
    """A process of this machine for each run: a crash takes one run down, not the sweep.

    Processes share the cores evenly, and take turns at the GPUs.

    Args:
        processes: how many at once.
        minutes: after so many no run is begun any more; its outcome is "left".
    """

    def __init__(self, store: Store, processes: int = 1, minutes: float = math.inf):
        self._store = store
        self._end = time.monotonic() + 60 * minutes
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(processes)
        self._children: set[subprocess.Popen] = set()
        self._closed = False
        self._cleanup = contextlib.ExitStack()
        self._environments = SimpleQueue()  # of the processes that work at once
        threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // processes))}
        gpus = _visible_gpus()
        sharing = {}
        if processes > len(gpus) == 1:
            sharing = self._cleanup.enter_context(_sharing(gpus[0]))
        for number in range(processes):
            gpu = {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}
            self._environments.put(threads | os.environ | gpu | sharing)

    def submit(self, run: GridRun) -> Future[str]:
        return self._pool.submit(self._run, run)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
        children = list(self._children)  # none is added any more
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._cleanup.close()

    def _run(self, run: GridRun) -> str:
        if time.monotonic() > self._end:
            return "left"
        log = self._store.log(run.file)
        job = {
            "settings": run.config.values(),
            "out": self._store.address,
            "file": run.file,
            "reuse": self._store.reuse,
            "keep_model": self._store.keep_model,
        }
        environment = self._environments.get()
        earlier = log.stat().st_size if log.exists() else 0  # bytes of a sweep that was killed
        try:
            for _ in range(RETRIES + 1):
                code, status = self._attempt(json.dumps(job), environment, log)
                if status:
                    return status
                if code >= 0:
                    break
            raise RunFailed(_reason(code, log, earlier))
        finally:
            self._environments.put(environment)

    def _attempt(self, job: str, environment: Mapping[str, str], log: Path) -> tuple[int, str]:
        """The exit code of a process that does a run, and the run's status, "" if it gave none."""
        with _open_log(log) as output, self._lock:
            if self._closed:
                raise RunFailed("the sweep was stopped")
            child = subprocess.Popen(
                [sys.executable, "-m", "mtlib.sweeps.worker"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
            self._children.add(child)
        status, _ = child.communicate(job)
        self._children.discard(child)
        return child.returncode, status.strip()


class RayExecutor:
    """A Ray task for each run, in a worker of its own, with a request for cores and GPUs.

    It needs the extra `cluster`. Ray starts a task again whose worker or machine has died; the run
    goes on from its checkpoint where its folder is still there. An error of the run itself is not
    tried again.

    Args:
        address: of the cluster; "auto": the one that this machine belongs to; "local": a new one
            on this machine.
        cpus: cores for each run.
        gpus: for each run, 0 to 1; None: 1 where the cluster has any.
    """

    def __init__(
        self, store: Store, address: str = "auto", cpus: float = 1, gpus: float | None = None
    ):
        # 20, its default, are a quarter of an hour of silence
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
        import ray

        self._ray = ray
        self._store = store
        self._references = {}
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(ray, address)
        try:
            gpus = _gpus_of_a_run(ray, cpus, gpus)
        except UserError:
            self.close()
            raise
        # a fresh worker for each run (`max_calls`): peak memory is a process's, and a GPU's memory
        # is given back for certain
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=1)
        self._task = remote(execute_run)

    def submit(self, run: GridRun) -> Future[str]:
        store = self._store
        reference = self._task.remote(
            run.config.values(), store.address, run.file, store.reuse, store.keep_model
        )
        future = reference.future()
        self._references[future] = reference
        return future

    def close(self) -> None:
        for future, reference in self._references.items():
            if not future.done():
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(reference, force=True)
        if self._connected_here:
            self._ray.shutdown()


# --- what the local executor needs ---


def _reason(code: int, log: Path, earlier: int) -> str:
    """Why a process failed: the last error in its log, or else the log's last line.

    The first `earlier` bytes of the log do not count.
    """
    if code < 0:
        return f"its process was killed (signal {-code}) {RETRIES + 1} times"
    text = log.read_bytes()[earlier:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    return lines[-1] if lines else f"its process ended with exit code {code}"


@contextlib.contextmanager
def _sharing(gpu: str) -> Iterator[dict[str, str]]:
    """The variables of processes that compute on one GPU at the same time.

    NVIDIA's service for that runs inside the block. Without it they take turns: 116 steps a second
    of eight processes together, with it 370 (a tiny model on an H100).
    """
    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:  # one that the user has started
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        folders = dict.fromkeys(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"), folder)
        daemon = "nvidia-cuda-mps-control"
        options = {
            "env": os.environ | folders | {"CUDA_VISIBLE_DEVICES": gpu},
            "capture_output": True,
        }
        try:
            subprocess.run([daemon, "-d"], check=True, **options)
        except (OSError, subprocess.CalledProcessError):
            message = "cannot be started: processes take turns at the GPU, some three times slower"
            print(f"{daemon} {message}", file=sys.stderr)
            yield {}
            return
        try:
            # 0 as the service numbers those that it sees
            yield folders | {"CUDA_VISIBLE_DEVICES": "0"}
        finally:
            subprocess.run([daemon], input=b"quit\n", check=False, **options)


def _visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(index) for index in range(torch.cuda.device_count())]
    if visible.startswith("-1"):  # none, as CUDA reads it
        return []
    return [name for name in visible.split(",") if name]


# --- what the executor on a cluster needs ---


def _connect(ray, address: str) -> None:
    print(f"connecting to the Ray cluster at {address!r} ...", file=sys.stderr, flush=True)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at {address!r}, or it wants its token here ({error}); start one with "
            "`ray start --head`, or give --address local."
        ) from error


def _gpus_of_a_run(ray, cpus: float, gpus: float | None) -> float:
    """How many GPUs Ray is asked for.

    Raises:
        UserError: no machine of the cluster has so many, or so many CPUs; Ray would wait for ever.
    """
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    machines = [(of_one.get("CPU", 0), of_one.get("GPU", 0)) for of_one in resources]
    if gpus is None:
        gpus = float(any(has_gpus for _, has_gpus in machines))
    if not any(has_cpus >= cpus and has_gpus >= gpus for has_cpus, has_gpus in machines):
        there = ", ".join(f"{has_cpus:g} + {has_gpus:g}" for has_cpus, has_gpus in machines)
        raise UserError(
            f"a run asks for {cpus:g} CPUs + {gpus:g} GPUs; the machines of the cluster have "
            f"{there}. Ask for less with --cpus-per-run and --gpus-per-run."
        )
    return gpus
