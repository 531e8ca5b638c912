"""Remedies for known words: the plan "remedies" of data/results/PLAN.md.

    python data/sweeps/remedies.py example data/results/remedies.csv [--seeds 5] [--arms JTT ...]
    python data/sweeps/remedies.py testbed data/results/remedies.csv [--seeds 5] [--arms JTT ...]

Each line is the data, an arm, one of its settings, a seed and a set. Lines that are there are not
made again. Without `--arms` all arms are trained. `python -m data.make_tables` then puts them into
the tables of data/README.md.
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas
from datasets import Dataset
from leans import BRANDS, planted_words
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mtlib import read_table, suspects
from mtlib.encoding import each_token, predict, tokenise
from mtlib.masking import GivenWords
from mtlib.method import Stage
from mtlib.methods import get_method
from mtlib.objectives import FineTuning, ObjectiveOutput
from mtlib.own_data.preparing import prepare
from mtlib.own_data.scoring import parts_of
from mtlib.paths import DATA_DIR, TESTBED_DIR, write_atomically
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, with_column
from mtlib.rng import KeyedRNG
from mtlib.runs.config import OwnTraining, default_rates
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.training import pretrained, train
from mtlib.testbed.generator import generate

WEIGHTS = (5, 20, 100)  # of conflicting rows, and of those that JTT's first model gets wrong
STRENGTHS = (0.01, 0.1, 1.0)  # of the last layer's fit, scikit-learn's C
DRAWS = 10  # balanced sets that the last layer is fitted on
COLUMNS = ["data", "arm", "setting", "seed", "set", "n", "accuracy"]


# --- the data ---


@dataclass
class Data:
    """Rows to train on and to score.

    Args:
        words: those that mislead.
        train: rows to train on.
        dev: rows to choose the checkpoint on; None: a fifth of `train`.
        scored: sets by name; on `tuning` the setting of an arm is chosen.
        epochs: None: those of `train`.
    """

    words: list[str]
    train: Dataset
    dev: Dataset | None
    scored: dict[str, Dataset]
    epochs: float | None = None


def example() -> Data:
    folder = DATA_DIR / "example"
    columns = {"text": "review", "label": "opinion"}
    scored = {
        "conflicting": read_table(folder / "conflicting.csv", **columns),
        "in distribution": made_up(200, 0.95, seed=2),
        "tuning": made_up(300, 0.5, seed=3),
    }
    return Data(BRANDS, read_table(folder / "reviews.csv", **columns), None, scored)


def made_up(n: int, agreeing: float, seed: int) -> Dataset:
    """Further reviews by the program that made the example."""
    path = DATA_DIR / "example" / "make_reviews.py"
    spec = importlib.util.spec_from_file_location("make_reviews", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.reviews(n, agreeing, seed)
    texts, labels = zip(*rows, strict=True)
    return Dataset.from_dict({"text": texts, "label": labels}).class_encode_column("label")


def testbed() -> Data:
    def read(name: str) -> Dataset:
        return Dataset.from_json(str(TESTBED_DIR / f"{name}.jsonl")).class_encode_column("label")

    train, like_train = read("testbed_sentiment_train"), read("testbed_sentiment")
    like_train = like_train.shuffle(seed=0)
    edited = read("testbed_contrast").filter(lambda row: row["group"].endswith(":edited"))
    without_shortcut = generate(0.0, seed=1, tasks=["sentiment"])["testbed_sentiment"]
    scored = {
        "conflicting": edited,
        "in distribution": like_train.select(range(200, 1000)),
        "tuning": Dataset.from_list(without_shortcut[:500]).class_encode_column("label"),
    }
    dev = like_train.select(range(200))
    return Data(planted_words(train["text"]), train, dev, scored, epochs=2)


DATA = {"example": example, "testbed": testbed}


# --- what is trained ---


class Exchanged(FineTuning):
    """L_FT on texts in which each listed word is exchanged for one of them, drawn in each epoch."""

    name = "exchanged"
    static = False

    @property
    def columns(self) -> dict[str, int]:
        return {"given_words": 0}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        """Collect how the listed words are written in the training set, as tokens."""
        super().build(plm, examples)
        found = set()
        for ids, spans in zip(examples["input_ids"], examples["given_words"], strict=True):
            for number in {*spans} - {0}:
                found.add(tuple(i for i, span in zip(ids, spans, strict=True) if span == number))
        self.words = sorted(found)

    def sample(self, plm: SharedPLM, batch: dict, rng=None) -> dict:
        spans = batch["given_words"]  # (batch, seq)
        rng = KeyedRNG.per_example(rng, len(spans), spans.device)
        draws = rng.uniform(int(spans.max()) + 1)  # (batch, 1 + spans)
        rows = []
        for row, attended in enumerate(batch["attention_mask"].bool()):
            ids = batch["input_ids"][row, attended].tolist()
            numbers = spans[row, attended].tolist()
            rows.append(self._exchanged(ids, numbers, draws[row].tolist()))
        inputs = plm.tokenizer.pad({"input_ids": rows}, padding_side="right", return_tensors="pt")
        return {"labels": batch["labels"], **inputs.to(spans.device)}

    def _exchanged(self, ids: list[int], numbers: list[int], draws: list[float]) -> list[int]:
        """The tokens of a text with another word in the place of each span."""
        exchanged: list[int] = []
        before = 0
        for token, number in zip(ids, numbers, strict=True):
            if number == 0:
                exchanged.append(token)
            elif number != before:
                exchanged += self.words[int(draws[number] * len(self.words))]
            before = number
        return exchanged

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        return super().forward(plm, self.sample(plm, batch) if "given_words" in batch else batch)


class Weighted(FineTuning):
    """L_FT as a weighted mean over the rows."""

    name = "weighted"

    @property
    def columns(self) -> dict[str, float]:
        return {"row_weight": 1.0}

    def denominators(self, batch: dict) -> dict[str, Tensor]:
        return {"ft_loss": batch["row_weight"].sum()}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, num_labels)
        losses = cross_entropy(logits.float(), batch["labels"], reduction="none")  # (batch,)
        weights = batch["row_weight"]  # (batch,)
        loss = (weights * losses).sum() / weights.sum()
        return ObjectiveOutput({"ft_loss": loss}, {"ft_loss": 1.0}, logits)


class AddWeights(Transform):
    """Adds the column `row_weight`."""

    def __init__(self, weights: Sequence[float]):
        self.weights = weights

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        return Prepared(with_column(examples, "row_weight", self.weights))


# --- arms: the answers of each setting ---

Answers = Callable[[Dataset], np.ndarray]  # class numbers (n,) of a set


class Experiment:
    """What is trained on the data with one seed."""

    def __init__(self, data: Data, seed: int):
        self.data = data
        self.words = data.words
        self.seed = seed
        self.sets = prepare(data.train, data.dev, None, lambda sentence: None)
        pointing = suspects(self.sets.train, None, 1, words=self.words)
        conflicting = parts_of(self.sets.train, pointing)["conflicting"]
        self.conflicting = conflicting  # (training rows,)

    def trained(
        self,
        objective: FineTuning,
        transforms: Sequence[Transform] = (),
        epochs: float | None = None,
    ) -> SharedPLM:
        settings = get_method("fine_tuning").settings()
        epochs = epochs or self.data.epochs
        changes = {} if epochs is None else {"epochs": epochs}
        config = OwnTraining(settings=settings, seed=self.seed, **changes).resolved()
        stage = Stage(objective, default_rates("fine_tuning", config.model), tuple(transforms))
        plm = pretrained(config, self.sets.label_names)
        with tempfile.TemporaryDirectory() as folder:
            dev = self.sets.dev
            return train(config, (stage,), plm, self.sets.train, Path(folder), dev=dev).plm

    @cached_property
    def fine_tuned(self) -> SharedPLM:
        return self.trained(FineTuning())

    def fine_tuning(self) -> dict[str, Answers]:
        return {"": answers_of(self.fine_tuned)}

    def fine_tuning_masked(self) -> dict[str, Answers]:
        return {"": lambda rows: predict(self.fine_tuned, rows, hide=self.words).argmax(1)}

    def masks_left(self) -> dict[str, Answers]:
        settings = get_method("masks_left").settings(words=self.words)
        config = OwnTraining(settings=settings).resolved()
        rates = default_rates("fine_tuning", config.model)
        tokenizer = pretrained(config, self.sets.label_names).tokenizer
        (stage,) = get_method("masks_left").stages(config.settings, rates, tokenizer)
        return {"": answers_of(self.trained(stage.objective, stage.transforms))}

    def exchanged(self) -> dict[str, Answers]:
        transforms = GivenWords(self.words).transforms()
        return {"": answers_of(self.trained(Exchanged(), transforms))}

    def up_weighted(self) -> dict[str, Answers]:
        return self._weighted(self.conflicting)

    def jtt(self) -> dict[str, Answers]:
        """JTT (Liu et al. 2021): rows that a model of one epoch gets wrong count more."""
        first = self.trained(FineTuning(), epochs=1)
        answers = predict(first, self.sets.train).argmax(1)
        return self._weighted(answers != np.array(self.sets.train["label"]))

    def _weighted(self, chosen: np.ndarray) -> dict[str, Answers]:
        found = {}
        for weight in WEIGHTS:
            weights = np.where(chosen, float(weight), 1.0).tolist()
            found[f"weight {weight}"] = answers_of(self.trained(Weighted(), [AddWeights(weights)]))
        return found

    def dfr(self) -> dict[str, Answers]:
        """DFR (Kirichenko et al. 2023): the last layer fitted again on balanced training rows."""
        plm = self.fine_tuned
        features = last_features(plm, self.sets.train)  # (rows, hidden)
        labels = np.array(self.sets.train["label"])
        groups = labels * 2 + self.conflicting  # (rows,)
        generator = np.random.default_rng(self.seed)
        found = {}
        for strength in STRENGTHS:
            fits = []
            for _ in range(DRAWS):
                rows = balanced_rows(groups, generator)
                fit = LogisticRegression(C=strength, max_iter=1000)
                fits.append(fit.fit(features[rows], labels[rows]))
            found[f"C {strength:g}"] = answers_of_fits(plm, fits)
        return found


ARMS = {
    "fine-tuning": Experiment.fine_tuning,
    "fine-tuning, words masked when read": Experiment.fine_tuning_masked,
    "masks left in": Experiment.masks_left,
    "words exchanged": Experiment.exchanged,
    "conflicting rows up-weighted": Experiment.up_weighted,
    "DFR": Experiment.dfr,
    "JTT": Experiment.jtt,
}


def balanced_rows(groups: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows drawn so that each group has as many as the smallest one."""
    names, counts = np.unique(groups, return_counts=True)
    drawn = []
    for name in names:
        rows = np.flatnonzero(groups == name)
        drawn.append(generator.choice(rows, counts.min(), replace=False))
    return np.concatenate(drawn)


