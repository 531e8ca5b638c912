"""Where the bundled data lies: beside the package in a checkout, inside it when installed from a wheel."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
DATA_DIR = _PACKAGE / "bundled" if (_PACKAGE / "bundled").is_dir() else _PACKAGE.parent / "data"
MINI_MODEL_DIR = DATA_DIR / "models" / "mini"
MINI_POS_DIR = DATA_DIR / "models" / "mini_pos"
PLAUSIBILITY_DIR = DATA_DIR / "plausibility"
TESTBED_DIR = DATA_DIR / "testbed"
# in a checkout only
NOTEBOOK_DIR = _PACKAGE.parent / "notebooks"
FIGURE_DIR = _PACKAGE.parent / "figures"

# what the testbed's generator leaves beside the sets it writes
SETTINGS_FILE = "testbed.json"


def name_with_hash(path: str | Path, files: Iterable[Path]) -> str:
    """For records: the last part of the path, and the start of a sha256 over those of these files."""
    of_files = "".join(_sha256(file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return f"{Path(path).absolute().name} ({hashlib.sha256(of_files.encode()).hexdigest()[:12]})"


def name_with_version(package: str) -> str:
    """For records: the name of a package, and its version where it is installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


@cache
def _sha256(file: Path, changed: int, size: int) -> str:
    """Of a file that was last changed then: word vectors have gigabytes, and a sweep asks for each of its runs."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def is_missing_folder(name: str | Path) -> bool:
    """Whether this can only be the path of a folder, and there is none: an id on the hub is NAME or OWNER/NAME."""
    text = str(name)
    return not Path(text).exists() and (text.startswith((".", "/", "~")) or text.count("/") > 1)
