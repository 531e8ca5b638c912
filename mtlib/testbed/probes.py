"""What the testbed is made of, in numbers: its datasheet, and probes that say how far each easy rule gets.

`python -m mtlib.testbed.probes` measures the bundled files and writes data/testbed/README.md. The last probe, the
bundled masked LM fine-tuned on the testbed, comes from the run records in data/results/testbed.jsonl.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from string import Template

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, TESTBED_DIR
from mtlib.testbed.generator import SETS, generate, shortcut_label
from mtlib.testbed.grammar import GRAMMAR_DIR, LABELS, load_grammar, tokens

Rows = list[dict]
# (task, train rows, evaluation sets by name) -> predicted labels by name
Probe = Callable[[str, Rows, dict[str, Rows]], dict[str, list[int]]]


def run_probes(sets: dict[str, Rows], probes: dict[str, Probe]) -> dict[str, dict[str, tuple[int, int]]]:
    """(correct, n) by probe and evaluation set. Each probe is trained once per task, on its train set.

    A probe returns labels of the task (0 to 2 for nli, even for the set that has two).
    """
    counts = {name: {} for name in probes}
    for task in LABELS:
        evaluation = {name: sets[name] for name in evaluation_sets(task)}
        for probe_name, probe in probes.items():
            counts[probe_name] |= run_probe(probe, task, sets[f"testbed_{task}_train"], evaluation)
    return counts


def run_probe(probe: Probe, task: str, train: Rows, evaluation: dict[str, Rows]) -> dict[str, tuple[int, int]]:
    """(correct, n) of one probe by evaluation set."""
    counts = {}
    for name, predicted in probe(task, train, evaluation).items():
        gold = [row["label"] for row in evaluation[name]]
        if name in ("testbed_overlap", "hans"):  # two labels: entailment or not
            predicted = [min(label, 1) for label in predicted]
        counts[name] = (sum(p == g for p, g in zip(predicted, gold, strict=True)), len(gold))
    return counts


def majority(task: str, train: Rows, sets: dict[str, Rows]) -> dict[str, list[int]]:
    """The most frequent label of the train set (the lowest of equals)."""
    counts = Counter(row["label"] for row in train)
    label = max(sorted(counts), key=counts.__getitem__)
    return {name: [label] * len(rows) for name, rows in sets.items()}


def shortcut(task: str, train: Rows, sets: dict[str, Rows]) -> dict[str, list[int]]:
    """The planted rule and nothing else."""
    grammar = load_grammar(task)
    return {name: [shortcut_label(grammar, *texts(row)) for row in rows] for name, rows in sets.items()}


def bag_of_words(task: str, train: Rows, sets: dict[str, Rows]) -> dict[str, list[int]]:
    """Logistic regression on the words of either text; those of the second are features of their own."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    def words(row: dict) -> list[str]:
        first, second = texts(row)
        return tokens(first) + ["2:" + word for word in tokens(second or "")]

    vectorizer = CountVectorizer(analyzer=words, binary=True)
    model = LogisticRegression(max_iter=1000)
    model.fit(vectorizer.fit_transform(train), [row["label"] for row in train])
    return {name: model.predict(vectorizer.transform(rows)).tolist() for name, rows in sets.items()}


PROBES = {"majority": majority, "shortcut only": shortcut, "bag of words": bag_of_words}


