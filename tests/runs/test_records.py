"""Records: what identifies one, and what is read back from a file."""

import errno
import gzip
import json
import os
import sys

import numpy as np
import pytest

from mtlib import paths
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs import environment, records
from mtlib.runs.config import configure
from mtlib.runs.records import SCHEMA_VERSION, identity, probabilities, read_records
from mtlib.runs.run import run
from tests.conftest import call

RESULTS = DATA_DIR / "results"
CONFIG = {
    "task": "sentiment",
    "method": "mask_tuning",
    "model": "mini",
    "alpha": 0.6,
    "epochs": 3.0,
    "fill": "argmax",
}
DATA = {"train": "a", "sst2": "b"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"source": "folder", "sets": ["sst2"]}, True),  # the data's content stands for them
        ({"made_up": 3}, True),  # no method reads it
        ({"cut_ratio": 0.3}, True),  # another method does
        ({"fill": None}, True),  # its default
        ({"epochs": 6.0}, False),
        ({"alpha": 0.3}, False),
        ({"method": "no_integrated_loss"}, False),
    ],
)
def test_what_decides_an_identity(change, same):
    assert (identity(CONFIG | change, "m", DATA) == identity(CONFIG, "m", DATA)) == same


def test_model_and_data_decide_an_identity():
    one = identity(CONFIG, "m", DATA)
    assert (
        identity(CONFIG | {"model": "elsewhere/mini"}, "m", DATA) == one
    )  # the files stand for the name
    assert (
        len(
            {
                one,
                identity(CONFIG, None, DATA),
                identity(CONFIG, "n", DATA),
                identity(CONFIG, "m", {"train": "a"}),
            }
        )
        == 4
    )


def write_record(path, **changes) -> dict:
    record = {
        "schema_version": SCHEMA_VERSION,
        "identity": "a",
        "config": CONFIG,
        "metrics": {"sst2": 0.5},
    } | changes
    path.write_text(json.dumps(record) + "\n")
    return record


def test_two_results_of_one_run_are_never_mixed_up(tmp_path):
    one, same, other = (tmp_path / name for name in ("one.json", "same.jsonl", "other.json"))
    record = write_record(one)
    write_record(same)
    assert read_records([one, same]) == [record]
    write_record(other, metrics={"sst2": 0.9})
    with pytest.raises(
        UserError, match=r"one\.json and .*other\.json hold different results of the same run"
    ):
        read_records([one, other])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "its schema version is 3, not 2"),
        ({"identity": None}, "it lacks metrics, config or identity"),
    ],
)
def test_a_file_that_is_no_record_of_this_version_is_refused(change, message, tmp_path):
    record = write_record(tmp_path / "record.json") | change
    (tmp_path / "record.json").write_text(
        json.dumps({name: value for name, value in record.items() if value})
    )
    with pytest.raises(
        UserError, match=f"record.json is no record that this mtlib reads: {message}"
    ):
        read_records([tmp_path / "record.json"])


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere the peak is the process's"
)
def test_peak_memory_is_of_the_run_and_not_of_what_the_process_did_before():
    held = np.ones(40_000_000)  # 305 MiB
    before = environment.peak_memory_mb()
    del held
    environment.reset_peak_memory()
    assert environment.peak_memory_mb() < before - 100


def test_a_torn_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "records.jsonl"
    write_record(path)
    with open(path, "ab") as file:
        file.write(b'\n{"torn": ')
    with pytest.raises(UserError, match=r"records\.jsonl, line 3, is no record"):
        read_records([tmp_path])
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"records\.jsonl, line 1, is no record"):
        read_records([tmp_path])


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}")[:-9])
    with pytest.raises(UserError, match=r"records\.jsonl\.gz is no record"):
        read_records([tmp_path])
    path.write_bytes(b"{}")
    with pytest.raises(UserError, match=r"records\.jsonl\.gz is no record.*gzipped file"):
        read_records([tmp_path])


@pytest.mark.parametrize("ending", records.BUNDLES)
def test_a_bundle_is_json_lines_with_all_of_each_record(ending, tmp_path):
    history = [{"step": step, "loss": 1 / step, "learning_rate": 1e-5} for step in (1, 2, 3)]
    changes = {"history": history, "text": "a\x85b\u2028c", "data": {}}
    made = [write_record(tmp_path / f"{name}.json", identity=name, **changes) for name in "ba"]
    first, second = (tmp_path / f"{name}{ending}" for name in ("first", "second"))
    files = [tmp_path / "b.json", tmp_path / "a.json"]
    assert records.bundle(files, first) == made == read_records([first])
    content = first.read_bytes()
    lines = gzip.decompress(content) if ending.endswith("gz") else content
    assert [json.loads(line) for line in lines.split(b"\n")[:-1]] == made
    records.bundle([first], second)
    assert second.read_bytes() == content


