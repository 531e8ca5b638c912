"""The labels of a person's rows.

Which column has them, which rows have none, and which labels only look alike.
"""

import datetime
import warnings
from collections.abc import Collection, Iterable, Sequence
from numbers import Number

import numpy as np
import pandas

from mtlib.errors import UserError
from mtlib.rows.cells import cell_text
from mtlib.rows.folding import fold

_KINDS = (str, Number, np.generic, type(None), type(pandas.NA), datetime.date, type(pandas.NaT))
_NO_CLASS = -1  # as `datasets` numbers rows without a label


def label_column(columns: Collection[str]) -> str | None:
    """Which of these columns holds the labels: `labels`, or `label`; None if neither is there."""
    return next((name for name in ("labels", "label") if name in columns), None)


def known_labels(name: str, labels: Sequence, feature: object = None) -> list:
    """The labels, with None for what is missing.

    Missing are None, NaN and blank text, and -1 where the classes have names.

    Args:
        name: of the set, for messages.
        labels: words, numbers or truth values.
        feature: of their column, where they come from a `Dataset`.

    Raises:
        UserError: a label of another kind, such as a list.
    """
    labels = list(labels)
    _check_kinds(name, labels)
    no_labels = set(filter(_is_blank, {*labels}))
    if hasattr(feature, "int2str"):  # a ClassLabel; importing `datasets` takes a second
        no_labels = {_NO_CLASS}
    missing = pandas.isna(np.array(labels, dtype=object))
    return [
        None if is_missing or label in no_labels else label
        for label, is_missing in zip(labels, missing, strict=True)
    ]


def label_name(label: object) -> str:
    """A label as the name of its class; of a whole number without a point.

    So 1 and 1.0, into which missing values turn it, are one.
    """
    return label if isinstance(label, str) else cell_text(label)


def _check_kinds(name: str, labels: Sequence) -> None:
    for kind in {*map(type, labels)}:
        if not issubclass(kind, _KINDS):
            label = next(label for label in labels if type(label) is kind)
            expected = "words or numbers, one label a row"
            raise UserError(f"{name} has the label {label!r}; expected {expected}.")


def _is_blank(label: object) -> bool:
    return isinstance(label, str) and not fold(label).strip()


def check_look_alike(labels: Iterable[object]) -> None:
    """Refuse labels that differ only in signs that nobody sees; warn of those that differ in case.

    Raises:
        UserError: two labels look alike and are two.
    """
    by_look: dict[str, str] = {}
    in_lower_case: dict[str, str] = {}
    for label in labels:
        if not isinstance(label, str):
            continue
        look = _look(label)
        if look in by_look:
            twin = by_look[look]
            raise UserError(
                f"the labels {twin!a} and {label!a} look alike and are two; write them in one way."
            )
        by_look[look] = label
        other = in_lower_case.setdefault(look.casefold(), label)
        if other is not label:
            message = f"the labels {other!r} and {label!r} differ in case alone and count as two."
            warnings.warn(message, stacklevel=3)


def _look(label: str) -> str:
    """What a reader sees of a label."""
    return " ".join(fold(label, match_case=True).split())
