"""A run belongs to one process at a time."""

import os

import pytest

from mtlib.runs.locks import Busy, claim, holder


def test_one_holder_at_a_time(tmp_path):
    lock = tmp_path / ".work" / "a.lock"
    assert holder(lock) is None
    with claim(lock):
        assert f"process {os.getpid()}" in holder(lock)
        with pytest.raises(Busy, match=rf"a is being run by .*process {os.getpid()}"), claim(lock):
            pass
        with claim(lock.with_name("b.lock")):
            pass
    assert not [*lock.parent.iterdir()]


def test_what_a_killed_process_leaves_is_taken_over(tmp_path):
    (tmp_path / ".work").mkdir()
    lock = tmp_path / ".work" / "a.lock"
    lock.write_text("elsewhere, process 1\n")
    assert holder(lock) is None
    with claim(lock):
        assert holder(lock).endswith(f"process {os.getpid()}")
