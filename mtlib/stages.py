"""What a method consists of: trainings one after the other, and what is done to the data before each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets, load_from_disk
from rich.console import Console
from rich.progress import track
from torch.utils.data import DataLoader

from mtlib.collator import Collator
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy
from mtlib.masking.masked_text import check_replacement, draw_mask, perturbation_counts, replace_masked
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM, check_fill, check_top_k, evaluating, forked_random_state
from mtlib.preparer import Prepared, Preparer
from mtlib.settings import Fill, LearningRates, Replacement


@dataclass(frozen=True)
class Stage:
    """One training.

    Args:
        objective: what is minimised.
        rates: peak learning rates.
        prepare: what is done to the training set first, in this order.
        start: from the model that the stage before left ("previous"; the first stage: from the pretrained one), or
            from the pretrained one again ("pretrained"), as a student does whose teacher the stage before trained.
        model_options: changes to the model's configuration for this stage, for example `{"attn_implementation":
            "eager"}` for an objective that reads attention weights.
        name: in records; default the objective's own. Two stages of a method need different ones.
        epochs, steps: how long it trains, where that is not the epochs of the run.
    """

    objective: Objective
    rates: LearningRates
    prepare: tuple[Preparer, ...] = ()
    start: Literal["previous", "pretrained"] = "previous"
    model_options: Mapping[str, object] = field(default_factory=dict)
    name: str = ""
    epochs: float | None = None
    steps: int | None = None

    def __post_init__(self):
        if self.start not in ("previous", "pretrained"):
            raise UserError(f"start is {self.start!r}; expected 'previous' or 'pretrained'.")
        if not self.name:
            object.__setattr__(self, "name", self.objective.name)


_COUNTS = "counts.json"  # beside each preparer's examples


def prepared_examples(stage: Stage, plm: SharedPLM, examples: Dataset, seed: int, folder: Path) -> Prepared:
    """The training set of a stage. Each preparer's result is kept in `folder`, and read from there by a resumed run."""
    counts: dict[str, float] = {}
    for number, preparer in enumerate(stage.prepare):
        kept = folder / f"prepared-{number}"
        if not (kept / _COUNTS).exists():
            result = preparer(plm, examples, seed)
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
        check_replacement(self.replacement)
        check_fill(self.fill, self.top_k)

    def check(self, plm: SharedPLM) -> None:
        check_top_k(self.fill, self.top_k, plm.tokenizer)

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        """Refill tokenised `examples` (`input_ids`, `attention_mask`, ...), in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are left as they were.
        """
        ids = list(examples["input_ids"])
        order = np.argsort([len(row) for row in ids], kind="stable")  # like lengths together: little padding
        collate = Collator(plm.tokenizer, self.masking.columns)
        batches = DataLoader(examples.select(order), batch_size, collate_fn=collate)
        console = Console(stderr=True)
        counts = {"masked": 0, "changed": 0}
        rows = iter(order.tolist())
        # sampled fills and the 80/10/10 rule draw from the global generator, masks from one of their own
        with evaluating(plm), forked_random_state(plm.device, seed):
            masks = torch.Generator().manual_seed(seed)
            for batch in track(batches, "refilling", console=console, transient=True, disable=not console.is_terminal):
                batch = {name: tensor.to(plm.device) for name, tensor in batch.items()}
                batch = draw_mask(plm, batch, self.masking, masks)
                perturbed_ids = self._fill(plm, batch)
                numbers = perturbation_counts(batch["input_ids"], perturbed_ids, batch["mask"])
                counts["masked"] += int(numbers["n_masked"])
                counts["changed"] += int(numbers["n_changed"])
                attended = batch["attention_mask"].bool()  # (batch, seq)
                for row, kept in zip(perturbed_ids.cpu(), attended.cpu(), strict=True):
                    ids[next(rows)] = row[kept].tolist()
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

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        order = np.argsort([len(row) for row in examples["input_ids"]], kind="stable")
        batches = DataLoader(
            examples.select(order), batch_size, collate_fn=Collator(plm.tokenizer), generator=torch.Generator()
        )
        with evaluating(plm):
            answers = [
                plm.classify({name: tensor.to(plm.device) for name, tensor in batch.items()}).float().softmax(-1).cpu()
                for batch in batches
            ]
        probabilities = torch.empty(len(examples), plm.config.num_labels)
        probabilities[torch.as_tensor(order)] = torch.cat(answers)
        right = probabilities.argmax(-1) == torch.tensor(examples["labels"][:])
        examples = examples.add_column("teacher_probabilities", probabilities.tolist())
        return Prepared(examples, {"teacher_accuracy": round(right.float().mean().item(), 4)})
