"""The class probabilities of every evaluated example, which runs leave beside their records.

`mtlib run` writes RECORD.npz beside RECORD.json, an array for each evaluation set. `mtlib bundle` collects those of
many runs in NAME.npz beside NAME.jsonl, each under IDENTITY/SET.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from mtlib.paths import DATA_DIR


def probabilities(identity: str, places: Sequence[Path | str] = (DATA_DIR / "results",)) -> dict[str, np.ndarray]:
    """Of a run, by evaluation set: each label's probability for every example `(n, num_labels)`, float16.

    Args:
        identity: of the run, as its record has it.
        places: folders with records, or `.jsonl` files; the first that has them counts.

    Returns:
        Nothing where none were kept: runs before November 2026 kept none, and one that diverged has none.
    """
    for path in _files(identity, map(Path, places)):
        prefix = "" if path.stem.endswith(f"-{identity[:10]}") else f"{identity}/"
        with np.load(path, allow_pickle=False) as arrays:
            found = {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
        if found:
            return found
    return {}


def bundle(to: Path, identities: Iterable[str], places: Sequence[Path | str]) -> None:
    """Collect in the file `to`, whole or not at all, what is kept of these runs; no file where nothing is."""
    arrays = {
        f"{identity}/{name}": array
        for identity in identities
        for name, array in probabilities(identity, places).items()
    }
    if not arrays:
        return
    part = to.with_name(f".{to.stem}.{os.getpid()}.part.npz")
    try:
        np.savez_compressed(part, **arrays)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)


def _files(identity: str, places: Iterable[Path]) -> Iterator[Path]:
    """Where those of a run may lie."""
    for place in places:
        bundles = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
        yield from place.glob(f"*-{identity[:10]}.npz")
        yield from (path.with_suffix(".npz") for path in bundles if path.with_suffix(".npz").exists())
