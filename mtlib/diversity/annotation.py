"""Two persons judge which fillings are plausible: a session for each, their agreement, and what they must settle.

`AnnotationSession` asks and `compare` analyses the files, both without a browser. `view` is the notebook's widget.

    session = AnnotationSession(rows, "first", Path("annotations"), seed=0)
    view(session)                                                  # or session.answer("p"), session.back()
    compare(Path("annotations/first.csv"), Path("annotations/second.csv"))
"""

import csv
import hashlib
import io
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mtlib.diversity.agreement import Agreement, agreement
from mtlib.diversity.fillings import marked_html, marked_text, unmarked
from mtlib.errors import UserError
from mtlib.runs.records import write_atomically

ANSWERS = {"p": "plausible", "i": "implausible"}
BACK = "b"
QUESTION = "Is the text grammatical, and does it make sense, with the marked word in it? Its label may have changed."
_COLUMNS = ("item", "text", "original", "answer")


@dataclass(frozen=True)
class Item:
    """One question: `text` is marked (`fillings.marked_text`), `original` is what stood between the marks."""

    item: str
    text: str
    original: str


class AnnotationSession:
    """One annotator's questions, in a blind order. Every answer is written to a CSV at once.

    Arms, epochs and repetitions are not shown: a filling that several rows share is asked once. The order is drawn by
    seed and annotator. A session that is started again with the same rows continues where its CSV ends.

    Args:
        rows: with `text`, `start`, `end`, `predicted`; give those that `categories.categorise` would ask a judge
            about (see `categories.open_questions`).
        annotator: name of the file, letters, digits, "-" and "_".
        folder: of `<annotator>.csv`; created where it does not exist.
        seed: of the order.

    Raises:
        UserError: a bad name; a CSV that holds answers to other questions.
    """

    def __init__(self, rows: Sequence[dict], annotator: str, folder: Path, seed: int = 0):
        if not re.fullmatch(r"[\w-]+", annotator):
            raise UserError(f"annotator is {annotator!r}; it names a file: use letters, digits, - and _.")
        self.items = list({item.item: item for item in map(as_item, rows)}.values())
        self.items.sort(key=lambda item: item.item)  # so that the order of the rows does not matter
        random.Random(f"{seed}/{annotator}").shuffle(self.items)
        self.path = Path(folder) / f"{annotator}.csv"
        self.answers = self._resume()

    @property
    def current(self) -> Item | None:
        """The next question, None when all are answered."""
        return next((item for item in self.items if item.item not in self.answers), None)

    @property
    def progress(self) -> tuple[int, int]:
        """(answered, of how many)."""
        return len(self.answers), len(self.items)

    def answer(self, letter: str) -> None:
        """Answer the current question: "p" plausible, "i" implausible."""
        if letter not in ANSWERS:
            raise UserError(f"the answer is {letter!r}; expected {_choices()}.")
        item = self.current
        if item is None:
            raise UserError(f"all {len(self.items)} questions are answered; go back to change one.")
        self._check_alone()
        line = _line((item.item, item.text, item.original, ANSWERS[letter]))
        with open(self.path, "a", encoding="utf-8", newline="") as file:  # the whole line in one write
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.answers[item.item] = ANSWERS[letter]

    def back(self) -> Item | None:
        """Take the last answer back and ask again; returns the question, None if there was no answer."""
        if not self.answers:
            return None
        self._check_alone()
        last, _ = self.answers.popitem()
        by_name = {item.item: item for item in self.items}
        rows = [(name, by_name[name].text, by_name[name].original, answer) for name, answer in self.answers.items()]
        write_atomically(self.path, _line(_COLUMNS) + "".join(map(_line, rows)))
        return by_name[last]

    def _check_alone(self) -> None:
        if answers(self.path) != self.answers:
            raise UserError(f"{self.path} has changed: is another session of it open? Begin this one again.")

    def _resume(self) -> dict[str, str]:
        written = self.path.read_bytes() if self.path.is_file() else b""
        whole = written[: written.rfind(b"\n") + 1]
        if not whole:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, _line(_COLUMNS))
            return {}
        if whole != written:  # the last line was cut off in the writing: its question is asked again
            write_atomically(self.path, whole.decode("utf-8"))
        answers = {row["item"]: row["answer"] for row in _read(self.path)}
        if strangers := answers.keys() - {item.item for item in self.items}:
            raise UserError(
                f"{self.path} answers {len(strangers)} question(s) that these rows do not ask; give the rows it was "
                "begun with, or another annotator name."
            )
        return answers


@dataclass(frozen=True)
class Comparison:
    """Two annotators' agreement, and the rows (`text`, `start`, `end`, `predicted`) on which they differ.

    `a` and `b` hold the two annotators' answers to `to_adjudicate`, in order. A third session over these settles them.
    """

    agreement: Agreement
    to_adjudicate: list[dict]
    a: list[str]
    b: list[str]


