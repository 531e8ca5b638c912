"""What is checked of a configuration before anything is read: what no run can have, whoever asks for it."""

from pathlib import Path
from typing import TYPE_CHECKING

from mtlib.data.registry import get_set, split_options
from mtlib.data.source_kinds import is_testbed, source_kind
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.methods import METHODS, get_method
from mtlib.methods.bias_models import BIAS_OF_TASK, bias_for
from mtlib.paths import is_missing_folder
from mtlib.policies import ATTRIBUTION, OWN_LENGTH, TESTBED_ONLY

if TYPE_CHECKING:
    from mtlib.runs.config import RunConfig


def check_run(config: "RunConfig") -> None:
    """Raise `UserError` with the value, what was expected and what to do."""
    get_task(config.task)
    get_method(config.method)
    for check in (_check_folders, _check_sets, _check_masking, _check_bias, _check_update):
        check(config)


def _check_folders(config: "RunConfig") -> None:
    values = config.values()
    of_testbed = values.get("masking") in TESTBED_ONLY or values.get("bias") == "shortcut"
    if of_testbed and source_kind(config.source) == "folder" and not Path(config.source).exists():
        raise UserError(
            f"source is {config.source!r}, which does not exist; write a testbed there with "
            f"`python -m mtlib testbed --out {config.source}` and its other options, or take source testbed."
        )
    if is_missing_folder(config.model):
        raise UserError(
            f"model is {config.model!r}, which does not exist; expected mini, a hub id such as bert-base-uncased, "
            "or a folder with a masked LM."
        )


def _check_sets(config: "RunConfig") -> None:
    if len(set(config.sets)) < len(config.sets):
        raise UserError(f"sets names a set twice: {', '.join(config.sets)}.")
    known = get_task(config.task).evaluation_sets(config.source)
    for name in (*config.sets, *config.splits):
        if name not in known:
            raise UserError(
                f"{name!r} is no evaluation set of {config.task} from {source_kind(config.source)!r}; expected "
                f"{', '.join(known)}."
            )
    for name, option in config.splits.items():
        if option not in split_options(name):
            raise UserError(f"{name} has no split {option!r}; expected one of {', '.join(split_options(name))}.")
    if config.hans_rule != "max" and not any(get_set(name).folded for name in config.evaluation_sets):
        raise UserError(
            f"hans_rule is {config.hans_rule!r}, but none of the evaluation sets ({', '.join(config.evaluation_sets)}) "
            "folds its labels; leave it out, or evaluate on hans (task nli)."
        )


def _check_masking(config: "RunConfig") -> None:
    """Does the policy have a meaning for this data and this method?"""
    values = config.values()
    masking, method = values.get("masking"), get_method(config.method)
    if masking in TESTBED_ONLY and not is_testbed(config.source):
        raise UserError(
            f"masking is {masking!r}, which knows the testbed's grammar and has no meaning for other data (source is "
            f"{source_kind(config.source)!r}); take source testbed, or another policy."
        )
    if masking in OWN_LENGTH and get_task(config.task).pair and not is_testbed(config.source):
        raise UserError(
            f"masking is {masking!r}, which learns from single reviews, IMDB-CAD's, and {config.task} has pairs of "
            "texts; take source testbed, or another policy."
        )
    if masking == "original" and ("mlm_head_learning_rate" not in values or values.get("alpha") == 0):
        raise UserError(
            "masking is 'original', which differs from 'exact' only in what the masked-LM loss predicts, but "
            f"{config.method} has no such loss{' at alpha 0' if 'alpha' in values else ''}; take exact."
        )
    if masking in ATTRIBUTION and (not method.refills_in_training or values.get("fixed_masks")):
        able = " or ".join(name for name, other in METHODS.items() if other.refills_in_training)
        raise UserError(
            f"masking is {masking!r}, which asks the classifier in training what it leans on; in {config.method} masks "
            f"are drawn while the classifier is still new. Take {able}, without fixed masks, or another policy."
        )
    if masking == "meta_learned" and not values.get("shared", True):
        raise UserError("masking is 'meta_learned', which asks what refilling does to one trunk; leave `separate` out.")


def _check_bias(config: "RunConfig") -> None:
    if "bias" not in config.values():
        return
    bias = bias_for(config.task, config.settings.bias)
    if bias not in BIAS_OF_TASK[config.task]:
        raise UserError(f"bias is {bias!r}; for {config.task} it is one of {', '.join(BIAS_OF_TASK[config.task])}.")
    if bias == "shortcut" and not is_testbed(config.source):
        raise UserError("bias is 'shortcut', which is planted in the testbed alone; take another bias model.")


def _check_update(config: "RunConfig") -> None:
    values = config.values()
    update = values.get("update")
    if update == "balanced" and not values["shared"]:
        raise UserError("update is 'balanced', which weighs two gradients on one trunk; leave `separate` out.")
    if update == "alternating" and config.accumulation > 1:
        raise UserError(
            f"accumulation is {config.accumulation}, but update 'alternating' steps twice for each batch; leave "
            "`accumulation` out, or take another update."
        )
