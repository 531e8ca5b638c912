"""Where the records of a sweep end up: a folder, or any address that fsspec can write to (`s3://bucket/folder`)."""

import contextlib
import hashlib
import os
import platform
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.runs.locks import holder
from mtlib.runs.records import parse_json, parse_record, read_records
from mtlib.runs.run import lock_path


class Store:
    """Records by file name.

    Runs work in `folder`: the place itself where that is a folder, else a temporary folder of the machine, from which
    `put` moves finished records. An interrupted run resumes where its folder is, so with an address only on the machine
    that began it.

    Args:
        out: folder, or address such as `s3://bucket/folder`; credentials are the file system's own affair. `address` is
            the same for any process: an absolute path, or `out`.
    """

    def __init__(self, out: str):
        try:
            self._system, self._root = fsspec.url_to_fs(out) if "://" in out else (None, out)
        except (ImportError, ValueError) as error:
            raise UserError(f"cannot write to {out}: {error}") from error
        if self._system is None or isinstance(self._system, LocalFileSystem):
            self._system, self.folder = None, Path(self._root).absolute()
            self.address = str(self.folder)
        else:
            self.address = out
            name = hashlib.sha256(out.encode()).hexdigest()[:10]
            self.folder = Path(tempfile.gettempdir()) / f"mtlib-{os.getuid()}" / name

    def check_writable(self) -> None:
        """Raise `UserError` where a record could not be written."""
        make_writable(self.folder)
        if self._system is not None:
            self._write(f".{uuid.uuid4().hex}.probe", b"", keep=False)

    def has(self, name: str) -> bool:
        if self._system is None:
            return (self.folder / name).exists()
        with self._errors("read from"):
            self._system.invalidate_cache()
            return self._system.exists(f"{self._root}/{name}")

    def state(self, name: str) -> str | None:
        """What a record says of its run: "there", or "diverged" if training did; None where there is no record."""
        if not self.has(name):
            return None
        with self._errors("read from"):
            path = self.folder / name
            content = path.read_bytes() if self._system is None else self._system.cat_file(f"{self._root}/{name}")
        return "diverged" if parse_json(content, f"{name} in {self.address}").get("diverged") else "there"

    def put(self, path: Path) -> None:
        """Have the record of a finished run where it belongs, whole or not at all. A record that is there stays."""
        if self._system is None:
            return
        try:
            if not self.has(path.name):  # a machine that was cut off may have written it meanwhile
                self._write(path.name, path.read_bytes())
        except FileNotFoundError:  # another sweep on this machine has just done so
            if not self.has(path.name):
                raise
        path.unlink(missing_ok=True)

    def records(self) -> list[dict]:
        if self._system is None:
            return read_records([self.folder]) if self.folder.is_dir() else []
        with self._errors("read from"):
            paths = self._system.glob(f"{self._root}/*.json")
            contents = {path.rpartition("/")[2]: self._system.cat_file(path) for path in paths}
        records = [parse_record(content, f"{name} in {self.address}") for name, content in contents.items()]
        return [record for record in records if record is not None]

    def holder(self, name: str) -> str | None:
        """Who is doing a run, as far as can be seen from here."""
        return holder(lock_path(self.folder / name))

    def log(self, name: str) -> Path:
        """Where this process puts a run's error output. Not shared: two sweeps may start a run at the same moment."""
        return lock_path(self.folder / name).with_suffix(f".{platform.node()}-{os.getpid()}.log")

    def remove_logs(self, name: str) -> None:
        """Those of a run that is finished, whoever wrote them."""
        lock = lock_path(self.folder / name)
        for path in lock.parent.glob(f"{lock.stem}.*.log"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there is none, or others have files in it
            lock.parent.rmdir()

    def _write(self, name: str, content: bytes, keep: bool = True) -> None:
        part = f"{self._root}/.{name}.{uuid.uuid4().hex}.part"
        with self._errors("write to"):
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(part, content)
            if keep:  # a rename, or where there is none (object stores) a copy, which is there whole or not at all
                self._system.mv(part, f"{self._root}/{name}")
            else:
                self._system.rm_file(part)

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Every file system has errors of its own: turn them into `UserError`."""
        try:
            yield
        except Exception as error:
            raise UserError(f"cannot {action} {self.address}: {str(error) or type(error).__name__}") from error
