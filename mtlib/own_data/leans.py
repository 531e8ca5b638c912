"""What a trained classifier follows: exchange a word for one of another label, and ask again.

Where a word and the rest of the text agree, hiding the word changes no answer, whichever of the
two the model reads. So each suspect word is exchanged for suspects of another label that stand in
similar contexts. A model that reads the word then answers with the other label. As a control the
word is exchanged for suspects of its own label, after which nothing should change.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
from datasets import Dataset
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest

from mtlib.own_data.classifier import Classifier, class_numbers
from mtlib.own_data.exchanges import Suspect, Texts, exchanged, places_of
from mtlib.own_data.partners import Exchange, PartnerChooser, Samples, pool_of
from mtlib.plm import SharedPLM

_SAMPLE = 500  # texts with a suspect in which contexts are counted, and some of which are rows
COLUMNS = [
    "suspect",
    "kind",
    "where",
    "label",
    "marked",
    "rows",
    "partners",
    "follows",
    "control",
    "leans",
    "low",
    "high",
    "change",
    "before",
    "answer_before",
    "after",
    "answer_after",
]


def leans(
    model: str | Path | SharedPLM,
    rows: Dataset | pandas.DataFrame | Iterable[pandas.DataFrame],
    words: str | Iterable[str] | pandas.DataFrame | None = None,
    *,
    partners: pandas.DataFrame | None = None,
    n_rows: int = 40,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
    report: Callable[[str], None] = print,
) -> pandas.DataFrame:
    """How often a classifier's answer follows each suspect word, most followed first.

        data = read_table("reviews.csv", text="review", label="opinion")
        print(leans("model", data))

    It tells whether the model follows a word, never whether it should: to exchange *no* for *a*
    may change what is true.

    Args:
        model: a folder or hub id that transformers reads as a sequence classifier, or a
            `SharedPLM`, which is moved to the GPU if there is one, and whose tokenizer gets a
            padding token if it has none.
        rows: `text` (and `text_pair`), and `label` or `labels`, as for `suspects`. Labels are
            needed only where `words` and `partners` do not bring them. Memory does not grow with
            the number of rows.
        words: what to ask about. None: all of `partners`. Words and phrases, which count as marked
            as misleading; or a table with a column `word`, in which a column `mask` may mark some
            of them. Without it all are marked, but none of a table of `suspects`, which also
            brings their labels.
        partners: a table of `suspects` that words are exchanged for, for example of the training
            rows where `rows` are others. None: the suspects of `rows`.
        n_rows: at most so many rows of each word, chosen by a hash of their texts, so that copies
            count once. Only rows in which the model reads the word are taken: it is not cut off,
            nor [UNK].
        labels: the names of the model's classes by number, where its configuration lacks them.
        max_length: texts are cut to so many tokens; by default to 128, or to more where the model
            was trained on longer ones by this package.
        report: called with a sentence on what was left out, or exchanged in another way.

    Returns:
        A table with a line for each word: `suspect`, `kind`, `where` (in pairs alone; "either" for
        a given word that predicts nothing), the `label` that it predicts ("": none), `marked`, the
        number of `rows`, and its `partners`, at most three that the model reads: suspects of the
        same kind and of another label in the most similar contexts, none of which stands in most of
        its texts. Then in per cent of these rows: `follows`, the answer becomes the partner's
        label; `control`, the answer changes when the word is exchanged for suspects of its own
        label (0 where there are none); `leans`, the difference, with its 95 % interval over rows,
        `low` to `high` (Newcombe's for paired shares); `change`, the mean change of the probability
        of the answer, in points. `before` and `after` are the texts of one row, one that follows
        where there is one, and `answer_before` and `answer_after` what the model says of them.

        Words that are marked and followed (`low` above 0) stand first, then all others, the most
        followed first. A word without a partner of another label is exchanged for words that
        predict nothing; `follows` is then the share of answers that change, and `report` says so.

    Raises:
        UserError: no such model, or one without a trained classifier; labels that are not those of
            the model; no column of texts; none of the words stands in a text.
    """
    classifier = Classifier.of(model, labels, max_length)
    pool = pool_of(rows, words, partners)
    numbers = class_numbers({label for suspect in pool for label in suspect.labels}, classifier)
    asked = [suspect for suspect in pool if suspect.asked]
    samples = Samples(pool, max(_SAMPLE, 2 * n_rows))
    samples.collect(rows)
    if partners is None:
        class_numbers(samples.label_names(rows), classifier)
    chooser = PartnerChooser(pool, samples, classifier.reads_word)
    console = Console(stderr=True)
    bar = {"console": console, "transient": True, "disable": not console.is_terminal}
    lines = []
    left_out = []
    for_neutral_words = []
    for suspect in track(asked, "exchanging words", **bar):
        exchange = chooser.exchange(suspect)
        rows_read = _read_rows(suspect, exchange, classifier, n_rows)
        if not rows_read:
            left_out.append(suspect)
            continue
        lines.append(_line(suspect, exchange, rows_read, classifier, numbers))
        if not exchange.rivals[0].labels:
            for_neutral_words.append(suspect)
    _report_exceptions(left_out, for_neutral_words, report)
    table = pandas.DataFrame(lines, columns=COLUMNS)
    if samples.n_texts < 2:
        table = table.drop(columns="where")
    return _sorted(table)


def leans_shown(line) -> str:
    """`leans` of a line, with its interval: "100 [68, 100]"."""
    return f"{round(line.leans)} [{round(line.low)}, {round(line.high)}]"


def paired_interval(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a difference of two shares of the same rows, as shares.

    Newcombe's (1998, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", method 10): Wilson's intervals of both shares, joined by
    their correlation. Unlike Student's it has a width where all rows are alike.

    Args:
        first, second: for each row whether it counts, bool `(n,)`.
    """
    n = len(first)
    p, q = first.mean(), second.mean()
    p_low, p_high = wilson_interval(first)
    q_low, q_high = wilson_interval(second)
    both = int((first & second).sum())
    neither = int((~first & ~second).sum())
    product = both * neither - int((first & ~second).sum()) * int((~first & second).sum())
    if product > 0:
        product = max(product - n / 2, 0)
    spread = math.sqrt(p * (1 - p) * q * (1 - q)) * n * n
    phi = product / spread if spread else 0.0
    below = _joined(p - p_low, q_high - q, phi)
    above = _joined(p_high - p, q - q_low, phi)
    return float(p - q - below), float(p - q + above)


def wilson_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a share, as shares (Wilson 1927).

    Args:
        values: for each row whether it counts, bool `(n,)`.
    """
    interval = binomtest(int(values.sum()), len(values)).proportion_ci(method="wilson")
    return interval.low, interval.high


def _joined(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first**2 - 2 * phi * first * second + second**2))


# --- rows ---


@dataclass
class _Row:
    """A row, with its texts before and after the exchange, and for the control."""

    before: Texts
    after: Texts
    control: Texts
    rival: Suspect


def _read_rows(
    suspect: Suspect, exchange: Exchange, classifier: Classifier, n_rows: int
) -> list[_Row]:
    """The first rows in which the model reads the suspect."""
    rows: list[_Row] = []
    if not exchange.rivals:
        return rows
    for first in range(0, len(exchange.texts), n_rows):
        texts = exchange.texts[first : first + n_rows]
        places = [places_of(suspect, row, exchange.finder) for row in texts]
        for number, is_read in enumerate(classifier.reads(texts, places), first):
            if is_read:
                rows.append(_row(number, suspect, exchange))
        if len(rows) >= n_rows:
            break
    return rows[:n_rows]


def _row(number: int, suspect: Suspect, exchange: Exchange) -> _Row:
    """The partners take turns from row to row."""
    texts = exchange.texts[number]
    rival = exchange.rivals[number % len(exchange.rivals)]
    control = texts
    if exchange.allies:
        ally = exchange.allies[number % len(exchange.allies)]
        control = exchanged(texts, suspect, ally, exchange.finder)
    return _Row(texts, exchanged(texts, suspect, rival, exchange.finder), control, rival)


def _line(
    suspect: Suspect,
    exchange: Exchange,
    rows: Sequence[_Row],
    classifier: Classifier,
    numbers: Mapping[str, int],
) -> dict:
    """The line of a suspect, from the rows in which the model reads it."""
    texts = [text for name in ("before", "after", "control") for text in _column(rows, name)]
    probabilities = classifier.probabilities(classifier.encode(texts))
    before, after, control = probabilities.reshape(3, len(rows), -1)  # (rows, num_labels) each
    predicted = before.argmax(1)  # (rows,)
    predicted_after = after.argmax(1)  # (rows,)
    follows = _follows(predicted, predicted_after, rows, numbers)
    controls = control.argmax(1) != predicted
    low, high = paired_interval(follows, controls)
    every_row = range(len(rows))
    change = after[every_row, predicted] - before[every_row, predicted]
    shown = int(follows.argmax())  # the first that follows, else the first
    return {
        "suspect": suspect.word,
        "kind": suspect.kind,
        "where": suspect.where,
        "label": suspect.label,
        "marked": suspect.marked,
        "rows": len(rows),
        "partners": ", ".join(rival.word for rival in exchange.rivals),
        "follows": 100 * follows.mean(),
        "control": 100 * controls.mean(),
        "leans": 100 * (follows.mean() - controls.mean()),
        "low": 100 * low,
        "high": 100 * high,
        "change": 100 * change.mean(),
        "before": " / ".join(rows[shown].before),
        "answer_before": classifier.labels[predicted[shown]],
        "after": " / ".join(rows[shown].after),
        "answer_after": classifier.labels[predicted_after[shown]],
    }


def _follows(
    before: np.ndarray,
    after: np.ndarray,
    rows: Sequence[_Row],
    numbers: Mapping[str, int],
) -> np.ndarray:
    """In which rows the answer becomes the partner's label, bool `(rows,)`.

    Partners that predict nothing have no label; there every other answer counts.

    Args:
        before, after: class numbers, `(rows,)`.
        rows: with their partners.
        numbers: the number of its class for each label.
    """
    changed = after != before
    if not rows[0].rival.labels:
        return changed
    targets = np.array([numbers[row.rival.label] for row in rows])
    return changed & (after == targets)


def _report_exceptions(
    left_out: Sequence[Suspect],
    for_neutral_words: Sequence[Suspect],
    report: Callable[[str], None],
) -> None:
    """Say which words have no line, and which were not exchanged for a word of another label."""
    if left_out:
        report(
            f"left out: {_listed(left_out)}; they stand in no row, are cut off or [UNK] for the "
            "model, or nothing can take their place."
        )
    if for_neutral_words:
        report(
            f"no suspect of the same kind has another label and can take the place of "
            f"{_listed(for_neutral_words)}; exchanged for words that predict nothing."
        )


def _listed(suspects_to_name: Iterable[Suspect]) -> str:
    return ", ".join(suspect.word for suspect in suspects_to_name)


def _column(rows: Iterable[_Row], name: str) -> list[Texts]:
    return [getattr(row, name) for row in rows]


def _sorted(table: pandas.DataFrame) -> pandas.DataFrame:
    """Marked words that are followed first; the most followed first."""
    first = table["marked"].astype(bool) & (table["low"] > 0)
    ranked = table.assign(first=first).sort_values(
        ["first", "leans", "change", "suspect"], ascending=[False, False, True, True]
    )
    return ranked[[*table]].reset_index(drop=True)
