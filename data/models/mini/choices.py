"""Compare ways to pre-train the bundled masked LM on the same number of tokens.

    python data/models/mini/choices.py --warm-start MINILM_FOLDER --corpus TEXT_FOLDER \
        --sst2 FOLDER --work WORK --tokens 1_000_000 --to data/models/mini/choices.json

MINILM_FOLDER and TEXT_FOLDER are those of pretrain.py; FOLDER holds SST-2 in its original release.
Each choice changes one setting of `pretrain.py`. Each model is then fine-tuned on the same 2,000
phrases with three seeds. The table gives held-out masked accuracy and SST-2 dev accuracy. What is
finished is skipped when the command is started again.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import pretrain
from pretrain import lm_training

from mtlib.runs.config import RunConfig, configure
from mtlib.runs.records import read_records
from mtlib.runs.run import run

CHOICES = {
    "defaults": [],
    "layers 0 1 2": ["--layers", "0", "1", "2"],
    "layers 0 2 4": ["--layers", "0", "2", "4"],
    "layers 0 1 3 5": ["--layers", "0", "1", "3", "5"],
    "length 128": ["--length", "128", "--batch", "32"],
    "30 % masked": ["--mask-rate", "0.3"],
    "rate 4e-4": ["--rate", "4e-4"],
    "vocabulary 6,000": ["--vocabulary", "6000"],
    "from scratch": ["--from-scratch"],
}
SEEDS = (0, 1, 2)
# of the fine-tuning
PHRASES = 2000
EPOCHS = 2
RATE = 2e-4


def main(command_line: list[str] | None = None) -> None:
    arguments = parse_arguments(command_line)
    corpus = lm_training.read_corpus(arguments.corpus)
    for name in arguments.only:
        work = arguments.work / folder_name(name)
        if (work / "report.json").exists():
            check_tokens(work, arguments.tokens)
        else:
            train(CHOICES[name], work, arguments, corpus)
        lm_training.export(work, work / "model")
        for seed in SEEDS:
            run(fine_tuning(work / "model", arguments.sst2, seed), work / "sst2")
        print(name, *summary(work).items(), flush=True)
        add_to_table(arguments.to, name, summary(work))


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in ("--warm-start", "--corpus", "--sst2", "--work", "--to"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument(
        "--only",
        nargs="+",
        default=list(CHOICES),
        choices=list(CHOICES),
        metavar="CHOICE",
    )
    return parser.parse_args(command_line)


def folder_name(choice: str) -> str:
    return choice.replace(" ", "_").replace("%", "percent").replace(",", "")


def check_tokens(work: Path, tokens: int) -> None:
    """Stop unless the finished training in `work` was that long."""
    trained = json.loads((work / "report.json").read_text())["settings"]["tokens"]
    if trained != str(tokens):
        raise SystemExit(f"{work} was made with --tokens {trained}; give that, or another --work.")


def train(
    options: list[str],
    work: Path,
    arguments: argparse.Namespace,
    corpus: dict[str, list[str]],
) -> None:
    command_line = [*options, "--work", str(work), "--tokens", str(arguments.tokens)]
    command_line += ["--warm-start", str(arguments.warm_start)]
    settings = pretrain.parse_arguments(command_line)
    pretrain.prepare(settings, corpus)
    pretrain.train(settings)


def fine_tuning(model: Path, folder: Path, seed: int) -> RunConfig:
    return configure(
        task="sentiment",
        method="fine_tuning",
        source=str(folder),
        model=str(model),
        seed=seed,
        train_size=PHRASES,
        epochs=EPOCHS,
        learning_rate=RATE,
        sets=("sst2",),
    )


def add_to_table(file: Path, name: str, row: dict) -> None:
    table = {}
    if file.exists():
        table = json.loads(file.read_text())
    table[name] = row
    file.write_text(json.dumps(table, indent=2) + "\n")


def summary(work: Path) -> dict:
    report = json.loads((work / "report.json").read_text())
    records = read_records([work / "sst2"])
    scores = [100 * record["metrics"]["sst2"]["accuracy"] for record in records]
    return {
        "tokens": report["tokens_seen"],
        "seconds": round(report["seconds_of_last_session"]),
        "masked_accuracy": 100 * lm_training.overall(report["held_out"])["accuracy"],
        "sst2": {"mean": mean(scores), "sd": stdev(scores), "n": len(scores)},
    }


if __name__ == "__main__":
    main()
