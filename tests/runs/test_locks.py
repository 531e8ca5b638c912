"""Locks: one holder at a time, and none left behind by a process that was killed."""

import os

import pytest

from mtlib import cli
from mtlib.runs.config import command_line
from mtlib.runs.inputs import read_inputs
from mtlib.runs.locks import Busy, claim, holder, lock_path
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)


def test_one_holder_at_a_time(tmp_path):
    lock = tmp_path / ".work" / "a.lock"
    assert holder(lock) is None
    with claim(lock):
        assert f"process {os.getpid()}" in holder(lock)
        with pytest.raises(Busy, match=rf"a is being run by .*process {os.getpid()}"), claim(lock):
            pass
        with claim(lock.with_name("b.lock")):
            pass
    assert not lock.parent.exists()


def test_what_a_killed_process_leaves_is_taken_over(tmp_path):
    (tmp_path / ".work").mkdir()
    lock = tmp_path / ".work" / "a.lock"
    lock.write_text("elsewhere, process 1\n")
    assert holder(lock) is None
    with claim(lock):
        assert holder(lock).endswith(f"process {os.getpid()}")


def test_a_run_that_another_process_is_at(testbed, model, tmp_path, monkeypatch):  # noqa: F811
    settings = config(model, epochs=1.0)
    lock = lock_path(read_inputs(settings).record_path(tmp_path))
    monkeypatch.setattr(cli.sys, "argv", ["mtlib", "run", *command_line(settings), "--out", str(tmp_path)])
    with claim(lock), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Busy.EXIT_CODE and not list(tmp_path.glob("*.json"))
