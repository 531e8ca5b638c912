"""Batches from tokenised examples."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from datasets import Dataset


class Collator:
    """Pads the model's inputs to the longest of the batch and keeps `labels`; other columns are left behind.

    Always on the right, whatever the tokenizer's `padding_side`: classifier heads read the first token.

    Args:
        tokenizer: decides which inputs there are, and what pads them.
        columns: further columns to keep, each with the value that pads it. A column holds a number for each example
            `(batch,)`, or a list: one entry a token `(batch, seq)`, or a list of one length for all `(batch, n)`.
    """

    def __init__(self, tokenizer, columns: Mapping[str, int | float] | None = None):
        self.keys = {*tokenizer.model_input_names, "labels"}
        self.tokenizer = tokenizer
        self.columns = dict(columns or {})

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        inputs = [{key: example[key] for key in self.keys & example.keys()} for example in examples]
        batch = dict(self.tokenizer.pad(inputs, padding_side="right", return_tensors="pt"))
        for name in self.columns.keys() & examples[0].keys():  # texts to predict on have none of them
            padding = self.columns[name]
            batch[name] = self._stacked([example[name] for example in examples], padding)
        return batch

    def _stacked(self, values: list, padding: int | float) -> torch.Tensor:
        rows = [torch.as_tensor(value) for value in values]
        if rows[0].ndim == 0:
            return torch.stack(rows)  # (batch,)
        return torch.nn.utils.rnn.pad_sequence(rows, True, padding)  # (batch, longest)


def batches_by_length(
    examples: Dataset, collate: Callable[[list[dict]], dict], device: torch.device, batch_size: int = 64
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """`(row numbers, batch on the device)` over all tokenised examples, like lengths together: little padding."""
    order = order_by_length(examples)
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size].tolist()
        batch = collate(examples.select(rows).to_list())
        yield rows, {name: tensor.to(device) for name, tensor in batch.items()}


def order_by_length(examples: Dataset) -> np.ndarray:
    """Row numbers from the shortest example to the longest, `(n,)`; equals in their order."""
    lengths = [len(ids) for ids in examples["input_ids"]] if len(examples) else []  # an empty set may lack the column
    return np.argsort(lengths, kind="stable")
