"""Prompting, the GPT-3 row of Table I: an untrained language model is asked for the labels.

A causal model is shown training examples with their answers, then a text and a question (Si et al.
2023, arXiv 2210.09150). They let it write freely and compare strings. Here the answers are ranked
by their likelihood, as in Brown et al. (2020, arXiv 2005.14165), so that there always is one.

A masked model is shown a text with a gap, and the words that may fill it are ranked. It is shown no
examples.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mtlib.checkpoints import LOADING, load_pretrained, longest_input
from mtlib.contexts import evaluating, precision
from mtlib.data.registry import get_set
from mtlib.data.scoring import score_rows
from mtlib.data.tables import TEXTS
from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.inputs import read_inputs

_NOTHING = "N/A"  # a text that says nothing
_BATCH = {"masked": 32, "causal": 8}  # texts; a causal model keeps the examples shown for each
_LEAST_ROOM = 32  # tokens that the examples shown must leave for a text
_NO_LABEL = -1e9  # the logit of a label that is not among the answers


@dataclass(frozen=True)
class Cloze:
    """A text with a gap, and the word in the gap that stands for each label."""

    template: str  # {text}, {text_pair}, {mask}
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What is asked about a text or a pair of texts, and the answer that stands for each label."""

    text: str
    answers: tuple[str, ...]


# by task: the templates and words of Gao et al. (2021, arXiv 2012.15723), as Table 1 prints them
# (their code changes punctuation and capitals of the texts around the gap)
CLOZES = {
    "sentiment": Cloze("{text} It was {mask}.", ("terrible", "great")),
    "nli": Cloze("{text}? {mask}, {text_pair}", ("Yes", "Maybe", "No")),
    "paraphrase": Cloze("{text} {mask}, {text_pair}", ("No", "Yes")),
}
# by task: the questions of Si et al. (2023), who have no sentiment task: that question is ours
QUESTIONS = {
    "sentiment": Question("Is this review negative or positive?", ("negative", "positive")),
    "nli": Question(
        "What is the relationship between these two sentences?",
        ("entailment", "neutral", "contradiction"),
    ),
    "paraphrase": Question("Are these two questions asking the same thing?", ("no", "yes")),
}
# for sets with two labels, such as HANS, whose models are trained on three
FOLDED_QUESTION = Question(
    text="Can the second sentence be inferred from the first sentence?",
    answers=("yes", "no"),
)


