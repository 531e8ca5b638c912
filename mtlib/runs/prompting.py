"""Prompting (the GPT-3 column of Table I, after Si et al. 2023): no training, a language model ranks the labels.

Si et al. let the model write its answer and compare strings; here the label words are ranked by their log-likelihood
after the prompt, which needs no generation and always gives an answer. Longer words get lower likelihoods, so each is
reported both as a sum over its tokens and as the mean, which corrects for that.

A masked language model answers a `Cloze`: a text with a gap, whose fillers stand for the labels. It is shown no
examples. `evaluate` asks either kind about the evaluation sets of a task and scores them as a run's are scored.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from pydantic import Field
from torch import Tensor
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mtlib.checkpoints import LOADING, load_pretrained
from mtlib.contexts import evaluating, precision
from mtlib.data.registry import get_set
from mtlib.data.scoring import score_rows
from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import read_inputs
from mtlib.settings import Settings, Steps

_TEXTS = ("text", "text_pair")
_NOTHING = "N/A"  # a text that says nothing
_BATCH = 32
_POOL = 1000  # rows of which some are shown
_QUESTION = 32  # tokens that are left for the question and its answer
_NEVER = -1e9  # the logit of a label that is not among the answers


class Prompting(Settings):
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
    per_label: Steps = 16
    sets: tuple[str, ...] = ()
    max_length: Annotated[int, Field(ge=8)] = 128
    seed: int = 0


@dataclass(frozen=True)
class Question:
    """What is asked about a text or a pair of texts, and the answer that stands for each label."""

    text: str
    answers: tuple[str, ...]


# by task; "hans" is for a model of two labels on its set. Si et al. have no sentiment task: that question is ours.
QUESTIONS = {
    "sentiment": Question("Is this review negative or positive?", ("negative", "positive")),
    "nli": Question(
        "What is the relationship between these two sentences?", ("entailment", "neutral", "contradiction")
    ),
    "hans": Question("Can the second sentence be inferred from the first sentence?", ("yes", "no")),
    "paraphrase": Question("Are these two questions asking the same thing?", ("no", "yes")),
}


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


Ask = Callable[[list[dict], bool], dict[str, Tensor]]  # texts, folded? -> scores (n, answers) by scoring


def evaluate(prompting: Prompting, report: Callable[[str], None] = lambda name: None) -> dict:
    """The metrics of every set, ready for JSON: `{"prompting": ..., "metrics": {set: {scoring: metrics}}}`.

    A scoring is what counts for an answer: the log-likelihood of its tokens in "total" or in the "mean", or of the one
    token in the "gap" of a masked LM. "calibrated" is the first of these less the same answer's score where the text
    says nothing (Zhao et al. 2021, arXiv 2102.09690): it takes away how likely the word is in itself. `report` is told
    each set when it is done.
    """
    disable_progress_bars()
    read = {name: getattr(prompting, name) for name in ("task", "source", "model", "sets", "seed")}
    inputs = read_inputs(configure(method="fine_tuning", **read))
    config, sets = inputs.config, inputs.datasets
    ask = _causal(prompting, config, sets["train"]) if prompting.causal else _masked(prompting, config)
    metrics = {}
    for name in config.sets:
        rows, folded = sets[name], get_set(name).folded
        texts = rows.select_columns([text for text in _TEXTS if text in rows.column_names]).to_list()
        scores, of_nothing = ask(texts, folded), ask([dict.fromkeys(texts[0], _NOTHING)], folded)
        first = next(iter(scores))
        scores["calibrated"] = scores[first] - of_nothing[first]
        metrics[name] = {scoring: score_rows(name, _logits(of, folded), rows) for scoring, of in scores.items()}
        report(name)
    asked = {name: inputs.public[name] for name in ("task", "source", "model", "seed")}
    asked |= {"causal": prompting.causal, "max_length": prompting.max_length}
    asked |= {"per_label": prompting.per_label} if prompting.causal else {"template": CLOZES[prompting.task].template}
    return {"prompting": asked, "metrics": metrics}


def _masked(prompting: Prompting, config: RunConfig) -> Ask:
    try:
        plm = SharedPLM.from_pretrained(config.model_path)
    except UserError as error:
        raise UserError(f"{error} For a model that continues a text, such as gpt2, add --causal.") from error
    plm.to("cpu" if precision()["use_cpu"] else "cuda")
    cloze = CLOZES[prompting.task]
    around = cloze.template.format(**dict.fromkeys(_TEXTS, ""), mask=plm.tokenizer.mask_token)
    _check_fits(prompting, len(plm.tokenizer(around)["input_ids"]), plm.longest)

    def ask(texts: list[dict], folded: bool) -> dict[str, Tensor]:
        scores = []
        for start in range(0, len(texts), _BATCH):
            short = [_short(row, plm.tokenizer, prompting.max_length) for row in texts[start : start + _BATCH]]
            prompts = [cloze.template.format(**row, mask=plm.tokenizer.mask_token) for row in short]
            with torch.autocast(plm.device.type, torch.bfloat16, enabled=precision()["bf16"]):
                scores.append(masked_lm_scores(plm, prompts, cloze.answers))
        return {"gap": torch.cat(scores)}

    return ask


def _causal(prompting: Prompting, config: RunConfig, train: Dataset) -> Ask:
    model, tokenizer = load_causal_lm(config.model_path)
    model.to("cpu" if precision()["use_cpu"] else "cuda")

    @cache
    def prompt(folded: bool) -> CausalPrompt:
        question = QUESTIONS["hans" if folded else prompting.task]
        labels = [min(label, 1) if folded else label for label in train["label"]]
        chosen = draw_demonstrations(labels, prompting.per_label, prompting.seed) if prompting.per_label else []
        rows = [_short(train[row], tokenizer, prompting.max_length) | {"label": labels[row]} for row in chosen]
        shown = demonstrate(question, rows)
        needed = len(tokenizer(shown, verbose=False)["input_ids"]) + _QUESTION
        _check_fits(prompting, needed, getattr(model.config, "max_position_embeddings", None))
        return CausalPrompt(model, tokenizer, question, shown)

    def ask(texts: list[dict], folded: bool) -> dict[str, Tensor]:
        scores = [prompt(folded).scores(**_short(row, tokenizer, prompting.max_length)) for row in texts]
        total, mean = torch.stack(scores).unbind(1)  # (n, answers) each
        return {"total": total, "mean": mean}

    return ask


def _check_fits(prompting: Prompting, others: int, longest: int | None) -> None:
    if longest is not None and others + prompting.max_length > longest:
        shown = f" Or show fewer examples than {prompting.per_label} of each label." if prompting.causal else ""
        raise UserError(
            f"max_length is {prompting.max_length}, and {prompting.model} reads {longest} tokens: the question and the "
            f"examples take {others} of them; give {max(0, longest - others)} at most.{shown}"
        )


def _short(row: dict, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, str]:
    """The texts of a row, cut to `max_length` tokens together as `tokenise` cuts: the longer one first."""
    texts = {name: row[name] for name in _TEXTS if name in row}
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    cut = tokenizer(*texts.values(), truncation=True, max_length=max_length, **options)
    ends = dict.fromkeys(range(len(texts)), 0)
    ends |= {text: end for text, (_, end) in zip(cut.sequence_ids(), cut["offset_mapping"], strict=True)}
    return {name: text[: ends[number]] for number, (name, text) in enumerate(texts.items())}


def _logits(scores: Tensor, folded: bool) -> np.ndarray:
    """For `score`. Where two of three labels are one answer ("no" for HANS), the third gets none."""
    logits = scores.numpy()  # (n, answers)
    return np.hstack([logits, np.full((len(logits), 1), _NEVER)]) if folded and logits.shape[1] == 2 else logits


# --- prompts, and their scores ---


def draw_demonstrations(labels: Sequence[int], per_label: int = 16, seed: int = 0) -> list[int]:
    """Which rows of a training set are shown: so many of each label out of 1,000 random ones, in random order.

    Raises:
        UserError: these have too few rows of a label.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(labels))[:_POOL].tolist()
    chosen = []
    for label in sorted(set(labels)):
        of_label = [row for row in drawn if labels[row] == label][:per_label]
        if len(of_label) < per_label:
            raise UserError(
                f"{len(of_label)} of {len(drawn)} rows have label {label}, and {per_label} are to be shown; show fewer."
            )
        chosen += of_label
    return [chosen[place] for place in generator.permutation(len(chosen))]


