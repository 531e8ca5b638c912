"""The rows of the paper's Table III: fine-tuning, Mask-tuning and its ablations; and masked-LM training before."""

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
from mtlib.method import LearningRates, Stage, one_stage
from mtlib.methods import METHODS, readings
from mtlib.methods.settings import (
    READINGS,
    IntermediateSettings,
    MaskingSettings,
    MaskTuningSettings,
    SequentialSettings,
    SharedTrunkSettings,
)
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.policies.wrapping import FixedMasking
from mtlib.preparing import Prepared, Preparer
from mtlib.settings import Fill

Stages = tuple[Stage, ...]


fine_tuning = one_stage(FineTuning)


def mask_tuning(settings: MaskTuningSettings, rates: LearningRates, tokenizer) -> Stages:
    """On refilled texts it has the classification loss of another method's last stage, the one that is named."""
    *before, last = classification_stages(settings, rates, tokenizer)
    masking = settings.policy(tokenizer)
    masking = FixedMasking(masking) if settings.fixed_masks else masking
    objective = MaskTuning(
        settings.alpha, masking, classification=last.objective, classifier_reads=settings.classifier_reads,
        **settings.filling(),
    )  # fmt: skip
    return (*before, replace(last, objective=objective, prepare=(*settings.preparers(masking), *last.prepare), name=""))


def classification_stages(settings: MaskTuningSettings, rates: LearningRates, tokenizer) -> Stages:
    """Those of the method whose loss the refilled text gets."""
    name = settings.classification
    stages = getattr(readings, name) if name in READINGS else METHODS[name].stages
    return stages(settings, rates, tokenizer)


def no_integrated_loss(settings: SharedTrunkSettings, rates: LearningRates, tokenizer) -> Stages:
    masking = settings.policy(tokenizer)
    return (Stage(MaskTuning(0.0, masking, **settings.filling()), rates, settings.preparers(masking)),)


def fine_tuning_once(change: Callable[[MaskingSettings], Preparer]):
    """The stages of fine-tuning on texts that are masked once, and changed there by a preparer."""

    def stages(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stages:
        masking = FixedMasking(settings.policy(tokenizer))
        return (Stage(FineTuning(), rates, (*settings.preparers(masking), change(settings))),)

    return stages


augmented = fine_tuning_once(lambda settings: Refill(**settings.filling(), keep_original=True))
perturb_first = fine_tuning_once(lambda settings: Refill(**settings.filling()))


def sequential(settings: SequentialSettings, rates: LearningRates, tokenizer) -> Stages:
    return (_masked_lm(settings, rates, tokenizer), *perturb_first(settings, rates, tokenizer))


def intermediate_pretraining(settings: IntermediateSettings, rates: LearningRates, tokenizer) -> Stages:
    return (_masked_lm(settings, rates, tokenizer), Stage(FineTuning(), rates))


def _masked_lm(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stage:
    """Masked-LM training on the task's texts; trunk and head learn one task here, at one rate."""
    masking = settings.policy(tokenizer)
    return Stage(MaskedLM(masking), LearningRates.alike(rates.mlm_head), masking.preparers())


@dataclass(frozen=True)
class Refill(Preparer):
    """x̂ for every example of a training set, made once: the tokens of `mask` are filled by the model as it stands.

    Mask-tuning makes x̂ anew in each step, by the model in training (dropout on); here the model is in evaluation mode
    and nothing is trained. Labels and all columns but `input_ids` stay. Counts how many tokens came back changed.

    Args:
        fill: "argmax" (default), "sample" or "top_k"; None leaves the masks.
        top_k: for `fill="top_k"`.
        keep_original: the originals first, then the refilled examples: D ∪ {(x̂, y)}.
    """

    fill: Fill | None = "argmax"
    top_k: int = 10
    keep_original: bool = False

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        """Refill tokenised `examples` with a column `mask`, in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are left as they were.
        """
        console = Console(stderr=True)
        progress = Progress(console=console, transient=True, disable=not console.is_terminal)

        def perturbed(rows: list[int], batch: dict) -> Tensor:
            progress.advance(task, len(rows))
            mask = batch["mask"].bool()  # (batch, seq)
            if self.fill is None:
                return batch["input_ids"].masked_fill(mask, plm.tokenizer.mask_token_id)
            return plm.fill_masks(batch, mask, self.fill, self.top_k).perturbed_ids

        with evaluating(plm), forked_random_state(plm.device, seed), progress:
            task = progress.add_task("refilling", total=len(examples))
            ids = [row.tolist() for row in each_token(plm, examples, perturbed, {"mask": 0}, batch_size)]
        changed = sum(map(operator.ne, chain.from_iterable(examples["input_ids"]), chain.from_iterable(ids)))
        feature = examples.features["input_ids"]
        refilled = examples.remove_columns("input_ids").add_column("input_ids", ids, feature=feature)
        both = concatenate_datasets([examples, refilled]) if self.keep_original else refilled
        return Prepared(both, {"changed": changed})
