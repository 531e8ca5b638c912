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
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
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

_TEXTS = ("text", "text_pair")
_NOTHING = "N/A"  # a text that says nothing
_BATCH = 32
_QUESTION = 32  # tokens that are left for the question and its answer
_NEVER = -1e9  # the logit of a label that is not among the answers


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
    around = cloze.template.format(**dict.fromkeys(_TEXTS, ""), mask=plm.tokenizer.mask_token)
    most = plm.longest - len(plm.tokenizer(around)["input_ids"])
    if prompting.max_length > most:
        raise UserError(
            f"max_length is {prompting.max_length}, and {prompting.model} reads {plm.longest} tokens, words of the "
            f"question included; give {most} at most."
        )

    def ask(texts: list[dict], folded: bool) -> dict[str, Tensor]:
        scores = []
        for start in range(0, len(texts), _BATCH):
            short = [_short(row, plm.tokenizer, prompting.max_length) for row in texts[start : start + _BATCH]]
            prompts = [cloze.template.format(**row, mask=plm.tokenizer.mask_token) for row in short]
            with torch.autocast(plm.device.type, torch.bfloat16, enabled=precision()["bf16"]):
                scores.append(masked_lm_scores(plm, prompts, cloze.answers))
        return {"gap": torch.cat(scores)}

    return ask


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


# --- prompts, and their scores ---


def draw_demonstrations(labels: Sequence[int], per_label: int = 16, pool: int = 1000, seed: int = 0) -> list[int]:
    """Which rows of a training set are shown: so many of each label out of `pool` random ones, in random order.

    Raises:
        UserError: the pool has too few rows of a label.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(labels))[:pool].tolist()
    chosen = []
    for label in sorted(set(labels)):
        of_label = [row for row in drawn if labels[row] == label][:per_label]
        if len(of_label) < per_label:
            raise UserError(
                f"{len(of_label)} of {len(drawn)} rows have label {label}; {per_label} are to be shown: draw from a "
                "larger pool, or show fewer."
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


class Scores(NamedTuple):
    """Log-likelihoods of the answers in nats, one a label: of all tokens, and a token."""

    total: Tensor  # (labels,)
    mean: Tensor  # (labels,)


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
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        question: Question,
        demonstrations: str = "",
    ):
        self.model, self.tokenizer, self.question = model.eval(), tokenizer, question
        self.demonstrations = demonstrations
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        self._start = [] if start is None else [start]
        # without the line breaks at the end, so that these tokens begin every text with these demonstrations
        self.prefix = self._ids(demonstrations.rstrip())
        self._cache = self._run(self.prefix, None).past_key_values if self.prefix else None

    @torch.no_grad()
    def scores(self, text: str, text_pair: str | None = None) -> Scores:
        """The scores of all answers for one example."""
        before = self.demonstrations + ask(self.question, text, text_pair)
        asked, wholes = self._ids(before), [self._ids(f"{before} {answer}") for answer in self.question.answers]
        scored = [self._log_likelihoods(asked, whole) for whole in wholes]  # (tokens,) each
        return Scores(torch.stack([each.sum() for each in scored]), torch.stack([each.mean() for each in scored]))

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


def load_causal_lm(name_or_path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model from a folder or the hub, with its tokenizer.

    Raises:
        UserError: no such model, or a masked one (transformers would load BERT as a causal model, too).
    """
    tokenizer, config = (load_pretrained(each, name_or_path) for each in (AutoTokenizer, AutoConfig))
    if _is_masked_lm(config):
        kind = ", ".join(config.architectures or [type(config).__name__])
        raise UserError(f"{name_or_path!r} is a masked LM ({kind}); expected a causal one, as gpt2.")
    return load_pretrained(AutoModelForCausalLM, name_or_path, **LOADING), tokenizer


def _is_masked_lm(config: PreTrainedConfig) -> bool:
    """Whether the family has masked LMs, and the checkpoint does not say that it is the family's causal one."""
    families = MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
    masked, causal = (classes.get(type(config), None) for classes in families)
    is_causal = causal not in (None, masked) and causal.__name__ in (config.architectures or ())
    return masked is not None and not is_causal


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
        logits = plm.masked_lm_logits(batch, mask).float().log_softmax(-1)  # (prompts, vocab)
    return logits[:, [pieces[0] for pieces in ids]].cpu()


def shorten(text: str, tokenizer: PreTrainedTokenizerBase, n: int) -> str:
    """The beginning of a text, at most `n` tokens of it, so that what follows it in a prompt still fits."""
    ends = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text if len(ends) <= n else text[: ends[n - 1][1]]
