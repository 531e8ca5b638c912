"""Categories of fillings, and what is counted without a judge."""

import pandas
import pytest

from mtlib.diversity.categories import (
    categorise,
    changed_by_epoch,
    example_categories,
    open_questions,
)

ROW = {
    "epoch": 1, "uid": "a", "part": "text", "position": 2, "original_token": "film", "predicted_token": "plot",
    "unk": False, "text": "The film is good", "start": 3, "end": 8, "predicted": " plot",
}  # fmt: skip


def make_rows(*changes: dict) -> pandas.DataFrame:
    """A row of fillings for each of `changes`, which say what differs from `ROW`."""
    return pandas.DataFrame([ROW | change for change in changes])


def test_categories_by_hand():
    rows = make_rows(
        {"predicted_token": "film"}, {}, {"predicted_token": "boring"}, {"predicted_token": "[UNK]", "unk": True}
    )
    asked = []

    def judge(differing):
        asked.extend(differing["predicted_token"])
        return [token == "plot" for token in asked]

    assert list(categorise(rows, judge)) == ["same", "plausible_different", "implausible", "unk"]
    assert asked == ["plot", "boring"] == list(open_questions(rows)["predicted_token"])
    assert list(categorise(rows[::3], lambda differing: pytest.fail("nothing to ask"))) == ["same", "unk"]
    assert list(categorise(rows)) == ["same", "changed", "changed", "unk"]


def test_the_gravest_place_decides_an_example():
    names = [("a", "same"), ("a", "plausible_different"), ("b", "implausible"), ("b", "same"), ("c", "same"),
             ("d", "implausible"), ("d", "unk"), ("a", "same")]  # fmt: skip
    rows = make_rows(*({"uid": uid} for uid, _ in names[:-1]), {"epoch": 2})
    categories = pandas.Series([name for _, name in names])
    assert example_categories(rows, categories).to_dict() == {
        (1, "a"): "plausible_different", (1, "b"): "implausible", (1, "c"): "same", (1, "d"): "unk", (2, "a"): "same",
    }  # fmt: skip
    assert example_categories(rows, categories, over_epochs=True).to_dict() == {
        "a": "plausible_different", "b": "implausible", "c": "same", "d": "unk",
    }  # fmt: skip


def test_change_by_epoch():
    tokens = (("film", 1), ("film", 1), ("plot", 2), ("[UNK]", 2))
    rows = make_rows(*({"predicted_token": word, "epoch": epoch, "unk": word == "[UNK]"} for word, epoch in tokens))
    assert changed_by_epoch(rows).to_dict(orient="index") == {
        1: {"n": 2, "changed": 0, "unk": 0},
        2: {"n": 2, "changed": 2, "unk": 1},
    }