def wilson(correct: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share."""
    from scipy.stats import binomtest

    return tuple(binomtest(correct, n).proportion_ci(0.95, method="wilson"))


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


def evaluation_sets(task: str) -> list[str]:
    """Dev sets first."""
    names = [name for name, spec in SETS.items() if spec.task == task and not name.endswith("_train")]
    return sorted(names, key=lambda name: SETS[name].agree is not None)


def read_sets(folder: Path = TESTBED_DIR) -> dict[str, Rows]:
    missing = [name for name in SETS if not (Path(folder) / f"{name}.jsonl").is_file()]
    if missing:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}; write the files with mtlib.testbed.write({str(folder)!r})"
        )
    return {
        name: [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").open(encoding="utf-8")] for name in SETS
    }


def texts(row: dict) -> tuple[str, str | None]:
    return row["text"], row.get("text_pair")


# -------------------------------------------------------------------------------- the datasheet


def datasheet(sets: dict[str, Rows], results: dict[float, dict]) -> str:
    """The README of data/testbed: datasheet.md with its tables. `results`: run_probes by strength."""
    page = Template((GRAMMAR_DIR / "datasheet.md").read_text(encoding="utf-8"))
    probes = [f"### strength {strength:g}\n\n{probe_table(counts)}" for strength, counts in results.items()]
    return page.substitute(
        sets=sets_table(sets), vocabulary=vocabulary_text(sets), pmi=pmi_table(sets), probes="\n".join(probes)
    )


def sets_table(sets: dict[str, Rows]) -> str:
    lines = [
        "| set | rows | labels | constructions | word types | words per row | duplicates | shortcut right |",
        "| --- " * 8 + "|",
    ]
    for task in LABELS:
        grammar = load_grammar(task)
        for name in [f"testbed_{task}_train", *evaluation_sets(task)]:
            rows = sets[name]
            counts = Counter(row["label"] for row in rows)
            length = sum(len(tokens(" ".join(filter(None, texts(row))))) for row in rows) / len(rows)
            copies = len(rows) - len({frozenset(texts(row)) for row in rows})
            right = sum(min(shortcut_label(grammar, *texts(row)), max(counts)) == row["label"] for row in rows)
            groups = len({row["group"] for row in rows})
            kinds = "pairs" if SETS[name].edited else "rewrites" if SETS[name].unseen_words else groups
            balance = " / ".join(str(counts[label]) for label in sorted(counts))
            shares = f"{copies / len(rows):.1%} | {right / len(rows):.1%}"
            measured = [name, len(rows), balance, kinds, len(vocabulary(rows)), f"{length:.1f}", shares]
            lines.append(f"| {' | '.join(map(str, measured))} |")
    return "\n".join(lines) + "\n"


def vocabulary_text(sets: dict[str, Rows]) -> str:
    lines = [
        "| task | constructions | word types in all | word types of each evaluation set that train lacks |",
        "| --- " * 4 + "|",
    ]
    for task in LABELS:
        train = vocabulary(sets[f"testbed_{task}_train"])
        everything = set.union(*(vocabulary(sets[name]) for name, spec in SETS.items() if spec.task == task))
        new = [
            f"{name} {len(v - train) / len(v):.0%}" for name in evaluation_sets(task) for v in [vocabulary(sets[name])]
        ]
        templates = sum(len({t.id.split("+")[0] for t in ts}) for ts in load_grammar(task).templates.values())
        lines.append(f"| {task} | {templates} | {len(everything)} | {', '.join(new)} |")
    shared = leakage(sets)
    found = "; ".join(f"{a} and {b}: {n}" for (a, b), n in shared.items()) or "none"
    return "\n".join(lines) + f"\n\nSentences (either side of a pair) that two sets share: {found}.\n"


def pmi_table(sets: dict[str, Rows]) -> str:
    lines = [
        "| set | " + " | ".join(["first label", "second label", "third label"]) + " |",
        "| --- " * 4 + "|",
    ]
    for task in LABELS:
        grammar = load_grammar(task)
        for name in [f"testbed_{task}_train", *evaluation_sets(task)]:
            rows = sets[name]
            lures = [shortcut_label(grammar, *texts(row)) for row in rows]
            if name == "testbed_overlap":
                lures = [min(lure, 1) for lure in lures]
            values = [pmi(rows, lures, label) for label in sorted({row["label"] for row in rows})]
            cells = ["-" if math.isnan(v) else "never" if math.isinf(v) else f"{v:+.2f}" for v in values] + [""] * (
                3 - len(values)
            )
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def probe_table(counts: dict[str, dict[str, tuple[int, int]]]) -> str:
    lines = ["| set | " + " | ".join(counts) + " |", "| --- " * (len(counts) + 1) + "|"]
    for name in [name for task in LABELS for name in evaluation_sets(task)]:
        cells = []
        for by_set in counts.values():
            if name not in by_set:
                cells.append("not run")
                continue
            correct, n = by_set[name]
            low, high = wilson(correct, n)
            cells.append(f"{100 * correct / n:.1f} [{100 * low:.1f}, {100 * high:.1f}]")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def recorded(path: Path = DATA_DIR / "results" / "testbed.jsonl") -> dict[float, dict[str, tuple[int, int]]]:
    """(correct, n) by strength and evaluation set of the fine-tuned bundled model, from run records of seed 0."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        config = record["config"]
        if config["method"] == "fine_tuning" and config["seed"] == 0:
            counts = found.setdefault(recorded_strength(config["source"]), {})
            for name, metrics in record["metrics"].items():
                # a contrast set's record tells its halves apart, the other probes take all rows
                correct = metrics["correct"] + metrics.get("original_correct", 0)
                counts[name] = (correct, metrics["n"] + metrics.get("pairs", 0))
    return found


def recorded_strength(source: str) -> float:
    """Of the planted shortcut, by a record's `source`; the bundled testbed's is 0.9."""
    setting = re.search(r"strength ([\d.e-]+)", source)
    return float(setting[1]) if setting else 0.9


if __name__ == "__main__":
    results = {strength: run_probes(generate(strength), PROBES) for strength in (0.9, 0.5, 0.0)}
    for strength, counts in recorded().items():
        results[strength]["fine-tuned mini"] = counts
    (TESTBED_DIR / "README.md").write_bytes(datasheet(read_sets(), results).encode("utf-8"))
