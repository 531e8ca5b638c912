"""What a method is made of: settings, trainings one after the other, and what is done to the data before each.

Each method stands in a file of its own in `mtlib.methods`.
"""

import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtlib.settings import Settings

if TYPE_CHECKING:  # a method is known by name and settings without torch
    from datasets import Dataset

    from mtlib.objectives import Objective
    from mtlib.plm import SharedPLM
    from mtlib.preparing import Prepared, Preparer


@dataclass(frozen=True)
class LearningRates:
    """Peak rates of the trunk and of the two heads."""

    trunk: float
    classifier: float
    mlm_head: float

    @classmethod
    def alike(cls, rate: float) -> "LearningRates":
        return cls(rate, rate, rate)


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables, or of ours.

    Args:
        name: as configurations, records and the command line call it.
        label: in figures.
        about: what it is, in half a sentence.
        recipe: what gives its `stages`: a function, or where that stands ("mtlib.methods.ipt:ipt"), so that torch is
            loaded by a training and not by the name of a method.
        settings: a model of what it reads beside what every run has.
        rates: default learning rates with the bundled model.
        refills_in_training: the model in training fills the masks of each step, and both its heads have a loss.
    """

    name: str
    label: str
    about: str
    recipe: "Recipe | str"
    settings: type[Settings] = Settings
    rates: LearningRates = LearningRates(1e-4, 1e-4, 1e-4)  # where no grid has been recorded
    refills_in_training: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(self.settings.model_fields)

    def stages(self, settings: Settings, rates: LearningRates, tokenizer) -> "tuple[Stage, ...]":
        """Its trainings, done one after the other; the last trains the classifier."""
        recipe = self.recipe
        if isinstance(recipe, str):
            recipe = pkgutil.resolve_name(recipe)
        return recipe(settings, rates, tokenizer)


@dataclass(frozen=True)
class Stage:
    """One training.

    Args:
        objective: what is minimised.
        rates: peak learning rates.
        prepare: what is done to the training set first, in this order.
        start: from the model that the stage before left ("previous"; the first stage: from the pretrained one), or
            from the pretrained one again ("pretrained"), as a student does whose teacher the stage before trained.
        name: in records; default the objective's own. Two stages of a method need different ones.
        epochs, steps: how long it trains, where that is not the epochs of the run.
        measure: `(plm, objective) -> numbers` about what was trained, for the record's cost.
    """

    objective: "Objective"
    rates: LearningRates
    prepare: "tuple[Preparer, ...]" = ()
    start: Literal["previous", "pretrained"] = "previous"
    name: str = ""
    epochs: float | None = None
    steps: int | None = None
    measure: "Callable[[SharedPLM, Objective], dict[str, float]] | None" = None

    def __post_init__(self):
        if not self.name:
            object.__setattr__(self, "name", self.objective.name)


# settings, rates and the tokenizer -> the trainings
Recipe = Callable[[Settings, LearningRates, object], tuple[Stage, ...]]


def one_stage(objective: "Callable[[], Objective]") -> Recipe:
    """The recipe of a method that trains once, on the data as they are, and reads no settings."""
    return lambda settings, rates, tokenizer: (Stage(objective(), rates),)


_COUNTS = "counts.json"  # beside each preparer's examples


def prepared_examples(
    stage: Stage,
    plm: "SharedPLM",
    previous: "SharedPLM",
    examples: "Dataset",
    seed: int,
    folder: Path,
) -> "Prepared":
    """The training set of a stage. Each preparer's result is kept in `folder`, and read from there by a resumed run.

    Args:
        plm: the model that the stage starts from.
        previous: the one that the stage before left; the same but where a student starts anew.
    """
    from datasets import load_from_disk

    from mtlib.preparing import Prepared

    counts: dict[str, float] = {}
    for number, preparer in enumerate(stage.prepare):
        kept = folder / f"prepared-{number}"
        if preparer.tells_model or not (kept / _COUNTS).exists():
            result = preparer(previous if preparer.asks_previous else plm, examples, seed)
            result.examples.save_to_disk(kept)
            part = kept / f"{_COUNTS}.part"
            part.write_text(json.dumps(result.counts))
            part.replace(kept / _COUNTS)  # last: it says that the rest is there
        examples = load_from_disk(kept, keep_in_memory=True)
        counts |= json.loads((kept / _COUNTS).read_text())
    return Prepared(examples, counts)
