"""The example's brands with a base-sized model: the positive control of data/results/PLAN.md.

    python data/sweeps/brands_base.py --model FOLDER --out FOLDER [--epochs-of-two-losses 6]

Five seeds of each arm, seed by seed; a training whose record is in --out is not made again. A
record holds the settings, the scores of `mtlib train` and the logits of every example, as float32
in a `.npz` beside it. `--bundle data/results/brands_base.jsonl` then puts all records of --out into
one file, a line each, and their logits into one `.npz`, as `RECORD/SET`.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset

from mtlib import debias, predict, read_table
from mtlib.paths import DATA_DIR, write_atomically
from mtlib.runs.environment import describe

BRANDS = ["Zorvik", "Malden", "Tolmar", "Quenby", "Harlo", "Vesper", "Brask", "Ondine", "Pellow"]
SEEDS = range(5)


def arms(epochs_of_two_losses: float) -> dict[str, dict]:
    """The arguments of `debias` for each arm."""
    fine_tuning = {"method": "fine_tuning"}
    at_random = {"method": "mask_tuning", "settings": {"alpha": 0.6}}
    given_words = {"method": "mask_tuning", "settings": {"alpha": 0.1}, "words": BRANDS}
    longer = {"epochs": epochs_of_two_losses}
    return {
        "fine-tuning": fine_tuning,
        "masks left in": {"method": "masks_left", "words": BRANDS},
        "words deleted": {"method": "deleted", "words": BRANDS},
        "Mask-tuning, alpha 0.1, the words": given_words | longer,
        "Mask-tuning, alpha 0.6, 5 % at random": at_random | longer,
        "fine-tuning, as long": fine_tuning | longer,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a folder with a base-sized masked LM")
    parser.add_argument("--out", required=True, type=Path, help="folder for records")
    parser.add_argument(
        "--epochs-of-two-losses", type=float, default=6, help="of the arms with a masked-LM loss"
    )
    parser.add_argument("--bundle", type=Path, help="a .jsonl file for all records of --out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for name, arguments in arms(options.epochs_of_two_losses).items():
            record = (
                options.out / f"{name}, seed {seed}, epochs {arguments.get('epochs', 3):g}.json"
            )
            if not record.exists():
                train_arm(name, arguments, seed, options.model, record)
    if options.bundle:
        bundle(sorted(options.out.glob("*.json")), options.bundle)


def bundle(records: Sequence[Path], file: Path) -> None:
    """Put records into one file, a line each, and their logits into a `.npz` beside it."""
    lines = []
    logits = {}
    for record in records:
        lines.append(json.dumps(json.loads(record.read_text())) + "\n")
        with np.load(record.with_suffix(".npz")) as arrays:
            logits |= {f"{record.stem}/{name}": arrays[name] for name in arrays}
    write_atomically(file.with_suffix(".npz"), partial(np.savez_compressed, **logits))
    write_atomically(file, "".join(lines))


def train_arm(name: str, arguments: dict, seed: int, model: str, record: Path) -> None:
    """One training, its scores and logits; the record is written last."""
    reviews = read_table(DATA_DIR / "example" / "reviews.csv", text="review", label="opinion")
    conflicting = read_table(
        DATA_DIR / "example" / "conflicting.csv", text="review", label="opinion"
    )
    parts = reviews.train_test_split(0.2, seed=0, stratify_by_column="label")
    sets = {"dev": parts["test"], "conflicting": conflicting}
    work = record.with_suffix("")
    result = debias(
        parts["train"],
        dev=sets["dev"],
        tests={"conflicting": conflicting},
        out=work,
        alone=True,
        model=model,
        seed=seed,
        **arguments,
    )
    logits = {name: predict(result.plm, rows, bf16=False) for name, rows in sets.items()}
    if arguments["method"] == "fine_tuning":
        for set_name, rows in sets.items():
            hidden = predict(result.plm, rows, bf16=False, hide=BRANDS)
            logits[f"{set_name}, words masked"] = hidden
    content = {
        "arm": name,
        "seed": seed,
        "arguments": arguments,
        "accuracy": {
            set_name: accuracy(values, sets[set_name.split(",")[0]])
            for set_name, values in logits.items()
        },
        "scores": result.table.to_dict("records"),
        "environment": describe(),
    }
    np.savez_compressed(record.with_suffix(".npz"), **logits)
    write_atomically(record, json.dumps(content, indent=1))
    shutil.rmtree(work)


def accuracy(logits: np.ndarray, rows: Dataset) -> float:
    return float((logits.argmax(1) == np.array(rows["label"])).mean())


if __name__ == "__main__":
    main()
