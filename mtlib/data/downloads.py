"""Downloads: hub sets into the hub's own cache, pinned raw files into a folder in release layout."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import datasets
from filelock import FileLock

from mtlib.data.registry import SETS, DataSet, Hub, RawFiles, ReleaseFile, get_set, is_bundled
from mtlib.errors import UserError

# Raw files fetched for `source="hub"` lie beside the hub's own cache, in the layout of the original releases.
CACHE_DIR = Path(datasets.config.HF_CACHE_HOME) / "mtlib"
RAW_ENDPOINT = "https://raw.githubusercontent.com"  # MTLIB_RAW_ENDPOINT names a mirror, as HF_ENDPOINT does of the hub


def fetch(
    set_names: list[str],
    cache_dir: Path = CACHE_DIR,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Download sets and return the files they now lie in. Nothing is fetched twice; a cut download resumes.

    Pinned raw files go to `cache_dir` in release layout (so it also serves as a `source` folder) and must match their
    sha256; hub sets go to the hub's own cache. `progress(file, bytes_done, bytes_total)` is called for raw files.
    Raises `UserError` for a set that cannot be downloaded, for a failed or cut download and for a wrong checksum.
    """
    check(set_names)
    paths = []
    for name in set_names:
        data_set = get_set(name)
        if is_bundled(name):
            continue
        if isinstance(data_set.remote, RawFiles):
            paths += [_fetch_raw(data_set, file, Path(cache_dir), progress) for file in data_set.files]
        else:
            for split in data_set.remote.splits.values():
                hub_rows = load_from_hub(name, data_set.remote, split)
                paths += [Path(cached["filename"]) for cached in hub_rows.cache_files]
    return paths


def check(set_names: list[str]) -> None:
    """Raise `UserError` for the first name that is no set, or a set that cannot be downloaded."""
    for name in set_names:
        data_set = get_set(name)
        if data_set.remote is None and not is_bundled(name):
            raise UserError(f"{name} cannot be downloaded. {data_set.when_gone}")


def load_from_hub(set_name: str, hub: Hub, split: str) -> datasets.Dataset:
    """One split as the hub has it, from the hub's own cache if it is there. Raises `UserError`."""
    try:
        return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except Exception as error:  # datasets, huggingface_hub and the HTTP client each raise their own kinds
        asked = f"{hub.config or 'default'}, split {split}, revision {hub.revision}"
        raise UserError(
            f"{set_name}: could not read {hub.id} ({asked}) from the hub: {type(error).__name__}: "
            f"{str(error).rstrip('.')}. Check the network and HF_HUB_OFFLINE, or give a folder as source. "
            f"{SETS[set_name].when_gone}"
        ) from error


def _fetch_raw(data_set: DataSet, file: ReleaseFile, cache_dir: Path, progress: Callable | None) -> Path:
    target = cache_dir / file.path
    if target.exists():
        _check_download(target, file)
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(target.with_name(f".{target.name}.lock")).acquire()
    except OSError as error:
        raise UserError(f"cannot write to {cache_dir} ({error.strerror}); give another cache folder") from error
    with lock:  # of several processes one downloads, the others wait and find the file
        if not target.exists():
            part = target.with_name(target.name + ".part")
            base = os.environ.get("MTLIB_RAW_ENDPOINT", RAW_ENDPOINT)
            url = f"{base}/{data_set.remote.repository}/{data_set.remote.commit}/{file.path.partition('/')[2]}"
            _download(url, part, file.path, progress, data_set.when_gone)
            _check_download(part, file)
            os.replace(part, target)
    return target


def _download(url: str, part: Path, name: str, progress: Callable | None, when_gone: str) -> None:
    """Append to `part` what it still lacks. (pooch verifies checksums as well, but cannot resume.)"""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            if response.status != 206:  # the server sends the whole file, whatever was asked for
                done = 0
            total = done + int(response.headers.get("Content-Length", 0))
            with part.open("ab" if done else "wb") as out:
                while block := response.read(1 << 16):
                    out.write(block)
                    done += len(block)
                    if progress:
                        progress(name, done, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: `part` is whole, or wrong, which its checksum tells
            return
        raise UserError(f"{url}: the server answered {error.code} {error.reason}. {when_gone}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"{url}: download failed ({error}); what came through is kept in {part}. Check the network "
            f"and run the same command again: it resumes"
        ) from error
    if done < total:
        raise UserError(
            f"{url}: the connection ended after {done:,} of {total:,} bytes; {part} keeps them. Run the "
            f"same command again: it resumes"
        )


def _check_download(path: Path, file: ReleaseFile) -> None:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != file.sha256:
        raise UserError(
            f"{path}: expected sha256 {file.sha256}, found {sha256}. The file was kept for inspection; "
            f"delete it and fetch again"
        )
