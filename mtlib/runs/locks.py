"""A run belongs to one process at a time, on all machines that share its folder."""

import contextlib
import fcntl
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mtlib.errors import UserError


class Busy(UserError):
    """Another process is at it. Worth trying again later; the command line exits with code `EXIT_CODE`."""

    EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h


@contextlib.contextmanager
def claim(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; it says who holds it, and goes away afterwards.

    The lock is the kernel's (`flock`; NFS passes it on between machines), which drops it when its process ends, however
    that ends: what a killed process leaves behind is an unlocked file, and the next one takes it over.

    Raises:
        Busy: another process holds it.
    """
    lock = _lock(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: whoever has opened this file sees that it is no longer the one
        os.close(lock)
        with contextlib.suppress(OSError):  # others may be using the folder
            path.parent.rmdir()


def holder(path: Path) -> str | None:
    """Who holds the lock file, or None if nobody does."""
    try:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return file.read().strip() or "another process"
            return None
    except OSError:  # no such file, or no locks on this file system
        return None


def _lock(path: Path) -> int:
    """A descriptor of the file, locked."""
    patience = 5  # somebody may only be asking for the `holder`
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the folder has just gone with the last run in it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            who = os.read(lock, 1000).decode().strip()
            os.close(lock)
            if not patience:
                raise Busy(
                    f"{path.stem} is being run by {who or 'another process'}; wait for it, or stop it."
                ) from None
            patience -= 1
            time.sleep(0.05)
            continue
        except OSError as error:
            text = f"no locks in {path.parent} ({error.strerror}): see to it that each run is started once"
            print(text, file=sys.stderr)
        if _is_current(lock, path):
            with contextlib.suppress(OSError):  # a full disk; the lock holds all the same
                os.truncate(lock, 0)
                os.write(lock, f"{platform.node()}, process {os.getpid()}\n".encode())
            return lock
        os.close(lock)


def _is_current(lock: int, path: Path) -> bool:
    """Whether the open file is the one that stands at the path, not one that its last holder has removed."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