def test_a_shipped_run_comes_out_alike_when_it_is_made_again(tmp_path):
    """Losses within 1 % at every logged step and accuracies within two points; on the machine of
    the record: equal.

    Other processors sum in another order and draw other dropout masks from the same seed, hence the
    tolerance.
    """
    (shipped,) = (
        of
        for of in read_records([RESULTS / "short.jsonl.gz"])
        if of["config"]["method"] == "mask_tuning"
    )
    settings = {
        name: shipped["config"][name]
        for name in ("task", "method", "train_size", "epochs", "precision", "sets")
    }
    copied, was_there = run(configure(**settings), tmp_path / "copied", reuse=True)
    assert was_there and read_records([copied]) == [shipped]
    again, was_there = run(configure(**settings), tmp_path / "again")
    assert not was_there and again.name == copied.name
    made = read_records([again])[0]
    assert [entry["step"] for entry in made["history"]] == [
        entry["step"] for entry in shipped["history"]
    ]
    for ours, theirs in zip(made["history"], shipped["history"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.01)
    for name, metrics in shipped["metrics"].items():
        assert made["metrics"][name]["accuracy"] == pytest.approx(metrics["accuracy"], abs=0.02)


def test_a_record_that_cannot_be_written_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(paths.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        records.write_record(tmp_path / "a.json", {})
    assert not [*tmp_path.iterdir()]


# --- probabilities beside records ---

FIRST, SECOND = "a" * 64, "b" * 64


def write_run(folder, identity: str, *shares: float) -> dict[str, np.ndarray]:
    folder.mkdir(exist_ok=True)
    record = {"schema_version": 2, "identity": identity, "config": {"method": "m"}, "metrics": {}}
    (folder / f"nli-m-{identity[:10]}.json").write_text(json.dumps(record | {"data": {}}))
    arrays = {
        f"set{i}": np.array([[share, 1 - share]], np.float16) for i, share in enumerate(shares)
    }
    if arrays:
        np.savez_compressed(folder / f"nli-m-{identity[:10]}.npz", **arrays)
    return arrays


def equal(found: dict, wanted: dict) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == np.float16 and np.array_equal(found[name], wanted[name])
        for name in wanted
    )


def test_of_a_run_and_of_a_bundle(tmp_path):
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    first, second = write_run(runs, FIRST, 0.25, 0.75), write_run(runs, SECOND, 0.5)
    assert equal(probabilities(FIRST, [runs]), first)
    assert equal(probabilities(SECOND, [runs]), second)
    call("bundle", *sorted(runs.glob("*.json")), "--to", kept / "of_files.jsonl")
    assert equal(probabilities(FIRST, [kept / "of_files.jsonl"]), first)
    for file in kept.iterdir():
        file.unlink()
    call("bundle", runs, "--to", kept / "all.jsonl.gz")
    for place in (kept, kept / "all.jsonl.gz"):
        assert equal(probabilities(FIRST, [place]), first)
        assert equal(probabilities(SECOND, [place]), second)
    assert {path.name for path in kept.iterdir()} == {"all.jsonl.gz", "all.npz"}
    assert np.load(kept / "all.npz", allow_pickle=False).files == [
        f"{FIRST}/set0",
        f"{FIRST}/set1",
        f"{SECOND}/set0",
    ]


def test_a_bundle_keeps_what_it_has(tmp_path):
    first = write_run(tmp_path / "old", FIRST, 0.25)
    write_run(tmp_path / "new", SECOND)  # made before they were kept
    for folder in ("old", "new"):
        call("bundle", tmp_path / folder, "--to", tmp_path / "all.jsonl.gz")
    assert equal(probabilities(FIRST, [tmp_path / "new", tmp_path]), first)
    assert probabilities(SECOND, [tmp_path / "new", tmp_path]) == {}


def test_where_nothing_is_kept_there_is_no_file(tmp_path):
    write_run(tmp_path / "runs", FIRST)
    call("bundle", tmp_path / "runs", "--to", tmp_path / "all.jsonl.gz")
    assert not (tmp_path / "all.npz").exists() and probabilities(FIRST, [tmp_path]) == {}
