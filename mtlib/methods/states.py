"""What a classifier reads of its trunk, for objectives with a head of their own beside it."""

from contextlib import ExitStack
from typing import NamedTuple

from torch import Tensor

from mtlib.plm import SharedPLM


class States(NamedTuple):
    """Class logits, and the states behind them."""

    logits: Tensor  # (batch, num_labels)
    text: Tensor  # (batch, hidden), what the classifier reads, before dropout
    tokens: Tensor  # (batch, seq, hidden), the last layer's of the trunk, or of its encoder


def classify_with_states(plm: SharedPLM, batch: dict) -> States:
    """Class logits and the states that they come from, in one pass."""
    outputs = []  # of the trunk
    inputs = []  # of the classifier's parts above the trunk, in their order

    def note_output(module, args, output):
        outputs.append(output)

    def note_input(module, args):
        inputs.append(args[0])

    with ExitStack() as hooks:
        hooks.enter_context(plm.trunk.register_forward_hook(note_output))
        for part in plm.classifier.children():
            if part is not plm.trunk:
                hooks.enter_context(part.register_forward_pre_hook(note_input))
        logits = plm.classify(batch)
    tokens = outputs[0].last_hidden_state
    if plm.config.is_encoder_decoder:
        tokens = outputs[0].encoder_last_hidden_state
    text = inputs[0]
    if text.ndim == 3:  # the head takes the first token itself
        text = text[:, 0]
    return States(logits, text, tokens)
