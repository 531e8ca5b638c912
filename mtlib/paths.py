"""Where the bundled data lies, checks of folders, and files and folders written whole.

The data lies beside the package in a checkout, and inside it in a wheel.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mtlib.errors import UserError

_PACKAGE = Path(__file__).resolve().parent
DATA_DIR = _PACKAGE / "bundled" if (_PACKAGE / "bundled").is_dir() else _PACKAGE.parent / "data"
MINI_MODEL_DIR = DATA_DIR / "models" / "mini"
MINI_POS_DIR = DATA_DIR / "models" / "mini_pos"
TESTBED_DIR = DATA_DIR / "testbed"
# in a checkout only
NOTEBOOK_DIR = _PACKAGE.parent / "notebooks"
FIGURE_DIR = _PACKAGE.parent / "figures"

# what the testbed's generator leaves beside the sets it writes
SETTINGS_FILE = "testbed.json"


def is_missing_folder(name: str | Path) -> bool:
    """Whether this can only be the path of a folder, and there is none.

    An id on the hub is NAME or OWNER/NAME.
    """
    text = str(name)
    return not Path(text).exists() and (text.startswith((".", "/", "~")) or text.count("/") > 1)


def make_writable(out: Path, empty: bool = False) -> None:
    """See to it that there is a folder that files can be written to, or raise `UserError`.

    `empty`: it is to hold nothing yet.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; give another folder.") from error
    if empty and (left := sorted(path.name for path in out.iterdir())):
        raise UserError(f"{out} is not empty: it holds {', '.join(left[:3])}; give a new folder.")


def write_atomically(path: Path, content: str | Callable[[BinaryIO], object]) -> None:
    """Either the whole file is there or none of it.

    `content` is text, or writes to the file that it is given.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            if isinstance(content, str):
                file.write(content.encode())
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        raise


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` if the block ends well."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)
