"""What a method is made of: settings, stages of training, and what is done to the data before each.

Each method has a file of its own in `mtlib.methods`.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mtlib.settings import Settings

if TYPE_CHECKING:  # a method is known by name and settings without torch
    from transformers import PreTrainedTokenizerBase

    from mtlib.objectives import Objective
    from mtlib.plm import SharedPLM
    from mtlib.preparing import Transform


@dataclass(frozen=True)
class LearningRates:
    """Peak learning rates of the trunk and of the two heads."""

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
        recipe: where the function is that gives its `stages` ("mtlib.methods.ipt:ipt"), so that
            torch is loaded by a training and not by the name of a method.
        settings: a model of the settings it reads beside those of every run.
        rates: default learning rates with the bundled model.
        refills_in_training: the model in training fills the masks of each step, and both its heads
            have a loss.
    """

    name: str
    label: str
    recipe: str
    settings: type[Settings] = Settings
    rates: LearningRates = LearningRates(1e-4, 1e-4, 1e-4)  # where no grid has been recorded
    refills_in_training: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(self.settings.model_fields)

    def stages(
        self,
        settings: Settings,
        rates: LearningRates,
        tokenizer: "PreTrainedTokenizerBase",
    ) -> "tuple[Stage, ...]":
        """Its trainings, done one after the other; the last trains the classifier."""
        recipe = pkgutil.resolve_name(self.recipe)
        return recipe(settings, rates, tokenizer)


@dataclass(frozen=True)
class Stage:
    """One training.

    Args:
        objective: what is minimised.
        rates: peak learning rates.
        transforms: what is done to the training set first, in this order.
        start: "previous" continues with the model of the previous stage (the first stage: with the
            pretrained one); "pretrained" starts anew from the pretrained one, as a student does
            whose teacher the previous stage trained.
        name: in records; by default the objective's. Two stages of a method need different names.
        epochs, steps: how long it trains, if not for the epochs of the run.
        measure: `(plm, objective) -> numbers` about the trained model, for the cost in the record.
    """

    objective: "Objective"
    rates: LearningRates
    transforms: "tuple[Transform, ...]" = ()
    start: Literal["previous", "pretrained"] = "previous"
    name: str = ""
    epochs: float | None = None
    steps: int | None = None
    measure: "Callable[[SharedPLM, Objective], dict[str, float]] | None" = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.objective.name)


# settings, rates and the tokenizer -> the stages
Recipe = Callable[[Settings, LearningRates, "PreTrainedTokenizerBase"], tuple[Stage, ...]]


def one_stage(objective: "Callable[[], Objective]") -> Recipe:
    """The recipe of a method that trains once on the data as they are, and reads no settings."""

    def recipe(
        settings: Settings,
        rates: LearningRates,
        tokenizer: "PreTrainedTokenizerBase",
    ) -> tuple[Stage, ...]:
        return (Stage(objective(), rates),)

    return recipe
