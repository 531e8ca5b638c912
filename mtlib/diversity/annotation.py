"""Two persons judge which fillings are plausible: a sheet for each, their agreement, and what they must settle.

sheet(rows, "first").to_csv("first.csv", index=False)  # to be filled in with any spreadsheet; so for "second"
agreement(*both("first.csv", "second.csv")[["first", "second"]].T.to_numpy())
categorise(rows, as_judge("first.csv", "second.csv", {"0123456789ab": "plausible"}))
"""

import hashlib
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
from sklearn.metrics import cohen_kappa_score

from mtlib.diversity.fillings import marked_text
from mtlib.errors import UserError

ANSWERS = ("plausible", "implausible")


def sheet(rows: pandas.DataFrame, annotator: str, seed: int = 0) -> pandas.DataFrame:
    """One annotator's questions in a blind order: `item`, marked `text`, `original`, and an empty `answer`.

    The question is: is the text grammatical, and does it make sense, with the marked word in it? (Its label may have
    changed.) Arms, epochs and repetitions are not shown: a filling that several rows share is asked once.

    Args:
        rows: those of `categories.open_questions`.
        annotator: draws the order, together with `seed`.
    """
    asked = questions(rows).drop_duplicates("item").sort_values("item")  # so that the order of the rows does not matter
    order = random.Random(f"{seed}/{annotator}").sample(range(len(asked)), len(asked))
    return asked.iloc[order].assign(answer="").reset_index(drop=True)


def questions(rows: pandas.DataFrame) -> pandas.DataFrame:
    """`item`, marked `text` and `original` of rows; equal fillings at the same place of a sentence are one item."""
    text = [marked_text(row) for row in rows.itertuples()]
    original = [row.text[row.start : row.end] for row in rows.itertuples()]
    items = [hashlib.sha256("\n".join(pair).encode()).hexdigest()[:12] for pair in zip(text, original, strict=True)]
    return pandas.DataFrame({"item": items, "text": text, "original": original}, index=rows.index)


def both(first: Path | str, second: Path | str) -> pandas.DataFrame:
    """What both answered, by `item`: `text`, and the answers `first` and `second`. They settle rows that differ.

    Raises:
        UserError: another answer than plausible, implausible or none.
    """
    answered = _read(first).rename(columns={"answer": "first"})[["text", "first"]]
    return answered.join(_read(second)["answer"].rename("second"), how="inner")


class Agreement(NamedTuple):
    """Of two lists of labels for the same `n` items: `percent` are equal, `kappa` is Cohen's, with its 95 % interval.

    Where both use the same single label throughout, kappa is nan.
    """

    n: int
    percent: float
    kappa: float
    low: float
    high: float


def agreement(a: Sequence, b: Sequence, resamples: int = 200) -> Agreement:
    """Percentage agreement and Cohen's kappa, (p_o - p_e) / (1 - p_e).

    p_o is the share of equal labels, p_e what two annotators with these label frequencies would share by chance
    (Cohen 1960). The interval is the percentile bootstrap over items.
    """
    pairs = pandas.DataFrame({"a": a, "b": b}).value_counts().sort_index()
    first, second = (pairs.index.get_level_values(name) for name in "ab")
    draws = np.random.default_rng(0).multinomial(len(a), pairs / len(a), size=resamples)
    with warnings.catch_warnings(action="ignore"):  # of a kappa that is nan
        kappa, *resampled = (cohen_kappa_score(first, second, sample_weight=n) for n in (pairs, *draws))
        low, high = np.nanpercentile(resampled, [2.5, 97.5]).tolist()
    return Agreement(len(a), 100 * float(np.mean(np.array(a) == np.array(b))), float(kappa), low, high)


def as_judge(
    first: Path | str, second: Path | str, settled: Mapping[str, str] | None = None
) -> Callable[[pandas.DataFrame], list[bool]]:
    """Two sheets as the judge that `categories.categorise` takes. `settled`: answers to the items on which they differ.

    A filling without a common answer is a `UserError`.
    """
    answered = both(first, second)
    agreed = answered["first"][answered["first"] == answered["second"]]
    verdicts = {**(settled or {}), **agreed}

    def judge(rows: pandas.DataFrame) -> list[bool]:
        items = questions(rows)["item"]
        if open_items := {*items} - verdicts.keys():
            raise UserError(f"{len(open_items)} of {items.nunique()} fillings have no settled answer; annotate them.")
        return [verdicts[item] == "plausible" for item in items]

    return judge


def _read(path: Path | str) -> pandas.DataFrame:
    """The answered rows of a sheet, by item; a spreadsheet may have written it anew."""
    rows = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig").set_index("item")
    rows = rows[rows["answer"] != ""]
    if len(wrong := rows[rows.index.duplicated() | ~rows["answer"].isin(ANSWERS)]):
        raise UserError(
            f"{path}: the answer to {wrong.index[0]} is {wrong['answer'].iloc[0]!r}; expected one answer to each "
            f"question, {' or '.join(ANSWERS)}."
        )
    return rows
