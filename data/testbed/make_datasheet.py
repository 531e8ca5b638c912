"""Measure the bundled testbed and fill the table of its page.

python data/testbed/make_datasheet.py
"""

import json
import re
from pathlib import Path

from probes import Rows, bag_of_words, evaluation_sets, run_probe, texts

from mtlib.data.registry import get_set
from mtlib.paths import TESTBED_DIR
from mtlib.testbed.generator import SPECS, generate, shortcut_label
from mtlib.testbed.grammar import N_LABELS, load_grammar, tokens

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
    return (min(spurious_label, 1) if get_set(name).folded else spurious_label) == row["label"]


def bag_of_words_accuracy(sets: dict[str, Rows]) -> dict[str, str]:
    shares = {}
    for task in N_LABELS:
        evaluation = {name: sets[name] for name in evaluation_sets(task)}
        counts = run_probe(bag_of_words, task, sets[f"testbed_{task}_train"], evaluation)
        shares |= {name: f"{correct / n:.0%}" for name, (correct, n) in counts.items()}
    return shares


def vocabulary(rows: Rows) -> set[str]:
    return {word for row in rows for text in texts(row) for word in tokens(text or "")}


if __name__ == "__main__":
    main()