def answers_of(plm: SharedPLM) -> Answers:
    return lambda rows: predict(plm, rows).argmax(1)


def answers_of_fits(plm: SharedPLM, fits: Sequence[LogisticRegression]) -> Answers:
    def answers(rows: Dataset) -> np.ndarray:
        features = last_features(plm, rows)
        margins = np.mean([fit.decision_function(features) for fit in fits], axis=0)
        if margins.ndim == 1:  # of two labels, (n,): that of the second
            return (margins > 0).astype(int)
        return margins.argmax(1)

    return answers


def last_features(plm: SharedPLM, rows: Dataset) -> np.ndarray:
    """What the last layer of the classifier reads, `(n, hidden)`."""
    linear = [layer for layer in plm.classifier.modules() if isinstance(layer, nn.Linear)]
    last = [layer for layer in linear if layer.out_features == plm.num_labels][-1]
    kept: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))

    def first_token(row_numbers: list[int], batch: Mapping) -> Tensor:
        kept.clear()
        plm.classify(batch)
        read = kept[0] if kept[0].ndim == 2 else kept[0][:, 0]  # (batch, hidden)
        length = batch["input_ids"].shape[1]
        return read[:, None].expand(-1, length, -1)

    plm.eval()
    try:
        tokens = each_token(plm, tokenise(rows, plm.tokenizer), first_token)
    finally:
        hook.remove()
    return np.stack([values[0].float().numpy() for values in tokens])


