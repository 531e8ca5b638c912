"""What is done to a training set before a stage trains on it: adding a column, refilling texts."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from datasets import Dataset, load_from_disk

from mtlib.errors import UserError
from mtlib.plm import SharedPLM


class Prepared(NamedTuple):
    """What a transform returns.

    Args:
        examples: to train on.
        counts: numbers about them, for the cost in the record.
    """

    examples: Dataset
    counts: Mapping[str, float] = MappingProxyType({})


class Transform(ABC):
    """Makes one training set from another before a stage trains.

    It adds spans or a teacher's probabilities as a column, for example, or refills the texts.
    """

    # columns of the dataset (texts, say) that it reads beside the tokens, if they are there
    reads: tuple[str, ...] = ()
    # It asks the model of the previous stage even if its own stage starts anew from the pretrained
    # one, as a student asks its teacher.
    asks_previous: bool = False
    # it also changes something in the model that is not saved: a resumed run has to repeat it
    tells_model: bool = False

    @abstractmethod
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        """The examples that the stage trains on.

        Args:
            plm: the model that the stage starts from, or that of the previous stage
                (`asks_previous`).
            examples: tokenised, as the previous transform left them.
            seed: of everything random here.
        """

    def reading_from(self, source: str) -> "Transform":
        """This transform for a run whose data come from `source`.

        It is another one if it reads data sets of its own from there.
        """
        return self

    def check(self, plm: SharedPLM) -> None:  # noqa: B027  (most have nothing to check)
        """Raise `UserError` if this cannot be done with the model, before any work starts."""


def require_columns(examples: Dataset, transform: Transform, *names: str) -> None:
    """Raise `UserError` if the examples lack one of these columns."""
    missing = {*names} - {*examples.column_names}
    if missing:
        raise UserError(
            f"{type(transform).__name__} reads the column {min(missing)!r}, but the examples have "
            f"only {', '.join(examples.column_names)}; tokenise a dataset that has it, with "
            f"keep={[*transform.reads]}."
        )


def with_column(examples: Dataset, name: str, rows: Sequence[object]) -> Dataset:
    """The examples with a column of numbers, one row for each example.

    An older column of that name is replaced.
    """
    if not len(examples):
        return examples
    if name in examples.column_names:
        examples = examples.remove_columns([name])
    return examples.add_column(name, list(rows))


_COUNTS = "counts.json"  # beside the examples that each transform made


def prepared_examples(
    transforms: Sequence[Transform],
    plm: SharedPLM,
    previous: SharedPLM,
    examples: Dataset,
    seed: int,
    folder: Path,
) -> Prepared:
    """The training set of a stage; a resumed run reads back what is already prepared.

    Args:
        transforms: of the stage, in their order.
        plm: the model that the stage starts from.
        previous: the model of the previous stage; another one only if a student starts anew.
        examples: tokenised.
        seed: of everything random.
        folder: where the result of each transform is kept.
    """
    counts: dict[str, float] = {}
    for number, transform in enumerate(transforms):
        kept = folder / f"prepared-{number}"
        model = previous if transform.asks_previous else plm
        if not (kept / _COUNTS).exists():
            _keep(transform(model, examples, seed), kept)
        elif transform.tells_model:
            transform(model, examples, seed)
        examples = load_from_disk(kept, keep_in_memory=True)
        counts |= json.loads((kept / _COUNTS).read_text())
    return Prepared(examples, counts)


def _keep(prepared: Prepared, folder: Path) -> None:
    prepared.examples.save_to_disk(folder)
    part = folder / f"{_COUNTS}.part"
    part.write_text(json.dumps(dict(prepared.counts)))
    part.replace(folder / _COUNTS)  # last: it says that the rest is complete
