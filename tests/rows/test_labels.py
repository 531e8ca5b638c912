"""Labels of a person's rows: which are missing, which are refused, which look alike."""

import datetime
import re
import warnings

import numpy as np
import pandas
import pytest
from datasets import ClassLabel

from mtlib.errors import UserError
from mtlib.rows.labels import check_look_alike, known_labels, label_column

CLASSES = ClassLabel(names=["bad", "good"])
ZERO_WIDTH_SPACE = "\u200b"


def test_the_column_of_labels():
    assert label_column(["text", "label"]) == "label"
    assert label_column(["label", "labels"]) == "labels"
    assert label_column(["text", "opinion"]) is None


@pytest.mark.parametrize(
    "missing",
    [None, float("nan"), np.float64("nan"), pandas.NA, pandas.NaT, "", "  ", ZERO_WIDTH_SPACE],
)
def test_a_missing_label_is_none(missing):
    assert known_labels("train", ["good", missing, "bad"]) == ["good", None, "bad"]


def test_minus_one_is_missing_where_classes_have_names_and_a_label_elsewhere():
    assert known_labels("train", [1, -1, 0], CLASSES) == [1, None, 0]
    assert known_labels("train", [1, -1, 0]) == [1, -1, 0]


def test_labels_stay_what_they_are():
    labels = [0, False, 1.5, np.int64(2), "0", "None", datetime.date(2026, 1, 2)]
    assert known_labels("train", labels) == labels


@pytest.mark.parametrize("label", [[0], {"a": 1}, b"good", (1, 2)])
def test_labels_of_other_kinds_are_refused(label):
    with pytest.raises(UserError, match=r"dev has the label .*; expected words or numbers"):
        known_labels("dev", [0, label])


@pytest.mark.parametrize(
    ("label", "like"),
    [
        ("good", f"good{ZERO_WIDTH_SPACE}"),
        ("caf\u00e9", "cafe\u0301"),
        ("not good", "not\u00a0good"),
    ],
)
def test_labels_that_look_alike_are_refused(label, like):
    message = f"{label!a} and {like!a} look alike and are two"
    with pytest.raises(UserError, match=re.escape(message)):
        check_look_alike([label, "bad", like])


def test_labels_that_differ_in_case_are_two_and_said_so():
    with pytest.warns(UserWarning, match="'good' and 'Good' differ in case alone"):
        check_look_alike(["good", "Good"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_look_alike(["good", "bad", 0, 1])