def evaluate(
    config: RunConfig,
    shots: int | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> dict:
    """The metrics of every set, ready for JSON.

    `{"prompting": settings, "prompts": {set: prompt}, "metrics": {set: {scoring: metrics}}}`. What
    counts for an answer is its log-probability in the gap ("gap") or, for a causal model, the mean
    log-probability of its tokens ("mean": answers of several tokens are normalised by their length,
    as in Brown et al. 2020, Section 2.4). "calibrated" is this less the same answer's score where
    the text says nothing, after the same examples (Zhao et al. 2021, arXiv 2102.09690): it takes
    away how likely the answer is in itself.

    Args:
        config: its task, source, sets, model, seed (of the examples shown) and max_length count.
            The texts of an example are cut to `max_length` tokens together, or to what the model
            reads, at their ends, of a pair the longer text first.
        shots: how many training examples a causal model is shown, of all labels together;
            None for a masked model.
        report: callback for progress messages.

    Raises:
        UserError: the model is of the other kind, or the examples shown leave no room for a text.
    """
    quiet_libraries()
    inputs = read_inputs(config)
    config = inputs.config
    settings = {name: inputs.public[name] for name in ("task", "source", "model", "max_length")}
    if shots is None:
        build = _gap_prompts(config)
        settings["template"] = CLOZES[config.task].template
    else:
        build = _causal_prompts(config, inputs.datasets["train"], shots)
        settings |= {"causal": True, "shots": shots, "seed": config.seed}
    result = {"prompting": settings, "prompts": {}, "metrics": {}}
    for name in config.sets:
        prompt = build(name)
        rows = inputs.datasets[name]
        texts, n_cut = prompt.cut(_texts(rows))
        result["prompts"][name] = prompt.description | {"shortened": n_cut}
        result["metrics"][name] = {
            scoring: score_rows(name, _logits(name, scores), rows)
            for scoring, scores in _scores_by_scoring(prompt, texts).items()
        }
        cut = f": {n_cut:,} texts were cut to {prompt.max_length} tokens" if n_cut else ""
        report(f"{name}{cut}")
    return result


def _scores_by_scoring(prompt: "GapPrompt | CausalPrompt", texts: list[dict]) -> dict[str, Tensor]:
    """The scores of the answers as they are, and calibrated, `(n, answers)` each."""
    scores = prompt.scores(texts)  # (n, answers)
    scores_of_nothing = prompt.scores([dict.fromkeys(texts[0], _NOTHING)])  # (1, answers)
    return {prompt.scoring: scores, "calibrated": scores - scores_of_nothing}


def _logits(set_name: str, scores: Tensor) -> np.ndarray:
    """For `score`, which folds three labels into two: of two answers, the third label gets none."""
    logits = scores.numpy()  # (n, answers)
    if get_set(set_name).folded and logits.shape[1] == 2:
        return np.pad(logits, ((0, 0), (0, 1)), constant_values=_NO_LABEL)
    return logits


def _texts(rows: Dataset) -> list[dict[str, str]]:
    """The rows without anything but their texts."""
    return rows.select_columns([text for text in TEXTS if text in rows.column_names]).to_list()


def _device() -> str:
    return "cpu" if precision()["use_cpu"] else "cuda"


def _in_batches(score: Callable[[list[dict]], Tensor], rows: list[dict], size: int) -> Tensor:
    return torch.cat([score(rows[start : start + size]) for start in range(0, len(rows), size)])


def cut_texts(
    rows: list[dict],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> tuple[list[dict], int]:
    """The texts cut to `max_length` tokens, and how many rows were longer."""
    cut_rows = [_cut_row(row, tokenizer, max_length) for row in rows]
    n_cut = sum(cut != row for cut, row in zip(cut_rows, rows, strict=True))
    return cut_rows, n_cut


def _cut_row(row: dict, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, str]:
    """The texts of a row, cut to `max_length` tokens together.

    They are cut as `tokenise` cuts, the longer one first.
    """
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    tokens = tokenizer(*row.values(), **options)
    if len(tokens["input_ids"]) <= max_length:
        return row
    cut = tokenizer(*row.values(), truncation=True, max_length=max_length, **options)
    ends = [0] * len(row)  # of each text, in characters
    for text_number, (_, end) in zip(cut.sequence_ids(), cut["offset_mapping"], strict=True):
        ends[text_number] = end
    return {name: text[:end] for (name, text), end in zip(row.items(), ends, strict=True)}


# --- a masked model ---


class GapPrompt:
    """Ranks the words that may fill the gap of a text by a masked language model."""

    scoring = "gap"

    def __init__(self, plm: SharedPLM, cloze: Cloze, max_length: int):
        self.plm = plm
        self.cloze = cloze
        around = len(plm.tokenizer(self._fill(dict.fromkeys(TEXTS, "")))["input_ids"])
        self.max_length = min(max_length, plm.longest - around)
        self.description = {"answers": cloze.answers}

    def cut(self, rows: list[dict]) -> tuple[list[dict], int]:
        """See `cut_texts`."""
        return cut_texts(rows, self.plm.tokenizer, self.max_length)

    def scores(self, rows: list[dict]) -> Tensor:
        """Log-probabilities of the answers, `(rows, answers)`."""
        return _in_batches(self._batch_scores, rows, _BATCH["masked"])

    def _batch_scores(self, rows: list[dict]) -> Tensor:
        prompts = [self._fill(row) for row in rows]
        with torch.autocast(self.plm.device.type, torch.bfloat16, enabled=precision()["bf16"]):
            return masked_lm_scores(self.plm, prompts, self.cloze.answers)

    def _fill(self, row: dict) -> str:
        return self.cloze.template.format(**row, mask=self.plm.tokenizer.mask_token)


def _gap_prompts(config: RunConfig) -> Callable[[str], GapPrompt]:
    """The prompt for each set, by the set's name: one for all."""
    try:
        plm = SharedPLM.from_pretrained(config.model_path).to(_device())
    except UserError as error:
        hint = "A model that continues a text, such as gpt2, needs --causal."
        raise UserError(f"{error} {hint}") from error
    prompt = GapPrompt(plm, CLOZES[config.task], config.max_length)
    return lambda set_name: prompt


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
            remedy = "a mask stands for one, take another answer."
            raise UserError(f"{answer!r} is not one token of this model; {remedy}")
    encoded = tokenizer(list(prompts), padding=True, padding_side="right", return_tensors="pt")
    batch = {name: rows.to(plm.device) for name, rows in encoded.items()}
    is_gap = batch["input_ids"] == tokenizer.mask_token_id  # (prompts, seq)
    for prompt, n_gaps in zip(prompts, is_gap.sum(1).tolist(), strict=True):
        if n_gaps != 1:
            raise UserError(f"{prompt!r} has {n_gaps} masks; expected one. Change that text.")
    with evaluating(plm):
        filled = plm.fill_masks(batch, is_gap)
    log_probabilities = filled.mlm_logits[:, 0].float().log_softmax(-1)  # (prompts, vocab)
    return log_probabilities[:, [pieces[0] for pieces in ids]].cpu()


# --- a causal model ---


def draw_examples(labels: Sequence[int], shots: int, seed: int) -> list[int]:
    """Which rows are shown, in random order.

    They are `shots` in all, of each label as many as of any other, or one more.

    Raises:
        UserError: a label has too few rows.
    """
    generator = np.random.default_rng(seed)
    labels = np.asarray(labels)
    label_order = generator.permutation(np.unique(labels))  # the first may have one row more
    n_each, n_left = divmod(shots, len(label_order))
    chosen = []
    for rank, label in enumerate(label_order):
        rows = np.flatnonzero(labels == label)
        wanted = n_each + 1 if rank < n_left else n_each
        if len(rows) < wanted:
            raise UserError(
                f"shots is {shots}, which takes {wanted} examples of label {label}; "
                f"the training set has {len(rows)}. Show fewer of them."
            )
        chosen += generator.choice(rows, wanted, replace=False).tolist()
    return generator.permutation(chosen).astype(int).tolist()


def ask(question: Question, row: Mapping[str, str]) -> str:
    """The texts and the question, a line each, up to the answer.

    There is no space at its end, since that belongs to the answer.
    """
    texts = [row[name] for name in TEXTS if name in row]
    return "\n".join([*texts, question.text, "Answer:"])


def demonstrate(question: Question, rows: Sequence[Mapping]) -> str:
    """Examples with their answers, one after the other, as they stand before each text."""
    return "".join(f"{ask(question, row)} {question.answers[row['label']]}\n\n" for row in rows)


class CausalPrompt:
    """Ranks answers by a causal language model, which reads the examples shown once for all texts.

    It computes in float32: the logits of models such as GPT-2 are so large that bf16 would make
    ties of answers.

    The tokens are those of examples, text and answer as one string: a tokenizer may join what
    stands on either side of a cut, such as line breaks. They begin with the tokenizer's token for
    the beginning of a text, if it has one.

    Args:
        model, tokenizer: of a causal language model, see `load_causal_lm`.
        question: with the answers to rank.
        shown: rows with `text` (and `text_pair`) and `label`, which are shown with their answers;
            may be empty.
        max_length: tokens of a text, or of a pair of texts.

    Raises:
        UserError: what is shown leaves no room for a text.
    """

    scoring = "mean"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        question: Question,
        shown: Sequence[Mapping] = (),
        max_length: int = 128,
    ):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.question = question
        texts = [{name: row[name] for name in TEXTS if name in row} for row in shown]
        cut, n_cut = cut_texts(texts, tokenizer, max_length)
        labelled = [text | {"label": row["label"]} for text, row in zip(cut, shown, strict=True)]
        self.context = demonstrate(question, labelled)
        self.max_length = min(max_length, self._room(len(shown), max_length))
        # without the line breaks at the end, so that every text with this context begins with these
        # tokens
        self._prefix = self._ids(self.context.rstrip())
        self._cache = None
        if self._prefix:
            self._cache = self._run(torch.tensor([self._prefix])).past_key_values
        self.description = {
            "question": question.text,
            "answers": question.answers,
            "shown": [row.get("uid") for row in shown],
            "shown_sha256": hashlib.sha256(self.context.encode()).hexdigest(),
            "shown_shortened": n_cut,
        }

    def cut(self, rows: list[dict]) -> tuple[list[dict], int]:
        """See `cut_texts`."""
        return cut_texts(rows, self.tokenizer, self.max_length)

    def scores(self, rows: list[dict]) -> Tensor:
        """Mean log-probabilities of the tokens of each answer in nats, `(rows, answers)`."""
        return _in_batches(self._batch_scores, rows, _BATCH["causal"])

    def _room(self, n_shown: int, max_length: int) -> int:
        """How many tokens of a text the model reads beside what is shown and the longest answer."""
        longest = longest_input(self.model, self.tokenizer)
        nothing = self.context + ask(self.question, dict.fromkeys(TEXTS, ""))
        taken = max(len(self._ids(f"{nothing} {answer}")) for answer in self.question.answers)
        if longest - taken < min(max_length, _LEAST_ROOM):
            raise UserError(
                f"shots is {n_shown}: with the question they take {taken:,} tokens, and the model "
                f"reads {longest:,} with the text; show fewer examples, or cut them by a smaller "
                "max_length."
            )
        return longest - taken

    def _batch_scores(self, rows: list[dict]) -> Tensor:
        sequences = []
        starts = []
        for row in rows:
            prompt = self.context + ask(self.question, row)
            asked = self._ids(prompt)
            for answer in self.question.answers:
                ids = self._ids(f"{prompt} {answer}")
                sequences.append(ids)
                starts.append(_shared_length(asked, ids))
        return self._mean_log_probabilities(sequences, starts).view(len(rows), -1)

    def _mean_log_probabilities(self, sequences: list[list[int]], starts: list[int]) -> Tensor:
        """Of the tokens of each sequence from its start on, `(sequences,)`."""
        n_read = len(self._prefix)
        if any(ids[:n_read] != self._prefix for ids in sequences):
            n_read = 0  # the tokenizer has joined its end with what follows
        # the last token of a sequence is predicted, and need not be read
        inputs = [tuple(ids[n_read:-1]) for ids in sequences]
        distinct = [*dict.fromkeys(inputs)]  # answers of one token need one pass for all
        logits = self._logits(distinct, after_prefix=n_read > 0)  # (distinct, seq, vocab)
        means = []
        for ids, start, tokens in zip(sequences, starts, inputs, strict=True):
            answer = torch.tensor(ids[start:])  # (answer,)
            first = start - 1 - n_read  # where the answer's first token is predicted
            answer_logits = logits[distinct.index(tokens), first : first + len(answer)]
            log_probabilities = answer_logits.float().log_softmax(-1).cpu()  # (answer, vocab)
            means.append(log_probabilities.gather(1, answer[:, None]).mean())
        return torch.stack(means)

    def _logits(self, inputs: Sequence[tuple[int, ...]], after_prefix: bool) -> Tensor:
        """The logits of sequences, `(sequences, seq, vocab)`, where asked to after the prefix."""
        cache = None
        if after_prefix:
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(inputs))
        # padding stands on the right, after all that counts, and a causal model does not look ahead
        padded = pad_sequence([torch.tensor(ids) for ids in inputs], batch_first=True)
        return self._run(padded, cache).logits

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, after the token for the beginning of a text where there is one."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        beginning = self.tokenizer.bos_token_id
        return ids if beginning is None else [beginning, *ids]

    @torch.no_grad()
    def _run(self, ids: Tensor, cache=None):
        return self.model(ids.to(self.model.device), past_key_values=cache, use_cache=True)


