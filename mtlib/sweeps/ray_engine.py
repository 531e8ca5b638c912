"""The engine that does a sweep's runs on a Ray cluster (extra `cluster`)."""

import contextlib
import logging
import os
import sys
from concurrent.futures import Future

from mtlib.errors import UserError
from mtlib.sweeps.engines import RETRIES
from mtlib.sweeps.store import Store
from mtlib.sweeps.sweep_file import GridRun
from mtlib.sweeps.worker import carry_out


class RayEngine:
    """A Ray task for each run, in a worker of its own, with a request for cores and GPUs.

    Ray starts a task again whose worker or machine has died; the run goes on from its checkpoint where its folder is
    still there. An error of the run itself is not tried again.

    Args:
        address: of the cluster; "auto": the one that this machine belongs to; "local": a new one on this machine.
        cpus: cores for each run.
        gpus: for each run, 0 to 1; None: 1 where the cluster has any.
    """

    def __init__(self, store: Store, address: str = "auto", cpus: float = 1, gpus: float | None = None):
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # 20, its default, are a quarter of an hour of silence
        import ray

        self._ray, self._store, self._references = ray, store, {}
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(ray, address)
        try:
            gpus = _check_request(ray, cpus, gpus)
        except UserError:
            self.close()
            raise
        # a fresh worker for each run: peak memory is a process's, and a GPU's memory is given back for certain
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(carry_out)

    def submit(self, run: GridRun) -> Future[str]:
        reference = self._task.remote(run.config.values(), self._store.address, run.file)
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
    """The GPUs of each run, if some machine of the cluster has what a run asks for (else Ray would wait for ever)."""
    machines = [(of.get("CPU", 0), of.get("GPU", 0)) for of in (n["Resources"] for n in ray.nodes() if n["Alive"])]
    if gpus is None:
        gpus = 1.0 if any(has_gpus for _, has_gpus in machines) else 0.0
    if not any(has_cpus >= cpus and has_gpus >= gpus for has_cpus, has_gpus in machines):
        largest = ", ".join(f"{has_cpus:g} + {has_gpus:g}" for has_cpus, has_gpus in machines)
        raise UserError(
            f"a run asks for {cpus:g} CPUs + {gpus:g} GPUs; the machines of the cluster have {largest}. Ask for less "
            "with --cpus-per-run and --gpus-per-run."
        )
    return gpus
