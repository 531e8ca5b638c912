"""The paper's tables as data."""

import pytest

from mtlib.analysis import paper


def test_cells_by_hand():
    printed = paper.table("III")
    assert printed.loc[("BERT-base", "Mask-tuning"), "IMDB-Cont"] == pytest.approx(82.78, abs=1)
    assert printed.shape == (15, 9)


@pytest.mark.parametrize(
    ("method", "set_name", "model", "points"),
    [("Mask-tuning", "imdb_contrast", "BERT-base", 3.7), ("Mask-tuning", "imdb_contrast", "RoBERTa-base", 4.0),
     ("Mask-tuning", "sst2", "BERT-base", 0.7), ("Mask-tuning", "imdb_cad", "RoBERTa-base", 3.2)],
)  # fmt: skip
def test_differences_are_those_that_the_plan_quotes(method, set_name, model, points):
    base = "Fine-tuning on original train set"
    assert paper.difference(method, base, set_name, model) == pytest.approx(points, abs=0.05)


def test_what_the_paper_does_not_have_has_no_difference():
    assert paper.difference("Mask-tuning", "Fine-tuning on original train set", "anli_r2", "BERT-base") is None
    assert paper.difference("Mask-tuning", "nothing", "sst2", "BERT-base") is None


def test_digits_that_a_size_reaches_always_fit():
    # of 10,000 examples every value with two digits is a share
    (of_all,) = paper.digits("SST-2", [10_000])
    assert of_all.hits == of_all.tried and of_all.by_chance == 1 and of_all.p == 1