def ask(question: Question, text: str, text_pair: str | None = None) -> str:
    """The prompt for one example, up to its answer: the texts and the question, a line each. No space at its end."""
    return "\n".join([text, *([] if text_pair is None else [text_pair]), question.text, "Answer:"])


def demonstrate(question: Question, rows: Sequence[Mapping]) -> str:
    """Examples with their answers, one after the other: what stands before each prompt."""
    shown = [f"{ask(question, row['text'], row.get('text_pair'))} {question.answers[row['label']]}" for row in rows]
    return "".join(f"{example}\n\n" for example in shown)


class CausalPrompt:
    """Ranks answers by a causal language model. The demonstrations are read once, for all examples.

    Tokens are those of the whole text, demonstrations, prompt and answer at once: a tokenizer may join what stands on
    either side of a cut, such as line breaks.

    Args:
        model, tokenizer: of a causal language model, see `load_causal_lm`.
        question: with the answers to rank.
        demonstrations: what stands before each prompt, see `demonstrate`; may be empty.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, question: Question, demonstrations: str = ""
    ):
        self.model, self.tokenizer = model.eval(), tokenizer
        self.question, self.demonstrations = question, demonstrations
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        self._start = [] if start is None else [start]
        # without the line breaks at the end, so that these tokens begin every text with these demonstrations
        self.prefix = self._ids(demonstrations.rstrip())
        self._cache = self._run(self.prefix, None).past_key_values if self.prefix else None

    @torch.no_grad()
    def scores(self, text: str, text_pair: str | None = None) -> Tensor:
        """Log-likelihoods of all answers in nats, `(2, answers)`: of all their tokens, and a token."""
        before = self.demonstrations + ask(self.question, text, text_pair)
        asked, wholes = self._ids(before), [self._ids(f"{before} {answer}") for answer in self.question.answers]
        scored = [self._log_likelihoods(asked, whole) for whole in wholes]  # (tokens,) each
        return torch.stack([torch.stack([each.sum(), each.mean()]) for each in scored], dim=1)

    def _log_likelihoods(self, asked: list[int], ids: list[int]) -> Tensor:
        """Of the tokens that an answer adds to what was asked, where `ids` are those of both, `(tokens,)`."""
        first = next((i for i, token in enumerate(asked) if ids[i] != token), len(asked))  # of the answer's tokens
        read = len(self.prefix) if ids[: len(self.prefix)] == self.prefix else 0
        logits = self._run(ids[read:-1], deepcopy(self._cache) if read else None).logits[0, first - 1 - read :]
        answered = torch.tensor(ids[first:], device=logits.device)
        return logits.float().log_softmax(-1).gather(1, answered[:, None])[:, 0].cpu()

    def _ids(self, text: str) -> list[int]:
        return self._start + self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def _run(self, ids: list[int], cache):
        inputs = torch.tensor([ids], device=self.model.device)
        return self.model(inputs, past_key_values=cache, use_cache=True, return_dict=True)


def load_causal_lm(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model from a folder or the hub, with its tokenizer.

    Raises:
        UserError: no such model, or a masked one (transformers would load BERT as a causal model, too).
    """
    tokenizer, config = (load_pretrained(each, name_or_path) for each in (AutoTokenizer, AutoConfig))
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise UserError(f"{str(name_or_path)!r} is a masked LM ({config.model_type}); expected a causal one, as gpt2.")
    return load_pretrained(AutoModelForCausalLM, name_or_path, **LOADING), tokenizer


