"""Measure the bundled testbed and fill the table of its page.

python data/testbed/make_datasheet.py
"""

import json
import re
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mtlib.data.registry import get_set
from mtlib.data.tasks import get_task
from mtlib.paths import TESTBED_DIR
from mtlib.testbed.generator import SPECS, generate, shortcut_label
from mtlib.testbed.grammar import N_LABELS, load_grammar, tokens

Rows = list[dict]

README = Path(__file__).with_name("README.md")
HEADER = ("set", "rows", "new words", "shortcut right", "0.9", "0.5", "0")


def main() -> None:
    lines = measured(read_sets())
    for strength in (0.9, 0.5, 0.0):
        shares = bag_of_words_accuracy(generate(strength))
        lines = [[*line, shares.get(line[0], "")] for line in lines]
    table = "".join(
        f"| {' | '.join(cells)} |\n" for cells in (HEADER, ("---",) * len(HEADER), *lines)
    )
    page = README.read_text(encoding="utf-8")
    README.write_text(
        re.sub(r"\| set \|.*?\n(?=\n)", lambda _: table, page, flags=re.DOTALL), encoding="utf-8"
    )


def read_sets() -> dict[str, Rows]:
    files = {name: (TESTBED_DIR / f"{name}.jsonl").read_text(encoding="utf-8") for name in SPECS}
    return {
        name: [json.loads(line) for line in content.splitlines()] for name, content in files.items()
    }


def measured(sets: dict[str, Rows]) -> list[list[str]]:
    """For each set the first four cells of its line."""
    lines = []
    for task in N_LABELS:
        train = f"testbed_{task}_train"
        for name in (train, *evaluation_sets(task)):
            rows, words = sets[name], vocabulary(sets[name])
            right = sum(shortcut_right(task, name, row) for row in rows) / len(rows)
            new = (
                f"{len(words - vocabulary(sets[train])) / len(words):.0%}" if name != train else ""
            )
            lines.append([name, f"{len(rows):,}", new, f"{right:.0%}"])
    return lines


def shortcut_right(task: str, name: str, row: dict) -> bool:
    spurious_label = shortcut_label(load_grammar(task), *texts(row))
    return folded(name, spurious_label) == row["label"]


def bag_of_words_accuracy(sets: dict[str, Rows]) -> dict[str, str]:
    """How far words alone lead, by evaluation set: logistic regression on those of either text."""
    shares = {}
    for task in N_LABELS:
        model = make_pipeline(
            CountVectorizer(analyzer=words_of, binary=True), LogisticRegression(max_iter=1000)
        )
        train = sets[f"testbed_{task}_train"]
        model.fit(train, [row["label"] for row in train])
        for name in evaluation_sets(task):
            predicted = model.predict(sets[name])
            right = [
                folded(name, int(label)) == row["label"]
                for label, row in zip(predicted, sets[name], strict=True)
            ]
            shares[name] = f"{sum(right) / len(right):.0%}"
    return shares


def evaluation_sets(task: str) -> list[str]:
    """Dev sets first."""
    return list(get_task(task).evaluation_sets("testbed"))


def folded(name: str, label: int) -> int:
    """The label as a set has it: some have only entailment (0) and non-entailment (1)."""
    return min(label, 1) if get_set(name).folded else label


def words_of(row: dict) -> list[str]:
    """The words of a row; those of the second text are features of their own."""
    first, second = texts(row)
    return tokens(first) + ["2:" + word for word in tokens(second or "")]


def texts(row: dict) -> tuple[str, str | None]:
    return row["text"], row.get("text_pair")


def vocabulary(rows: Rows) -> set[str]:
    return {word for row in rows for text in texts(row) for word in tokens(text or "")}


if __name__ == "__main__":
    main()
