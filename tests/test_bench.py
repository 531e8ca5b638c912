"""The benchmarks' arithmetic and form; no test asserts on a time."""

import itertools
import json

import pytest

from mtlib import bench
from mtlib.errors import UserError
from tests.conftest import call


def made_up(ours: list[float], theirs: list[float]):
    mine, other = itertools.cycle(ours), itertools.cycle(theirs)
    return lambda: next(mine), lambda: next(other)


def test_ratio_of_medians_after_one_round_that_does_not_count():
    result = bench.compare(*made_up([100.0, 2.0, 4.0, 3.0], [100.0, 1.0, 2.0, 2.0]), 3)
    assert (result["seconds"], result["seconds_against"], result["ratio"]) == (3.0, 2.0, 1.5)
    assert (result["low"], result["high"]) == (1.5, 2.0)  # quartiles of 2.0, 2.0, 1.5


def test_phrases_have_the_lengths_of_sst2():
    rows = bench.phrases(22)
    assert [len(text.split()) for text in rows["text"]][:8] == list(bench.SST2_WORDS[:8])
    assert len(rows) == 22 and set(rows["label"]) <= {0, 1}


def test_throughput_of_each_size_mode_and_method(monkeypatch):
    monkeypatch.setitem(bench.SHAPES, "tiny", (1, 64, 10_000))
    rows = list(bench.throughput("tiny", [(2, 16), (2, 128)], steps=3))
    assert [(row["size"], row["mode"], row["method"]) for row in rows] == [
        (size, mode, method)
        for size in ("2 x 16", "2 x 128")
        for mode in ("eager", "loop", "stock")
        for method in ("fine_tuning", "mask_tuning")[: 1 if mode == "stock" else 2]
    ]
    assert all(row["sequences_per_second"] > 0 for row in rows)


def test_command_measures_and_writes_a_new_file(tmp_path, monkeypatch):
    compare = bench.compare
    made = made_up([3.0], [2.0])
    monkeypatch.setattr(bench, "compare", lambda ours, theirs, repeats: compare(*made, repeats))
    path = tmp_path / "bench.json"
    output = call("bench", "--quick", "--json", path)
    assert "same batch  ratio 1.5  low 1.5  high 1.5" in output
    written = json.loads(path.read_text())
    assert written["environment"]["torch"] and written["quick"]
    assert written["measured"][0]["seconds_against"] == 2.0
    with pytest.raises(UserError, match="is there already"):
        call("bench", "--json", path)
    assert json.loads(path.read_text()) == written
