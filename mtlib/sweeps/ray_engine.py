"""The engine that does a sweep's runs on a Ray cluster (extra `cluster`)."""

import contextlib
import logging
import os
import platform
import sys
import time
import traceback

from mtlib.errors import UserError
from mtlib.runs import run as runs
from mtlib.runs.config import RunConfig
from mtlib.runs.locks import Busy
from mtlib.sweeps.engines import Outcome
from mtlib.sweeps.grid import Planned
from mtlib.sweeps.store import Store


class RayEngine:
    """A Ray task for each run, in a worker of its own, with a request for cores and GPUs.

    Ray starts a task again whose worker or machine has died; the run goes on from its checkpoint where its folder is
    still there. An error of the run itself is not tried again.

    Args:
        address: of the cluster; "auto": the one that this machine belongs to; "local": a new one on this machine.
        cpus: cores for each run.
        gpus: for each run, 0 to 1; None: 1 where the cluster has any.
    """

    def __init__(
        self, store: Store, address: str = "auto", cpus: float = 1, gpus: float | None = None, retries: int = 2
    ):
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # 20, its default, are a quarter of an hour of silence
        try:
            import ray
        except ImportError as error:
            raise UserError("--engine ray needs Ray on every machine: `pip install 'mtlib[cluster]'`.") from error
        self._ray, self.store = ray, store
        self._pending: dict = {}
        self._own = not ray.is_initialized()
        if self._own:
            new = {"include_dashboard": False} if address == "local" else {}
            if address != "local":
                print(f"connecting to the Ray cluster at {address!r} ...", file=sys.stderr, flush=True)
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **new)
            except (ConnectionError, ValueError) as error:
                raise UserError(
                    f"no Ray cluster at {address!r}, or it wants its token here ({error}); start one with `ray start "
                    "--head`, or give --address local."
                ) from error
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if gpus is None:
            gpus = 1.0 if any(machine.get("GPU") for machine in machines) else 0.0
        if not any(machine.get("CPU", 0) >= cpus and machine.get("GPU", 0) >= gpus for machine in machines):
            largest = ", ".join(f"{machine.get('CPU', 0):g} + {machine.get('GPU', 0):g}" for machine in machines)
            self.close()
            raise UserError(
                f"a run asks for {cpus:g} CPUs + {gpus:g} GPUs; the machines of the cluster have {largest}."
            )
        # a fresh worker for each run: peak memory is a process's, and a GPU's memory is given back for certain
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries, max_calls=1)(_run_on_worker)

    def has_room(self) -> bool:
        return True  # Ray keeps the queue

    def start(self, run: Planned) -> None:
        self._pending[self._task.remote(run.config, self.store.address, run.file)] = (run, time.monotonic())

    def finished(self) -> list[Outcome]:
        if not self._pending:
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        return [self._outcome(reference) for reference in ready]

    def active(self) -> list[tuple[Planned, float]]:
        return [(run, time.monotonic() - begun) for run, begun in self._pending.values()]

    def close(self) -> None:
        for reference in self._pending:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        if self._own:
            self._ray.shutdown()

    def _outcome(self, reference) -> Outcome:
        run, begun = self._pending.pop(reference)
        took = time.monotonic() - begun
        try:
            status, detail, log = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # the worker has died once too often, or cannot load mtlib
            return Outcome(run, "failed", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}", took)
        if status == "written" and detail != run.file:
            text = f"the worker made {detail}: it has other data, another model or another mtlib than this machine"
            return Outcome(run, "failed", text, took)
        return Outcome(run, status, detail, took, log)


def _run_on_worker(config: RunConfig, out: str, name: str) -> tuple[str, str, str]:
    """Status, detail and log of an outcome; for a record written, its name as the detail."""
    store = Store(out)
    try:
        path, _ = runs.run(config, store.folder)
        store.put(path)
        return "written", path.name, ""
    except Busy as error:
        return "busy", str(error), ""
    except Exception as error:
        log = store.log(name)
        with contextlib.suppress(OSError):  # a full disk
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(traceback.format_exc(), encoding="utf-8")
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return "failed", text, f"{log} on {platform.node()}"
