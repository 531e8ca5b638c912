"""A sweep on a Ray cluster of three machines: a worker is cut off in mid-run and healed, and the
head is restarted.
"""

import importlib.util
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mtlib.runs.records import holder
from mtlib.sweeps.executors import Outcome
from mtlib.sweeps.sweep_file import expand, identify
from tests.sweeps import network
from tests.sweeps.faults import check_each_recorded_once, needs_minutes, write_sweep

HEAD = "10.77.0.1:6379"
PATIENCE = 1200  # seconds until a test gives up
TRIES = 5  # to join the cluster
RAY = (sys.executable, "-m", "ray.scripts.scripts")
ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    # seconds instead of a minute until head and worker give one another up
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "2",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
    "TMPDIR": "/mnt",
    "OMP_NUM_THREADS": "1",
}


class Cluster:
    """Ray on three machines: a head that does no runs, and two workers that do one at a time."""

    def __init__(self, machines: list[network.Machine], log: Path):
        self.head, *self.workers = self.machines = machines
        self._log = log
        root = Path(__file__).resolve().parents[2]
        paths = f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self._environment = os.environ | ENVIRONMENT | {"PYTHONPATH": paths}

    def start(self, machine: network.Machine) -> subprocess.Popen:
        """Have the machine begin the cluster or join it; the process ends when it leaves the
        cluster.

        Tried a few times, as a service manager would: on a busy machine Ray's own 30 seconds may be
        too short.
        """
        role = f"--head --port {HEAD.rpartition(':')[2]} --num-cpus 0 --include-dashboard=false"
        if machine is not self.head:
            role = f"--address {HEAD} --num-cpus 1"
        options = f"--block --node-ip-address {machine.address} --object-store-memory 100000000"
        for _ in range(TRIES):
            log = self._log / f"{machine.name}-{time.monotonic_ns()}.log"
            process = self._run(machine, log, *RAY, "start", *role.split(), *options.split())
            wait_until(
                lambda log=log, process=process: (
                    process.poll() is not None or "runtime started" in log.read_text()
                )
            )
            if process.poll() is None:
                return process
        raise AssertionError(log.read_text())

    def sweep(self, file: Path, out: Path, log: Path) -> subprocess.Popen:
        """Start a sweep on the head."""
        options = ("--out", out, "--engine", "ray", "--address", HEAD)
        return self._run(self.head, log, sys.executable, "-m", "mtlib", "sweep", file, *options)

    def _run(self, machine: network.Machine, log: Path, *command: object) -> subprocess.Popen:
        with open(log, "a") as output:
            return machine.start(*command, env=self._environment, stdout=output, stderr=output)


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"it has not happened in {PATIENCE} seconds"
        time.sleep(0.2)


def at_work(out: Path) -> set[str]:
    """Names of the machines that are doing a run that has a checkpoint."""
    holders = [
        holder(clock.parent.with_suffix(".lock")) or "" for clock in out.glob(".work/*/clock.json")
    ]
    return {who.partition(",")[0] for who in holders}


@contextmanager
def cluster(log: Path) -> Iterator[Cluster]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[cluster]'")
    if reason := network.obstacle():
        pytest.skip(reason)
    with network.machines("head", "worker1", "worker2") as machines:
        yield Cluster(machines, log)


@needs_minutes
def test_a_worker_cut_off_and_the_head_restarted(model, tmp_path):
    out, log = tmp_path / "out", tmp_path / "sweep.log"
    with cluster(tmp_path) as ray:
        head, *workers = ray.machines
        joined = [ray.start(machine) for machine in ray.machines]

        sweep = ray.sweep(write_sweep(tmp_path, model, "max_length: 64\nseeds: 2"), out, log)
        wait_until(lambda: workers[1].name in at_work(out) or sweep.poll() is not None)
        workers[1].cut_off()
        joined[2].wait(PATIENCE)  # it gives the head up, and the head gives it up
        workers[1].heal()
        joined[2] = ray.start(workers[1])
        assert sweep.wait(PATIENCE) == 0, log.read_text()
        before = {path: path.read_bytes() for path in out.glob("*.json")}
        assert len(before) == 2

        file = write_sweep(tmp_path, model, "max_length: 64\nseeds: 4")
        sweep = ray.sweep(file, out, log)
        wait_until(lambda: len(at_work(out)) == 2 or sweep.poll() is not None)  # both workers
        assert sweep.poll() is None, log.read_text()
        head.kill_all()  # and with it the process that drives the sweep
        for process in joined:
            process.wait(PATIENCE)
        for machine in ray.machines:
            ray.start(machine)
        assert ray.sweep(file, out, log).wait(PATIENCE) == 0, log.read_text()
    check_each_recorded_once(out, [Outcome(run, "written") for run in identify(expand(file))])
    assert before == {path: path.read_bytes() for path in before}
