"""What a method consists of: trainings one after the other, and what is done to the data before each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

import torch
from datasets import Dataset, concatenate_datasets, load_from_disk
from rich.console import Console
from rich.progress import track

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import Collator, batches_by_length
from mtlib.masking import MaskingPolicy, check_policy, draw_mask, perturbation_counts, replace_masked
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.plm_checks import check_fill, check_top_k
from mtlib.preparer import Prepared, Preparer, check_labelled, with_column
from mtlib.settings import Fill, LearningRates, Replacement, check_choice


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

    objective: Objective
    rates: LearningRates
    prepare: tuple[Preparer, ...] = ()
    start: Literal["previous", "pretrained"] = "previous"
    name: str = ""
    epochs: float | None = None
    steps: int | None = None
    measure: Callable[[SharedPLM, Objective], dict[str, float]] | None = None

    def __post_init__(self):
        check_choice("start", self.start, ("previous", "pretrained"))
        if not self.name:
            object.__setattr__(self, "name", self.objective.name)


_COUNTS = "counts.json"  # beside each preparer's examples


def prepared_examples(
    stage: Stage, plm: SharedPLM, previous: SharedPLM, examples: Dataset, seed: int, folder: Path
) -> Prepared:
    """The training set of a stage. Each preparer's result is kept in `folder`, and read from there by a resumed run.

    Args:
        plm: the model that the stage starts from.
        previous: the one that the stage before left; the same but where a student starts anew.
    """
    counts: dict[str, float] = {}
    for number, preparer in enumerate(stage.prepare):
        kept = folder / f"prepared-{number}"
        if not (kept / _COUNTS).exists():
            result = preparer(previous if preparer.asks_previous else plm, examples, seed)
            result.examples.save_to_disk(kept)
            part = kept / f"{_COUNTS}.part"
            part.write_text(json.dumps(result.counts))
            part.replace(kept / _COUNTS)  # last: it says that the rest is there
        examples = load_from_disk(kept, keep_in_memory=True)
        counts |= json.loads((kept / _COUNTS).read_text())
    return Prepared(examples, counts)


def is_prepared(folder: Path) -> bool:
    """Whether an interrupted run has left the result of a preparer here."""
    return any(folder.glob(f"prepared-*/{_COUNTS}"))


@dataclass(frozen=True)
class Refill(Preparer):
    """x̂ for every example of a training set, made once: masked, and filled by the model as it stands.

    Mask-tuning makes the same x̂ anew in each step, by the model in training (dropout on); here the model is in
    evaluation mode and nothing is trained. Labels and all columns but `input_ids` stay. Counts how many tokens were
    masked, and how many came back changed.

    Args:
        masking: policy.
        fill: "argmax" (default), "sample" or "top_k".
        top_k: for `fill="top_k"`.
        replacement: what stands at masked places; default always the mask token.
        keep_original: the originals first, then the refilled examples: D ∪ {(x̂, y)}.
    """

    masking: MaskingPolicy
    fill: Fill = "argmax"
    top_k: int = 10
    replacement: Replacement = "mask"
    keep_original: bool = False

    def __post_init__(self):
        check_policy(self.masking, required=True)
        check_choice("replacement", self.replacement, Replacement)
        check_fill(self.fill, self.top_k)

    def check(self, plm: SharedPLM) -> None:
        check_top_k(self.fill, self.top_k, plm.tokenizer)

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        """Refill tokenised `examples` (`input_ids`, `attention_mask`, ...), in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are left as they were.
        """
        ids = list(examples["input_ids"])
        collate = Collator(plm.tokenizer, self.masking.columns)
        batches = batches_by_length(examples, collate, plm.device, batch_size)
        console = Console(stderr=True)
        counts = {"masked": 0, "changed": 0}
        # sampled fills and the 80/10/10 rule draw from the global generator, masks from one of their own
        with evaluating(plm), forked_random_state(plm.device, seed):
            masks = torch.Generator().manual_seed(seed)
            for rows, batch in track(
                batches, "refilling", ceil(len(ids) / batch_size), console=console, transient=True,
                disable=not console.is_terminal,
            ):  # fmt: skip
                batch = draw_mask(plm, batch, self.masking, masks)
                perturbed_ids = self._fill(plm, batch)
                numbers = perturbation_counts(batch["input_ids"], perturbed_ids, batch["mask"])
                counts["masked"] += int(numbers["n_masked"])
                counts["changed"] += int(numbers["n_changed"])
                attended = batch["attention_mask"].bool()  # (batch, seq)
                for row, refilled, kept in zip(rows, perturbed_ids.cpu(), attended.cpu(), strict=True):
                    ids[row] = refilled[kept].tolist()
        feature = examples.features["input_ids"]
        refilled = examples.remove_columns("input_ids").add_column("input_ids", ids, feature=feature)
        return Prepared(concatenate_datasets([examples, refilled]) if self.keep_original else refilled, counts)

    def _fill(self, plm: SharedPLM, batch: dict) -> torch.Tensor:
        masked_ids = replace_masked(batch["input_ids"], batch["mask"], plm.tokenizer, self.replacement)
        return plm.fill_masks(batch, batch["mask"], self.fill, self.top_k, masked_ids).perturbed_ids


@dataclass(frozen=True)
class AddTeacher(Preparer):
    """Puts `teacher_probabilities` beside each example: the answers of the model that the stage before left.

    The teacher is asked about the very examples that it was trained on, as in the released code, so after a few epochs
    its answers can be nearly certain. Counts, for the record, how often it is right on them.
    """

    asks_previous = True

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        check_labelled(examples, self)
        probabilities = torch.empty(len(examples), plm.config.num_labels)
        with evaluating(plm):
            for rows, batch in batches_by_length(examples, Collator(plm.tokenizer), plm.device, batch_size):
                probabilities[rows] = plm.classify(batch).float().softmax(-1).cpu()
        right = probabilities.argmax(-1) == torch.tensor(examples["labels"][:])
        examples = with_column(examples, "teacher_probabilities", probabilities.tolist())
        return Prepared(examples, {"teacher_accuracy": round(right.float().mean().item(), 4)})
