"""The trunk's answer to a whole text: the state that a classifier head reads."""

from contextlib import ExitStack

import torch
from torch import Tensor

from mtlib.plm import SharedPLM


def state_size(plm: SharedPLM) -> int:
    return plm.config.hidden_size


def classify_with_state(plm: SharedPLM, batch: dict) -> tuple[Tensor, Tensor]:
    """Class logits `(batch, num_labels)`, and the state of each text before dropout `(batch, hidden)`, in one pass."""
    read = []  # by the parts of the classifier that stand above the trunk, in their order
    with ExitStack() as hooks:
        for part in plm.classifier.children():
            if part is not plm.trunk:
                hooks.enter_context(part.register_forward_pre_hook(lambda module, args: read.append(args[0])))
        logits = plm.classify(batch)
    state = read[0]  # (batch, hidden), or (batch, seq, hidden) where the head takes the first token itself
    return logits, state[:, 0] if state.ndim == 3 else state


def text_state(plm: SharedPLM, output, batch: dict) -> Tensor:
    """A state of each whole text in what the trunk gave back, `(batch, hidden)`, where nothing is classified.

    The pooler's where there is one (BERT), the last `</s>` of the decoder (BART), else the first token (RoBERTa).
    """
    if getattr(output, "pooler_output", None) is not None:
        return output.pooler_output
    states = output.last_hidden_state  # (batch, seq, hidden)
    if not plm.config.is_encoder_decoder:
        return states[:, 0]
    places = torch.arange(states.shape[1], device=states.device)
    last = ((batch["input_ids"] == plm.config.eos_token_id) * places).argmax(1)  # (batch,)
    return states[torch.arange(len(states), device=states.device), last]
