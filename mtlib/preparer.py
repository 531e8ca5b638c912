"""What is done to a training set before a stage trains on it: the contract."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from datasets import Dataset

from mtlib.errors import UserError
from mtlib.plm import SharedPLM


class Prepared(NamedTuple):
    """What a preparer returns: the examples to train on, and numbers about them for the record's cost."""

    examples: Dataset
    counts: dict[str, float] = {}  # noqa: RUF012  (never changed)


class Preparer(ABC):
    """Makes one training set from another before a stage trains: refilled texts, a teacher's probabilities, spans.

    `reads` names the columns of the dataset (texts, say) that it wants beside the tokens, where they are there.
    `asks_previous` says that it asks the model that the stage before left even where its own stage starts anew from the
    pretrained one, as a student's preparer asks the teacher.
    """

    reads: tuple[str, ...] = ()
    asks_previous: bool = False

    @abstractmethod
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        """The examples that the stage trains on.

        Args:
            plm: the model that the stage starts from, or the one that the stage before left (`asks_previous`).
            examples: tokenised, as the preparer before left them.
            seed: of all that is random here.
        """

    def reading_from(self, source: str) -> "Preparer":
        """This preparer for a run whose data come from `source`; another one if it reads sets of its own from there."""
        return self

    def check(self, plm: SharedPLM) -> None:  # noqa: B027  (most have nothing to check)
        """Raise `UserError` where this cannot be done with the model, before any work starts."""

    def check_number(self, n: int) -> None:  # noqa: B027
        """Raise `UserError` where `n` training examples are too few, before any work starts."""


def check_texts(examples: Dataset, preparer: Preparer) -> None:
    if "text" not in examples.column_names:
        raise UserError(
            f"{type(preparer).__name__} reads the texts, but the examples have no column `text`; tokenise them with "
            f"keep={[*preparer.reads]}, as far as the dataset has these columns."
        )


def check_labelled(examples: Dataset, preparer: Preparer) -> None:
    if "labels" not in examples.column_names:
        raise UserError(
            f"{type(preparer).__name__} reads the labels, but the examples have no column `labels`, only "
            f"{', '.join(examples.column_names)}; tokenise them with a column `label`."
        )


def with_column(examples: Dataset, name: str, rows: Sequence) -> Dataset:
    """The examples with a column of numbers, one row of them for each example; one of that name is replaced."""
    if not len(examples):
        return examples
    return examples.remove_columns([name] if name in examples.column_names else []).add_column(name, list(rows))
