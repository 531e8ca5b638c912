"""Rows of one's own as sets to train on, to choose the checkpoint on, and to score."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from datasets import ClassLabel, Dataset

from mtlib.data.tables import TEXTS
from mtlib.errors import UserError, one_of
from mtlib.own_data.reading import named_labels, texts_and_labels
from mtlib.rows.folding import fold
from mtlib.rows.labels import check_look_alike, label_column, label_name

LABEL = "label"
_DEV_SHARE = 0.2

Report = Callable[[str], None]  # is told a sentence


@dataclass(frozen=True)
class OwnSets:
    """Sets with the same columns, and with labels that are numbered alike."""

    train: Dataset
    dev: Dataset
    tests: Mapping[str, Dataset]

    @property
    def label_names(self) -> list[str]:
        return self.train.features[LABEL].names

    @property
    def scored(self) -> dict[str, Dataset]:
        """All but the training set, by name."""
        return {"dev": self.dev, **self.tests}


def prepare(
    train: Dataset,
    dev: Dataset | None,
    tests: Mapping[str, Dataset] | None,
    report: Report,
) -> OwnSets:
    """Rows of one's own as sets to train on, to choose the checkpoint on, and to score.

    Args:
        train: rows with `text` (and `text_pair`) and `label`.
        dev: the same; None: a fifth of `train` is kept for it.
        tests: the same, by name.
        report: is told what is left out, and what is odd.

    Raises:
        UserError: a set without texts or labels, or one that does not fit the training set; too few
            rows or labels.
    """
    tests = _named_tests(tests)
    train = _labelled("train", train, report)
    dev = None if dev is None else _labelled("dev", dev, report)
    tests = {name: _labelled(name, rows, report) for name, rows in tests.items()}
    train = _with_classes(train)
    _check_numbers(train, with_dev=dev is not None)
    if dev is not None:
        dev = _like("dev", dev, train)
    tests = {name: _like(name, rows, train) for name, rows in tests.items()}
    if dev is None:
        parts = train.train_test_split(_DEV_SHARE, seed=0, stratify_by_column=LABEL)
        train, dev = parts["train"], parts["test"]
        kept = f"{len(dev):,} of the rows are kept for it"
        report(f"no dev set given: {kept}, {len(train):,} are trained on.")
    sets = OwnSets(train, dev, tests)
    _report_known_rows(sets, report)
    return sets


def _named_tests(tests: Mapping[str, Dataset] | None) -> Mapping[str, Dataset]:
    if tests is None:
        return {}
    if taken := {"train", "dev"} & {*tests}:
        raise UserError(
            f"a test set is called {min(taken)!r}, as a set of the training; give it another name."
        )
    return tests


def _labelled(name: str, rows: Dataset, report: Report) -> Dataset:
    """The rows that have texts and a label, which stands in a column `label`."""
    if not isinstance(rows, Dataset):
        given = type(rows).__name__
        raise UserError(
            f"{name} is a {given}; expected a Dataset, as read_table(path, text, label)."
        )
    rows = _with_known_columns(name, rows.with_format(None), report)
    kept = []
    n_blank = n_unlabelled = 0
    for number, (texts, label) in enumerate(texts_and_labels(rows, name)):
        if not all(fold(text).strip() for text in texts):
            n_blank += 1
        elif label is None:
            n_unlabelled += 1
        else:
            kept.append(number)
    if not kept:
        raise UserError(f"{name} has no row with a text and a label; leave it out, or mend it.")
    for n, lack in ((n_blank, "a blank text"), (n_unlabelled, "no label")):
        if n:
            report(f"{n:,} of {len(rows):,} rows of {name} have {lack} and are left out.")
    return rows if len(kept) == len(rows) else rows.select(kept)


def _with_known_columns(name: str, rows: Dataset, report: Report) -> Dataset:
    """Texts and labels alone, with the labels in `label`."""
    columns = ", ".join(rows.column_names)
    label = label_column(rows.column_names)
    if label is None or {LABEL, "labels"} <= {*rows.column_names}:
        raise UserError(f"{name} has the columns {columns}; expected one column label.")
    if "text" not in rows.column_names:
        raise UserError(f"{name} has no column text; it has {columns}.")
    if label != LABEL:
        rows = rows.rename_column(label, LABEL)
    known = [column for column in (*TEXTS, LABEL) if column in rows.column_names]
    if unread := [column for column in rows.column_names if column not in known]:
        where = "texts are in `text` (and `text_pair`)"
        report(f"columns of {name} that are not read: {', '.join(unread)}; {where}.")
    return rows.select_columns(known)


def _with_classes(train: Dataset) -> Dataset:
    """The training set with numbered labels that have names."""
    if isinstance(train.features[LABEL], ClassLabel):
        return train
    names = label_names(train)
    check_look_alike(dict.fromkeys(names))
    named = train.remove_columns(LABEL).add_column(LABEL, names)
    return named.class_encode_column(LABEL)


def _check_numbers(train: Dataset, with_dev: bool) -> None:
    names = train.features[LABEL].names
    counts = Counter(names[label] for label in train[LABEL])
    enough_to_split = len(train) >= len(counts) / _DEV_SHARE
    if len(counts) >= 2 and min(counts.values()) >= 2 and (with_dev or enough_to_split):
        return
    rarest = ", ".join(f"{name} {n:,}" for name, n in counts.most_common()[:-4:-1])
    raise UserError(
        f"there are too few training rows or labels (rows with the rarest: {rarest}); expected two "
        "labels or more with two rows each, and without dev five times as many rows as labels. "
        "Drop or merge rare labels."
    )


def _like(name: str, rows: Dataset, train: Dataset) -> Dataset:
    """A set with the training set's columns, its labels numbered as there."""
    texts = [column for column in train.column_names if column != LABEL]
    _check_columns(name, {*rows.column_names} - {LABEL}, texts)
    feature = train.features[LABEL]
    labels = label_names(rows)
    if unknown := sorted({*labels} - {*feature.names}):
        expected = one_of(unknown[0], feature.names)
        raise UserError(f"{name} has the label {unknown[0]!r}; {expected}")
    numbers = [feature.names.index(label) for label in labels]
    return rows.select_columns(texts).add_column(LABEL, numbers, feature=feature)


def _check_columns(name: str, columns: Collection[str], expected: Sequence[str]) -> None:
    for column in expected:
        if column not in columns:
            raise UserError(f"{name} has no column {column}; expected {', '.join(expected)}.")
    for column in columns:
        if column not in expected:
            raise UserError(f"{name} has a column {column}, which train lacks; leave it out.")


def label_names(rows: Dataset) -> list[str]:
    return [label_name(label) for label in named_labels(rows[LABEL], rows.features[LABEL])]


def _report_known_rows(sets: OwnSets, report: Report) -> None:
    """Say how many rows that are scored are trained on too."""
    trained_on = {*_texts(sets.train)}
    for name, rows in sets.scored.items():
        if known := sum(texts in trained_on for texts in _texts(rows)):
            report(f"{known:,} of {len(rows):,} rows of {name} are copies of training rows.")


def _texts(rows: Dataset) -> Iterator[tuple[str, ...]]:
    columns = [rows[name] for name in TEXTS if name in rows.column_names]
    return zip(*columns, strict=True)
