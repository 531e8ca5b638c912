"""What `debias` gives, and the folder in which it is kept: models, tables, a card."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas
from huggingface_hub import ModelCard, ModelCardData

from mtlib.methods import METHODS
from mtlib.own_data.leans import leans_shown
from mtlib.own_data.training import BASELINE
from mtlib.plm import SharedPLM
from mtlib.runs.config import OwnTraining

_FEW_ROWS = 10  # of which a share would say too much


@dataclass
class Debiased:
    """What `debias` gives.

    Args:
        plm: the model that the method trained, as it is saved;
            `predict(plm, texts, names=True)`.
        table: a line for each set, part of its rows and arm: `n`, `accuracy` and `macro_f1` in per
            cent with 95 % intervals. The arm "fine_tuning, words masked" is the fine-tuned model
            with masks in the place of the words when it reads, which needs no further training.
        words: the given words that point to a label in the training rows, as `suspects` lists them.
        by_word: a line for each of these words, set and arm: in `n` rows the word points to another
            label than the row's own, and there `accuracy` is so many per cent. On dev also how much
            the model `leans` on the word, with `low` and `high` (see `mtlib.leans`).
        fine_tuning: the fine-tuned model beside it; None where there is none.
    """

    plm: SharedPLM
    table: pandas.DataFrame
    words: pandas.DataFrame
    by_word: pandas.DataFrame
    fine_tuning: SharedPLM | None = None

    @property
    def footer(self) -> str:
        """What to know when reading the table; "" where nothing is special."""
        dev = self.table[self.table["set"] == "dev"]
        if self.fine_tuning is None or "conflicting" not in {*dev["rows"]}:
            return ""
        fine_tuning, method, *_ = dev[dev["rows"] == "all"]["accuracy"]
        if method >= fine_tuning:
            return "Compare the conflicting rows."
        return (
            "Accuracy on dev fell, as it may where a shortcut is taken away: in most rows of dev "
            "the words point to the right label. Compare the conflicting rows."
        )


def save(result: Debiased, card: ModelCard, out: Path) -> None:
    """Models, tables and card; then what could be resumed is no longer needed.

    Until that is deleted, a call that was cut off here is resumed, and writes all of it again.
    """
    result.plm.save_pretrained(out)
    if result.fine_tuning is not None:
        result.fine_tuning.save_pretrained(out / BASELINE)
    result.words.to_csv(out / "words.csv", index=False)
    result.table.to_csv(out / "scores.csv", index=False)
    result.by_word.to_csv(out / "by_word.csv", index=False)
    card.save(out / "README.md")
    shutil.rmtree(out / ".work", ignore_errors=True)


_CARD = """---
{metadata}
---

# A text classifier ({label})

Base model: {model}. {hidden}
`words.csv` has those that predict a label in the training rows; in agreeing rows they point to the
row's own label, in conflicting ones to another.

| set | rows | n | arm | accuracy, % | macro F1, % |
| --- | --- | ---: | --- | --- | --- |
{table}
{footer}
{by_word}
Settings that are not the defaults:

```json
{settings}
```

```python
from transformers import pipeline

answer = pipeline("text-classification", "FOLDER", truncation=True)  # this folder
```
"""
_LEANS = """
How much each model leans on each word on dev: in how many per cent of the rows the answer follows
when the word is exchanged for one of another label, beyond what an exchange for one of its own
label changes.

{table}
"""
_CONFLICTING = """
Accuracy in the rows where a word points to another label than the row's own, in per cent; of few
rows, how many are right.

{table}
"""


def model_card(
    method: str,
    config: OwnTraining,
    words: Sequence[str],
    result: Debiased,
) -> ModelCard:
    """What the folder's README.md says of the model."""
    metadata = ModelCardData(library_name="transformers", pipeline_tag="text-classification")
    footer = f"\n{result.footer}\n" if result.footer else ""
    text = _CARD.format(
        metadata=metadata.to_yaml(),
        label=METHODS[method].label,
        model=Path(config.model).name,
        hidden=_hidden_words(method, words),
        table="\n".join(map(_card_line, result.table.itertuples())),
        footer=footer,
        by_word=_card_of_words(result.by_word),
        settings=json.dumps(_changed_settings(config), indent=1),
    )
    return ModelCard(text)


def _card_of_words(by_word: pandas.DataFrame) -> str:
    """The card's tables of words; "" where there are none."""
    if by_word.empty:
        return ""
    leaning = leans_by_word(by_word)
    conflicting = accuracy_by_word(by_word)
    tables = ((_LEANS, leaning), (_CONFLICTING, conflicting))
    return "".join(text.format(table=_markdown(table)) for text, table in tables if len(table))


def _markdown(table: pandas.DataFrame) -> str:
    lines = [[*table], ["---"] * len(table.columns), *table.values]
    return "\n".join(map(_markdown_line, lines))


def _markdown_line(cells: Sequence) -> str:
    """A line of a table; a word may be a bar itself."""
    shown = [str(cell).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(shown)} |"


def leans_by_word(by_word: pandas.DataFrame) -> pandas.DataFrame:
    """A row for each word: how much each model leans on it, with its interval; as text."""
    rows = []
    for word, lines in by_word.dropna(subset="leans").groupby("word", sort=False):
        row = {"word": word, "points to": lines["label"].iloc[0]}
        for line in lines.itertuples():
            row[line.arm] = leans_shown(line)
        rows.append(row)
    return pandas.DataFrame(rows).fillna("")


def accuracy_by_word(by_word: pandas.DataFrame) -> pandas.DataFrame:
    """A row for each word and set in which it conflicts: the accuracy of each arm there; as text.

    The word points to another label than the own one of `n` rows.
    """
    rows = []
    conflicting = by_word[by_word["n"] > 0]
    for (word, set_name), lines in conflicting.groupby(["word", "set"], sort=False):
        row = {"word": word, "set": set_name, "n": lines["n"].iloc[0]}
        rows.append(row | {line.arm: _accuracy_shown(line) for line in lines.itertuples()})
    return pandas.DataFrame(rows)


def _accuracy_shown(line) -> str:
    """In per cent; of few rows, how many are right."""
    if line.n < _FEW_ROWS:
        return f"{line.accuracy * line.n / 100:.0f} of {line.n}"
    return f"{line.accuracy:.1f}"


def _hidden_words(method: str, words: Sequence[str]) -> str:
    if not words:
        return "No words were given."
    hidden = "not hidden" if method == BASELINE else "hidden"
    return f"These words were {hidden}, in training texts alone: {', '.join(words)}."


def scores_shown(line) -> list[str]:
    """Accuracy and macro F1 of a line of scores, with their intervals.

    A bootstrap of rows that are all right has no width, and says nothing; it is left out.
    """
    shown = []
    for name in ("accuracy", "macro_f1"):
        value, low, high = (getattr(line, name + bound) for bound in ("", "_low", "_high"))
        shown.append(f"{value:.1f}" if low == high else f"{value:.1f} [{low:.1f}, {high:.1f}]")
    return shown


def _card_line(line) -> str:
    accuracy, macro_f1 = scores_shown(line)
    return _markdown_line([line.set, line.rows, line.n, line.arm, accuracy, macro_f1])


def _changed_settings(config: OwnTraining) -> dict[str, object]:
    """Those that differ from their defaults; the words stand in the card's text."""
    left_out = {"precision": True, "settings": {"words"}}
    changed = config.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
    return {name: value for name, value in changed.items() if value != {}}
