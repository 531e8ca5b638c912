"""The scores of a run: of the model that it has trained, or of one that an earlier run has kept."""

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from mtlib.data.scoring import score_rows
from mtlib.encoding import predict
from mtlib.plm import SharedPLM
from mtlib.runs.code import is_of_this_code, origin
from mtlib.runs.inputs import Inputs
from mtlib.runs.records import model_folder, read_records, training_of

# the metrics of each set, and each label's probability for each of its examples
Scores = tuple[dict[str, dict], dict[str, np.ndarray]]


def evaluate(plm: SharedPLM, inputs: Inputs, names: Iterable[str]) -> Scores:
    """The scores on these of a run's sets.

    Probabilities are float32 of the shape `(n, num_labels)`. (float16 has ties, which AUROC counts
    as halves.) There are no scores where a logit is not finite: the model has diverged.
    """
    config = inputs.config
    metrics, probabilities = {}, {}
    for name in names:
        dataset = inputs.datasets[name]
        in_bf16 = config.precision == "bf16"
        logits = predict(plm, dataset, config.eval_max_length, bf16=in_bf16)
        if not np.isfinite(logits).all():
            return {}, {}
        metrics[name] = score_rows(inputs.descriptions[name]["set"], logits, dataset)
        probabilities[name] = softmax(logits.astype(np.float64), axis=1).astype(np.float32)
    return metrics, probabilities


@dataclass(frozen=True)
class EarlierTraining:
    """The record of a run that has trained what another run is to train.

    Args:
        path: of the record.
        record: what it holds.
        wanted: the inputs of the run that asks.
    """

    path: Path
    record: dict
    wanted: Inputs

    @property
    def model(self) -> Path:
        """Where the trained model lies, if it was kept."""
        return model_folder(self.path, self.record)

    @cached_property
    def probabilities(self) -> dict[str, np.ndarray]:
        """Those that the run that asks needs too, by set."""
        file = self.path.with_suffix(".npz")
        if not file.exists():
            return {}
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if self._is_wanted(name)}

    @property
    def missing(self) -> list[str]:
        """The sets that its model has yet to be scored on."""
        return [name for name in self.wanted.scored if name not in self.probabilities]

    def is_enough(self, keep_model: bool) -> bool:
        """Whether nothing has to be trained."""
        return self.model.exists() or not (keep_model or self.missing)

    def is_allowed(self, reuse: bool) -> bool:
        """Whether it was trained by the code that is here, or any code is accepted."""
        return reuse or is_of_this_code(self._environment)

    def obstacle(self) -> str:
        """Why it cannot stand for a training, in words."""
        if not self.model.exists():
            return "its model was not kept (with --keep-model, further sets need no training)"
        return f"it was made at {origin(self._environment)}; --reuse takes it"

    def scores(self) -> Scores:
        """All that the run that asks needs; the model is only asked for those that are missing."""
        metrics = dict(self.record["metrics"])
        probabilities = dict(self.probabilities)
        if self.missing:
            plm = SharedPLM.from_pretrained(self.model)
            more_metrics, more_probabilities = evaluate(plm, self.wanted, self.missing)
            if not more_metrics:
                return {}, {}
            metrics |= more_metrics
            probabilities |= more_probabilities
        return _of_sets(metrics, self.wanted.scored), _of_sets(probabilities, self.wanted.scored)

    @property
    def _environment(self) -> dict:
        return self.record.get("environment", {})

    def _is_wanted(self, name: str) -> bool:
        """Whether the run that asks scores the same rows in the same way."""
        then, now = self.record["data"], self.wanted.descriptions
        return (
            name in self.wanted.scored
            and then[name]["content_sha256"] == now[name]["content_sha256"]
            and self.record["config"]["eval_max_length"] == self.wanted.config.eval_max_length
        )


def earlier_trainings(inputs: Inputs, path: Path) -> list[EarlierTraining]:
    """The trainings in a folder that are the same as that of a run, by their other records.

    The first has most of the scores that the run needs.

    Args:
        inputs: of the run.
        path: of the run's own record, which does not count.
    """
    of_any_identity = f"{glob.escape(path.stem.rpartition('-')[0])}-*.json"
    found = []
    for file in sorted(path.parent.glob(of_any_identity)):
        if file == path:
            continue
        for record in read_records([file]):
            if not record.get("diverged") and training_of(record) == inputs.training:
                found.append(EarlierTraining(file, record, inputs))
    return sorted(found, key=lambda training: len(training.missing))


def _of_sets(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of these sets, in this order."""
    return {name: values[name] for name in names}
