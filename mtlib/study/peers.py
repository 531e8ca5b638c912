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

_KNOWN = {"bias": "shortcut"}
_EXPERTS = _KNOWN | {"bias_learning_rate": 2e-2}
_BALANCED = {"method": "mask_tuning", "update": "balanced", "mlm_head_learning_rate": 5e-4}
# what a control leaves out of a combination, by the words that its name ends with
_CONTROLS = {", alpha 0": {"alpha": 0.0}, ", no refilling": {"classifier_reads": "original"}}


def _combined(classification: str, *controls: str, **settings: object) -> dict[str, dict]:
    """Mask-tuning with another classification loss, and its controls."""
    whole = {**_BALANCED, "classification": classification, **settings}
    named = {name: whole | _CONTROLS[name] for name in controls}
    return {f"mask_tuning + {classification}{name}": arm for name, arm in {"": whole, **named}.items()}


# the arms of the plan, with the settings that make them on the testbed, where the shortcut is known
ARMS = {
    "fine_tuning": {"method": "fine_tuning"},
    "mask_tuning": _BALANCED,
    **_combined("product_of_experts", ", alpha 0", **_EXPERTS),
    **_combined("reweight", *_CONTROLS, **_KNOWN),
    **_combined("learned_mixin", **_KNOWN),
    **_combined("bias_product", *_CONTROLS, **_KNOWN),
    **_combined("confidence_regularization", **_KNOWN),
    **_combined("span_cutoff"),
    "learned_mixin": {"method": "learned_mixin", **_KNOWN},
    "bias_product": {"method": "bias_product", **_KNOWN},
    "product_of_experts": {"method": "product_of_experts", **_EXPERTS},
    "product_of_experts, focal": {"method": "product_of_experts", **_EXPERTS, "focus": 2.0},
    "reweight": {"method": "reweight", **_KNOWN},
    "confidence_regularization": {"method": "confidence_regularization", **_KNOWN},
    "span_cutoff": {"method": "span_cutoff"},
    "hidden_cut": {"method": "hidden_cut"},
}
# on MNLI: product of experts with the features of its own paper, where the other arms have those of Clark et al.
_SETTINGS = ARMS | {"product_of_experts, token overlap": ARMS["product_of_experts"] | {"bias": "token_overlap"}}
# IPT parses a treebank, which is not bundled, so that no settings alone make it
EVERY_ARM = (*_SETTINGS, "ipt")


def arm_of(config: dict) -> str | None:
    """A record's arm: its method, and what that is combined with ("mask_tuning + product_of_experts").

    The controls that leave out the masked-LM loss, or the refilling, are arms of their own: "mask_tuning + reweight,
    alpha 0" and "mask_tuning + reweight, no refilling". So are another loss, "product_of_experts, focal" (the debiased
    focal loss), and another bias model: "product_of_experts, token overlap".
    None for another reading of one of the plan's arms (the joint update, other masks), which is none of them.
    """
    combined = config.get("classification") or "fine_tuning"
    arm = config["method"] + ("" if combined == "fine_tuning" else f" + {combined}")
    arm += ", alpha 0" if config["method"] == "mask_tuning" and config.get("alpha") == 0 else ""
    arm += ", no refilling" if config.get("classifier_reads") == "original" else ""
    arm += ", focal" if config.get("focus") else ""
    arm += ", token overlap" if config.get("bias") == "token_overlap" else ""
    known = config["source"].startswith("testbed")
    fits = arm not in _SETTINGS or method_settings(config) == _settings_of_arm(arm, config["task"], known)
    return arm if fits else None


