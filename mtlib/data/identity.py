"""How records name the files and packages that a run reads, so that another version is another
run."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def name_with_hash(path: str | Path, files: Iterable[Path]) -> str:
    """The last part of the path, and the start of a sha256 over those of these files."""
    of_files = "".join(map(file_sha256, files))
    return f"{Path(path).absolute().name} ({hashlib.sha256(of_files.encode()).hexdigest()[:12]})"


def name_with_version(package: str) -> str:
    """The name of a package, and its version where it is installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def file_sha256(file: Path) -> str:
    """Read once for each process, and again when size or modification time have changed."""
    return _sha256(file.absolute(), file.stat().st_mtime_ns, file.stat().st_size)


@cache
def _sha256(file: Path, changed: int, size: int) -> str:
    """Of a file that was last changed then; a sweep asks for a model's weights in each of its
    runs."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
