"""Prompting on the evaluation sets of a task: nothing is trained, and each set is scored as a run's is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from torch import Tensor

from mtlib.contexts import precision
from mtlib.data.registry import get_set
from mtlib.data.scoring import score_rows
from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.prompting import (
    CLOZES,
    QUESTIONS,
    CausalPrompt,
    Cloze,
    demonstrate,
    draw_demonstrations,
    load_causal_lm,
    masked_lm_scores,
    shorten,
)
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import read_inputs

_TEXTS = ("text", "text_pair")
_NOTHING = "N/A"  # a text that says nothing
_BATCH = 32
_QUESTION = 32  # tokens that are left for the question and its answer
_NEVER = -1e9  # the logit of a label that is not among the answers


@dataclass(frozen=True)
class Prompting:
    """What is asked of which model.

    Args:
        task: sentiment, nli or paraphrase.
        source: of the evaluation sets (and of the demonstrations).
        model: a masked LM, or with `causal` a causal one: a hub id or a folder.
        causal: whether the model continues a text; otherwise it fills a gap, and is shown no demonstrations.
        per_label: demonstrations of each label.
        sets: evaluation sets; default all of the task.
        max_length: tokens of an example's texts together. Longer ones are cut at their ends, of a pair the longer text
            first.
        seed: of the demonstrations.
    """

    task: str
    source: str = "testbed"
    model: str = "mini"
    causal: bool = False
    per_label: int = 16
    sets: tuple[str, ...] = ()
    max_length: int = 128
    seed: int = 0

    def __post_init__(self):
        for name, least in (("per_label", 0), ("max_length", 8)):
            if not isinstance(value := getattr(self, name), int) or value < least:
                raise UserError(f"{name} is {value!r}; expected a whole number, {least} or more.")
        if self.causal and self.model == "mini":
            raise UserError("model is 'mini', a masked LM; expected a causal one, as a hub id or a folder.")

    @property
    def config(self) -> RunConfig:
        """The run that reads the same sets, for its checks."""
        settings = {"source": self.source, "model": self.model, "sets": self.sets, "seed": self.seed}
        return configure(self.task, "fine_tuning", **settings).resolved()


Ask = Callable[[list[dict], bool], dict[str, Tensor]]  # texts, folded? -> scores (n, answers) by scoring


def evaluate(prompting: Prompting, report: Callable[[str], None] = lambda name: None) -> dict:
    """The metrics of every set, ready for JSON: `{"prompting": ..., "metrics": {set: {scoring: metrics}}}`.

    A scoring is what counts for an answer: the log-likelihood of its tokens in "total" or in the "mean", or of the one
    token in the "gap" of a masked LM. "calibrated" is the first of these less the same answer's score where the text
    says nothing (Zhao et al. 2021, arXiv 2102.09690): it takes away how likely the word is in itself. `report` is told
    each set when it is done.
    """
    disable_progress_bars()
    config = prompting.config
    sets = read_inputs(config).datasets
    ask = _causal(prompting, sets["train"]) if prompting.causal else _masked(prompting, config)
    metrics = {}
    for name in config.sets:
        rows, folded = sets[name], get_set(name).folded
        scored = _with_calibrated(ask, _texts(rows), folded)
        metrics[name] = {scoring: score_rows(name, _logits(of, folded), rows) for scoring, of in scored.items()}
        report(name)
    return {"prompting": _public(prompting, config), "metrics": metrics}


def _public(prompting: Prompting, config: RunConfig) -> dict:
    """What was asked, without paths of this machine."""
    public = config.public()
    asked = {name: public[name] for name in ("task", "source", "model", "seed")}
    asked |= {"causal": prompting.causal, "max_length": prompting.max_length}
    return asked | (
        {"per_label": prompting.per_label} if prompting.causal else {"template": CLOZES[prompting.task].template}
    )


def _with_calibrated(ask: Ask, texts: list[dict], folded: bool) -> dict[str, Tensor]:
    scores, of_nothing = ask(texts, folded), ask([dict.fromkeys(texts[0], _NOTHING)], folded)
    first = next(iter(scores))
    return scores | {"calibrated": scores[first] - of_nothing[first]}


def _masked(prompting: Prompting, config: RunConfig) -> Ask:
    try:
        plm = SharedPLM.from_pretrained(config.model_path)
    except UserError as error:
        raise UserError(f"{error} For a model that continues a text, such as gpt2, add --causal.") from error
    plm.to("cpu" if precision()["use_cpu"] else "cuda")
    cloze = CLOZES[prompting.task]
    _check_length(prompting, plm, cloze)

    def ask(texts: list[dict], folded: bool) -> dict[str, Tensor]:
        scores = []
        for start in range(0, len(texts), _BATCH):
            short = [_short(row, plm.tokenizer, prompting.max_length) for row in texts[start : start + _BATCH]]
            prompts = [cloze.template.format(**row, mask=plm.tokenizer.mask_token) for row in short]
            with torch.autocast(plm.device.type, torch.bfloat16, enabled=precision()["bf16"]):
                scores.append(masked_lm_scores(plm, prompts, cloze.answers))
        return {"gap": torch.cat(scores)}

    return ask


def _check_length(prompting: Prompting, plm: SharedPLM, cloze: Cloze) -> None:
    around = cloze.template.format(**dict.fromkeys(_TEXTS, ""), mask=plm.tokenizer.mask_token)
    most = plm.longest - len(plm.tokenizer(around)["input_ids"])
    if prompting.max_length > most:
        raise UserError(
            f"max_length is {prompting.max_length}, and {prompting.model} reads {plm.longest} tokens, words of the "
            f"question included; give {most} at most."
        )


def _causal(prompting: Prompting, train: Dataset) -> Ask:
    model, tokenizer = load_causal_lm(prompting.model)
    model.to("cpu" if precision()["use_cpu"] else "cuda")

    @cache
    def prompt(folded: bool) -> CausalPrompt:
        question = QUESTIONS["hans" if folded else prompting.task]
        labels = [min(label, 1) if folded else label for label in train["label"]]
        chosen = draw_demonstrations(labels, prompting.per_label, seed=prompting.seed) if prompting.per_label else []
        rows = [_short(train[row], tokenizer, prompting.max_length) | {"label": labels[row]} for row in chosen]
        shown = demonstrate(question, rows)
        needed = len(tokenizer(shown, verbose=False)["input_ids"]) + prompting.max_length + _QUESTION
        if needed > (most := getattr(model.config, "max_position_embeddings", needed)):
            raise UserError(
                f"the examples that are shown and a text take {needed} tokens, and the model reads {most}; show fewer "
                f"than {prompting.per_label} of each label, or give a smaller max_length."
            )
        return CausalPrompt(model, tokenizer, question, shown)

    def ask(texts: list[dict], folded: bool) -> dict[str, Tensor]:
        scores = [prompt(folded).scores(**_short(row, tokenizer, prompting.max_length)) for row in texts]
        return {scoring: torch.stack([getattr(row, scoring) for row in scores]) for scoring in ("total", "mean")}

    return ask


def _short(row: dict, tokenizer, max_length: int) -> dict[str, str]:
    """The texts of a row, cut to `max_length` tokens together: the longer one first, as `tokenise` cuts."""
    texts = {name: row[name] for name in _TEXTS if name in row}
    lengths = {name: len(tokenizer(text, add_special_tokens=False)["input_ids"]) for name, text in texts.items()}
    shorter, *longer = sorted(texts, key=lengths.get)
    kept = {shorter: min(lengths[shorter], max_length // len(texts))}
    kept |= dict.fromkeys(longer, max_length - kept[shorter])
    return {name: shorten(text, tokenizer, kept[name]) for name, text in texts.items()}


def _texts(rows: Dataset) -> list[dict]:
    return rows.select_columns([name for name in _TEXTS if name in rows.column_names]).to_list()


def _logits(scores: Tensor, folded: bool) -> np.ndarray:
    """For `score`. Where two of three labels are one answer ("no" for HANS), the third gets none."""
    logits = scores.numpy()  # (n, answers)
    return np.hstack([logits, np.full((len(logits), 1), _NEVER)]) if folded and logits.shape[1] == 2 else logits
