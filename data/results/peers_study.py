"""The other methods of Table I on the sentiment testbed (PLAN_peers.md). Resumable: what has a record is skipped.

python data/results/peers_study.py [FOLDER]     # for records; default runs/peers
"""

import sys
from pathlib import Path

from mtlib.cli.records import bundle
from mtlib.paths import DATA_DIR
from mtlib.runs.config import configure
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from mtlib.study.peers import ARMS, PEERS
from mtlib.testbed.generator import write

RESULTS = DATA_DIR / "results"
RATES = ((2e-4, 1e-3), (1e-4, 1e-4), (2e-4, 2e-4))  # of trunk and classifier
ENSEMBLES = ("learned_mixin", "reweight", "product_of_experts", "fine_tuning")  # and what they are compared with
OTHERS = tuple(arm for arm in ARMS if arm not in ENSEMBLES)


def train(out: Path, arm: str, rates: tuple[float, float], seed: int = 0) -> None:
    trunk, classifier = rates
    settings = ARMS[arm] | {"learning_rate": trunk, "classifier_learning_rate": classifier}
    run(configure("sentiment", epochs=8, seed=seed, **settings), out)
    bundle([out], RESULTS / "peers.jsonl", history=20)


def more_seeds(out: Path, arms: tuple[str, ...]) -> None:
    """Seeds 1 and 2 at the rates that are best with seed 0."""
    for seed in (1, 2):
        for arm in arms:
            (first, *_) = PEERS.by_arm(read_records([out]))[arm]
            train(out, arm, (first["config"]["learning_rate"], first["config"]["classifier_learning_rate"]), seed)


def reference(out: Path) -> None:
    """As many examples without the shortcut as the ensembles' weights are worth, for as many steps."""
    source = out / "testbed_0"
    if not source.exists():
        write(source, strength=0)
    trunk, classifier = RATES[0]
    run(
        configure(
            "sentiment", "fine_tuning", source=str(source), train_size=1376, epochs=23.25, learning_rate=trunk,
            classifier_learning_rate=classifier,
        ),
        out / "reference",
    )  # fmt: skip
    bundle([out / "reference"], RESULTS / "peers_reference.jsonl", history=20)


def main(out: Path) -> None:
    for arm in ENSEMBLES:
        train(out / "arms", arm, RATES[0])
    reference(out)
    for arm in OTHERS:
        train(out / "arms", arm, RATES[0])
    for arms in (ENSEMBLES, OTHERS):
        for rates in RATES[1:]:
            for arm in arms:
                train(out / "arms", arm, rates)
        more_seeds(out / "arms", arms)


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if sys.argv[1:] else Path("runs/peers"))
