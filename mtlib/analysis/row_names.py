"""Names of rows: "mask_tuning (exact:0.15, balanced)" is one, and in words "Mask-tuning (random, 15 %, balanced)"."""

from typing import get_args

from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.methods import METHODS
from mtlib.settings import Masking

_ARMS = {"plain_mlm": "plain masked-LM training"}  # compared with methods, but none of the table


def name_of_row(method: str, telling: dict, settings: dict, several: list[str]) -> str:
    """The method with what tells the row apart. Equation 1's update, loss and three epochs go without saying.

    The update and the rate of a masking policy that tells rows apart are always said.
    """
    words = list(several)
    for name, value in (telling | {"update": settings.get("update")}).items():
        if name == "update":
            words += [] if value in (None, "None", "joint") else [value]
        elif name == "epochs":
            words += [] if float(value) == 3 else [f"{float(value):g} epochs"]
        elif name == "classification":
            words += [] if value in (None, "None", "fine_tuning") else [f"with {value}"]
        elif name == "classifier_reads":
            words += ["no refilling"] if value == "original" else []
        elif name == "masking":
            words.append(str(PolicyAtRate.of({"masking": value, "mask_rate": float(settings["mask_rate"])})))
        elif name == "mask_rate" and "masking" in telling:
            continue
        else:
            words.append(f"{name} {float(value):g}" if name == "alpha" else f"{name} {value}")
    return f"{method} ({', '.join(words)})" if words else method


def method_of(row: str) -> str:
    return row.partition(" (")[0]


def policy_of(row: str) -> str | None:
    """The masking policy that the name says, without its rate."""
    return next((policy.policy for policy in map(_policy, _words(row)) if policy), None)


def label(row: str) -> str:
    """The name in words; one that begins with no method is in words already."""
    method = method_of(row)
    if method not in METHODS and method not in _ARMS:
        return row
    name = METHODS[method].label if method in METHODS else _ARMS[method]
    words = [_in_words(word) for word in _words(row)]
    return f"{name} ({', '.join(words)})" if words else name


def _in_words(word: str) -> str:
    policy, combined = _policy(word), word.removeprefix("with ")
    if combined != word and combined in METHODS:
        return f"with {METHODS[combined].label}"
    return policy.label if policy else word


def _words(row: str) -> list[str]:
    """What stands in brackets behind the method."""
    _, bracket, words = row.removesuffix(")").partition(" (")
    return words.split(", ") if bracket else []


def _policy(word: str) -> PolicyAtRate | None:
    return PolicyAtRate.parse(word) if word.partition(":")[0] in get_args(Masking) else None
