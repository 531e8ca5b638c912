"""The labels of a person's rows: which column has them, which rows have none, and which labels only look alike."""

import datetime
import warnings
from collections.abc import Collection, Iterable, Sequence
from numbers import Number

import numpy as np
import pandas

from mtlib.errors import UserError
from mtlib.folding import fold

_KINDS = (str, Number, np.generic, type(None), type(pandas.NA), datetime.date, type(pandas.NaT))


def label_column(columns: Collection[str]) -> str | None:
    """Which of these columns holds the class numbers: `labels`, or `label`; None if neither is there."""
    return next((name for name in ("labels", "label") if name in columns), None)


def known_labels(name: str, labels: Sequence, feature: object = None) -> list:
    """The labels, with None for what is missing: None, NaN, blank text, and -1 where the classes have names.

    Args:
        name: of the set, for messages.
        labels: words, numbers or truth values.
        feature: of their column, where they come from a `Dataset`.

    Raises:
        UserError: a label of another kind, such as a list.
    """
    labels = list(labels)
    for kind in {*map(type, labels)}:
        if not issubclass(kind, _KINDS):
            label = next(label for label in labels if type(label) is kind)
            raise UserError(
                f"{name} has the label {label!r}; expected words or numbers, one label a row."
            )
    missing = pandas.isna(np.array(labels, dtype=object))
    known = [None if absent else label for label, absent in zip(labels, missing, strict=True)]
    if hasattr(feature, "int2str"):  # a ClassLabel; importing `datasets` takes a second
        return [None if label == -1 else label for label in known]
    return [
        None if isinstance(label, str) and not fold(label).strip() else label for label in known
    ]


def check_look_alike(labels: Iterable[object]) -> None:
    """Raise `UserError` where two labels differ in signs that nobody sees; warn where they differ in case alone."""
    seen: dict[str, str] = {}
    in_lower_case: dict[str, str] = {}
    for label in labels:
        if not isinstance(label, str):
            continue
        shown = _seen(label)
        if shown in seen:
            raise UserError(
                f"the labels {seen[shown]!a} and {label!a} look alike and are two; write them in one way."
            )
        seen[shown] = label
        other = in_lower_case.setdefault(shown.casefold(), label)
        if other is not label:
            warnings.warn(
                f"the labels {other!r} and {label!r} differ in case alone and count as two.",
                stacklevel=3,
            )


def _seen(label: str) -> str:
    """What a reader sees of a label."""
    return " ".join(fold(label, match_case=True).split())
