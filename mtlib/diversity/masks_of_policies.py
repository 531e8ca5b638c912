"""What each masking policy masks in training texts: which kinds of words and, on the testbed, how much of the shortcut.

Policies that count or learn do so on the whole training set, as in a run, however few of its examples are looked at.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
from datasets import Dataset, disable_progress_bars

from mtlib.checkpoints import HEAD_FILE
from mtlib.data.sources import is_testbed
from mtlib.data.tasks import get_task
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy
from mtlib.plm import SharedPLM
from mtlib.policies import ATTRIBUTION, OWN_LENGTH, TESTBED_ONLY, masking_policy, parse_policy
from mtlib.policies.frequency import CountTokens
from mtlib.policies.known import MarkCause, MarkShortcut
from mtlib.policies.part_of_speech import PARTS_OF_SPEECH, MarkPartsOfSpeech
from mtlib.policies.wrapping import DrawMasks
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import drawn_rows, read_inputs
from mtlib.settings import ENGLISH_PIPELINE
from mtlib.testbed.known_words import of_testbed
from mtlib.tokens import special_tokens

# `meta_learned` takes minutes to prepare, `salient_spans` needs a spaCy pipeline, attribution a trained classifier
DEFAULT = (
    "exact:0.05", "exact:0.3", "whole_word:0.05", "frequency_rare:0.05", "frequency_frequent:0.05",
    "part_of_speech_content:0.05", "part_of_speech_function:0.05", "supervised", "supervised_top5", "known_cause:0.05",
    "known_shortcut:0.05", "known_shortcut:1",
)  # fmt: skip
BANDS = {"below 10": 0, "10 to 99": 10, "100 to 999": 100, "1,000 and more": 1000}  # occurrences in the training set


def describe(
    task: str = "sentiment", source: str = "testbed", model: str = "mini", policies: Sequence[str] | None = None, *,
    train_size: int | None = None, size: int | None = None, seed: int = 0, spacy_pipeline: str = ENGLISH_PIPELINE,
    report: Callable[[str], None] = lambda name: None,
) -> dict:  # fmt: skip
    """What policies mask, as a mapping that JSON can hold; `table` shows it.

    Args:
        task, source, train_size: of the training set, as in a run.
        model: whose tokens are masked; policies that ask a classifier (attribution) need a folder with a trained one.
        policies: names with rates, as "exact:0.05"; None takes those of `DEFAULT` that this data allows.
        size: training examples that are looked at, drawn as a run with `train_size` draws them; None is all.
        seed: of what policies learn, and of the masks. Each policy draws its own random numbers, so that two policies
            do not choose the same places only because they drew the same numbers.
        spacy_pipeline: that finds the named entities of salient spans.
        report: called with the name of each policy when it is done.

    Raises:
        UserError: a policy that this data or model does not allow, before any work starts.
    """
    disable_progress_bars()
    names = default_policies(source) if policies is None else policies
    sets = (get_task(task).dev_set(source),)
    config = configure(task, "fine_tuning", source=source, model=model, train_size=train_size, sets=sets).resolved()
    plm, maskings = _checked(config, names, spacy_pipeline)
    train = read_inputs(config).datasets["train"]
    whole = CountTokens()(plm, with_texts(plm, train, config.max_length)).examples
    marked, lines = mark(plm, whole.select(rows := drawn_rows(len(train), size))), {}
    for name, masking in maskings.items():
        for preparer in masking.preparers() if masking.columns.keys() - {*whole.column_names} else ():
            whole = preparer.reading_from(source)(plm, whole, seed).examples
        drawn = DrawMasks(masking)(plm, whole.select(rows), seed + zlib.crc32(name.encode())).examples
        lines[name] = what_is_masked(flat(drawn["mask"]), marked)
        report(name)
    return {
        "task": task, "source": config.public()["source"], "model": config.public()["model"], "examples": len(rows),
        "seed": seed, "all_tokens": what_is_masked(marked.ordinary, marked), "policies": lines,
    }  # fmt: skip


def default_policies(source: str) -> tuple[str, ...]:
    """All of `DEFAULT` on the testbed; elsewhere those that need to know nothing but the training set."""
    not_here = () if is_testbed(source) else (*TESTBED_ONLY, *OWN_LENGTH)
    return tuple(text for text in DEFAULT if parse_policy(text)[0] not in not_here)


def table(description: Mapping) -> pandas.DataFrame:
    """A line for each policy, in per cent: how much it masks, how much of the shortcut, and which kinds of words.

    The last line is all tokens. Columns that are not known for this data are left out. `shortcut gone`: the share of
    the examples in which all of the shortcut's tokens are masked.
    """
    lines = {}
    for name, line in {**description["policies"], "all tokens": description["all_tokens"]}.items():
        touched, parts = line.get("touches_shortcut", {}), line["part_of_speech"]
        content = {"nouns": ("NOUN", "PROPN"), "verbs": ("VERB",), "adjectives": ("ADJ",), "adverbs": ("ADV",)}
        shares = (
            {kind: sum(parts[part] for part in of) for kind, of in content.items()} if parts["NOUN"] is not None else {}
        )
        lines[name] = {
            "tokens masked": line["tokens_masked"], "shortcut touched": touched.get("any"),
            "shortcut gone": touched.get("all"),
            "deciding words touched": line.get("touches_cause", {}).get("any"), **shares,
            "other words": 1 - sum(shares.values()) if shares else None,
            "found fewer than 10 times": line["frequency"]["below 10"],
        }  # fmt: skip
    return 100 * pandas.DataFrame.from_dict(lines, orient="index").astype(float).dropna(axis="columns", how="all")


class Marked(NamedTuple):
    """What is known about the tokens of some examples, one entry for each token of all of them.

    What carries the shortcut and what decides the label is known on the testbed alone; None on other data.
    """

    examples: Dataset
    row: np.ndarray  # (n_tokens,): the example that a token belongs to
    shortcut: np.ndarray | None  # (n_tokens,) bool
    cause: np.ndarray | None  # (n_tokens,) bool
    part_of_speech: np.ndarray  # (n_tokens,): 0 is punctuation, else see PARTS_OF_SPEECH
    band: np.ndarray  # (n_tokens,): by frequency, see BANDS
    ordinary: np.ndarray  # (n_tokens,) bool: no special token


def with_texts(plm: SharedPLM, train: Dataset, max_length: int = 128) -> Dataset:
    """A training set tokenised, with all that preparers of policies read."""
    keep = [name for name in ("text", "text_pair", "uid", "group") if name in train.column_names]
    return tokenise(train, plm.tokenizer, max_length, keep=keep)


def mark(plm: SharedPLM, examples: Dataset) -> Marked:
    """Mark the tokens of examples of `with_texts`, counted by `CountTokens` in the whole training set."""
    known = "uid" in examples.column_names and all(map(of_testbed, examples["uid"]))
    for preparer in (MarkPartsOfSpeech(), *((MarkShortcut(), MarkCause()) if known else ())):
        examples = preparer(plm, examples).examples
    return Marked(
        examples,
        np.repeat(np.arange(len(examples)), list(map(len, examples["input_ids"]))),
        flat(examples["known_shortcut"]) > 0 if known else None,
        flat(examples["known_cause"]) > 0 if known else None,
        flat(examples["part_of_speech"]),
        np.searchsorted(list(BANDS.values()), flat(examples["token_counts"]), side="right") - 1,
        ~np.isin(flat(examples["input_ids"]), special_tokens(plm.tokenizer)),
    )


def what_is_masked(mask: np.ndarray, marked: Marked) -> dict:
    """How much a mask `(n_tokens,)` covers, of which kinds of word, and how often it touches what."""
    marks = {"touches_shortcut": marked.shortcut, "touches_cause": marked.cause}
    return {
        "tokens_masked": _share(mask[marked.ordinary]),
        **{name: touch(mask, flags, marked.row) for name, flags in marks.items() if flags is not None},
        "part_of_speech": _shares(marked.part_of_speech[mask], ("punctuation", *PARTS_OF_SPEECH)),
        "frequency": _shares(marked.band[mask], tuple(BANDS)),
    }


def touch(mask: np.ndarray, marks: np.ndarray, row: np.ndarray) -> dict:
    """How much of the marked tokens is masked, all three `(n_tokens,)`.

    Returns:
        `examples`, how many have a marked token; the shares of these in which `any` and in which `all` marked tokens
        are masked; and the share of the marked `tokens`.
    """
    marked = np.bincount(row[marks], minlength=row.max() + 1)  # (n,)
    masked = np.bincount(row[marks & mask], minlength=row.max() + 1)
    have = marked > 0
    return {
        "examples": int(have.sum()),
        "any": _share(masked[have] > 0),
        "all": _share(masked[have] == marked[have]),
        "tokens": _share(mask[marks]),
    }


def flat(rows: Iterable[Sequence]) -> np.ndarray:
    """The tokens' numbers of all examples, one after the other: `(n_tokens,)`."""
    return np.concatenate([np.asarray(row) for row in rows])


