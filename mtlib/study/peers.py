"""The other methods of Table I on the testbed: what their records say, by the rules of `data/results/PLAN_peers.md`."""

import statistics
import time
from functools import cache
from pathlib import Path

import pandas
from datasets import Dataset

from mtlib.analysis.comparison import ArmComparison, accuracy, at_best_rates
from mtlib.analysis.frame import method_settings
from mtlib.collator import Collator
from mtlib.methods import get_method
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.records import examples_used, read_records

_EXPERTS = {"bias": "shortcut", "bias_learning_rate": 2e-2}
_BALANCED = {"method": "mask_tuning", "update": "balanced", "mlm_head_learning_rate": 5e-4}
# the arms of the plan, with the settings that make them
ARMS = {
    "fine_tuning": {"method": "fine_tuning"},
    "mask_tuning": _BALANCED,
    "mask_tuning + product_of_experts": _BALANCED | {"classification": "product_of_experts"} | _EXPERTS,
    "learned_mixin": {"method": "learned_mixin", "bias": "shortcut"},
    "product_of_experts": {"method": "product_of_experts"} | _EXPERTS,
    "reweight": {"method": "reweight", "bias": "shortcut"},
    "confidence_regularization": {"method": "confidence_regularization", "bias": "shortcut"},
    "span_cutoff": {"method": "span_cutoff"},
    "hidden_cut": {"method": "hidden_cut"},
}


def arm_of(config: dict) -> str | None:
    """A record's arm: its method, and what that is combined with ("mask_tuning + product_of_experts").

    None for another reading of one of the plan's arms (the joint update, other masks), which is none of them.
    """
    combined = config.get("classification") or "fine_tuning"
    arm = config["method"] + ("" if combined == "fine_tuning" else f" + {combined}")
    return arm if arm not in ARMS or method_settings(config) == _settings_of_arm(arm, config["task"]) else None


@cache
def _settings_of_arm(arm: str, task: str) -> dict:
    return method_settings(configure(task, **ARMS[arm]).resolved().public())


def label(arm: str) -> str:
    """An arm in words, with the update that it has: "Mask-tuning (balanced) + product of experts"."""
    method, *combined = (get_method(name).label for name in arm.split(" + "))
    update = ARMS.get(arm, {}).get("update")
    return " + ".join([f"{method} ({update})" if update else method, *combined])


PEERS = ArmComparison(arm_of, label, at_best_rates)


def references(results: Path) -> pandas.DataFrame:
    """Accuracy in per cent of the runs that stand beside the comparison, from the records in a folder; a row for each.

    Where nothing else is said, the seed is 0.
    """
    known = read_records([results / "testbed.jsonl"])
    of_source = {run["config"]["source"]: run for run in known if run["config"]["task"] == "sentiment"}
    rows = {
        "fine-tuning for 3 epochs, with the shortcut": of_source["testbed"],
        "the same without it: the ceiling": of_source["testbed (strength 0, seed 0)"],
        "fine-tuning on 1,376 examples without it, 2,000 steps": _only(results / "peers_reference.jsonl"),
        "Learned-Mixin+H for 3 epochs, a trial": _only(results / "peers_trial.jsonl"),
    }
    for run in read_records([results / "peers_long.jsonl", results / "peers_rows.jsonl"]):
        n_rows, config = examples_used(run["data"]["train"]), run["config"]
        seed = f", seed {config['seed']}" if config["seed"] else ""
        rows[f"{label(arm_of(config))} for {config['epochs']:g} epochs on {n_rows:,} rows{seed}"] = run
    of_rows = {name: {of: accuracy(run, of) for of in run["metrics"]} for name, run in rows.items()}
    return pandas.DataFrame(of_rows).T.round(1)


def _only(path: Path) -> dict:
    (record,) = read_records([path])
    return record


def step_cost(config: RunConfig, examples: Dataset, repeats: int = 3) -> dict[str, float]:
    """What a training step on one batch costs, measured on the spot, added up over the trainings of a method.

    Args:
        config: of a run; its model, method and settings count.
        examples: the batch, tokenised, with the columns that the method's preparers would add.
        repeats: steps after a first one that is not counted; their median does.

    Returns:
        `trainings`; `passes` through the trunk in a step; `seconds` forward and backward; `parameters` that exist
        during training alone.
    """
    config = config.resolved()
    tokenizer = _pretrained(config.model_path).tokenizer
    stages = get_method(config.method).stages(config.settings, config.rates, tokenizer)
    total = {"trainings": len(stages), "passes": 0, "seconds": 0.0, "parameters": 0}
    for stage in stages:
        plm = _pretrained(config.model_path, **stage.model_options).train()
        stage.objective.build(plm, examples)
        batch = Collator(tokenizer, stage.objective.columns)(examples.to_list())
        passes, seconds = [], []
        with plm.trunk.register_forward_hook(lambda *_, passes=passes: passes.append(1)):
            for _ in range(1 + repeats):
                started = time.perf_counter()
                stage.objective(plm, stage.objective.prepare(plm, batch)).loss.backward()
                seconds.append(time.perf_counter() - started)
                plm.zero_grad()
        total["passes"] += len(passes) // len(seconds)
        total["seconds"] += statistics.median(seconds[1:])
        total["parameters"] += sum(parameter.numel() for parameter in stage.objective.parameters())
    return total


@cache
def _pretrained(path: str | Path, **options) -> SharedPLM:
    return SharedPLM.from_pretrained(path, num_labels=2, **options)
