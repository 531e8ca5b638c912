"""What a cell may hold: the text of each kind, and what is refused."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlib.errors import UserError
from mtlib.rows.cells import cell_text, cell_texts, find_column


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (" a film\n", "a film"),
        ("NA", "NA"),
        ("01", "01"),
        ("1.0", "1.0"),
        ("café".encode(), "café"),
        (np.str_("x"), "x"),
        (True, "True"),
        (np.bool_(False), "False"),
        (-3, "-3"),
        (2**70, str(2**70)),
        (np.uint64(2**64 - 1), str(2**64 - 1)),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (np.float32(0.1), "0.1"),
        (math.inf, "inf"),
        (Decimal("2.00"), "2.00"),
        (Decimal(10) ** 30, "1" + "0" * 30),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        (datetime.datetime(2024, 5, 1, 12), "2024-05-01 12:00:00"),
        (pandas.Timestamp("2024-05-01 12:00", tz="UTC"), "2024-05-01 12:00:00+00:00"),
    ],
)
def test_what_a_cell_may_hold(value, text):
    assert cell_text(value) == text and type(cell_text(value)) is str


@pytest.mark.parametrize(
    "value",
    [None, math.nan, np.float32("nan"), pandas.NA, pandas.NaT, Decimal("nan"), "", " \t\u3000"],
)
def test_missing_as_pandas_says_it(value):
    assert cell_text(value) == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["a"], r"\['a'\] is of type list; expected a text, a number, a truth value or a date"),
        ({"a": 1}, r"\{'a': 1\} is of type dict"),
        (np.array([1]), "is of type ndarray"),
        (b"\xff", r"b'\\xff' is not UTF-8"),
        (datetime.timedelta(1), "is of type timedelta"),
        (1j, "is of type complex"),
        ("a\ud83d", r"has half a character, '\\ud83d'"),
    ],
)
def test_all_else_is_refused_with_its_place(value, message):
    with pytest.raises(UserError, match=rf"rows, column 'x', row 1,002: .*{message}"):
        cell_texts(["a", value], "rows, column 'x', row", range(1001, 1003))


@given(st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), st.text(), st.dates()))
def test_the_text_of_a_cell_is_a_cell_with_this_text(value):
    assert cell_text(cell_text(value)) == cell_text(value)


@given(st.integers(-(2**52), 2**52))
def test_a_whole_number_is_one_label_however_it_is_kept(number):
    same = [number, float(number), np.int64(number), np.float64(number), Decimal(number)]
    assert {cell_text(value) for value in same} == {str(number)}


def test_columns_are_found_by_their_names():
    assert find_column(["text", " text", "label"], "text", "rows") == 0
    assert find_column(["\ufeffa b ", "label"], "a b", "rows") == 0
    assert find_column([0, 1], "1", "rows") == 1
    for names in (["x", "x"], [" x", "x "]):
        with pytest.raises(UserError, match="rows has 2 columns called 'x'; rename all but one"):
            find_column(names, "x", "rows")
    with pytest.raises(UserError, match=r"rows has no column 'labels'; .* did you mean 'label'"):
        find_column(["text", "label"], "labels", "rows")
