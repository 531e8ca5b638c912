"""HiddenCut: a second view of each text with a span cut out of every layer, where attention goes."""

from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor, nn

from mtlib.errors import UserError
from mtlib.method import LearningRates, Method, Stage
from mtlib.methods.span_cutoff import TwoViews, span
from mtlib.plm import SharedPLM
from mtlib.settings import Settings

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # one kind of layer, under one set of names
TOP = 0.4  # share of the tokens, those with the most attention, at which a span may start


class HiddenCut(TwoViews):
    """The cut view (Chen et al. 2021): in every layer a span of the feed-forward sublayer's output is set to 0.

    The span takes the place of that sublayer's dropout. It is cut before the residual connection, which therefore
    survives, and before the layer norm. It has max(1, floor(ratio * n)) of the n tokens and starts at one of the 40 %
    that receive the most attention in that layer (sum over the queries, mean over the heads), drawn anew for each
    layer and example; it ends with the text. In BART, whose dropout is no module, the dropout stays on after the cut.

    The attention weights that choose the span are those after their own dropout: transformers gives no others. Only its
    "eager" attention gives any, so `build` switches the model to that, which is slower.

    Args:
        faithful_to_code: with the divergence of the released code (`jensen_shannon`), and with the attention of padding
            counted in.
    """

    name = "hidden_cut"

    def check(self, plm: SharedPLM) -> None:
        layers(plm)
        former = "is_gradient_checkpointing"  # in transformers 5.20; later versions warn when it is read
        name = "is_activation_checkpointing" if hasattr(plm.trunk, "is_activation_checkpointing") else former
        if getattr(plm.trunk, name):
            raise UserError("HiddenCut cannot be computed a second time; leave gradient_checkpointing out.")

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        plm.classifier.set_attn_implementation("eager")

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        """Draw `cut_starts`, `(batch, layers)`, uniform in [0, 1)."""
        if "cut_starts" in batch:
            return batch
        shape = (len(batch["input_ids"]), len(layers(plm)))
        device = None if generator is None else generator.device
        draws = torch.rand(shape, generator=generator, device=device)
        return {**batch, "cut_starts": draws.to(batch["input_ids"].device)}

    def classify_cut(self, plm: SharedPLM, batch: dict) -> Tensor:
        self.check(plm)  # once more: a trainer switches gradient checkpointing on when it begins to train
        if plm.config._attn_implementation != "eager":
            raise UserError(
                "HiddenCut reads attention weights, and this model gives none (its attn_implementation is "
                f"{plm.config._attn_implementation!r}); call objective.build(plm) before the first batch."
            )
        with self._cutting(plm, batch["attention_mask"].bool(), batch["cut_starts"]):
            return plm.classify(batch)

    @contextmanager
    def _cutting(self, plm: SharedPLM, attended: Tensor, draws: Tensor):
        weights: dict[int, Tensor] = {}  # of the layer that runs
        hooks = ExitStack()
        for number, layer in enumerate(layers(plm)):

            def note(module, args, output, number=number):
                weights[number] = output[1].detach().float()  # (batch, heads, queries, keys)

            def cut(module, args, output, number=number, instead=layer.instead_of_dropout):
                places = self._span(weights.pop(number), attended, draws[:, number])
                return (args[0] if instead else output).masked_fill(places[:, :, None], 0.0)

            hooks.enter_context(layer.attention.register_forward_hook(note))
            hooks.enter_context(layer.output.register_forward_hook(cut))
        with hooks:
            yield

    def _span(self, weights: Tensor, attended: Tensor, draws: Tensor) -> Tensor:
        """Where one layer is cut, bool `(batch, seq)`."""
        n = attended.sum(1)  # (batch,)
        if not self.faithful_to_code:
            weights = weights * attended[:, None, :, None]
        received = weights.mean(1).sum(1).masked_fill(~attended, -torch.inf)  # (batch, seq)
        candidates = (TOP * n.double()).long().clamp(min=1)
        rank = (draws * candidates).long()  # (batch,), 0 for the token with the most attention
        start = received.argsort(dim=1, descending=True, stable=True).gather(1, rank[:, None])  # (batch, 1)
        place = (attended.long().cumsum(1) - 1).gather(1, start).squeeze(1)
        return span(attended, place, (self.ratio * n.double()).long().clamp(min=1))


class Layer(NamedTuple):
    """The two modules of a transformer layer that HiddenCut needs."""

    attention: nn.Module  # gives (output, attention weights)
    output: nn.Module  # whose output, or input where it is the dropout, is that of the feed-forward sublayer
    instead_of_dropout: bool


def layers(plm: SharedPLM) -> list[Layer]:
    """The layers of the trunk, an encoder's before a decoder's.

    Raises:
        UserError: they are not built as those of the families that are known.
    """
    trunk, family = plm.trunk, plm.config.model_type
    if family == "bart":
        both = [*trunk.encoder.layers, *trunk.decoder.layers]
        return [Layer(layer.self_attn, layer.fc2, instead_of_dropout=False) for layer in both]
    if family in BERT_LIKE:
        return [Layer(layer.attention.self, layer.output.dropout, True) for layer in trunk.encoder.layer]
    raise UserError(
        f"HiddenCut does not know the layers of {type(trunk).__name__}; expected a model of the family "
        f"{', '.join(BERT_LIKE)} or bart."
    )


def _stages(settings: Settings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    return (Stage(HiddenCut(), rates),)


HIDDEN_CUT = Method(
    "hidden_cut", "HiddenCut", "a second view with spans cut out of every layer, and agreement of the two",
    _stages, paper="HiddenCut", colour="#fb6a9a", marker="h",
)  # fmt: skip
