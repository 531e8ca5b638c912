"""Where the records of a sweep end up.

A folder, or any address that fsspec can write to (`s3://bucket/folder`).
"""

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.runs.code import is_of_this_code, origin
from mtlib.runs.locks import holder, lock_path
from mtlib.runs.records import model_folder, parse_json

OTHER_CODE = "other code"


class Store:
    """Records by file name, each written once.

    Runs work in `folder`: the place itself where that is a folder, else a temporary folder of the
    machine, from which `finish` moves finished records. An interrupted run resumes where its folder
    is, so with an address only on the machine that began it.

    Args:
        out: folder, or address such as `s3://bucket/folder`, whose credentials the file system
            finds. `address` is the same for any process: an absolute path, or `out`.
        reuse: records count whatever code made them.
        keep_model: only records whose trained model was kept beside them count, which takes a
            folder.
    """

    def __init__(self, out: str, reuse: bool = False, keep_model: bool = False):
        self.address = out
        self.reuse = reuse
        self.keep_model = keep_model
        with self._errors("write to"):  # an address of no file system that is installed
            self._system, self._root = fsspec.url_to_fs(out)
        self._is_remote = not isinstance(self._system, LocalFileSystem)
        if self._is_remote:
            if keep_model:
                raise UserError(f"models are kept in a folder alone, and --out is {out}.")
            name = hashlib.sha256(out.encode()).hexdigest()[:10]
            self.folder = Path(tempfile.gettempdir(), f"mtlib-{os.getuid()}", name)
        else:
            self.folder = Path(self._root)
            self.address = str(self.folder)

    def check_writable(self) -> None:
        """Raise `UserError` where a record could not be written."""
        make_writable(self.folder)
        if self._is_remote:
            probe = f"{uuid.uuid4().hex}.probe"
            self._write(probe, b"")
            with self._errors("write to"):
                self._system.rm_file(f"{self._root}/{probe}")

    def state(self, name: str, precision: str = "auto") -> str | None:
        """What a record says of its run: "written", or "diverged" if training did.

        `OTHER_CODE` where that made it, unless such records are reused; None where there is no
        record, or where it lacks a model that is to be kept, or is a reused one in another
        precision than the one asked for ("auto": any will do).
        """
        record = self._record(name)
        if record is None:
            return None
        if precision != "auto" and record["config"]["precision"] != precision:
            return None
        if not self.reuse and not is_of_this_code(record.get("environment", {})):
            return OTHER_CODE
        if self.keep_model and not model_folder(self.folder / name, record).exists():
            return None
        return "diverged" if record.get("diverged") else "written"

    def origin(self, name: str) -> str:
        """Where a record that is there was made, in words."""
        return origin((self._record(name) or {}).get("environment", {}))

    def finish(self, name: str) -> str:
        """Have the files of a finished run where they belong; the run's state.

        Each file is there whole or not at all. A record that is there stays: a machine that was cut
        off may have written it meanwhile.
        """
        record = self.folder / name
        probabilities = record.with_suffix(".npz")
        if self._is_remote and record.exists():
            if self.state(name) is None:
                for path in (probabilities, record):  # the record last: it says that all is there
                    # no file where training diverged, or where another sweep has just moved it
                    with contextlib.suppress(FileNotFoundError):
                        self._write(path.name, path.read_bytes())
            for path in (record, probabilities):
                path.unlink(missing_ok=True)
        if (state := self.state(name)) is None:
            raise UserError(
                f"the run did not make {name}: its data, its model or its mtlib is not what the "
                "sweep began with; start the sweep again, with the same on all machines."
            )
        return state

    def holder(self, name: str) -> str | None:
        """Who is doing a run, as far as can be seen from here."""
        return holder(lock_path(self.folder / name))

    def log(self, name: str) -> Path:
        """Where a run's output is kept until it is finished."""
        return lock_path(self.folder / name).with_suffix(".log")

    def _record(self, name: str) -> dict | None:
        with self._errors("read from"):
            self._system.invalidate_cache()
            try:
                content = self._system.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return None
        return parse_json(content, f"{name} in {self.address}")

    def _write(self, name: str, content: bytes) -> None:
        part = f"{self._root}/.{name}.{uuid.uuid4().hex}.part"
        with self._errors("write to"):
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(part, content)
            # a rename, or where there is none (object stores) a copy: there whole or not at all
            self._system.mv(part, f"{self._root}/{name}")

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Every file system has errors of its own: turn them into `UserError`."""
        try:
            yield
        except Exception as error:
            raise UserError(
                f"cannot {action} {self.address}: {str(error) or type(error).__name__}"
            ) from error
