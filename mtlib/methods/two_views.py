"""A second view of each text with something cut out, and agreement between the two views.

Span Cutoff (Shen et al. 2020) cuts a span of the tokens; HiddenCut (Chen et al. 2021) cuts a span
of every layer's output.
"""

import math
from abc import abstractmethod
from contextlib import ExitStack

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import kl_div, pad

from mtlib.errors import UserError
from mtlib.method import one_stage
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss
from mtlib.plm import SharedPLM
from mtlib.rng import RNG, KeyedRNG
from mtlib.settings import Share, check

# families with one kind of layer, under one set of names
BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
# a span may start at this share of the tokens, those that receive the most attention
TOP_SHARE = 0.4


def jensen_shannon(logits: Tensor, other_logits: Tensor) -> Tensor:
    """JS = 1/2 KL(p, m) + 1/2 KL(q, m) with m = (p + q) / 2, in nats, mean over the batch.

    The code that Shen et al. (2020) and Chen et al. (2021) released computes 1/2 KL(m, p) +
    1/2 KL(m, q) instead, which is not the Jensen-Shannon divergence and has no upper bound.

        logits = torch.tensor([[100.0, 0.0]])
        other_logits = torch.tensor([[0.0, 100.0]])
        jensen_shannon(logits, other_logits)  # log 2, its upper bound

    Args:
        logits, other_logits: of p and q, `(batch, classes)`.

    Returns:
        Scalar, float32.
    """
    log_p = logits.float().log_softmax(-1)  # (batch, classes)
    log_q = other_logits.float().log_softmax(-1)  # (batch, classes)
    log_m = torch.logsumexp(torch.stack([log_p, log_q]), 0) - math.log(2)
    # kl_div(b, a) is KL(a, b)
    p_to_m = kl_div(log_m, log_p, reduction="batchmean", log_target=True)
    q_to_m = kl_div(log_m, log_q, reduction="batchmean", log_target=True)
    return (p_to_m + q_to_m) / 2


class TwoViews(Objective):
    """L = CE(z) + CE(z') + JS(z, z'), where z' are the logits of a cut view.

    Args:
        ratio: length of the cut span, as a share of the tokens.
    """

    def __init__(self, ratio: float = 0.1):
        super().__init__()
        check("ratio", ratio, Share)
        self.ratio = ratio

    @abstractmethod
    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        """Class logits of the cut view, `(batch, num_labels)`."""

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.sample(plm, batch)
        logits = plm.classify(batch)  # (batch, num_labels)
        cut_logits = self.classify_cut(plm, batch)  # (batch, num_labels)
        components = {
            "ft_loss": fine_tuning_loss(logits, batch["labels"]),
            "cut_loss": fine_tuning_loss(cut_logits, batch["labels"]),
            "divergence": jensen_shannon(logits, cut_logits),
        }
        return ObjectiveOutput(components, dict.fromkeys(components, 1.0), logits)


class SpanCutoff(TwoViews):
    """The cut view of Shen et al. (2020): a span of the embedding layer's output is set to 0.

    Nothing attends to the span. It has floor(ratio * n) of the n tokens, special ones included, and
    starts anywhere before n minus its length. So a text of fewer than 10 tokens is never cut at the
    paper's ratio of 0.1 (47 % of SST-2's phrases). In an encoder-decoder the span is also cut from
    the decoder's input, where it is one position further on; the decoder may still attend to these
    positions, which hold nothing but their position embedding.
    """

    name = "span_cutoff"

    def check(self, plm: SharedPLM) -> None:
        embedding_layers(plm)

    def sample(self, plm: SharedPLM, batch: dict, rng: RNG = None) -> dict:
        if "cut" in batch:
            return batch
        attended = batch["attention_mask"].bool()  # (batch, seq)
        n = attended.sum(1)  # (batch,)
        length = (self.ratio * n.double()).long()  # (batch,)
        rng = KeyedRNG.per_example(rng, len(n), n.device)
        numbers = rng.uniform(1)[:, 0]  # (batch,)
        start = (numbers * (n - length)).long()  # (batch,)
        return {**batch, "cut": span(attended, start, length)}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        cut = batch["cut"]  # (batch, seq)
        with ExitStack() as hooks:
            for shift, layer in enumerate(embedding_layers(plm)):
                # a decoder reads each token one position further on
                shifted_cut = pad(cut, (shift, -shift))[:, :, None]
                hooks.enter_context(layer.register_forward_hook(_zeroing_hook(shifted_cut)))
            return plm.classify(batch | {"attention_mask": batch["attention_mask"] * ~cut})


def _zeroing_hook(positions: Tensor):
    """A forward hook that sets a module's output to 0 at these positions."""

    def zero(module, args, output):
        return output.masked_fill(positions, 0.0)

    return zero


def span(attended: Tensor, start: Tensor, length: Tensor) -> Tensor:
    """True from the `start`-th attended token of each text, for `length` tokens: `(batch, seq)`."""
    n_before = attended.long().cumsum(1) - 1  # (batch, seq): attended tokens before this one
    end = start + length
    return attended & (n_before >= start[:, None]) & (n_before < end[:, None])


