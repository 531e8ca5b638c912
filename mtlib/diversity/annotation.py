"""Two persons judge which fillings are plausible: a session for each, their agreement, and what they must settle.

    session = AnnotationSession(rows, "first", Path("annotations"), seed=0)
    view(session)                                                  # or session.answer("p"), session.back()
    compare(Path("annotations/first.csv"), Path("annotations/second.csv"))

`view` is the notebook's widget; all else works without a browser.
"""

import hashlib
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
from sklearn.metrics import cohen_kappa_score

from mtlib.diversity.fillings import marked_html, marked_text
from mtlib.errors import UserError
from mtlib.runs.records import write_atomically

ANSWERS = {"p": "plausible", "i": "implausible"}
BACK = "b"
QUESTION = "Is the text grammatical, and does it make sense, with the marked word in it? Its label may have changed."
_COLUMNS = ["item", "text", "original", "answer"]


class AnnotationSession:
    """One annotator's questions, in a blind order. Every answer is written to a CSV at once, which is all its state.

    Arms, epochs and repetitions are not shown: a filling that several rows share is asked once. The order is drawn by
    seed and annotator. A session that is started again with the same rows continues where its CSV ends.

    Args:
        rows: with `text`, `start`, `end`, `predicted`; give those of `categories.open_questions`.
        annotator: name of the file, letters, digits, "-" and "_".
        folder: of `<annotator>.csv`; created where it does not exist.
        seed: of the order.

    Raises:
        UserError: a bad name; a CSV that holds answers to other questions.
    """

    def __init__(self, rows: pandas.DataFrame, annotator: str, folder: Path, seed: int = 0):
        if not re.fullmatch(r"[\w-]+", annotator):
            raise UserError(f"annotator is {annotator!r}; it names a file: use letters, digits, - and _.")
        self.questions = questions(rows).drop_duplicates("item").set_index("item").sort_index()
        self.order = [*self.questions.index]  # sorted, so that the order of the rows does not matter
        random.Random(f"{seed}/{annotator}").shuffle(self.order)
        self.path = Path(folder) / f"{annotator}.csv"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if strangers := self.answers.keys() - {*self.order}:
            raise UserError(
                f"{self.path} answers {len(strangers)} question(s) that these rows do not ask; give the rows it was "
                "begun with, or another annotator name."
            )

    @property
    def answers(self) -> dict[str, str]:
        """ "plausible" or "implausible" by item, in the order of answering."""
        return answers(self.path) if self.path.exists() else {}

    @property
    def current(self) -> str | None:
        """The marked text of the next question, None when all are answered."""
        item = self._next()
        return None if item is None else self.questions["text"][item]

    def answer(self, letter: str) -> None:
        """Answer the current question: "p" plausible, "i" implausible."""
        if letter not in ANSWERS:
            raise UserError(f"the answer is {letter!r}; expected p (plausible) or i (implausible).")
        if item := self._next():
            self._write(self.answers | {item: ANSWERS[letter]})

    def back(self) -> None:
        """Take the last answer back; its question is asked again."""
        self._write(dict([*self.answers.items()][:-1]))

    def _next(self) -> str | None:
        given = self.answers
        return next((item for item in self.order if item not in given), None)

    def _write(self, given: Mapping[str, str]) -> None:
        rows = self.questions.loc[[*given]].reset_index().assign(answer=[*given.values()])
        write_atomically(self.path, rows[_COLUMNS].to_csv(index=False, lineterminator="\n"))


def questions(rows: pandas.DataFrame) -> pandas.DataFrame:
    """`item`, marked `text` and `original` of rows; equal fillings at the same place of a sentence are one item."""
    text = [marked_text(row) for row in rows.itertuples()]
    original = [row.text[row.start : row.end] for row in rows.itertuples()]
    items = [hashlib.sha256("\n".join(pair).encode()).hexdigest()[:12] for pair in zip(text, original, strict=True)]
    return pandas.DataFrame({"item": items, "text": text, "original": original}, index=rows.index)


def answers(path: Path) -> dict[str, str]:
    """The answers in a session's file, by item."""
    rows = _read(path)
    return dict(zip(rows["item"], rows["answer"], strict=True))


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


