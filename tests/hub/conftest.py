"""The stand-in hub, and processes that are its clients."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.made_up import write_hub
from tests.hub.stand_in import serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def folder(tmp_path_factory) -> Path:
    return write_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def hub(folder):
    with serving(folder) as hub:
        yield hub


@pytest.fixture
def start(hub, tmp_path):
    """Start `python ...` as a client of the stand-in, with a cache of this test's own."""

    def start(*arguments: str, **environment: str) -> subprocess.Popen:
        ours = {
            "HF_ENDPOINT": hub.address,
            "MTLIB_RAW_ENDPOINT": hub.address,
            "MTLIB_TEST_HUB": str(hub.root),
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "site"), str(ROOT)]),
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.Popen(command, cwd=tmp_path, env=os.environ | ours | environment, **pipes)

    return start
