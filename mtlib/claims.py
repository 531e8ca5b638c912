"""A run belongs to one process at a time, on all machines that share its folder."""

import contextlib
import fcntl
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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
    file = _lock(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: whoever waits at this file will see that it is no longer the one
        file.close()
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


def _lock(path: Path) -> IO[str]:
    patience = 5  # somebody may only be asking for the `holder`
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (open for as long as the lock is held)
        except FileNotFoundError:  # the folder has just gone with the last run in it
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            who = file.read().strip()
            file.close()
            if patience:
                patience -= 1
                time.sleep(0.05)
                continue
            raise Busy(f"{path.stem} is being run by {who or 'another process'}; wait for it, or stop it.") from None
        except OSError as error:
            print(
                f"no locks in {path.parent} ({error.strerror}): see to it that each run is started once",
                file=sys.stderr,
            )
        if _is_current(file, path):
            file.truncate(0)
            file.write(f"{platform.node()}, process {os.getpid()}\n")
            file.flush()
            return file
        file.close()


def _is_current(file: IO[str], path: Path) -> bool:
    """Whether the open file is the one that stands at the path, not one that its last holder has removed."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
