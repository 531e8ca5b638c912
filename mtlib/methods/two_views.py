"""A second view of each text with something cut out, and agreement between the two views.

Span Cutoff (Shen et al. 2020) cuts a span of the tokens, HiddenCut (Chen et al. 2021) one of every layer's output.
"""

import math
from abc import abstractmethod
from contextlib import ExitStack

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import kl_div, pad

from mtlib.draws import Draws, Random
from mtlib.errors import UserError
from mtlib.method import one_stage
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss
from mtlib.plm import SharedPLM
from mtlib.settings import Share, check

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # one kind of layer, under one set of names
TOP = 0.4  # share of the tokens, those with the most attention, at which a span may start


def jensen_shannon(logits: Tensor, other_logits: Tensor) -> Tensor:
    """JS = 1/2 KL(p, m) + 1/2 KL(q, m) with m = (p + q) / 2, in nats, mean over the batch: scalar, float32.

    The code that Shen et al. (2020) and Chen et al. (2021) released computes 1/2 KL(m, p) + 1/2 KL(m, q) instead, which
    is no Jensen-Shannon divergence and has no upper bound.

    Args:
        logits, other_logits: of p and q, `(batch, classes)`.
    """
    log_p, log_q = logits.float().log_softmax(-1), other_logits.float().log_softmax(-1)  # (batch, classes)
    log_m = torch.logsumexp(torch.stack([log_p, log_q]), 0) - math.log(2)
    # kl_div(b, a) is KL(a, b)
    return sum(kl_div(log_m, each, reduction="batchmean", log_target=True) for each in (log_p, log_q)) / 2


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
        batch = self.prepare(plm, batch)
        logits, cut_logits = plm.classify(batch), self.classify_cut(plm, batch)  # (batch, num_labels)
        parts = {
            "ft_loss": fine_tuning_loss(logits, batch["labels"]),
            "cut_loss": fine_tuning_loss(cut_logits, batch["labels"]),
            "divergence": jensen_shannon(logits, cut_logits),
        }
        return ObjectiveOutput(parts, dict.fromkeys(parts, 1.0), logits)


class SpanCutoff(TwoViews):
    """The cut view (Shen et al. 2020): a span is set to 0 in what the embedding layer gives, and not attended to.

    The span has floor(ratio * n) of the n tokens, special ones included, and starts anywhere before n less its length.
    So a text of fewer than 10 tokens is never cut at the paper's ratio of 0.1 (47 % of SST-2's phrases). In an
    encoder-decoder the span is cut from the decoder's input as well, where it stands one place further on; the decoder
    may still attend to these places, which hold nothing but their position.
    """

    name = "span_cutoff"

    def check(self, plm: SharedPLM) -> None:
        embedding_layers(plm)

    def prepare(self, plm: SharedPLM, batch: dict, generator: Random = None) -> dict:
        if "cut" in batch:
            return batch
        attended = batch["attention_mask"].bool()  # (batch, seq)
        n = attended.sum(1)  # (batch,)
        length = (self.ratio * n.double()).long()
        start = (Draws.by(generator, len(n), n.device).uniform(1)[:, 0] * (n - length)).long()
        return {**batch, "cut": span(attended, start, length)}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        cut = batch["cut"]  # (batch, seq)
        with ExitStack() as hooks:
            for shift, layer in enumerate(embedding_layers(plm)):
                at = pad(cut, (shift, -shift))[:, :, None]  # a decoder reads each token one place further on

                def zero(module, args, output, at=at):
                    return output.masked_fill(at, 0.0)

                hooks.enter_context(layer.register_forward_hook(zero))
            return plm.classify(batch | {"attention_mask": batch["attention_mask"] * ~cut})


def span(attended: Tensor, start: Tensor, length: Tensor) -> Tensor:
    """True from the `start`-th attended token of each text on, for `length` of them: bool `(batch, seq)`."""
    place = attended.long().cumsum(1) - 1  # (batch, seq): how many attended tokens stand before it
    return attended & (place >= start[:, None]) & (place < (start + length)[:, None])


