"""Words that predict the label, and the rows on which they point the wrong way."""

import math

import numpy as np
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.data.sources import load
from mtlib.errors import UserError
from mtlib.suspect_words import conflicts, suspects, words_of


def made_up(*rows: tuple[str, int], names=("bad", "good")) -> Dataset:
    dataset = Dataset.from_dict({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    return dataset.cast_column("label", ClassLabel(names=list(names)))


def test_z_by_hand():
    dataset = made_up(
        *[("acme radio", 1)] * 27, *[("acme lamp", 0)] * 3, *[("other lamp", 0)] * 27, *[("other old", 1)] * 3
    )
    table = suspects(dataset, min_count=10).set_index("word")
    acme = table.loc["acme"]
    assert (acme.label, acme.rows, acme["share"], acme.base_rate) == ("good", 30, 0.9, 0.5)
    assert acme.z == pytest.approx((0.9 - 0.5) / math.sqrt(0.5 * 0.5 / 30))  # 4.38
    assert acme.example == "acme radio" and acme.counterexample == "acme lamp"
    assert table.loc["radio"].counterexample == "" and "old" not in table.index  # in three rows
    assert table.attrs == {"threshold": pytest.approx(3.0233, abs=1e-4), "tested": 4}  # at 1 - 0.01 / (4 x 2)


def test_a_word_without_a_side_is_no_suspect():
    dataset = made_up(*[("the film", 1)] * 50, *[("the film", 0)] * 50)
    assert suspects(dataset, min_count=1).empty


def test_pairs_tell_where_a_word_stands():
    rows = {"text": ["a man sleeps"] * 60, "text_pair": ["nobody sleeps"] * 30 + ["a man rests"] * 30,
            "label": [2] * 30 + [0] * 30}  # fmt: skip
    table = suspects(Dataset.from_dict(rows), min_count=10)
    found = set(zip(table["word"], table["where"], table["label"], strict=True))
    assert ("nobody", "text_pair", 2) in found and ("sleeps", "both", 2) in found and ("man", "both", 0) in found
    assert not any(where == "text" for _, where, _ in found)  # the first text is always the same


def test_conflicts_are_rows_where_the_words_point_elsewhere():
    dataset = made_up(*[("acme", 1)] * 40, ("acme", 0), *[("other", 0)] * 40, ("neither", 0))
    table = suspects(dataset, min_count=10)
    assert conflicts(dataset, table).tolist() == [label == 0 and text == "acme" for text, label in
                                                  zip(dataset["text"], dataset["label"], strict=True)]  # fmt: skip
    assert not conflicts(dataset, table[table.word == "other"]).any()


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("ab -'Ä字", max_size=8), st.integers(0, 1)), min_size=2, max_size=30))
def test_shares_are_shares_of_the_rows_with_the_word(rows):
    dataset = made_up(*rows)
    if len({label for _, label in rows}) < 2:
        with pytest.raises(UserError, match=r"all \d+ rows have the label"):
            suspects(dataset)
        return
    for line in suspects(dataset, top=None, min_count=1, significance=0.9).itertuples():
        having = [dataset.features["label"].int2str(label) for text, label in rows if line.word in words_of(text)]
        assert line.rows == len(having) and line.share == pytest.approx(np.mean([own == line.label for own in having]))


def test_the_testbeds_shortcut_is_found():
    table = suspects(load("testbed_sentiment_train", "testbed"), top=50)
    assert (table["share"] > 0.85).all() and (table["z"] > table.attrs["threshold"]).all()


def test_a_missing_column_is_named():
    with pytest.raises(UserError, match="no column `text`, but review, label"):
        suspects(Dataset.from_dict({"review": ["a"], "label": [0]}))
