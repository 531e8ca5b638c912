"""The engine that does a sweep's runs on a Ray cluster (extra `cluster`)."""

import contextlib
import logging
import os
import sys

from mtlib.errors import UserError
from mtlib.sweeps.engines import Engine
from mtlib.sweeps.grid import GridRun
from mtlib.sweeps.store import Store
from mtlib.sweeps.worker import carry_out


class RayEngine(Engine):
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
        super().__init__(store)
        self._ray = ray
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(ray, address)
        try:
            gpus = _check_request(ray, cpus, gpus)
        except UserError:
            self.close()
            raise
        # a fresh worker for each run: peak memory is a process's, and a GPU's memory is given back for certain
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries, max_calls=1)(carry_out)

    def close(self) -> None:
        for reference in self._tasks:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        if self._connected_here:
            self._ray.shutdown()

    def _submit(self, run: GridRun):
        return self._task.remote(run.config.values(), self.store.address, run.file)

    def _ended(self) -> list:
        return self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)[0] if self._tasks else []

    def _answer(self, reference, run: GridRun) -> dict:
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # the worker has died once too often, or cannot load mtlib
            return {"status": "failed", "detail": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
        if "traceback" in answer:
            log, text = self.store.log(run.file), answer.pop("traceback")
            with contextlib.suppress(OSError):  # a full disk
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(text, encoding="utf-8")
                answer["log"] = str(log)
        return answer


def _connect(ray, address: str) -> None:
    local = {"include_dashboard": False} if address == "local" else {}
    if address != "local":
        print(f"connecting to the Ray cluster at {address!r} ...", file=sys.stderr, flush=True)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at {address!r}, or it wants its token here ({error}); start one with `ray start --head`, "
            "or give --address local."
        ) from error


def _check_request(ray, cpus: float, gpus: float | None) -> float:
    """The GPUs of each run, if some machine of the cluster has what a run asks for."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus is None:
        gpus = 1.0 if any(machine.get("GPU") for machine in machines) else 0.0
    if not any(machine.get("CPU", 0) >= cpus and machine.get("GPU", 0) >= gpus for machine in machines):
        largest = ", ".join(f"{machine.get('CPU', 0):g} + {machine.get('GPU', 0):g}" for machine in machines)
        raise UserError(
            f"a run asks for {cpus:g} CPUs + {gpus:g} GPUs; the machines of the cluster have {largest}. Ask for less "
            "with --cpus-per-run and --gpus-per-run."
        )
    return gpus