def embedding_layers(plm: SharedPLM) -> list[nn.Module]:
    """The modules whose output is the embedding layer's: one, or the encoder's and the decoder's.

    Raises:
        UserError: they are not where the known families have them.
    """
    trunk = plm.trunk
    coders = [trunk.encoder, trunk.decoder] if plm.config.is_encoder_decoder else [trunk]
    layers = []
    for coder in coders:
        of_bert = getattr(coder, "embeddings", None)
        # BART's embedding layer ends with a layer norm
        layers.append(getattr(coder, "layernorm_embedding", of_bert))
    if None in layers:
        message = f"SpanCutoff does not know where {type(trunk).__name__} keeps its embedding layer"
        raise UserError(f"{message}; try BERT.")
    return layers


class HiddenCut(TwoViews):
    """The cut view of Chen et al. (2021): part of each feed-forward sublayer's output is set to 0.

    The span replaces that sublayer's dropout. It is cut before the residual connection, which
    therefore survives, and before the layer norm. It has max(1, floor(ratio * n)) of the n tokens,
    up to the end of the text. It starts at one of the 40 % that receive the most attention in that
    layer (sum over the text's queries, mean over the heads), drawn anew for each layer and example.
    (The released code also counts the queries of padding.) In BART, whose dropout is not a module,
    the dropout stays on after the cut.

    The attention weights that choose the span are those after their own dropout, the only ones that
    transformers returns. Only its "eager" attention returns any, so `build` switches the model to
    that, which is slower. It does not go with gradient checkpointing, whose second pass is not cut.
    """

    name = "hidden_cut"

    def check(self, plm: SharedPLM) -> None:
        attention_and_feed_forward(plm)

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        plm.classifier.set_attn_implementation("eager")

    def sample(self, plm: SharedPLM, batch: dict, rng: RNG = None) -> dict:
        """Draw `cut_starts`, `(batch, layers)`, uniform in [0, 1)."""
        if "cut_starts" in batch:
            return batch
        input_ids = batch["input_ids"]
        rng = KeyedRNG.per_example(rng, len(input_ids), input_ids.device)
        return {**batch, "cut_starts": rng.uniform(len(attention_and_feed_forward(plm)))}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        with ExitStack() as hooks:
            for layer, (attention, feed_forward) in enumerate(attention_and_feed_forward(plm)):
                note_weights, cut = self._hooks(batch, layer)
                hooks.enter_context(attention.register_forward_hook(note_weights))
                hooks.enter_context(feed_forward.register_forward_hook(cut))
            return plm.classify(batch)

    def _hooks(self, batch: dict, layer: int):
        """Two forward hooks of a layer, of which the second cuts by what the first has kept.

        The attention comes first in a layer; the first hook keeps its weights until the output of
        the feed-forward sublayer is there, where the second hook takes them.
        """
        attended = batch["attention_mask"].bool()  # (batch, seq)
        numbers = batch["cut_starts"][:, layer]  # (batch,)
        kept = []

        def note_weights(module, args, output):
            kept.append(output[1].detach().float())  # (batch, heads, queries, keys)

        def cut(module, args, output):
            # of a dropout what goes in, so that the cut replaces it
            before_dropout = args[0] if isinstance(module, nn.Dropout) else output
            cut_span = self.cut_at(kept.pop(), attended, numbers)  # (batch, seq)
            return before_dropout.masked_fill(cut_span[:, :, None], 0.0)

        return note_weights, cut

    def cut_at(self, weights: Tensor, attended: Tensor, numbers: Tensor) -> Tensor:
        """Where one layer is cut, bool `(batch, seq)`.

        Args:
            weights: of its attention, `(batch, heads, queries, keys)`.
            attended: bool `(batch, seq)`.
            numbers: uniform in [0, 1), `(batch,)`; each decides where the span starts.
        """
        n = attended.sum(1)  # (batch,)
        received = (weights * attended[:, None, :, None]).mean(1).sum(1)  # (batch, seq)
        received = received.masked_fill(~attended, -torch.inf)
        by_attention = received.argsort(dim=1, descending=True, stable=True)  # (batch, seq)
        n_candidates = (TOP_SHARE * n.double()).long().clamp(min=1)  # (batch,)
        rank = (numbers * n_candidates).long()  # (batch,), 0 for the token with the most attention
        position = by_attention.gather(1, rank[:, None])  # (batch, 1)
        n_before = attended.long().cumsum(1) - 1  # (batch, seq): attended tokens before this one
        start = n_before.gather(1, position).squeeze(1)  # (batch,)
        length = (self.ratio * n.double()).long().clamp(min=1)  # (batch,)
        return span(attended, start, length)


def attention_and_feed_forward(plm: SharedPLM) -> list[tuple[nn.Module, nn.Module]]:
    """Two modules of each layer of the trunk, an encoder's before a decoder's.

    The first returns (output, attention weights). The second returns the output of the feed-forward
    sublayer, or it is the dropout that reads this output.

    Raises:
        UserError: the layers are not built like those of a known family.
    """
    trunk = plm.trunk
    family = plm.config.model_type
    if family == "bart":
        both = [*trunk.encoder.layers, *trunk.decoder.layers]
        return [(layer.self_attn, layer.fc2) for layer in both]
    if family in BERT_LIKE:
        return [(layer.attention.self, layer.output.dropout) for layer in trunk.encoder.layer]
    known = ", ".join((*BERT_LIKE, "bart"))
    message = f"HiddenCut does not know the layers of {type(trunk).__name__}"
    raise UserError(f"{message}; expected a model of {known}.")


span_cutoff = one_stage(SpanCutoff)
hidden_cut = one_stage(HiddenCut)
