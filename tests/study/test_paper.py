"""What the paper's tables say about themselves, against what a reader finds by hand."""

import pytest

from mtlib.methods import METHODS
from mtlib.study import paper


def test_tables_are_whole():
    assert paper.grid("III").shape == (15, 9) and not paper.grid("III").isna().any().any()
    assert paper.grid("I").loc[("BERT-base", "mask_tuning"), "HANS"] == 69.52
    assert {name for name, method in METHODS.items() if method.paper} <= set(paper.values()["method"])


def test_cells_on_which_the_tables_disagree():
    found = paper.disagreements()
    assert [(row.dataset, row.model) for row in found.itertuples()] == [
        ("SST-2", "BART-base"),
        ("IMDB-Cont", "BART-base"),
    ]
    contrast = found[found["dataset"] == "IMDB-Cont"].iloc[0]
    assert (contrast["value in I"], contrast["value in III"]) == (84.00, 83.00)


def test_the_one_outlier():
    (row,) = paper.outliers().itertuples()
    assert (row.model, row.method, row.dataset, row.value) == ("BART-base", "augmented", "QQP", 9.60)


def test_cells_not_below_mask_tuning():
    found = paper.not_beaten("III")
    assert {(row.model, row.method, row.dataset) for row in found.itertuples()} == {
        ("BERT-base", "augmented", "SST-2"), ("RoBERTa-base", "augmented", "MNLI-m")
    }  # fmt: skip
    found = paper.not_beaten("I")
    assert set(found["dataset"]) == {"SST-2", "MNLI-m", "QQP"} and set(found["model"]) == {"RoBERTa-base"}


def test_changes_against_fine_tuning():
    sequential, augmented = paper.change("sequential"), paper.change("augmented")
    assert (int((sequential < 0).sum().sum()), sequential.size) == (12, 27)
    assert (int((augmented < 0).sum().sum()), augmented.loc["BART-base", "HANS"]) == (7, 9.30)


@pytest.mark.parametrize(
    ("dataset", "n", "hits", "tried"),
    [("SST-2", 872, 8, 10), ("IMDB-Cont", 588, 8, 12), ("IMDB-CAD", 733, 7, 12), ("PAWS", 677, 0, 12)],
)
def test_digits(dataset, n, hits, tried):
    (found,) = paper.digits(dataset, [n])
    assert (found.hits, found.tried) == (hits, tried)
    assert found.by_chance == pytest.approx(
        1.5 * n / 10_001, rel=0.1
    )  # of k / n about half round up, and cut off and rounded then differ
    assert (found.p < 1e-3) == (hits > 0)
