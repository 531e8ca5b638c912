"""Compare ways to pre-train the bundled masked LM at equal tokens: held-out masked accuracy, and SST-2 dev accuracy.

    python data/models/mini/choices.py --warm-start MINILM_FOLDER --corpus TEXT_FOLDER --sst2 FOLDER --work WORK \
        --tokens 1_000_000 --to data/models/mini/choices.json

MINILM_FOLDER and TEXT_FOLDER are those of pretrain.py; FOLDER holds SST-2 in its original release. Each choice changes
one setting of `pretrain.py`; each model is then fine-tuned on the same 2,000 phrases with three seeds. What is finished
is skipped when started again.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import pretrain

from mtlib.runs.config import RunConfig
from mtlib.runs.records import read_records
from mtlib.runs.run import run

CHOICES = {
    "defaults": [],
    "layers 0 1 2": ["--layers", "0", "1", "2"],
    "layers 0 2 4": ["--layers", "0", "2", "4"],
    "layers 0 1 3 5": ["--layers", "0", "1", "3", "5"],
    "length 128": ["--length", "128", "--batch", "64"],
    "30 % masked": ["--mask-rate", "0.3"],
    "rate 4e-4": ["--rate", "4e-4"],
    "vocabulary 6,000": ["--vocabulary", "6000"],
    "from scratch": ["--from-scratch"],
}
SEEDS = (0, 1, 2)
PHRASES, EPOCHS, RATE = 2000, 2, 2e-4


def main(given: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--warm-start", "--corpus", "--sst2", "--work", "--to"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", default=list(CHOICES), choices=list(CHOICES), metavar="CHOICE")
    arguments = parser.parse_args(given)
    corpus = pretrain.read_corpus(arguments.corpus)
    for name in arguments.only:
        work = arguments.work / name.replace(" ", "_").replace("%", "percent").replace(",", "")
        given = [*CHOICES[name], "--work", str(work), "--tokens", str(arguments.tokens)]
        if (work / "report.json").exists():
            tokens = json.loads((work / "report.json").read_text())["settings"]["tokens"]
            if tokens != str(arguments.tokens):
                raise SystemExit(f"{work} was trained with --tokens {tokens}; give that, or another --work.")
        else:
            settings = pretrain.parse_arguments([*given, "--warm-start", str(arguments.warm_start)])
            pretrain.prepare(settings, corpus)
            pretrain.train(work / "start", work, settings)
        pretrain.export(work, work / "model")
        for seed in SEEDS:
            run(fine_tuning(work / "model", arguments.sst2, seed), work / "sst2")
        print(name, *summary(work).items(), flush=True)
        found = json.loads(arguments.to.read_text()) if arguments.to.exists() else {}
        arguments.to.write_text(json.dumps(found | {name: summary(work)}, indent=2) + "\n")


def fine_tuning(model: Path, folder: Path, seed: int) -> RunConfig:
    return RunConfig(
        task="sentiment", method="fine_tuning", source=str(folder), model=str(model), seed=seed, train_size=PHRASES,
        epochs=EPOCHS, learning_rate=RATE, sets=("sst2",),
    )  # fmt: skip


def summary(work: Path) -> dict:
    report = json.loads((work / "report.json").read_text())
    domains = report["held_out"].values()
    masked = sum(scores["n_masked"] for scores in domains)
    scores = [100 * record["metrics"]["sst2"]["accuracy"] for record in read_records([work / "sst2"])]
    return {
        "tokens": report["tokens_seen"],
        "seconds": round(report["seconds_of_last_session"]),
        "masked_accuracy": 100 * sum(scores["accuracy"] * scores["n_masked"] for scores in domains) / masked,
        "sst2": {"mean": mean(scores), "sd": stdev(scores), "n": len(scores)},
    }


if __name__ == "__main__":
    main()
