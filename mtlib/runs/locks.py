"""A run belongs to one process at a time, on all machines that share its folder."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from mtlib.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

_PATIENCE = 0.25  # seconds: another process may only be asking for the `holder`


class Busy(UserError):
    """Another process is doing this run. Try again later.

    The command line exits with code `EXIT_CODE`.
    """

    EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h


def lock_path(record: Path) -> Path:
    """The lock file of a run, by its record's path."""
    return record.parent / ".work" / f"{record.stem}.lock"


@contextlib.contextmanager
def claim(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, which says who holds it, for the length of the block.

    `Busy` if another process does. The kernel drops the lock when its process ends, however that
    ends: the next one takes over what a killed one left.
    """
    # an existence lock, filelock's substitute, would outlive a killed process
    lock = FileLock(path, timeout=_PATIENCE, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        who = holder(path) or "another process"
        raise Busy(f"{path.stem} is being run by {who}; wait for it, or stop it.") from None
    except OSError as error:
        raise UserError(
            f"{path.parent} cannot hold a lock ({error}); give a folder on another file system."
        ) from error
    try:
        with contextlib.suppress(OSError):  # a full disk; the lock holds all the same
            path.write_text(f"{platform.node()}, process {os.getpid()}\n")
        yield
    finally:
        if fcntl is not None:  # FileLock does not accept a file that has been removed
            path.unlink(missing_ok=True)
        lock.release()  # on Windows it removes the file


def holder(path: Path) -> str | None:
    """Who holds the lock file, or None if nobody does.

    A lock asked for exclusively would look like a run to the next who asks.
    """
    if fcntl is None:
        return None
    try:
        with open(path) as file:
            try:
                # shared: several processes may ask at once
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return file.read().strip() or "another process"
    except OSError:  # no such file, or no locks on this file system
        pass
    return None
