"""The rows of the paper's Table III: fine-tuning, Mask-tuning and its ablations.

And masked-LM training before fine-tuning.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

from datasets import Dataset, concatenate_datasets
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import each_token
from mtlib.masking import MaskingPolicy
from mtlib.method import LearningRates, Recipe, Stage, one_stage
from mtlib.methods import METHODS, classification_variants
from mtlib.methods.settings import (
    IntermediateSettings,
    MaskingSettings,
    MaskTuningSettings,
    SequentialSettings,
    SharedTrunkSettings,
)
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.policies.wrapping import BlockMasked, DrawMasks
from mtlib.preparing import Prepared, Transform
from mtlib.settings import Fill

Stages = tuple[Stage, ...]


fine_tuning = one_stage(FineTuning)


def mask_tuning(settings: MaskTuningSettings, rates: LearningRates, tokenizer) -> Stages:
    """Equation 1; the loss of the refilled texts may be that of another method's last stage."""
    name = settings.classification
    stages = METHODS[name].stages if name in METHODS else getattr(classification_variants, name)
    *before, last = stages(settings, rates, tokenizer)
    masking = settings.policy(tokenizer)
    objective = MaskTuning(
        alpha=settings.alpha,
        masking=masking,
        classification=last.objective,
        fill=settings.fill,
        classifier_reads=settings.classifier_reads,
    )
    transforms = (*_transforms(settings, masking), *last.transforms)
    # without a name of its own the stage is called as its new objective is
    return (*before, replace(last, objective=objective, transforms=transforms, name=""))


def no_integrated_loss(settings: SharedTrunkSettings, rates: LearningRates, tokenizer) -> Stages:
    """Equation 1 at alpha 0: L_FT on texts that are refilled in each step."""
    masking = settings.policy(tokenizer)
    objective = MaskTuning(alpha=0.0, masking=masking, fill=settings.fill)
    return (Stage(objective, rates, _transforms(settings, masking)),)


def fine_tuning_on_changed(
    make_change: Callable[[MaskingSettings], Transform],
    stream: str = "masks",
) -> Recipe:
    """The recipe of fine-tuning on texts that are masked, and changed there, before training.

    Args:
        make_change: from the method's settings the transform that changes the masked tokens.
        stream: of random numbers, from which the masks are drawn.
    """

    def recipe(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stages:
        masking = settings.policy(tokenizer)
        draw = DrawMasks(masking, stream)
        transforms = (*_transforms(settings, masking), draw, make_change(settings))
        return (Stage(FineTuning(), rates, transforms),)

    return recipe


augmented = fine_tuning_on_changed(lambda settings: Refill(settings.fill, keep_original=True))
perturb_first = fine_tuning_on_changed(lambda settings: Refill(settings.fill))
# not the masks that the first stage has trained on
_refilled_later = fine_tuning_on_changed(lambda settings: Refill(settings.fill), stream="refill")


def sequential(settings: SequentialSettings, rates: LearningRates, tokenizer) -> Stages:
    """L_MLM on the texts, then L_FT on texts that the adapted masked LM has refilled."""
    return (_masked_lm(settings, rates, tokenizer), *_refilled_later(settings, rates, tokenizer))


def intermediate_pretraining(
    settings: IntermediateSettings,
    rates: LearningRates,
    tokenizer,
) -> Stages:
    """L_MLM on the texts, then L_FT on the texts as they are (Ye et al. 2021)."""
    return (_masked_lm(settings, rates, tokenizer), Stage(FineTuning(), rates))


def _masked_lm(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stage:
    """Masked-LM training on the task's texts; trunk and head learn one task, so at one rate."""
    masking = settings.policy(tokenizer)
    return Stage(MaskedLM(masking), LearningRates.alike(rates.mlm_head), masking.transforms())


def _transforms(settings: MaskingSettings, masking: MaskingPolicy) -> tuple[Transform, ...]:
    """What adds the policy's columns and, where asked to, blocks the masked words."""
    blocking = (BlockMasked(masking),) if getattr(settings, "barred", False) else ()
    return (*masking.transforms(), *blocking)


@dataclass(frozen=True)
class Refill(Transform):
    """Makes x̂ once for every example of a training set: the model fills the tokens of `mask`.

    Mask-tuning makes x̂ anew in each step, with the model in training (dropout on). Here the model
    is in evaluation mode and nothing is trained. Labels and all columns but `input_ids` stay. The
    record gets the number of tokens that changed.

    Args:
        fill: "argmax" (default) or "sample"; None leaves the masks.
        keep_original: the originals first, then the refilled examples: D ∪ {(x̂, y)}.
    """

    fill: Fill | None = "argmax"
    keep_original: bool = False

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        """Refill tokenised `examples` with a column `mask`, in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are the
        same afterwards.
        """
        new_ids = self._new_ids(plm, examples, seed)
        before = chain.from_iterable(examples["input_ids"])
        after = chain.from_iterable(new_ids)
        n_changed = sum(map(operator.ne, before, after))
        feature = examples.features["input_ids"]
        refilled = examples.remove_columns("input_ids")
        refilled = refilled.add_column("input_ids", new_ids, feature=feature)
        if self.keep_original:
            refilled = concatenate_datasets([examples, refilled])
        return Prepared(refilled, {"changed": n_changed})

    def _new_ids(self, plm: SharedPLM, examples: Dataset, seed: int) -> list[list[int]]:
        """The tokens of each example with its masks filled, or left."""
        console = Console(stderr=True)
        progress = Progress(console=console, transient=True, disable=not console.is_terminal)
        task = progress.add_task("refilling", total=len(examples))

        def new_ids(rows: list[int], batch: dict) -> Tensor:
            progress.advance(task, len(rows))
            mask = batch["mask"].bool()  # (batch, seq)
            if self.fill is None:
                return batch["input_ids"].masked_fill(mask, plm.tokenizer.mask_token_id)
            return plm.fill_masks(batch, mask, self.fill).perturbed_ids

        with evaluating(plm), forked_random_state(plm.device, seed), progress:
            rows = each_token(plm, examples, new_ids, {"mask": 0})
        return [row.tolist() for row in rows]
