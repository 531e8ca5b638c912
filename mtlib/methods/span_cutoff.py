"""Span Cutoff: a second view of each text with a span of its tokens cut out, and agreement between the two views."""

import math
from abc import abstractmethod
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from mtlib.errors import UserError
from mtlib.method import LearningRates, Method, Stage
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss
from mtlib.plm import SharedPLM
from mtlib.settings import Settings, Share, check


def jensen_shannon(logits: Tensor, other_logits: Tensor, released: bool = False) -> Tensor:
    """JS = 1/2 KL(p, m) + 1/2 KL(q, m) with m = (p + q) / 2, in nats, mean over the batch: scalar, float32.

    Args:
        logits, other_logits: of p and q, `(batch, classes)`.
        released: 1/2 KL(m, p) + 1/2 KL(m, q) instead, which is what the code of Shen et al. (2020) and of Chen et al.
            (2021) computes: no Jensen-Shannon divergence, and without an upper bound.
    """
    log_p, log_q = logits.float().log_softmax(-1), other_logits.float().log_softmax(-1)  # (batch, classes)
    log_m = torch.logsumexp(torch.stack([log_p, log_q]), 0) - math.log(2)
    pairs = [(log_m, log_p), (log_m, log_q)] if released else [(log_p, log_m), (log_q, log_m)]
    # kl_div(b, a) is KL(a, b)
    return sum(kl_div(b, a, reduction="batchmean", log_target=True) for a, b in pairs) / 2


class TwoViews(Objective):
    """L = CE(z) + cut_weight * CE(z') + divergence_weight * JS(z, z'), where z' are the logits of a cut view.

    Args:
        ratio: length of the cut span, as a share of the tokens.
        cut_weight, divergence_weight: 1 and 1 in both papers' scripts.
        faithful_to_code: with the divergence of the released code, see `jensen_shannon`.
    """

    def __init__(
        self,
        ratio: float = 0.1,
        cut_weight: float = 1.0,
        divergence_weight: float = 1.0,
        faithful_to_code: bool = False,
    ):
        super().__init__()
        check("ratio", ratio, Share)
        self.ratio, self.cut_weight, self.divergence_weight = ratio, cut_weight, divergence_weight
        self.faithful_to_code = faithful_to_code

    @abstractmethod
    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        """Class logits of the cut view, `(batch, num_labels)`."""

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.prepare(plm, batch)
        logits, cut_logits = plm.classify(batch), self.classify_cut(plm, batch)  # (batch, num_labels)
        parts = {
            "ft_loss": fine_tuning_loss(logits, batch["labels"]),
            "cut_loss": fine_tuning_loss(cut_logits, batch["labels"]),
            "divergence": jensen_shannon(logits, cut_logits, self.faithful_to_code),
        }
        weights = {"ft_loss": 1.0, "cut_loss": self.cut_weight, "divergence": self.divergence_weight}
        return ObjectiveOutput(parts, weights, logits)


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

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        if "cut" in batch:
            return batch
        attended = batch["attention_mask"].bool()  # (batch, seq)
        n = attended.sum(1)  # (batch,)
        length = (self.ratio * n.double()).long()
        draws = torch.rand(len(n), generator=generator, device=None if generator is None else generator.device)
        start = (draws.to(n.device) * (n - length)).long()
        return {**batch, "cut": span(attended, start, length)}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        cut = batch["cut"]  # (batch, seq)
        seen = batch["attention_mask"] * ~cut
        with _zeroed(embedding_layers(plm), cut):
            return plm.classify(batch | {"attention_mask": seen})


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
    if hasattr(trunk, "encoder") and hasattr(trunk.encoder, "layernorm_embedding"):  # BART
        return [trunk.encoder.layernorm_embedding, trunk.decoder.layernorm_embedding]
    if hasattr(trunk, "embeddings"):
        return [trunk.embeddings]
    raise UserError(
        f"SpanCutoff does not know where {type(trunk).__name__} keeps its embedding layer; expected `embeddings`, as "
        "in BERT and RoBERTa, or `encoder.layernorm_embedding`, as in BART."
    )


@contextmanager
def _zeroed(layers: list[nn.Module], cut: Tensor):
    shifted = cut.roll(1, dims=1)  # what an encoder-decoder's decoder reads
    shifted[:, 0] = False
    with ExitStack() as hooks:
        for layer, at in zip(layers, (cut, shifted), strict=False):

            def zero(module, args, output, at=at):
                return output.masked_fill(at[:, :, None], 0.0)

            hooks.enter_context(layer.register_forward_hook(zero))
        yield


def _stages(settings: Settings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    return (Stage(SpanCutoff(), rates),)


SPAN_CUTOFF = Method(
    "span_cutoff", "Span Cutoff", "a second view with a span cut out, and agreement of the two",
    _stages, paper="Span Cutoff", colour="#332288", marker="p",
)  # fmt: skip