def _shares(numbers: np.ndarray, names: Sequence[str]) -> dict[str, float | None]:
    """The share of each number, by its name."""
    return {name: _share(numbers == number) for number, name in enumerate(names)}


def _share(flags: np.ndarray) -> float | None:
    """The share of True to four digits; None of nothing."""
    return round(float(np.mean(flags)), 4) if len(flags) else None


def _checked(
    config: RunConfig, names: Iterable[str], spacy_pipeline: str
) -> tuple[SharedPLM, dict[str, MaskingPolicy]]:
    """The model, and the policies by name, each checked to be for this data and to find what it needs."""
    trained = (Path(config.model_path) / HEAD_FILE).exists()
    for policy, _ in map(parse_policy, names):
        configure(config.task, "mask_tuning", source=config.source, masking=policy).resolved()
        if policy in ATTRIBUTION and not trained:
            raise UserError(
                f"{policy} asks a classifier, and that of {config.model} is not trained; give the folder of a model "
                "that was, as `mtlib run --keep-model` writes it."
            )
    n_labels = len(get_task(config.task).labels)
    plm = SharedPLM.from_pretrained(config.model_path, num_labels=n_labels).eval()
    maskings = {name: masking_policy(*parse_policy(name), plm.tokenizer, spacy_pipeline) for name in names}
    for masking in maskings.values():
        for preparer in masking.preparers():
            preparer.reading_from(config.source).check(plm)
    return plm, maskings
