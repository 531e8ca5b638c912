"""Categories of fillings, and their shares."""

import math

import pytest

from mtlib.diversity.categories import (
    CATEGORIES,
    PAPER_SHARES,
    categorise,
    category_shares,
    example_categories,
    share,
)
from mtlib.errors import UserError
from mtlib.testbed.probes import wilson
from tests.diversity.test_fillings import ROW


def test_categories_by_hand():
    rows = [
        ROW | {"predicted_token": "film"},
        ROW,
        ROW | {"predicted_token": "boring"},
        ROW | {"predicted_token": "[UNK]", "unk": True},
    ]
    asked = []

    def judge(differing):
        asked.extend(row["predicted_token"] for row in differing)
        return [row["predicted_token"] == "plot" for row in differing]

    assert categorise(rows, judge) == ["same", "plausible_different", "implausible", "unk"]
    assert asked == ["plot", "boring"]
    with pytest.raises(UserError, match="0 verdicts on 2 rows"):
        categorise(rows, lambda differing: [])


def test_the_gravest_place_decides_an_example():
    names = [("a", "same"), ("a", "plausible_different"), ("b", "implausible"), ("b", "same"), ("c", "same"),
             ("d", "implausible"), ("d", "unk"), ("a", "same")]  # fmt: skip
    rows = [ROW | {"uid": uid} for uid, _ in names]
    rows[-1] = rows[-1] | {"epoch": 2}
    assert example_categories(rows, [name for _, name in names]) == {
        (1, "a"): "plausible_different", (1, "b"): "implausible", (1, "c"): "same", (1, "d"): "unk", (2, "a"): "same",
    }  # fmt: skip
    assert example_categories(rows, [name for _, name in names], over_epochs=True) == {
        "a": "plausible_different", "b": "implausible", "c": "same", "d": "unk",
    }  # fmt: skip
    with pytest.raises(UserError, match="several arms"):
        example_categories([ROW | {"arm": "x"}, ROW | {"arm": "y"}], ["same", "same"])


def test_shares_with_wilson_intervals():
    shares = category_shares(["same"] * 8 + ["unk"] * 2)
    assert list(shares) == list(CATEGORIES)
    assert shares["same"][:3] == (8, 10, 0.8) and shares["same"][3:] == pytest.approx(wilson(8, 10))
    assert shares["implausible"].low == 0 < shares["implausible"].high
    assert math.isnan(category_shares([])["same"].share) and share(0, 0).n == 0 and math.isnan(share(0, 0).low)
    assert all(sum(by.values()) == pytest.approx(1) for by in PAPER_SHARES.values())


def test_all_unknown():
    rows = [ROW | {"predicted_token": "[UNK]", "predicted": " [UNK]", "unk": True, "uid": str(i)} for i in range(3)]
    categories = categorise(rows, lambda differing: pytest.fail("nothing to ask"))
    assert category_shares(example_categories(rows, categories).values())["unk"].share == 1
