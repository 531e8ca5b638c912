"""Batches from tokenised examples."""

from collections.abc import Mapping

import torch
from transformers import DataCollatorWithPadding


class Collator:
    """Pads the model's inputs to the longest of the batch and keeps `labels`; other columns are left behind.

    Args:
        tokenizer: decides which inputs there are, and the side on which they are padded.
        columns: further columns to keep, each with the value that pads it. A column holds a number for each example
            `(batch,)`, or a list: one entry a token `(batch, seq)`, or a list of one length for all `(batch, n)`.
    """

    def __init__(self, tokenizer, columns: Mapping[str, int | float] | None = None):
        self.keys = {*tokenizer.model_input_names, "labels"}
        self.pad = DataCollatorWithPadding(tokenizer)
        self.columns = dict(columns or {})
        self.left = tokenizer.padding_side == "left"

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        batch = dict(self.pad([{key: example[key] for key in self.keys & example.keys()} for example in examples]))
        for name in self.columns.keys() & examples[0].keys():  # texts to predict on have none of them
            padding = self.columns[name]
            batch[name] = self._stacked([example[name] for example in examples], padding)
        return batch

    def _stacked(self, values: list, padding: int | float) -> torch.Tensor:
        rows = [torch.as_tensor(value) for value in values]
        if rows[0].ndim == 0:
            return torch.stack(rows)  # (batch,)
        side = "left" if self.left else "right"
        return torch.nn.utils.rnn.pad_sequence(rows, True, padding, padding_side=side)  # (batch, longest)
