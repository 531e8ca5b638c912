"""Processes that load torch are started with threads that do not spin.

Unless the user has said otherwise.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtlib.threads import quiet_openmp

QUIET = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
PRINT = "print: ; @echo $$GOMP_SPINCOUNT $$KMP_BLOCKTIME"
USERS = [
    {"OMP_WAIT_POLICY": "active"},
    {"GOMP_SPINCOUNT": "7"},
    {"KMP_BLOCKTIME": "0"},
    {"KMP_LIBRARY": "serial"},
]


@pytest.fixture
def unset(monkeypatch):
    for name in {name for settings in USERS for name in settings}:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("users", [{}, *USERS])
def test_a_users_own_setting_stays(users):
    environ = {"HOME": "/", **users}
    assert quiet_openmp(environ) is environ
    assert environ == {"HOME": "/", **(users or QUIET)}


@pytest.mark.parametrize(
    ("before", "users", "quiet"),
    [
        ("", {}, True),
        ("", {"OMP_WAIT_POLICY": "active"}, False),
        ("sys.modules['torch'] = None; ", {}, False),
    ],
)
def test_importing_mtlib_sets_it_where_torch_is_not_loaded_yet(unset, before, users, quiet):
    code = f"import os, sys; {before}import mtlib; assert not sys.modules.get('torch'); "
    code += "print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('KMP_BLOCKTIME'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | users
    )
    assert done.stdout.strip() == ("1000 1" if quiet else "None None"), done.stderr


@pytest.mark.parametrize("users", [{}, {"GOMP_SPINCOUNT": "7"}])
def test_make_sets_it_too(unset, users):
    command = ["make", "-s", "-f", MAKEFILE, "--eval", PRINT, "print"]
    environ = os.environ | users
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == (["7"] if users else list(QUIET.values()))