@cache
def _settings_of_arm(arm: str, task: str, known: bool) -> dict:
    """What a method reads in an arm; where the shortcut is not known, the bias model is the task's default."""
    settings = _SETTINGS[arm]
    if not known and settings.get("bias") == "shortcut":
        settings = settings | {"bias": "by_task"}
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
_REAL_DATA = {
    "SST-2 and edited reviews": ("sentiment", "peers_sst2", "sizes", "auxiliary_sst2"),
    "SST-2 and edited reviews, classifier at 1e-4": ("sentiment", "peers_sst2_rates", "study"),
    "QQP and PAWS": ("paraphrase", "peers_qqp", "study"),
    "MNLI, HANS and ANLI": ("nli", "peers_mnli", "study"),
}
# the same for comparisons of methods with the base-sized model
_BASE_SIZED = {
    "SST-2 and edited reviews": ("sentiment", "base", "peers_sst2_base"),
    "MNLI, HANS and ANLI": ("nli", "base_pairs", "peers_mnli_base"),
    "the testbed's nli": ("nli", "peers_pairs_base"),
}
_TRAINING = {"train_size": 4000, "epochs": 3}


def on_real_data(results: Path) -> dict[str, list[dict]]:
    """The runs of each comparison on real data: those of the plan's length that were scored on all sets."""
    runs = {}
    for title, (task, *files) in _REAL_DATA.items():
        sets = set(get_task(task).evaluation_sets("folder"))
        runs[title] = [
            record
            for record in _runs_of_arms(results, task, files)
            if _TRAINING.items() <= record["config"].items() and set(record["metrics"]) == sets
        ]
    return runs


def with_a_base_sized_model(results: Path) -> dict[str, list[dict]]:
    """The runs of each comparison of methods with the base-sized model, those of fine-tuning among them."""
    return {
        title: [record for record in _runs_of_arms(results, task, files) if not _without_shortcut(record["config"])]
        for title, (task, *files) in _BASE_SIZED.items()
    }


def _runs_of_arms(results: Path, task: str, files: Iterable[str]) -> list[dict]:
    """The records of one task in some of the files that belong to an arm of a comparison."""
    records = read_records([results / f"{name}.jsonl" for name in files])
    return [run for run in records if run["config"]["task"] == task and arm_of(run["config"]) in EVERY_ARM]


def _without_shortcut(config: Mapping) -> bool:
    """Whether a run was trained on a testbed that has no shortcut planted."""
    return config["source"].startswith("testbed (strength 0,")


def bias_models(runs: Mapping[str, Iterable[dict]]) -> pandas.DataFrame:
    """What bias models were worth on the training set, in per cent: a row for each task and bias model.

    A row is named after the first of the groups of runs that has it. Means over the runs: how often the bias model is
    right on examples that it was not fitted on, and its calibration error (how far the certainty that it claims is from
    how often it is right). Beside them the share of the commonest label in the dev set: a bias model that is right no
    more often says nothing.
    """
    told = defaultdict(list)
    for title, group in runs.items():
        for run in group:
            stages = [stage for stage in run["cost"]["stages"] if "bias_accuracy" in stage]
            if stages:
                told[run["config"]["task"], run["config"]["bias"]] += [(title, run, stage) for stage in stages]
    rows, titles = [], []
    for (_, bias), found in told.items():
        title, run, _ = found[0]
        dev = next(iter(run["metrics"].values()))
        titles.append(title)
        rows.append({
            "bias model": bias.replace("_", " "),
            "right": fmean(100 * stage["bias_accuracy"] for _, _, stage in found),
            "calibration error": fmean(100 * stage["bias_calibration_error"] for _, _, stage in found),
            "commonest label (dev)": 100 * dev["majority"],
        })  # fmt: skip
    return pandas.DataFrame(rows, index=titles).round(1)


def seed_by_seed(results: Path, compared: Iterable[dict] = ()) -> pandas.DataFrame:
    """Accuracy in per cent of the compared runs and of those that stand beside them in a folder of records.

    A row for each training, with its learning rates; a cell has the accuracies of its seeds, in their order.
    """
    files = ("testbed", "peers_reference", "peers_trial", "peers_long", "peers_rows", "peers_base")
    of_training = defaultdict(list)
    for run in (*compared, *read_records([results / f"{name}.jsonl" for name in files])):
        config = run["config"]
        if config["task"] == "sentiment" and arm_of(config) in EVERY_ARM:
            large = config["model"] != BUNDLED_MODEL
            training = _without_shortcut(config), large, examples_used(run["data"]["train"]), config["epochs"]
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
