"""The other methods of Table I, on the testbed and on real data, by the rules of `data/results/PLAN_peers.md`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean

import pandas

from mtlib.analysis.comparison import ArmComparison, accuracy, at_best_rates, rates, rates_in_words
from mtlib.analysis.frame import method_settings
from mtlib.data.tasks import get_task
from mtlib.methods import METHODS
from mtlib.runs.config import BUNDLED_MODEL, configure
from mtlib.runs.records import examples_used, read_records

_EXPERTS = {"bias": "shortcut", "bias_learning_rate": 2e-2}
_BALANCED = {"method": "mask_tuning", "update": "balanced", "mlm_head_learning_rate": 5e-4}
# the arms of the plan, with the settings that make them on the testbed, where the shortcut is known
ARMS = {
    "fine_tuning": {"method": "fine_tuning"},
    "mask_tuning": _BALANCED,
    "mask_tuning + product_of_experts": _BALANCED | {"classification": "product_of_experts"} | _EXPERTS,
    "mask_tuning + product_of_experts, alpha 0": _BALANCED
    | {"alpha": 0.0, "classification": "product_of_experts"}
    | _EXPERTS,
    "mask_tuning + reweight": _BALANCED | {"classification": "reweight", "bias": "shortcut"},
    "mask_tuning + reweight, alpha 0": _BALANCED | {"alpha": 0.0, "classification": "reweight", "bias": "shortcut"},
    "mask_tuning + reweight, no refilling": _BALANCED
    | {"classifier_reads": "original", "classification": "reweight", "bias": "shortcut"},
    "mask_tuning + learned_mixin": _BALANCED | {"classification": "learned_mixin", "bias": "shortcut"},
    "mask_tuning + bias_product": _BALANCED | {"classification": "bias_product", "bias": "shortcut"},
    "mask_tuning + confidence_regularization": _BALANCED
    | {"classification": "confidence_regularization", "bias": "shortcut"},
    "mask_tuning + span_cutoff": _BALANCED | {"classification": "span_cutoff"},
    "learned_mixin": {"method": "learned_mixin", "bias": "shortcut"},
    "bias_product": {"method": "bias_product", "bias": "shortcut"},
    "product_of_experts": {"method": "product_of_experts"} | _EXPERTS,
    "reweight": {"method": "reweight", "bias": "shortcut"},
    "confidence_regularization": {"method": "confidence_regularization", "bias": "shortcut"},
    "span_cutoff": {"method": "span_cutoff"},
    "hidden_cut": {"method": "hidden_cut"},
}
EVERY_ARM = (*ARMS, "ipt")  # IPT parses a treebank, which is not bundled, so that no settings alone make it


def arm_of(config: dict) -> str | None:
    """A record's arm: its method, and what that is combined with ("mask_tuning + product_of_experts").

    The controls that leave out the masked-LM loss, or the refilling, are arms of their own: "mask_tuning + reweight,
    alpha 0" and "mask_tuning + reweight, no refilling".
    None for another reading of one of the plan's arms (the joint update, other masks), which is none of them.
    """
    combined = config.get("classification") or "fine_tuning"
    arm = config["method"] + ("" if combined == "fine_tuning" else f" + {combined}")
    arm += ", alpha 0" if config["method"] == "mask_tuning" and config.get("alpha") == 0 else ""
    arm += ", no refilling" if config.get("classifier_reads") == "original" else ""
    known = config["source"].startswith("testbed")
    return arm if arm not in ARMS or method_settings(config) == _settings_of_arm(arm, config["task"], known) else None


@cache
def _settings_of_arm(arm: str, task: str, known: bool) -> dict:
    """What a method reads in an arm; where the shortcut is not known, the bias model is the task's default."""
    settings = ARMS[arm] if known or "bias" not in ARMS[arm] else ARMS[arm] | {"bias": "by_task"}
    return method_settings(configure(task, **settings).resolved().public())


def label(arm: str) -> str:
    """An arm in words, with the update that it has: "Mask-tuning (balanced) + product of experts"."""
    methods, comma, alpha = arm.partition(", ")
    method, *combined = (
        METHODS[name].label if name in METHODS else name.replace("_", " ") for name in methods.split(" + ")
    )
    update = ARMS.get(arm, {}).get("update")
    return " + ".join([f"{method} ({update})" if update else method, *combined]) + comma + alpha


