"""Processes that load torch are started with threads that do not spin.

Unless the user has said otherwise.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

QUIET = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
MAKEFILE = ROOT / "Makefile"
PRINT = "print: ; @echo $$GOMP_SPINCOUNT $$KMP_BLOCKTIME"
USERS = [
    {"OMP_WAIT_POLICY": "active"},
    {"GOMP_SPINCOUNT": "7"},
    {"KMP_BLOCKTIME": "0"},
    {"KMP_LIBRARY": "serial"},
]
NAMES = {name for settings in USERS for name in settings}


@pytest.fixture
def unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("users", [{}, *USERS])
def test_importing_mtlib_sets_it_before_torch_is_loaded(unset, users):
    code = "import json, os, sys, mtlib; assert 'torch' not in sys.modules; "
    code += "print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | users
    )
    found = json.loads(done.stdout)
    assert {name: found[name] for name in found.keys() & NAMES} == (users or QUIET)


@pytest.mark.parametrize("users", [{}, {"GOMP_SPINCOUNT": "7"}])
def test_make_sets_it_too(unset, users):
    command = ["make", "-s", "-f", MAKEFILE, "--eval", PRINT, "print"]
    environ = os.environ | users
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == (["7"] if users else list(QUIET.values()))
