"""Probabilities beside records: read from a run's own file and from a bundle."""

import json

import numpy as np

from mtlib.runs.probabilities import probabilities
from tests.test_cli import call

FIRST, SECOND = "a" * 64, "b" * 64


def write_run(folder, identity: str, *shares: float) -> dict[str, np.ndarray]:
    folder.mkdir(exist_ok=True)
    record = {"schema_version": 2, "identity": identity, "config": {"method": "m"}, "metrics": {}, "history": []}
    (folder / f"nli-m-{identity[:10]}.json").write_text(json.dumps(record | {"data": {}}))
    arrays = {f"set{i}": np.array([[share, 1 - share]], np.float16) for i, share in enumerate(shares)}
    if arrays:
        np.savez_compressed(folder / f"nli-m-{identity[:10]}.npz", **arrays)
    return arrays


def equal(found: dict, wanted: dict) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == np.float16 and np.array_equal(found[name], wanted[name]) for name in wanted
    )


def test_of_a_run_and_of_a_bundle(tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    first, second = write_run(runs, FIRST, 0.25, 0.75), write_run(runs, SECOND, 0.5)
    assert equal(probabilities(FIRST, [runs]), first) and equal(probabilities(SECOND, [runs]), second)
    call("bundle", runs, "--to", kept / "all.jsonl")
    for place in (kept, kept / "all.jsonl"):
        assert equal(probabilities(FIRST, [place]), first) and equal(probabilities(SECOND, [place]), second)
    assert {path.name for path in kept.iterdir()} == {"all.jsonl", "all.npz"}
    assert np.load(kept / "all.npz", allow_pickle=False).files == [f"{FIRST}/set0", f"{FIRST}/set1", f"{SECOND}/set0"]


def test_a_bundle_keeps_what_it_has(tmp_path):
    first = write_run(tmp_path / "old", FIRST, 0.25)
    write_run(tmp_path / "new", SECOND)  # made before they were kept
    for folder in ("old", "new"):
        call("bundle", tmp_path / folder, "--to", tmp_path / "all.jsonl")
    assert equal(probabilities(FIRST, [tmp_path / "new", tmp_path]), first)
    assert probabilities(SECOND, [tmp_path / "new", tmp_path]) == {}


def test_where_nothing_is_kept_there_is_no_file(tmp_path):
    write_run(tmp_path / "runs", FIRST)
    call("bundle", tmp_path / "runs", "--to", tmp_path / "all.jsonl")
    assert not (tmp_path / "all.npz").exists() and probabilities(FIRST, [tmp_path]) == {}
