"""Measure the bundled testbed and write its datasheet, data/testbed/README.md.

    python data/testbed/make_datasheet.py

The text is grammar/datasheet.md; its tables are measured here. The last column of the probes, the bundled masked LM
fine-tuned on the testbed, comes from the run records in data/results/testbed.jsonl.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Template

from mtlib.errors import UserError
from mtlib.paths import TESTBED_DIR
from mtlib.testbed.generator import SPECS, generate, shortcut_label
from mtlib.testbed.grammar import GRAMMAR_DIR, LABELS, load_grammar, tokens
from mtlib.testbed.probes import PROBES, Probe, Rows, evaluation_sets, recorded, run_probe, texts, wilson

Counts = dict[str, dict[str, tuple[int, int]]]  # (correct, n) by probe and evaluation set


def main() -> None:
    counts = {strength: run_probes(generate(strength), PROBES) for strength in (0.9, 0.5, 0.0)}
    for strength, by_set in recorded().items():
        counts[strength]["fine-tuned mini"] = by_set
    (TESTBED_DIR / "README.md").write_bytes(datasheet(read_sets(), counts).encode("utf-8"))


def read_sets(folder: Path = TESTBED_DIR) -> dict[str, Rows]:
    missing = [name for name in SPECS if not (Path(folder) / f"{name}.jsonl").is_file()]
    if missing:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}; write the files with mtlib.testbed.write({str(folder)!r})"
        )
    return {
        name: [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").open(encoding="utf-8")] for name in SPECS
    }


def run_probes(sets: dict[str, Rows], probes: dict[str, Probe]) -> Counts:
    """Each probe is trained once per task, on its train set."""
    counts = {name: {} for name in probes}
    for task in LABELS:
        evaluation = {name: sets[name] for name in evaluation_sets(task)}
        for probe_name, probe in probes.items():
            counts[probe_name] |= run_probe(probe, task, sets[f"testbed_{task}_train"], evaluation)
    return counts


def datasheet(sets: dict[str, Rows], counts: dict[float, Counts]) -> str:
    """The page: datasheet.md with its tables. `counts` are those of the probes by strength."""
    page = Template((GRAMMAR_DIR / "datasheet.md").read_text(encoding="utf-8"))
    probes = [f"### strength {strength:g}\n\n{probe_table(by_probe)}" for strength, by_probe in counts.items()]
    return page.substitute(
        sets=sets_table(sets), vocabulary=vocabulary_text(sets), pmi=pmi_table(sets), probes="\n".join(probes)
    )


# --------------------------------------------------------------------------------------------------------- measurements


def pmi(rows: Rows, lures: list[int], label: int) -> float:
    """log2 p(lure, label) / (p(lure) p(label)) for the lure of this label; nan where there is none."""
    both = sum(lure == label and row["label"] == label for row, lure in zip(rows, lures, strict=True))
    product = sum(lure == label for lure in lures) * sum(row["label"] == label for row in rows)
    if not product:
        return math.nan
    return math.log2(both * len(rows) / product) if both else -math.inf


def leakage(sets: dict[str, Rows]) -> dict[tuple[str, str], int]:
    """How many sentences two sets have in common, for all pairs of sets that share any."""
    sentences = {name: {text for row in rows for text in texts(row) if text} for name, rows in sets.items()}
    names = sorted(sentences)
    shared = {(a, b): len(sentences[a] & sentences[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
    return {pair: count for pair, count in shared.items() if count}


def vocabulary(rows: Rows) -> set[str]:
    return {word for row in rows for text in texts(row) for word in tokens(text or "")}


# --------------------------------------------------------------------------------------------------------------- tables


def sets_table(sets: dict[str, Rows]) -> str:
    header = ("set", "rows", "labels", "constructions", "word types", "words per row", "duplicates", "shortcut right")
    lines = []
    for task in LABELS:
        grammar = load_grammar(task)
        for name in [f"testbed_{task}_train", *evaluation_sets(task)]:
            rows = sets[name]
            counts = Counter(row["label"] for row in rows)
            length = sum(len(tokens(" ".join(filter(None, texts(row))))) for row in rows) / len(rows)
            copies = len(rows) - len({frozenset(texts(row)) for row in rows})
            right = sum(min(shortcut_label(grammar, *texts(row)), max(counts)) == row["label"] for row in rows)
            groups = len({row["group"] for row in rows})
            kinds = "pairs" if SPECS[name].edited else "rewrites" if SPECS[name].unseen_words else groups
            balance = " / ".join(str(counts[label]) for label in sorted(counts))
            shares = f"{copies / len(rows):.1%}", f"{right / len(rows):.1%}"
            lines.append((name, len(rows), balance, kinds, len(vocabulary(rows)), f"{length:.1f}", *shares))
    return table(header, lines)


def vocabulary_text(sets: dict[str, Rows]) -> str:
    header = ("task", "constructions", "word types in all", "word types of each evaluation set that train lacks")
    lines = []
    for task in LABELS:
        train = vocabulary(sets[f"testbed_{task}_train"])
        everything = set.union(*(vocabulary(sets[name]) for name, spec in SPECS.items() if spec.task == task))
        words = {name: vocabulary(sets[name]) for name in evaluation_sets(task)}
        new = ", ".join(f"{name} {len(types - train) / len(types):.0%}" for name, types in words.items())
        templates = sum(len({t.id.split("+")[0] for t in ts}) for ts in load_grammar(task).templates.values())
        lines.append((task, templates, len(everything), new))
    shared = "; ".join(f"{a} and {b}: {n}" for (a, b), n in leakage(sets).items()) or "none"
    return table(header, lines) + f"\nSentences (either side of a pair) that two sets share: {shared}.\n"


def pmi_table(sets: dict[str, Rows]) -> str:
    lines = []
    for task in LABELS:
        grammar = load_grammar(task)
        for name in [f"testbed_{task}_train", *evaluation_sets(task)]:
            rows = sets[name]
            lures = [shortcut_label(grammar, *texts(row)) for row in rows]
            if name == "testbed_overlap":
                lures = [min(lure, 1) for lure in lures]
            values = [pmi(rows, lures, label) for label in sorted({row["label"] for row in rows})]
            cells = ["-" if math.isnan(v) else "never" if math.isinf(v) else f"{v:+.2f}" for v in values]
            lines.append((name, *cells, *[""] * (3 - len(cells))))
    return table(("set", "first label", "second label", "third label"), lines)


def probe_table(counts: Counts) -> str:
    lines = []
    for name in [name for task in LABELS for name in evaluation_sets(task)]:
        cells = []
        for by_set in counts.values():
            if name not in by_set:
                cells.append("not run")
                continue
            correct, n = by_set[name]
            low, high = wilson(correct, n)
            cells.append(f"{100 * correct / n:.1f} [{100 * low:.1f}, {100 * high:.1f}]")
        lines.append((name, *cells))
    return table(("set", *counts), lines)


def table(header: tuple[str, ...], lines: Iterable[tuple]) -> str:
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in (header, ("---",) * len(header), *lines))


if __name__ == "__main__":
    main()
