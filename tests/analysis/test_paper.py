"""The paper's table as data."""

import pytest

from mtlib.analysis import paper


@pytest.mark.parametrize(
    ("method", "set_name", "model", "points"),
    [("Mask-tuning", "imdb_contrast", "BERT-base", 3.7), ("Mask-tuning", "imdb_contrast", "RoBERTa-base", 4.0),
     ("Mask-tuning", "sst2", "BERT-base", 0.7), ("Mask-tuning", "imdb_cad", "RoBERTa-base", 3.2),
     ("Mask-tuning", "anli_r2", "BERT-base", None), ("nothing", "sst2", "BERT-base", None)],
)  # fmt: skip
def test_differences_are_those_that_the_plan_quotes(method, set_name, model, points):
    found = paper.difference(method, "Fine-tuning on original train set", set_name, model)
    assert found == (None if points is None else pytest.approx(points, abs=0.05))
