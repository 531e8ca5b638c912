"""A training set refilled once by a masked LM, before a training starts."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from rich.console import Console
from rich.progress import track
from torch.utils.data import DataLoader

from mtlib.masking import MaskingPolicy
from mtlib.objectives.mask_tuning import perturbation_counts
from mtlib.objectives.masked_lm import Replacement, check_replacement, draw_mask, replace_masked
from mtlib.plm import Fill, SharedPLM
from mtlib.trainer import Collator


class Refilled(NamedTuple):
    """What `Refill` returns: the examples, and over all of them how many tokens were masked and came back changed."""

    examples: Dataset
    n_masked: int
    n_changed: int


@dataclass(frozen=True)
class Refill:
    """x̂ for every example of a training set, made once: masked, and filled by the model as it stands.

    Mask-tuning makes the same x̂ anew in each step, by the model in training (dropout on); here the model is in
    evaluation mode and nothing is trained. Labels and all columns but `input_ids` stay.

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

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Refilled:
        """Refill tokenised `examples` (`input_ids`, `attention_mask`, ...), in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are left as they were.
        """
        ids = list(examples["input_ids"])
        order = np.argsort([len(row) for row in ids], kind="stable")  # like lengths together: little padding
        batches = DataLoader(examples.select(order), batch_size, collate_fn=Collator(plm.tokenizer))
        console = Console(stderr=True)
        counts = {"n_masked": 0, "n_changed": 0}
        rows = iter(order.tolist())
        training, devices = plm.training, [plm.device] if plm.device.type == "cuda" else []
        plm.eval()
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)  # what sampled fills and the 80/10/10 rule draw from
            masks = torch.Generator().manual_seed(seed)
            for batch in track(batches, "refilling", console=console, transient=True, disable=not console.is_terminal):
                batch = {name: tensor.to(plm.device) for name, tensor in batch.items()}
                batch = draw_mask(plm, batch, self.masking, masks)
                masked_ids = replace_masked(batch["input_ids"], batch["mask"], plm.tokenizer, self.replacement)
                perturbed_ids = plm.fill_masks(batch, batch["mask"], self.fill, self.top_k, masked_ids).perturbed_ids
                for name, n in perturbation_counts(batch["input_ids"], perturbed_ids, batch["mask"]).items():
                    counts[name] += int(n)
                attended = batch["attention_mask"].bool()  # (batch, seq)
                for row, own in zip(perturbed_ids.cpu(), attended.cpu(), strict=True):
                    ids[next(rows)] = row[own].tolist()
        plm.train(training)
        feature = examples.features["input_ids"]
        refilled = examples.remove_columns("input_ids").add_column("input_ids", ids, feature=feature)
        return Refilled(concatenate_datasets([examples, refilled]) if self.keep_original else refilled, **counts)