def _shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens at the beginning are the same."""
    for position, (token, other) in enumerate(zip(first, second, strict=False)):
        if token != other:
            return position
    return min(len(first), len(second))


def _causal_prompts(config: RunConfig, train: Dataset, shots: int) -> Callable[[str], CausalPrompt]:
    """What makes the prompt for each set, by the set's name."""
    model, tokenizer = load_causal_lm(config.model_path)
    model.to(_device())

    def build(set_name: str) -> CausalPrompt:
        folded = get_set(set_name).folded
        question = FOLDED_QUESTION if folded else QUESTIONS[config.task]
        # where a set has two of three labels, neutral and contradiction are one
        labels = [min(label, 1) if folded else label for label in train["label"]]
        rows = draw_examples(labels, shots, config.seed)
        shown = [train[row] | {"label": labels[row]} for row in rows]
        return CausalPrompt(model, tokenizer, question, shown, config.max_length)

    return build


def load_causal_lm(name_or_path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model from a folder or the hub, with its tokenizer.

    Raises:
        UserError: no such model, or a masked one (which transformers would load as a causal model).
    """
    config = load_pretrained(AutoConfig, name_or_path)
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise UserError(
            f"model {name_or_path!r} is a masked LM ({config.model_type}); expected a causal one, "
            "such as gpt2. A masked LM is asked without --causal."
        )
    tokenizer = load_pretrained(AutoTokenizer, name_or_path)
    model = load_pretrained(AutoModelForCausalLM, name_or_path, **LOADING)
    return model, tokenizer