# --- records ---


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=DATA)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="*", default=[*ARMS])
    options = parser.parse_args()
    quiet_libraries()
    records = pandas.DataFrame(columns=COLUMNS)
    if options.out.exists():
        records = pandas.read_csv(options.out, keep_default_na=False)
    data = DATA[options.data]()
    for seed in range(options.seeds):
        experiment = Experiment(data, seed)
        for arm in options.arms:
            key = {"data": options.data, "arm": arm, "seed": seed}
            if (records[list(key)] == key).all(axis="columns").any():
                continue
            measured = ["setting", "set", "n", "accuracy"]
            lines = pandas.DataFrame(scores(experiment, arm), columns=measured)
            lines = lines.assign(**key)[COLUMNS]
            records = pandas.concat([records, lines], ignore_index=True)
            write_atomically(options.out, records.to_csv(index=False))


def scores(experiment: Experiment, arm: str) -> list[tuple]:
    """Setting, set, number of rows and accuracy, of each setting of the arm and each set."""
    lines = []
    for setting, answers in ARMS[arm](experiment).items():
        for set_name, rows in experiment.data.scored.items():
            accuracy = 100 * float((answers(rows) == np.array(rows["label"])).mean())
            lines.append((setting, set_name, len(rows), accuracy))
    return lines


if __name__ == "__main__":
    main()
