"""The Ray engine on a cluster of two workers on this machine."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mtlib[cluster]'")

from mtlib import engines  # noqa: E402
from mtlib.errors import UserError  # noqa: E402
from mtlib.ray_engine import RayEngine  # noqa: E402
from mtlib.store import Store  # noqa: E402
from mtlib.sweep import expand, plan  # noqa: E402
from tests.faults import (  # noqa: E402
    check_each_recorded_once,
    kill_in_mid_run,
    run_two_at_once,
    run_with_a_killed_worker,
    write_sweep,
)
from tests.test_runs import model  # noqa: E402, F401  (fixture)


@pytest.fixture(scope="module")
def address():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        # from 2.59 on Ray asks every process that joins for a token: one for this cluster alone
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]), prepend=os.pathsep)
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


def test_killed_worker_and_failing_run(address, model, tmp_path):  # noqa: F811
    place = Store(f"file://{tmp_path}/out")
    file = write_sweep(tmp_path, model, "max_length: [64, 65]")  # the model reads 64
    outcomes = run_with_a_killed_worker(file, place, RayEngine(place))
    good, bad = sorted(outcomes, key=lambda outcome: outcome.run.config.max_length)
    assert good.status == "written" and bad.status == "failed", outcomes
    assert bad.detail.startswith("max_length is 65; ") and "Traceback" in Path(bad.log.split(" on ")[0]).read_text()
    (record,) = place.records()
    assert record["cost"]["interruptions"] == 1 and record["cost"]["steps"] == 310
    assert [path.name for path in place.folder.glob("*.json*")] == [good.run.file]


def test_driver_killed_and_two_more_on_one_folder(address, model, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(engines, "_BUSY", 1.0)
    file, out = write_sweep(tmp_path, model, "max_length: 64\nseeds: 2"), tmp_path / "out"
    command = [sys.executable, "-m", "mtlib", "sweep", file, "--out", out, "--engine", "ray", "--address", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as driver:
        kill_in_mid_run(driver.pid, out)  # Ray ends its runs
    outcomes = run_two_at_once(file, out, RayEngine)
    assert len(outcomes) == 4 and {outcome.status for outcome in outcomes} == {"there", "written"}, outcomes
    assert max(record["cost"]["interruptions"] for record in check_each_recorded_once(out, file)) == 1


def test_a_request_that_no_machine_can_meet(address, tmp_path):
    with pytest.raises(UserError, match=r"a run asks for 3 CPUs \+ 0 GPUs; the machines of the cluster have 2 \+ 0"):
        RayEngine(Store(str(tmp_path)), cpus=3)


def test_another_machine_with_other_data(address, model, tmp_path):  # noqa: F811
    """As if it stood elsewhere: what the driver expects is not what the worker makes."""
    file = write_sweep(tmp_path, model, "max_length: 65")
    place = Store(str(tmp_path / "out"))
    (run,), _ = plan(expand(file))
    engine = RayEngine(place)
    engine._pending["x"] = (run, 0.0)
    engine._ray = type("Ray", (), {"get": lambda _: ("written", "other.json", ""), "exceptions": ray.exceptions})
    assert engine._outcome("x").detail.startswith("the worker made other.json")
