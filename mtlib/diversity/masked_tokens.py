"""Which tokens of training texts a mask covers: of which kinds; on the testbed, those of the shortcut and the cause."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from mtlib.encoding import tokenise
from mtlib.plm import SharedPLM
from mtlib.policies.frequency import CountTokens
from mtlib.policies.known import MarkCause, MarkShortcut
from mtlib.policies.part_of_speech import PARTS_OF_SPEECH, MarkPartsOfSpeech
from mtlib.testbed.known_words import of_testbed

BANDS = {"below 10": 0, "10 to 99": 10, "100 to 999": 100, "1,000 and more": 1000}  # occurrences in the training set


class Marked(NamedTuple):
    """Training examples with what is known about their tokens, one entry for each token of all examples.

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


def mark(plm: SharedPLM, train: Dataset, max_length: int = 128) -> Marked:
    """Tokenise training texts of the testbed and mark their tokens."""
    return mark_rows(plm, with_texts(plm, train, max_length), range(len(train)))


def mark_rows(plm: SharedPLM, whole: Dataset, rows: Sequence[int]) -> Marked:
    """Mark the tokens of some rows of a training set (of `with_texts`); occurrences are counted in the whole set."""
    known = "uid" in whole.column_names and all(map(of_testbed, whole["uid"]))
    examples = CountTokens()(plm, whole).examples.select(rows)
    for preparer in (MarkPartsOfSpeech(), *((MarkShortcut(), MarkCause()) if known else ())):
        examples = preparer(plm, examples).examples
    ids, counts = flat(examples["input_ids"]), flat(examples["token_counts"])
    return Marked(
        examples,
        np.repeat(np.arange(len(examples)), list(map(len, examples["input_ids"]))),
        flat(examples["known_shortcut"]) > 0 if known else None,
        flat(examples["known_cause"]) > 0 if known else None,
        flat(examples["part_of_speech"]),
        np.searchsorted(list(BANDS.values()), counts, side="right") - 1,
        ~np.isin(ids, plm.tokenizer.all_special_ids),
    )


def what_is_masked(mask: np.ndarray, marked: Marked) -> dict:
    """How much a mask `(n_tokens,)` covers, of which kinds of word, and how often it touches what."""
    marks = {"touches_shortcut": marked.shortcut, "touches_cause": marked.cause}
    return {
        "tokens_masked": rounded_share(mask[marked.ordinary]),
        **{name: touch(mask, flags, marked.row) for name, flags in marks.items() if flags is not None},
        "part_of_speech": shares_of(marked.part_of_speech[mask], ("punctuation", *PARTS_OF_SPEECH)),
        "frequency": shares_of(marked.band[mask], tuple(BANDS)),
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
        "any": rounded_share(masked[have] > 0),
        "all": rounded_share(masked[have] == marked[have]),
        "tokens": rounded_share(mask[marks]),
    }


def shares_of(numbers: np.ndarray, names: Sequence[str]) -> dict[str, float | None]:
    """The share of each number, by its name."""
    return {name: rounded_share(numbers == number) for number, name in enumerate(names)}


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Jaccard index of two masks: places that both mask, of those that either does. Two empty masks have 1."""
    either = (a | b).sum()
    return float((a & b).sum() / either) if either else 1.0


def flat(rows: Iterable[Sequence]) -> np.ndarray:
    """The tokens' numbers of all examples, one after the other: `(n_tokens,)`."""
    return np.concatenate([np.asarray(row) for row in rows])


def rounded_share(flags) -> float | None:
    """The share of True to four digits; None of nothing."""
    return round(float(np.mean(flags)), 4) if len(flags) else None