@torch.no_grad()
def masked_lm_scores(plm: SharedPLM, prompts: Sequence[str], answers: Sequence[str]) -> Tensor:
    """Log-probabilities of the answers at the mask of each prompt, `(prompts, labels)`: prompting a masked LM.

    Raises:
        UserError: an answer is not one token of the vocabulary; a prompt has no mask, or several.
    """
    tokenizer = plm.tokenizer
    ids = [tokenizer(f" {answer}", add_special_tokens=False)["input_ids"] for answer in answers]
    for answer, pieces in zip(answers, ids, strict=True):
        if len(pieces) != 1 or pieces[0] == tokenizer.unk_token_id:
            raise UserError(f"{answer!r} is not one token of this model; a mask stands for one, take another answer.")
    encoded = tokenizer(list(prompts), padding=True, padding_side="right", return_tensors="pt")
    batch = {name: rows.to(plm.device) for name, rows in encoded.items()}
    mask = batch["input_ids"] == tokenizer.mask_token_id  # (prompts, seq)
    for prompt, n in zip(prompts, mask.sum(1).tolist(), strict=True):
        if n != 1:
            raise UserError(
                f"the prompt {prompt!r} has {n} masks ({tokenizer.mask_token}); expected exactly one. "
                + ("Take it out of the text, which brings its own." if n else "Put {mask} into the template.")
            )
    with evaluating(plm):
        logits = plm.fill_masks(batch, mask).mlm_logits[:, 0].float().log_softmax(-1)  # (prompts, vocab)
    return logits[:, [pieces[0] for pieces in ids]].cpu()
