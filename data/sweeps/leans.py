"""What trained models follow: the comparison "leans" of data/results/PLAN.md.

    python data/sweeps/leans.py example --out FOLDER
    python data/sweeps/leans.py testbed --out FOLDER
    python data/sweeps/leans.py reviews --out FOLDER --source RELEASES
    python data/sweeps/leans.py nli     --out FOLDER --source RELEASES
    python data/sweeps/leans.py example_base --out FOLDER --model FOLDER --seeds 1

Trains each arm as `python -m mtlib train` does and asks what it follows, seed by seed. A run whose
record is in --out is not made again, and neither is a training that is in --out/models. A record
holds no texts. `--bundle data/results/leans.jsonl` skips what this file has, and adds the records
of --out to it, a JSON object in each line.
"""

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas
from datasets import Dataset

from mtlib import debias, leans, read_table, suspects
from mtlib.paths import DATA_DIR, TESTBED_DIR, write_atomically
from mtlib.plm import SharedPLM
from mtlib.rows.folding import fold, words_of
from mtlib.runs.environment import describe
from mtlib.testbed.grammar import load_grammar
from mtlib.testbed.known_words import shortcut_spans

BRANDS = ["zorvik", "malden", "tolmar", "quenby", "harlo", "vesper", "brask", "ondine", "pellow"]
# what a person has marked as misleading among the suspects: see `data/sweeps/own_data.sh`
REVIEW_WORDS = [
    "horror",
    "romance",
    "romantic",
    "plot",
    "acting",
    "performances",
    "minutes",
    "money",
    "young",
]
NEGATIONS = ["no", "never", "any", "not", "nothing", "anything", "don't", "doesn't"]
FINE_TUNING = {"method": "fine_tuning"}
COLUMNS = [
    "suspect", "kind", "label", "marked", "rows", "partners", "follows", "control", "leans", "low",
    "high", "change",
]  # fmt: skip


@dataclass
class Data:
    """Rows to train on and to ask about.

    Args:
        train: rows to train on; the checkpoint is chosen on `dev`, or on a fifth of them.
        marked: words that are marked as misleading.
        arms: arguments of `debias`, by the arm's name.
        dev, tests: of `debias`.
        top: so many suspects are asked about, the surest.
        training: settings of `train` that are not its defaults.
    """

    train: Dataset
    marked: list[str]
    arms: dict[str, dict]
    dev: Dataset | None = None
    tests: dict[str, Dataset] = field(default_factory=dict)
    top: int = 50
    training: dict = field(default_factory=dict)


def example() -> Data:
    folder = DATA_DIR / "example"
    train = read_table(folder / "reviews.csv", text="review", label="opinion")
    conflicting = read_table(folder / "conflicting.csv", text="review", label="opinion")
    arms = {
        "fine-tuning": FINE_TUNING,
        "masks left in": {"method": "masks_left", "words": BRANDS},
    }
    return Data(train, BRANDS, arms, tests={"conflicting": conflicting})


def testbed() -> Data:
    columns = {"text": "text", "label": "label"}
    train = read_table(TESTBED_DIR / "testbed_sentiment_train.jsonl", **columns)
    dev = read_table(TESTBED_DIR / "testbed_sentiment.jsonl", **columns)
    training = {"epochs": 2}
    dev = dev.shuffle(seed=0).select(range(200))
    arms = {"fine-tuning": FINE_TUNING}
    return Data(train, planted_words(train["text"]), arms, dev, top=118, training=training)


def planted_words(texts: Iterable[str]) -> list[str]:
    """The words of the testbed's shortcut: most of their places are in topics and makers."""
    grammar = load_grammar("sentiment")
    inside: Counter = Counter()
    everywhere: Counter = Counter()
    for text in texts:
        spans, _ = shortcut_spans(grammar, text)
        inside.update(set().union(*(words_of(text[start:end]) for start, end in spans)))
        everywhere.update(words_of(text))
    return sorted(word for word, n in inside.items() if n > everywhere[word] / 2)


