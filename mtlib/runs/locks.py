"""A run belongs to one process at a time, on all machines that share its folder."""

import contextlib
import errno
import fcntl
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from mtlib.errors import UserError

_PATIENCE = 0.25  # seconds: another process may only be asking for the `holder`
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers


class Busy(UserError):
    """Another process is doing this run. Try again later; the command line exits with code `EXIT_CODE`."""

    EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h


@contextlib.contextmanager
def claim(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block. The file says who holds it, and is removed afterwards.

    The lock is the kernel's (`flock`; NFS passes it on between machines), which drops it when its process ends, however
    that ends. What a killed process leaves behind is an unlocked file, and the next process takes it over.

    Raises:
        Busy: another process holds it.
    """
    # an existence lock, filelock's substitute, would outlive a killed process
    lock = FileLock(path, timeout=_PATIENCE, fallback_to_soft=False)
    _acquire(lock, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is locked: FileLock does not accept a file that has been removed
        lock.release()
        with contextlib.suppress(OSError):  # others may be using the folder
            path.parent.rmdir()


def holder(path: Path) -> str | None:
    """Who holds the lock file, or None if nobody does."""
    try:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several processes may ask at once
            except (BlockingIOError, PermissionError):
                return file.read().strip() or "another process"
            return None
    except OSError:  # no such file, or no locks on this file system
        return None


def _acquire(lock: FileLock, path: Path) -> None:
    while not lock.is_locked:
        try:
            lock.acquire()
        except FileNotFoundError:  # the folder has just been removed with the last run in it
            continue
        except Timeout:
            who = holder(path) or "another process"
            raise Busy(f"{path.stem} is being run by {who}; wait for it, or stop it.") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            text = f"no locks in {path.parent} ({error.strerror}): see to it that each run is started once"
            print(text, file=sys.stderr)
            return
    with contextlib.suppress(OSError):  # a full disk; the lock holds all the same
        path.write_text(f"{platform.node()}, process {os.getpid()}\n")
