"""What is done to a training set before a stage trains on it: a column is added, or its texts are refilled."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from datasets import Dataset

from mtlib.errors import UserError
from mtlib.plm import SharedPLM


class Prepared(NamedTuple):
    """What a preparer returns: the examples to train on, and numbers about them for the record's cost."""

    examples: Dataset
    counts: dict[str, float] = {}


class Preparer(ABC):
    """Makes one training set from another before a stage trains: refilled texts, a teacher's probabilities, spans.

    `reads` names the columns of the dataset (texts, say) that it wants beside the tokens, where they are there.
    `asks_previous` says that it asks the model that the stage before left even where its own stage starts anew from the
    pretrained one, as a student's preparer asks the teacher. `tells_model` says that it also tells the model something
    that is not saved with it, so that a resumed run has to do it again.
    """

    reads: tuple[str, ...] = ()
    asks_previous: bool = False
    tells_model: bool = False

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


def require_columns(examples: Dataset, preparer: Preparer, *names: str) -> None:
    if missing := {*names} - {*examples.column_names}:
        raise UserError(
            f"{type(preparer).__name__} reads the column {min(missing)!r}, but the examples have only "
            f"{', '.join(examples.column_names)}; tokenise a dataset that has it, with keep={[*preparer.reads]}."
        )


def with_column(examples: Dataset, name: str, rows: Sequence) -> Dataset:
    """The examples with a column of numbers, one row of them for each example; one of that name is replaced."""
    if not len(examples):
        return examples
    return examples.remove_columns([name] if name in examples.column_names else []).add_column(name, list(rows))