def compare(csv_a: Path, csv_b: Path) -> tuple[Agreement, pandas.DataFrame]:
    """The agreement over the questions that both answered, and those on which they differ: `text`, `a`, `b`.

    Raises:
        UserError: no question answered by both.
    """
    both = _read(csv_a).merge(_read(csv_b)[["item", "answer"]], on="item", suffixes=("_a", "_b")).sort_values("item")
    if both.empty:
        raise UserError(f"{csv_a} and {csv_b} have no answered question in common; are they of the same session?")
    differing = both[both["answer_a"] != both["answer_b"]].rename(columns={"answer_a": "a", "answer_b": "b"})
    return agreement([*both["answer_a"]], [*both["answer_b"]]), differing.set_index("item")[["text", "a", "b"]]


def settled(csv_a: Path, csv_b: Path, adjudicated: Mapping[str, str] | None = None) -> dict[str, str]:
    """The answers that both annotators gave, by item, and `adjudicated` ones to the questions they differ on."""
    a, b = answers(csv_a), answers(csv_b)
    return dict(adjudicated or {}) | {item: a[item] for item in a.keys() & b.keys() if a[item] == b[item]}


def as_judge(verdicts: Mapping[str, str]) -> Callable[[pandas.DataFrame], list[bool]]:
    """Answers by item as the judge that `categories.categorise` takes. An unanswered question is a `UserError`."""

    def judge(rows: pandas.DataFrame) -> list[bool]:
        items = questions(rows)["item"]
        if open_items := {*items} - verdicts.keys():
            raise UserError(f"{len(open_items)} of {items.nunique()} fillings have no settled answer; annotate them.")
        return [verdicts[item] == ANSWERS["p"] for item in items]

    return judge


def view(session: AnnotationSession):
    """The session as an ipywidgets box: buttons, and a field that takes their letters from the keyboard."""
    import ipywidgets as widgets

    shown, bar = widgets.HTML(), widgets.IntProgress(min=0, max=len(session.order), description="done")
    bar.layout.max_width = "calc(100% - 4px)"  # on a phone it is wider than the page
    field = widgets.Text(placeholder="type p, i or b", layout={"width": "10em"})
    buttons = {letter: widgets.Button(description=f"{name} ({letter})")
               for letter, name in {**ANSWERS, BACK: "back"}.items()}  # fmt: skip

    def press(letter: str) -> None:
        if letter == BACK:
            session.back()
        elif letter in ANSWERS:
            session.answer(letter)
        refresh()

    def refresh() -> None:
        text, bar.value = session.current, len(session.answers)
        shown.value = f"<p>All {bar.max} are answered: {escape(session.path.name)}. Thank you.</p>"
        if text is not None:
            shown.value = f"<p>{bar.value + 1} of {bar.max}. {QUESTION}</p><p>{marked_html(text)}</p>"

    def typed(change) -> None:
        if change["new"]:
            field.value = ""
            press(change["new"][-1].lower())

    for letter, button in buttons.items():
        button.on_click(lambda _, letter=letter: press(letter))
    field.observe(typed, names="value")
    refresh()
    row = widgets.HBox([*buttons.values(), field], layout={"flex_flow": "row wrap"})  # so that a phone shows all four
    return widgets.VBox([bar, shown, row])


def _read(path: Path) -> pandas.DataFrame:
    """A session's file; a person may have edited it, for example in a spreadsheet."""
    try:
        rows = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # among ValueErrors: no UTF-8, no CSV
        raise UserError(f"cannot read {path} ({error}); expected the CSV of an annotation session.") from error
    if {*rows.columns} != {*_COLUMNS}:
        raise UserError(f"{path} is no annotation file; expected the columns {', '.join(_COLUMNS)}.")
    wrong = rows[rows["item"].duplicated() | ~rows["answer"].isin(ANSWERS.values())]
    if len(wrong):
        row = wrong.iloc[0]
        raise UserError(
            f"{path}, row {wrong.index[0] + 2}: the answer to {row['item']} is {row['answer']!r}; expected one answer "
            f"to each question, {' or '.join(ANSWERS.values())}."
        )
    return rows