def compare(csv_a: Path, csv_b: Path) -> Comparison:
    """Percentage agreement and Cohen's kappa over the questions that both answered, and where they differ.

    Raises:
        UserError: no question answered by both.
    """
    rows = {row["item"]: row for row in _read(csv_a)}
    a, b = answers(csv_a), answers(csv_b)
    both = sorted(a.keys() & b.keys())
    if not both:
        raise UserError(f"{csv_a} and {csv_b} have no answered question in common; are they of the same session?")
    differing = [item for item in both if a[item] != b[item]]
    return Comparison(
        agreement([a[item] for item in both], [b[item] for item in both]),
        [unmarked(rows[item]["text"], rows[item]["original"]) for item in differing],
        [a[item] for item in differing],
        [b[item] for item in differing],
    )


def answers(path: Path) -> dict[str, str]:
    """ "plausible" or "implausible" by item, in the order of answering."""
    return {row["item"]: row["answer"] for row in _read(path)}


def settled(csv_a: Path, csv_b: Path, adjudicated: Path | None = None) -> dict[str, str]:
    """The answers that both annotators gave, and the third file's answers to the questions they differ on."""
    a, b = answers(csv_a), answers(csv_b)
    agreed = {item: a[item] for item in a.keys() & b.keys() if a[item] == b[item]}
    return (answers(adjudicated) if adjudicated is not None else {}) | agreed


def as_judge(verdicts: dict[str, str]) -> Callable[[Sequence[dict]], list[bool]]:
    """Answers by item as the judge that `categories.categorise` takes. An unanswered question is a `UserError`."""

    def judge(rows: Sequence[dict]) -> list[bool]:
        items = [as_item(row).item for row in rows]
        if open_items := set(items) - verdicts.keys():
            raise UserError(f"{len(open_items)} of {len(set(items))} fillings have no settled answer; annotate them.")
        return [verdicts[item] == ANSWERS["p"] for item in items]

    return judge


def as_item(row: dict) -> Item:
    """The question about a row; equal fillings at the same place of the same sentence are one item."""
    row = row | {"text": re.sub(r"[\r\n]", " ", row["text"])}  # a CSV row is then a line, whole or cut off
    text, original = marked_text(row), row["text"][row["start"] : row["end"]]
    return Item(hashlib.sha256(f"{text}\n{original}".encode()).hexdigest()[:12], text, original)


def view(session: AnnotationSession):
    """The session as an ipywidgets box: buttons, and a field that takes their letters from the keyboard."""
    import ipywidgets as widgets

    shown, bar = widgets.HTML(), widgets.IntProgress(min=0, max=len(session.items), description="done")
    bar.layout.max_width = "calc(100% - 4px)"  # on a phone it is wider than the page
    field = widgets.Text(placeholder="type p, i or b", layout={"width": "10em"})
    names = {**{letter: f"{name} ({letter})" for letter, name in ANSWERS.items()}, BACK: f"back ({BACK})"}
    buttons = {letter: widgets.Button(description=name) for letter, name in names.items()}

    def refresh() -> None:
        done, total = session.progress
        item, bar.value = session.current, done
        if item is None:
            shown.value = f"<p>All {total} are answered: {escape(session.path.name)}. Thank you.</p>"
        else:
            text = f"<p style='font-size:1.3em'>{marked_html(item.text)}</p>"
            shown.value = f"<p>{done + 1} of {total}. {QUESTION}</p>{text}"
        for letter in ANSWERS:
            buttons[letter].disabled = item is None
        buttons[BACK].disabled = not done

    def press(letter: str) -> None:
        if letter == BACK:
            session.back()
        elif letter in ANSWERS and session.current is not None:
            session.answer(letter)
        refresh()

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


def _choices() -> str:
    return ", ".join(f"{letter} ({name})" for letter, name in ANSWERS.items())


def _line(values: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def _read(path: Path) -> list[dict]:
    if not Path(path).exists():
        raise UserError(f"{path} does not exist; expected the CSV of an annotation session.")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets put a mark before UTF-8
            reader = csv.DictReader(file)
            columns, rows = reader.fieldnames or [], list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path} ({error}); expected the CSV of an annotation session, in UTF-8."
        ) from error
    if set(columns) != set(_COLUMNS):
        raise UserError(
            f"{path} is no annotation file; expected the columns {', '.join(_COLUMNS)}, found {', '.join(columns)}."
        )
    seen = set()
    for line, row in enumerate(rows, start=2):
        if row["answer"] not in ANSWERS.values() or None in row:
            raise UserError(
                f"{path}, row {line}: the answer is {row['answer']!r}; expected {' or '.join(ANSWERS.values())}."
            )
        if row["item"] in seen:
            raise UserError(f"{path}, row {line}: {row['item']} is answered twice; keep one of the two rows.")
        seen.add(row["item"])
    return rows