def reviews(releases: Path) -> Data:
    columns = {"text": "Text", "label": "Sentiment"}
    folder = releases / "imdb_cad" / "sentiment" / "orig"
    train = read_table(folder / "train.tsv", **columns)
    dev = read_table(folder / "dev.tsv", **columns)
    training = {"epochs": 2, "max_length": 128}
    return Data(train, REVIEW_WORDS, {"fine-tuning": FINE_TUNING}, dev, training=training)


def nli(releases: Path) -> Data:
    columns = {"text": ["sentence1", "sentence2"], "label": "gold_label"}
    folder = releases / "mnli" / "MNLI"
    rows = read_table(folder / "train.tsv", **columns)
    parts = rows.train_test_split(500, seed=0, stratify_by_column="label")
    arms = {"fine-tuning": FINE_TUNING}
    return Data(parts["train"], NEGATIONS, arms, parts["test"], training={"epochs": 1})


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.name in ("reviews", "nli"):
        data = {"reviews": reviews, "nli": nli}[options.name](options.source)
    else:
        data = {"example": example, "example_base": example, "testbed": testbed}[options.name]()
    if options.model:
        data.training["model"] = options.model
    bundled = bundled_records(options.bundle) if options.bundle else {}
    for seed in range(options.seeds):
        for arm in data.arms:
            name = record_name(options.name, arm, seed)
            record = options.out / f"{name}.json"
            if name not in bundled and not record.exists():
                write_atomically(record, json.dumps(run(options, data, arm, seed)) + "\n")
    if options.bundle:
        made = {path.stem: path.read_text() for path in options.out.glob("*.json")}
        lines = made | bundled
        write_atomically(options.bundle, "".join(lines[name] for name in sorted(lines)))


def record_name(data: str, arm: str, seed: int) -> str:
    return f"{data}, {arm}, seed {seed}"


def bundled_records(file: Path) -> dict[str, str]:
    """The lines of a bundle, by the names of their records."""
    if not file.exists():
        return {}
    lines = file.read_text().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    names = [record_name(record["data"], record["arm"], record["seed"]) for record in records]
    return dict(zip(names, lines, strict=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["example", "testbed", "reviews", "nli", "example_base"]
    parser.add_argument("name", choices=names)
    parser.add_argument("--out", required=True, type=Path, help="folder for records")
    parser.add_argument("--source", type=Path, help="a folder of original releases")
    parser.add_argument("--model", help="a folder with a masked LM (default: the bundled one)")
    parser.add_argument("--seeds", type=int, default=5, help="from 0 on")
    parser.add_argument("--bundle", type=Path, help="a .jsonl file for all records of --out")
    return parser.parse_args()


def run(options: argparse.Namespace, data: Data, arm: str, seed: int) -> dict:
    """One training, its scores, and a line for each suspect."""
    folder = options.out / "models" / record_name(options.name, arm, seed)
    plm = trained(folder, data, arm, seed)
    words = suspects(data.train, top=None).head(data.top)
    words["mask"] = [fold(word) in data.marked for word in words["word"]]
    table = leans(plm, data.train, words, max_length=data.training.get("max_length"))
    scores = pandas.read_csv(folder / "scores.csv").round(2)
    training = data.training | data.arms[arm]
    if options.model:
        training["model"] = Path(options.model).name  # not where it lies on this machine
    return {
        "data": options.name,
        "arm": arm,
        "seed": seed,
        "training": training,
        "accuracy": scores.query("rows == 'all'").set_index("set")["accuracy"].to_dict(),
        "environment": describe(),
        "lines": table[COLUMNS].round(2).to_dict("split", index=False),
    }


def trained(folder: Path, data: Data, arm: str, seed: int) -> SharedPLM:
    """The model of an arm, from its folder where it was trained before."""
    if not (folder / "scores.csv").exists():
        shutil.rmtree(folder, ignore_errors=True)
        arguments = {"dev": data.dev, "tests": data.tests, "seed": seed}
        debias(data.train, out=folder, alone=True, **arguments, **data.training, **data.arms[arm])
    return SharedPLM.from_pretrained(folder)


if __name__ == "__main__":
    main()