PEERS = ArmComparison(arm_of, label, at_best_rates)
# comparisons on real data: the task, its records, and those of fine-tuning and Mask-tuning that were made for others
_AT_ANOTHER_RATE = "SST-2 and edited reviews, classifier at 1e-4"
_REAL_DATA = {
    "SST-2 and edited reviews": ("sentiment", "peers_sst2", "sizes", "auxiliary_sst2"),
    _AT_ANOTHER_RATE: ("sentiment", "peers_sst2_rates", "study"),
    "QQP and PAWS": ("paraphrase", "peers_qqp", "study"),
    "MNLI, HANS and ANLI": ("nli", "peers_mnli", "study"),
}
_TRAINING = {"train_size": 4000, "epochs": 3}


def on_real_data(results: Path) -> dict[str, list[dict]]:
    """The runs of each comparison on real data: those of the plan's length that were scored on all sets."""
    runs = {}
    for title, (task, *files) in _REAL_DATA.items():
        wanted, sets = {"task": task, **_TRAINING}.items(), set(get_task(task).evaluation_sets("folder"))
        runs[title] = [
            record
            for record in read_records([results / f"{name}.jsonl" for name in files])
            if wanted <= record["config"].items()
            and set(record["metrics"]) == sets
            and arm_of(record["config"]) in EVERY_ARM
        ]
    return runs


def bias_models(runs: Mapping[str, Iterable[dict]]) -> pandas.DataFrame:
    """What bias models were worth on the training set, in per cent: a row for each of the named groups of runs.

    Means over the runs: how often the bias model is right on examples that it was not fitted on, and its calibration
    error (how far the certainty that it claims is from how often it is right). Beside them the share of the commonest
    label in the dev set: a bias model that is right no more often says nothing.
    """
    rows = {}
    for title, group in runs.items():
        if title == _AT_ANOTHER_RATE:  # the same bias model as at the first
            continue
        told = [(run, stage) for run in group for stage in run["cost"]["stages"] if "bias_accuracy" in stage]
        if told:
            dev = next(iter(told[0][0]["metrics"].values()))
            rows[title] = {
                "bias model": told[0][0]["config"]["bias"].replace("_", " "),
                "right": fmean(100 * stage["bias_accuracy"] for _, stage in told),
                "calibration error": fmean(100 * stage["bias_calibration_error"] for _, stage in told),
                "commonest label (dev)": 100 * dev["majority"],
            }
    return pandas.DataFrame.from_dict(rows, orient="index").round(1)


def seed_by_seed(results: Path, compared: Iterable[dict] = ()) -> pandas.DataFrame:
    """Accuracy in per cent of the compared runs and of those that stand beside them in a folder of records.

    A row for each training, with its learning rates; a cell has the accuracies of its seeds, in their order.
    """
    files = ("testbed", "peers_reference", "peers_trial", "peers_long", "peers_rows", "peers_base")
    of_training = defaultdict(list)
    for run in (*compared, *read_records([results / f"{name}.jsonl" for name in files])):
        config = run["config"]
        if config["task"] == "sentiment" and arm_of(config) in EVERY_ARM:
            without = config["source"].startswith("testbed (strength 0,")
            large = config["model"] != BUNDLED_MODEL
            training = without, large, examples_used(run["data"]["train"]), config["epochs"]
            of_training[*training, arm_of(config), rates(run)].append(run)
    rows = []
    for training in sorted(of_training, key=lambda key: (*key[:4], EVERY_ARM.index(key[4]), key[5])):
        without, large, n_rows, epochs, arm, learning_rates = training
        runs = sorted(of_training[training], key=lambda run: run["config"]["seed"])
        cells = {of: ", ".join(f"{accuracy(run, of):.1f}" for run in runs) for of in runs[0]["metrics"]}
        rows.append({
            "method": label(arm), "model": "base-sized" if large else "bundled",
            "shortcut in training": "no" if without else "yes", "rows": f"{n_rows:,}", "epochs": f"{epochs:g}",
            "rates": rates_in_words(learning_rates), "seeds": len(runs), **cells,
        })  # fmt: skip
    return pandas.DataFrame(rows).set_index("method")
