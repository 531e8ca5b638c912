"""What kind of source a name or a folder is; tells without reading any data, and imports nothing heavy."""

import json
from pathlib import Path

from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE


def is_testbed(source: str) -> bool:
    """The bundled testbed, or a folder that its generator wrote with other settings."""
    if not isinstance(source, (str, Path)):
        raise UserError(f'source is {source!r}; expected "testbed", "hub" or the path of a folder with data')
    return source == "testbed" or (source != "hub" and (Path(source) / SETTINGS_FILE).is_file())


def source_kind(source: str) -> str:
    """What a record says instead of a path: "testbed" (with its settings where generated), "hub" or "folder"."""
    if source in ("testbed", "hub"):
        return source
    if not is_testbed(source):
        return "folder"
    settings = testbed_settings(Path(source))
    rows = f", {settings['train_rows']:,} training rows" if "train_rows" in settings else ""
    return f"testbed (strength {settings['strength']:g}, seed {settings['seed']}{rows})"


def testbed_settings(root: Path) -> dict:
    """What the generator left beside its sets: `strength`, `seed`, and the `sha256` of every file."""
    try:
        settings = json.loads((root / SETTINGS_FILE).read_text())
        float(settings["strength"]), int(settings["seed"])
        return settings
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{root / SETTINGS_FILE} is not what `mtlib testbed` wrote; write the folder again, or restore "
            "data/testbed if it is the bundled one."
        ) from error
