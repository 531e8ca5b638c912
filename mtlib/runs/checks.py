"""What is checked of a configuration before anything is read: each value for itself, then those that must fit."""

import numbers
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtlib.data.registry import get_set, split_options
from mtlib.data.source_kinds import is_testbed, source_kind
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.methods import refilling_in_training, unread_settings, word_vectors
from mtlib.paths import is_missing_folder
from mtlib.settings import (
    ATTRIBUTION,
    BIAS_OF_TASK,
    COMPARES_TEXTS,
    OWN_LENGTH,
    TESTBED_ONLY,
    Setting,
    bias_for,
    check_choice,
)

if TYPE_CHECKING:
    from mtlib.runs.config import RunConfig

# what is taken for a value of each type, and its name in words
_KINDS = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: ((str, os.PathLike), "a name"),
    tuple: (tuple, "a list of names"),
    dict: (dict, "NAME: VALUE pairs"),
}


def check(config: "RunConfig") -> None:
    """Raise `UserError` where no run can have these settings, with the value, what was expected and what to do."""
    values = config.values()
    for name, value in values.items():
        _check_value(name, value, config.described[name])
    get_task(config.task)
    _check_files(config)
    _check_combinations(config)
    _check_masking(config)
    _check_sets(config)
    _check_effect(config)
    _check_bias(config)


def _check_files(config: "RunConfig") -> None:
    """Is there what the run is to read: its data, its model, its treebank?"""
    values = config.values()
    of_testbed = values.get("masking") in TESTBED_ONLY or values.get("bias") == "shortcut"
    if of_testbed and source_kind(config.source) == "folder" and not Path(config.source).exists():
        raise UserError(
            f"source is {str(config.source)!r}, which does not exist; write a testbed there with "
            f"`python -m mtlib testbed --out {config.source}` and its other options, or take source testbed."
        )
    if is_missing_folder(config.model):
        raise UserError(
            f"model is {str(config.model)!r}, which does not exist; expected mini, a hub id such as bert-base-uncased, "
            "or a folder with a masked LM."
        )
    if "treebank" in values and values["treebank"] is None:
        raise UserError(
            f"{config.method} parses a treebank first; give the folder of one in CoNLL-U (--treebank FOLDER)."
        )


def _check_combinations(config: "RunConfig") -> None:
    """Settings that are right one by one, but not together."""
    values = config.values()
    if values.get("update") == "balanced" and not values["shared"]:
        raise UserError("update is 'balanced', which weighs two gradients on one trunk; leave `separate` out.")
    # the classes refuse these two as well; here they are refused for all runs of a sweep before the first one starts
    if values.get("masking") == "meta_learned" and not values.get("shared", True):
        raise UserError("masking is 'meta_learned', which asks what refilling does to one trunk; leave `separate` out.")
    if values.get("classifier_reads") == "original" and values["classification"] in COMPARES_TEXTS:
        raise UserError(
            f"classification is {values['classification']!r}, which compares a text with its refilled copy, but "
            "classifier_reads is 'original'; leave one of them out."
        )
    if values.get("update") == "alternating" and config.accumulation > 1:
        raise UserError(
            f"accumulation is {config.accumulation}, but update 'alternating' steps twice for each batch; leave "
            "`accumulation` out, or take another update."
        )
    if config.gradient_diagnostics_steps and config.method not in refilling_in_training():
        raise UserError(
            f"gradient_diagnostics_steps is {config.gradient_diagnostics_steps}, which compares two losses, but "
            f"{config.method} has one; leave it out, or take {' or '.join(refilling_in_training())}."
        )
    if config.gradient_diagnostics_steps and not values.get("shared", True):
        raise UserError(
            f"gradient_diagnostics_steps is {config.gradient_diagnostics_steps}, which compares two losses on one "
            "trunk; leave it or `separate` out."
        )


def _check_effect(config: "RunConfig") -> None:
    """What is given must be read: by the way of filling, by the classification loss, by a set that is evaluated."""
    values = config.values()
    for name, (reason, remedy) in unread_settings(values, get_task(config.task).pair).items():
        if name in values and values[name] != config.described[name].default:
            raise UserError(
                f"{name} is {values[name]!r}, but {reason}, which does not read it; leave it out, or {remedy}."
            )
    sets = config.evaluation_sets
    if config.hans_rule != config.described["hans_rule"].default and not any(get_set(name).folded for name in sets):
        raise UserError(
            f"hans_rule is {config.hans_rule!r}, but none of the evaluation sets ({', '.join(sets)}) folds its labels; "
            "leave it out, or evaluate on hans (task nli)."
        )


def _check_value(name: str, value, setting: Setting) -> None:
    if value is None and type(None) in setting.kinds:
        return
    if Literal in setting.kinds:
        check_choice(name, value, setting.type)
        return
    (kind,) = {*setting.kinds} - {type(None)}
    accepted, text = _KINDS[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name} is {value!r}; expected {text} ({setting.help}).")
    if setting.range is not None:
        setting.range.check(name, value)


def _check_bias(config: "RunConfig") -> None:
    values = config.values()
    if "bias" not in values:
        return
    bias = bias_for(config.task, values["bias"])
    if bias not in BIAS_OF_TASK[config.task]:
        raise UserError(f"bias is {bias!r}; for {config.task} it is one of {', '.join(BIAS_OF_TASK[config.task])}.")
    if values["bias_vectors"] is not None and not Path(values["bias_vectors"]).is_file():
        raise UserError(f"bias_vectors is {str(values['bias_vectors'])!r}, which is no file; {word_vectors.EXPECTED}")
    if bias == "shortcut" and not is_testbed(config.source):
        raise UserError("bias is 'shortcut', which is planted in the testbed alone; take another bias model.")


def _check_masking(config: "RunConfig") -> None:
    """Does the policy have a meaning for this data and this method?"""
    values = config.values()
    masking = values.get("masking")
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
    at_alpha_0 = " at alpha 0" if values.get("alpha") == 0 else ""
    if masking == "original" and ("mlm_head_learning_rate" not in values or at_alpha_0):
        raise UserError(
            "masking is 'original', which differs from 'exact' only in what the masked-LM loss predicts, but "
            f"{config.method} has no such loss{at_alpha_0}; take exact."
        )
    if masking in ATTRIBUTION and (config.method not in refilling_in_training() or values.get("fixed_masks")):
        raise UserError(
            f"masking is {masking!r}, which asks the classifier in training what it leans on; in {config.method} masks "
            f"are drawn while the classifier is still new. Take {' or '.join(refilling_in_training())}, without "
            "fixed masks, or another policy."
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