def embedding_layers(plm: SharedPLM) -> list[nn.Module]:
    """The modules whose output is the embedding layer's: one, or the encoder's and the decoder's.

    Raises:
        UserError: they are not where the known families have them.
    """
    trunk = plm.trunk
    parts = [trunk.encoder, trunk.decoder] if plm.config.is_encoder_decoder else [trunk]
    layers = [getattr(part, "layernorm_embedding", getattr(part, "embeddings", None)) for part in parts]  # BART, BERT
    if None in layers:
        raise UserError(f"SpanCutoff does not know where {type(trunk).__name__} keeps its embedding layer; try BERT.")
    return layers


class HiddenCut(TwoViews):
    """The cut view (Chen et al. 2021): in every layer a span of the feed-forward sublayer's output is set to 0.

    The span takes the place of that sublayer's dropout. It is cut before the residual connection, which therefore
    survives, and before the layer norm. It has max(1, floor(ratio * n)) of the n tokens and starts at one of the 40 %
    that receive the most attention in that layer (sum over the text's queries, mean over the heads), drawn anew for
    each layer and example; it ends with the text. The released code counts the queries of padding in. In BART, whose
    dropout is no module, the dropout stays on after the cut.

    The attention weights that choose the span are those after their own dropout: transformers gives no others. Only its
    "eager" attention gives any, so `build` switches the model to that, which is slower.
    """

    name = "hidden_cut"

    def check(self, plm: SharedPLM) -> None:
        layers(plm)

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        plm.classifier.set_attn_implementation("eager")

    def prepare(self, plm: SharedPLM, batch: dict, generator: Random = None) -> dict:
        """Draw `cut_starts`, `(batch, layers)`, uniform in [0, 1)."""
        if "cut_starts" in batch:
            return batch
        draws = Draws.by(generator, len(batch["input_ids"]), batch["input_ids"].device)
        return {**batch, "cut_starts": draws.uniform(len(layers(plm)))}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        attended = batch["attention_mask"].bool()  # (batch, seq)
        weights: dict[int, Tensor] = {}  # of the layer that runs
        with ExitStack() as hooks:
            for number, (attention, output) in enumerate(layers(plm)):

                def note(module, args, output, number=number):
                    weights[number] = output[1].detach().float()  # (batch, heads, queries, keys)

                def cut(module, args, output, number=number):
                    places = self.cut_at(weights.pop(number), attended, batch["cut_starts"][:, number])
                    before_dropout = args[0] if isinstance(module, nn.Dropout) else output
                    return before_dropout.masked_fill(places[:, :, None], 0.0)

                hooks.enter_context(attention.register_forward_hook(note))
                hooks.enter_context(output.register_forward_hook(cut))
            return plm.classify(batch)

    def cut_at(self, weights: Tensor, attended: Tensor, draws: Tensor) -> Tensor:
        """Where one layer is cut, bool `(batch, seq)`.

        Args:
            weights: of its attention, `(batch, heads, queries, keys)`.
            attended: bool `(batch, seq)`.
            draws: uniform in [0, 1), `(batch,)`.
        """
        n = attended.sum(1)  # (batch,)
        received = (weights * attended[:, None, :, None]).mean(1).sum(1)  # (batch, seq)
        candidates = (TOP * n.double()).long().clamp(min=1)
        rank = (draws * candidates).long()  # (batch,), 0 for the token with the most attention
        order = received.masked_fill(~attended, -torch.inf).argsort(dim=1, descending=True, stable=True)  # (batch, seq)
        place = (attended.long().cumsum(1) - 1).gather(1, order.gather(1, rank[:, None])).squeeze(1)  # (batch,)
        return span(attended, place, (self.ratio * n.double()).long().clamp(min=1))


def layers(plm: SharedPLM) -> list[tuple[nn.Module, nn.Module]]:
    """Two modules of each layer of the trunk, an encoder's before a decoder's.

    The first gives (output, attention weights); the second the output of the feed-forward sublayer, or it is the
    dropout that reads this.

    Raises:
        UserError: they are not built as those of the families that are known.
    """
    trunk, family = plm.trunk, plm.config.model_type
    if family == "bart":
        return [(layer.self_attn, layer.fc2) for part in (trunk.encoder, trunk.decoder) for layer in part.layers]
    if family in BERT_LIKE:
        return [(layer.attention.self, layer.output.dropout) for layer in trunk.encoder.layer]
    known = ", ".join((*BERT_LIKE, "bart"))
    raise UserError(f"HiddenCut does not know the layers of {type(trunk).__name__}; expected a model of {known}.")


span_cutoff = one_stage(SpanCutoff)
hidden_cut = one_stage(HiddenCut)
