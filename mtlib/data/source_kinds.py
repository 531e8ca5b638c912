"""What kind of source a name or a folder is; tells without reading any data, and imports nothing heavy."""

import json
from pathlib import Path

from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE


def is_testbed(source: str) -> bool:
    """The bundled testbed, or a folder that its generator wrote with other settings."""
    return source == "testbed" or (source != "hub" and (Path(source) / SETTINGS_FILE).is_file())


def source_kind(source: str) -> str:
    """What a record says instead of a path: "testbed" (with its settings where generated), "hub" or "folder"."""
    if source in ("testbed", "hub"):
        return source
    if not is_testbed(source):
        return "folder"
    settings = _settings(Path(source))
    rows = f", {settings['train_rows']:,} training rows" if "train_rows" in settings else ""
    return f"testbed (strength {settings['strength']:g}, seed {settings['seed']}{rows})"


def check_as_written(root: Path, files: list[dict]) -> None:
    """The generator leaves the checksum of every file it wrote."""
    written = _settings(root).get("sha256", {})
    for file in files:
        if written.get(file["path"], file["sha256"]) != file["sha256"]:
            raise UserError(
                f"{root / file['path']} is not the file that `mtlib testbed` wrote; write the folder again, or restore "
                "data/testbed if it is the bundled one."
            )


def _settings(root: Path) -> dict:
    return json.loads((root / SETTINGS_FILE).read_text())
