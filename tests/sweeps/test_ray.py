"""The Ray engine on a cluster of two workers on this machine."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

if not os.environ.get("MTLIB_FAULTS"):  # before Ray is imported
    pytest.skip("takes minutes: make faults", allow_module_level=True)

# Ray asks every process that joins a cluster for its token: one for these tests alone, read when
# Ray is imported
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[cluster]'")

from mtlib.errors import UserError  # noqa: E402
from mtlib.sweeps import executors  # noqa: E402
from mtlib.sweeps.executors import RayExecutor  # noqa: E402
from mtlib.sweeps.store import Store  # noqa: E402
from mtlib.sweeps.sweep_file import expand, identify  # noqa: E402
from tests.sweeps.faults import (  # noqa: E402
    a_worker_killed,
    check_each_recorded_once,
    kill_in_mid_run,
    run_two_at_once,
    write_sweep,
)


@pytest.fixture(scope="module")
def address():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]), prepend=os.pathsep)
        for tries_left in range(
            4, -1, -1
        ):  # on a busy machine Ray's own 30 seconds may be too short
            try:
                ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
                break
            except Exception:
                if not tries_left:
                    raise
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


def test_driver_and_worker_killed_and_two_sweeps_at_once(address, model, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "_BUSY", 1.0)
    file, out = write_sweep(tmp_path, model, "max_length: 64"), tmp_path / "out"
    command = [sys.executable, *f"-m mtlib sweep {file} --out file://{out} --engine ray".split()]
    with subprocess.Popen([*command, "--address", address], stdout=subprocess.DEVNULL) as driver:
        kill_in_mid_run(driver.pid, out)  # Ray ends its run
    with a_worker_killed(out):
        outcomes = run_two_at_once(file, out, RayExecutor)
    assert {outcome.status for outcome in outcomes} <= {"there", "written"}, outcomes
    (record,) = check_each_recorded_once(out, outcomes)
    assert record["cost"]["interruptions"] in (
        1,
        2,
    )  # the worker may have been killed before it noted the first


def test_a_run_that_always_fails(address, model, tmp_path):
    place = Store(str(tmp_path / "out"))
    grid_runs = identify(
        expand(write_sweep(tmp_path, model, "max_length: 65"))
    )  # the model reads 64
    (outcome,) = executors.execute(grid_runs, RayExecutor(place), place)
    assert outcome.status == "failed" and outcome.detail.startswith("max_length is 65; "), outcome
    assert "Traceback" in place.log(outcome.run.file).read_text()


def test_a_request_that_no_machine_can_meet(address, tmp_path):
    with pytest.raises(
        UserError, match=r"a run asks for 3 CPUs \+ 0 GPUs; the machines of the cluster have 2 \+ 0"
    ):
        RayExecutor(Store(str(tmp_path)), cpus=3)
