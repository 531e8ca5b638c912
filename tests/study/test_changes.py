"""What one change to a training does: which runs are paired, and that every arm named in a table exists."""

from pathlib import Path

import pytest

from mtlib.analysis.comparison import FINE_TUNING
from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.study import changes, peers

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results"


OF_TABLES = (  # in the order of `changes.tables`
    changes.OF_RANDOM_MASKS, changes.OF_PARTS, changes.OF_ORDER, changes.OF_COMBINATIONS, changes.OF_AMOUNTS,
    changes.OF_AMOUNTS, changes.OF_MASKS_AT_HALF, changes.OF_MASKS_ON_REVIEWS, changes.OF_PRETRAINING,
    changes.OF_A_LARGER_MODEL, changes.OF_MORE_EPOCHS, changes.OF_MASKS_OF_A_LARGER_MODEL,
)  # fmt: skip


def runs(accuracies: dict[int, float], name="testbed_contrast") -> list[dict]:
    """One record for each seed."""
    return [{"config": {"seed": seed}, "metrics": {name: {"accuracy": of}}} for seed, of in accuracies.items()]


def test_seeds_that_both_arms_have_are_paired():
    arms = {"a": runs({0: 0.5, 1: 0.7, 2: 0.6, 4: 0.1}), "b": runs({2: 0.5, 1: 0.5, 0: 0.3, 3: 0.9})}
    table = changes.table(arms, [changes.Change("b → a", "a", "b")])
    # differences of 20, 20 and 10 points: mean 16.7, deviation 5.77, Student's t with 2 degrees of freedom 4.303
    assert table.to_dict("index") == {"b → a": {"seeds": 3, "testbed_contrast": "+16.7 [+2.3, +31.0]"}}


def test_one_seed_has_no_interval():
    table = changes.table({"a": runs({0: 0.5}), "b": runs({0: 0.75})}, [changes.Change("b → a", "a", "b")])
    assert table.loc["b → a"].tolist() == [1, "-25.0"]


def test_sets_that_one_arm_lacks_are_left_out():
    arms = {"a": runs({0: 0.5}), "b": runs({0: 0.75})}
    arms["a"][0]["metrics"]["testbed_sentiment"] = {"accuracy": 0.9}
    assert list(changes.table(arms, [changes.Change("b → a", "a", "b")])) == ["seeds", "testbed_contrast"]


@pytest.mark.parametrize("arms", [{}, {"a": runs({0: 0.5})}, {"a": runs({0: 0.5}), "b": runs({1: 0.5})}])
def test_a_change_without_a_pair_has_no_row(arms):
    assert not len(changes.table(arms, [changes.Change("b → a", "a", "b")]))


def test_every_arm_exists():
    of_peers = {arm for change in changes.OF_COMBINATIONS for arm in change[1:]}
    assert of_peers <= {*peers.EVERY_ARM}
    masks = changes.OF_MASKS_ON_REVIEWS + changes.OF_PRETRAINING + changes.OF_MASKS_ON_PAIRS
    for arm in {arm for change in masks for arm in change[1:]} - {FINE_TUNING}:
        assert str(PolicyAtRate.parse(arm)) == arm


def test_no_name_is_cut_off_in_a_notebook():
    for change in (change for rows in (*OF_TABLES, changes.OF_MASKS_ON_PAIRS) for change in rows):
        assert len(change.what) <= 50, "pandas shows no more"


def test_every_change_has_records():
    """No row falls out of the page because an arm was renamed."""
    tables = list(changes.tables(RESULTS).values())
    tables += [*changes.on_pairs(RESULTS).values()]
    of_pairs = changes.OF_MASKS_ON_PAIRS
    for table, rows in zip(tables, (*OF_TABLES, of_pairs, of_pairs), strict=True):
        assert list(table.index) == [change.what for change in rows]
