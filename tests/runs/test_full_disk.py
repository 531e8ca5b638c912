"""A run whose disk is full: an error that says so, and nothing half written."""

import errno
import os
import subprocess

import pytest

from mtlib.errors import UserError
from mtlib.runs import records
from mtlib.runs import run as runs
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)


def test_full_disk_leaves_nothing_half_written(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(records.os, "fsync", full)
        runs.run(config(model, epochs=1), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".work"]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".part", ".lock")]
    assert not runs.run(config(model, epochs=1), tmp_path / "out")[1]


def test_truly_full_disk(testbed, model, tmp_path):  # noqa: F811
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        with pytest.raises(UserError, match=r"cannot write to .*no space left"):
            runs.run(config(model, epochs=20), small)  # checkpoints do not fit
        assert not list(small.glob("*.json"))
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
