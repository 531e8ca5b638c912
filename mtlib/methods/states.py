"""What a classifier reads of its trunk, for objectives with a head of their own beside it."""

from contextlib import ExitStack
from typing import NamedTuple

from torch import Tensor

from mtlib.plm import SharedPLM


class States(NamedTuple):
    logits: Tensor  # (batch, num_labels)
    text: Tensor  # (batch, hidden), what the classifier reads, before dropout
    tokens: Tensor  # (batch, seq, hidden), the last of the trunk, or of its encoder


def classify_with_states(plm: SharedPLM, batch: dict) -> States:
    """Class logits and the states that they come from, in one pass."""
    made, read = [], []  # by the trunk, and by the parts of the classifier that stand above it, in their order
    with ExitStack() as hooks:
        hooks.enter_context(plm.trunk.register_forward_hook(lambda module, args, output: made.append(output)))
        for part in plm.classifier.children():
            if part is not plm.trunk:
                hooks.enter_context(part.register_forward_pre_hook(lambda module, args: read.append(args[0])))
        logits = plm.classify(batch)
    tokens = made[0].encoder_last_hidden_state if plm.config.is_encoder_decoder else made[0].last_hidden_state
    text = read[0]  # (batch, hidden), or (batch, seq, hidden) where the head takes the first token itself
    return States(logits, text[:, 0] if text.ndim == 3 else text, tokens)
