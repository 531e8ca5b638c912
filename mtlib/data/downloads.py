"""Downloads: hub sets to the hub's own cache, pinned raw files to a folder in release layout."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from huggingface_hub.constants import HF_HOME

from mtlib.data.identity import file_sha256
from mtlib.data.registry import DataSet, ReleaseFile, get_set
from mtlib.errors import UserError

if TYPE_CHECKING:
    import datasets

# Raw files fetched for `source="hub"` lie beside the hub's own cache, in the layout of the original
# releases.
CACHE_DIR = Path(HF_HOME) / "mtlib"
# MTLIB_RAW_ENDPOINT names a mirror, as HF_ENDPOINT does of the hub
RAW_ENDPOINT = "https://raw.githubusercontent.com"


def fetch(set_names: list[str], cache_dir: Path = CACHE_DIR) -> list[Path]:
    """Download sets and return the files they now lie in. Nothing is fetched twice.

    Pinned raw files go to `cache_dir` in release layout (so it also serves as a `source` folder)
    and must match their sha256; hub sets go to the hub's own cache.

    Raises:
        UserError: a set cannot be downloaded (before the first one is), a download failed, or a
        checksum is wrong.
    """
    wanted = [data_set for data_set in map(get_set, set_names) if not data_set.bundled]
    for data_set in wanted:
        if data_set.remote is None:
            raise UserError(f"{data_set.name} cannot be downloaded. {data_set.when_gone}")
    paths = []
    for data_set in wanted:
        if data_set.raw_files:
            paths += [_fetch_raw(data_set, file, Path(cache_dir)) for file in data_set.files]
        else:
            for split in data_set.hub.splits.values():
                rows = load_from_hub(data_set, split)
                paths += [Path(cached["filename"]) for cached in rows.cache_files]
    return paths


def load_from_hub(data_set: DataSet, split: str) -> "datasets.Dataset":
    """One split as the hub has it, from the hub's own cache if it is there. Raises `UserError`."""
    import datasets

    hub = data_set.hub
    try:
        return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    # datasets, huggingface_hub and the HTTP client each raise their own kinds
    except Exception as error:
        raise UserError(
            f"{data_set.name}: could not read {split} of {hub.id} at {hub.revision} from the hub: "
            f"{type(error).__name__}: {str(error).rstrip('.')}. Check the network and "
            f"HF_HUB_OFFLINE, or give a folder as source. {data_set.when_gone}"
        ) from error


def _fetch_raw(data_set: DataSet, file: ReleaseFile, cache_dir: Path) -> Path:
    from huggingface_hub.file_download import http_get

    base = os.environ.get("MTLIB_RAW_ENDPOINT", RAW_ENDPOINT)
    release = data_set.raw_files
    url = f"{base}/{release.repository}/{release.commit}/{file.path.partition('/')[2]}"
    target = cache_dir / file.path
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{part}.lock"):  # of several processes one downloads, the others wait
            if not target.exists():
                with part.open("wb") as out:
                    http_get(url, out, headers={"Accept-Encoding": "identity"})
                part.rename(target)
    except Exception as error:  # the hub's client and the HTTP client each raise their own kinds
        raise UserError(
            f"{url}: download to {cache_dir} failed ({error}). Check the network and the folder. "
            f"{data_set.when_gone}"
        ) from error
    if (sha256 := file_sha256(target)) != file.sha256:
        message = f"expected sha256 {file.sha256}, found {sha256}"
        raise UserError(f"{target}: {message}; delete it and fetch again.")
    return target
