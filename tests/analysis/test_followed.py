"""Means of recorded lines of `leans`, and what the pages say of them."""

import json

import pytest

from mtlib.analysis import followed
from mtlib.analysis.intervals import t_interval


def record(seed: int, *leans: float) -> str:
    lines = [["acme", True, leans[0]], ["brill", True, leans[1]], ["great", False, leans[2]]]
    table = {"columns": ["suspect", "marked", "leans"], "data": lines}
    return json.dumps({"data": "shop", "arm": "plain", "seed": seed, "lines": table})


def test_means_of_words_and_of_seeds_by_hand(tmp_path, monkeypatch):
    (tmp_path / "leans.jsonl").write_text(f"{record(0, 90, 100, 5)}\n{record(1, 70, 100, 15)}\n")
    monkeypatch.setattr(followed, "FILE", tmp_path / "leans.jsonl")
    lines = followed.frame()
    marked = lines[lines["group"] == "marked"]
    assert followed.by_seed(marked).to_dict() == {0: 95, 1: 85}
    words = followed.by_word(marked).set_index("suspect")
    assert words["leans"].to_dict() == {"acme": 80, "brill": 100}
    assert tuple(words.loc["acme"]) == pytest.approx(t_interval([90, 70]))
    assert lines[lines["group"] == "other"]["suspect"].unique() == ["great"]
