"""The sets of a trainer: what it asks of them, and what it takes from the training set."""

from typing import Any, TypeAlias

import torch
from datasets import ClassLabel, Dataset

from mtlib.encoding import check_labels
from mtlib.errors import UserError
from mtlib.objectives import ORIGINAL, Objective
from mtlib.plm import SharedPLM
from mtlib.rows.labels import label_column

# a `datasets.Dataset`, or another set of tokenised examples that has `column_names`
Examples: TypeAlias = Dataset | torch.utils.data.Dataset[dict[str, Any]]


class Numbered(torch.utils.data.Dataset[dict[str, Any]]):
    """A training set whose examples carry their number, `example`, on which their masks depend."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: list[int]) -> list[dict[str, Any]]:
        """The examples of a batch; torch's fetcher calls this where a data set has it."""
        if isinstance(self.dataset, Dataset):
            examples = self.dataset.__getitems__(rows)
        else:  # batches that are made on the fly, as in data/models/lm_training.py
            examples = [self.dataset[row] for row in rows]
        return [{**example, "example": row} for row, example in zip(rows, examples, strict=True)]


# --- what it refuses ---


def check_set(
    name: str,
    dataset: Any,
    plm: SharedPLM,
    objective: Objective,
    id2label: dict[int, str],
    training: bool = False,
) -> None:
    """Raise `UserError` if a set, or one of several by name, does not fit model and objective.

    Args:
        name: what messages call the set.
        dataset: a Dataset, or a dictionary of them; None and texts (the name of a set that was
            checked at the start) pass.
        plm: the model.
        objective: what is minimised.
        id2label: the names that the model's labels have or will have.
        training: the set is to be trained on, not only classified.
    """
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_set(f"{name} {key!r}", part, plm, objective, id2label)
        return
    if dataset is None or isinstance(dataset, str):
        return
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        raise UserError(
            f"{name} is a {type(dataset).__name__}; expected a Dataset, as mtlib.tokenise makes "
            "one. Streams and torch datasets are not read; Dataset.from_list(list(rows)) makes a "
            "Dataset of their rows."
        )
    label_name = label_column(dataset.column_names) if objective.classifies else None
    _check_columns(name, dataset, objective, label_name, training)
    if not isinstance(dataset, Dataset):
        return  # batches that are made on the fly also have columns, but cannot be looked into
    plm.check_inputs(dataset.with_format(None)["input_ids"], name)  # a format may hide columns
    if label_name:
        check_labels(name, dataset, plm.num_labels)
        _check_label_names(name, dataset, id2label)


def _check_columns(
    name: str,
    dataset: Any,
    objective: Objective,
    label_name: str | None,
    training: bool,
) -> None:
    needed = {"input_ids"}
    if training or not objective.classifies:  # a classifier is evaluated on the plain texts
        needed |= objective.columns.keys()
    if training and objective.classifies:
        needed.add(label_name or "labels")
    missing = sorted(needed - {*dataset.column_names})
    if missing:
        raise UserError(
            f"{name} has no column {', '.join(missing)}, which {type(objective).__name__} needs; "
            f"it has {', '.join(dataset.column_names)}. mtlib.tokenise makes tokens and labels, "
            f"MaskTuning(classification=...) brings {ORIGINAL}, and transforms add all else."
        )


def _check_label_names(name: str, dataset: Dataset, id2label: dict[int, str]) -> None:
    """Names must not contradict the model's, or correct predictions would count as wrong.

    A name that both know has one number. A set with fewer labels than the model has none but the
    model's; one with as many may call them otherwise.
    """
    names = _label_names(dataset)
    numbers = {label: number for number, label in id2label.items()}
    moved = any(numbers.get(label, number) != number for number, label in enumerate(names))
    has_unknown = any(label not in numbers for label in names)
    if moved or (has_unknown and len(names) < len(numbers)):
        raise UserError(
            f"{name} numbers its labels {', '.join(names)}, the model "
            f"{', '.join(id2label.values())} (as the training set, where it came without names). "
            "Number the labels of all sets by the model's, give these by "
            "SharedPLM.from_pretrained(id2label=...), or call `trainer.predict` without labels and "
            "fold the answers."
        )


# --- what it takes from the training set ---


def with_columns(
    train: Examples | None,
    plm: SharedPLM,
    objective: Objective,
    seed: int,
) -> Examples | None:
    """A training set with the columns that the objective's masking policy reads."""
    masking = objective.masking
    if masking is None or not isinstance(train, Dataset):
        return train
    if masking.columns.keys() <= {*train.column_names}:
        return train
    train = train.with_format(None)  # tokens that are tensors cannot be counted
    for transform in masking.transforms():
        train = transform(plm, train, seed).examples
    return train


def note_trained_length(plm: SharedPLM, train: Examples | None) -> None:
    """Note the length of the longest training text, up to which `predict` will read."""
    if isinstance(train, Dataset):
        lengths = map(len, train.with_format(None)["input_ids"])
        plm.config.trained_length = max(lengths, default=0)


def id2label_of(plm: SharedPLM, training_set: Examples | None) -> dict[int, str]:
    """The model's `id2label`; or the training set's, if it names all labels and the model none."""
    id2label = plm.id2label
    names = _label_names(training_set)
    nameless = all(name == f"LABEL_{number}" for number, name in id2label.items())
    if nameless and len(names) == plm.num_labels:
        return dict(enumerate(names))
    return id2label


def _label_names(dataset: Examples | None) -> list[str]:
    """The names in a `ClassLabel` column of labels; none if the column is of another kind."""
    features = getattr(dataset, "features", None) or {}
    column = features.get(label_column(features))
    return list(column.names) if isinstance(column, ClassLabel) else []
