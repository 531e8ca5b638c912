"""Where the bundled data lies: beside the package in a checkout, inside it when installed from a wheel."""

import hashlib
from collections.abc import Iterable
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
    """For records: the last part of the path, and the start of the sha256 of these files one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return f"{Path(path).absolute().name} ({digest.hexdigest()[:12]})"


def is_missing_folder(name: str | Path) -> bool:
    """Whether this can only be the path of a folder, and there is none: an id on the hub is NAME or OWNER/NAME."""
    text = str(name)
    return not Path(text).exists() and (text.startswith((".", "/", "~")) or text.count("/") > 1)
