"""Measures of diversity that need no judge."""

import pytest

from mtlib.diversity.measures import changed_by_epoch, distinct_fillers, filler_entropy
from tests.diversity.test_fillings import ROW


def test_distinct_entropy_and_change():
    rows = [ROW | {"predicted_token": token, "epoch": epoch} for token, epoch in
            (("film", 1), ("film", 1), ("plot", 2), ("story", 2))]  # fmt: skip
    assert distinct_fillers(rows) == 3
    assert filler_entropy(rows) == pytest.approx(1.5)
    assert filler_entropy([]) == 0 and distinct_fillers([]) == 0 and changed_by_epoch([]) == {}
    assert {epoch: part[:2] for epoch, part in changed_by_epoch(rows).items()} == {1: (0, 2), 2: (2, 2)}
