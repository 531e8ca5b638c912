"""The state that a classifier head reads: the trunk's answer to a whole text."""

import torch
from torch import Tensor

from mtlib.plm import SharedPLM


def state_size(plm: SharedPLM) -> int:
    return plm.config.hidden_size


def classify_with_state(plm: SharedPLM, batch: dict) -> tuple[Tensor, Tensor]:
    """Class logits `(batch, num_labels)`, and the state of each text before dropout `(batch, hidden)`, in one pass."""
    outputs = []
    with plm.trunk.register_forward_hook(lambda module, args, output: outputs.append(output)):
        logits = plm.classify(batch)
    return logits, text_state(plm, outputs[0], batch)


def text_state(plm: SharedPLM, output, batch: dict) -> Tensor:
    """The state of each text in what the trunk gave back, `(batch, hidden)`.

    The pooler's where there is one (BERT), the last `</s>` of the decoder (BART), else the first token (RoBERTa).
    """
    if getattr(output, "pooler_output", None) is not None:
        return output.pooler_output
    states = output.last_hidden_state  # (batch, seq, hidden)
    places = torch.arange(states.shape[1], device=states.device)
    if plm.config.is_encoder_decoder:
        place = ((batch["input_ids"] == plm.config.eos_token_id) * places).argmax(1)  # (batch,)
    else:
        place = batch["attention_mask"].argmax(1)  # (batch,), 0 unless texts are padded on the left
    return states[torch.arange(len(states), device=states.device), place]
