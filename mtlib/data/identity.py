"""Names of files and packages in records, by which another version of them is another run."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from mtlib.requirements import version_of


def name_with_hash(path: str | Path, files: Iterable[Path]) -> str:
    """The last part of the path, and the start of a sha256 over those of these files."""
    hashes = "".join(map(file_sha256, files))
    start = hashlib.sha256(hashes.encode()).hexdigest()[:12]
    return f"{Path(path).absolute().name} ({start})"


def name_with_version(package: str) -> str:
    """The name of a package, and its version where it is installed."""
    version = version_of(package)
    return package if version is None else f"{package} {version}"


def file_sha256(file: Path) -> str:
    """The sha256 of a file, which is read again only if its size or modification time changes.

    A sweep asks for a model's weights in each of its runs.
    """
    return _sha256(file.absolute(), file.stat().st_mtime_ns, file.stat().st_size)


@cache
def _sha256(file: Path, changed: int, size: int) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
