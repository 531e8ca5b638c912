"""Prompting (the GPT-3 column of Table I, with a masked language model): no training, a gap in a text ranks the labels.

Si et al. (2023) let a causal model write its answer. A masked one answers a `Cloze`: a text with a gap, whose fillers
stand for the labels. It is shown no examples. Its answers are scored as a run's are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mtlib.contexts import evaluating, precision
from mtlib.data.scoring import score_rows
from mtlib.data.tables import TEXTS
from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.inputs import read_inputs

_NOTHING = "N/A"  # a text that says nothing
_BATCH = 32


@dataclass(frozen=True)
class Cloze:
    """A text with a gap, and the word in the gap that stands for each label."""

    template: str  # {text}, {text_pair}, {mask}
    answers: tuple[str, ...]


# by task: the templates and words of Gao et al. (2021, arXiv 2012.15723, Table 1)
CLOZES = {
    "sentiment": Cloze("{text} It was {mask}.", ("terrible", "great")),
    "nli": Cloze("{text}? {mask}, {text_pair}", ("Yes", "Maybe", "No")),
    "paraphrase": Cloze("{text} {mask}, {text_pair}", ("No", "Yes")),
}


def evaluate(config: RunConfig, report: Callable[[str], None] = lambda name: None) -> dict:
    """The metrics of every set, ready for JSON: `{"prompting": ..., "metrics": {set: {scoring: metrics}}}`.

    A scoring is what counts for an answer: "gap", its log-likelihood there, or "calibrated", this less its
    log-likelihood where the text says nothing (Zhao et al. 2021, arXiv 2102.09690), which takes away how likely the
    word is in itself.

    Args:
        config: its task, source, sets and model count. The texts of an example are cut to `max_length` tokens together,
            or to what the model reads, at their ends, of a pair the longer text first.
        report: is told each set when it is done.
    """
    quiet_libraries()
    inputs = read_inputs(config)
    config, cloze = inputs.config, CLOZES[config.task]
    plm = SharedPLM.from_pretrained(config.model_path).to("cpu" if precision()["use_cpu"] else "cuda")
    mask = plm.tokenizer.mask_token
    around = len(plm.tokenizer(cloze.template.format(**dict.fromkeys(TEXTS, ""), mask=mask))["input_ids"])
    max_length = min(config.max_length, plm.longest - around)

    def scores(texts: list[dict]) -> Tensor:  # (n, answers)
        prompts = [cloze.template.format(**_short(row, plm.tokenizer, max_length), mask=mask) for row in texts]
        parts = [prompts[start : start + _BATCH] for start in range(0, len(prompts), _BATCH)]
        with torch.autocast(plm.device.type, torch.bfloat16, enabled=precision()["bf16"]):
            return torch.cat([masked_lm_scores(plm, part, cloze.answers) for part in parts])

    metrics = {}
    for name in config.sets:
        rows = inputs.datasets[name]
        gap = scores(rows.select_columns([text for text in TEXTS if text in rows.column_names]).to_list())
        scorings = {"gap": gap, "calibrated": gap - scores([dict.fromkeys(TEXTS, _NOTHING)])}
        metrics[name] = {scoring: score_rows(name, of.numpy(), rows) for scoring, of in scorings.items()}
        report(name)
    asked = {name: inputs.public[name] for name in ("task", "source", "model", "max_length")}
    return {"prompting": asked | {"template": cloze.template}, "metrics": metrics}


@torch.no_grad()
def masked_lm_scores(plm: SharedPLM, prompts: Sequence[str], answers: Sequence[str]) -> Tensor:
    """Log-probabilities of the answers at the one mask of each prompt, `(prompts, labels)`.

    Raises:
        UserError: an answer is not one token of the vocabulary.
    """
    tokenizer = plm.tokenizer
    ids = [tokenizer(f" {answer}", add_special_tokens=False)["input_ids"] for answer in answers]
    for answer, pieces in zip(answers, ids, strict=True):
        if len(pieces) != 1 or pieces[0] == tokenizer.unk_token_id:
            raise UserError(f"{answer!r} is not one token of this model; a mask stands for one, take another answer.")
    encoded = tokenizer(list(prompts), padding=True, padding_side="right", return_tensors="pt")
    batch = {name: rows.to(plm.device) for name, rows in encoded.items()}
    with evaluating(plm):
        filled = plm.fill_masks(batch, batch["input_ids"] == tokenizer.mask_token_id)
    return filled.mlm_logits[:, 0].float().log_softmax(-1)[:, [pieces[0] for pieces in ids]].cpu()


def _short(row: dict, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, str]:
    """The texts of a row, cut to `max_length` tokens together as `tokenise` cuts: the longer one first."""
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    cut = tokenizer(*row.values(), truncation=True, max_length=max_length, **options)
    ends = dict.fromkeys(range(len(row)), 0)
    ends |= {text: end for text, (_, end) in zip(cut.sequence_ids(), cut["offset_mapping"], strict=True)}
    return {name: text[: ends[number]] for number, (name, text) in enumerate(row.items())}
