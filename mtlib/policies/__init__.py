"""The masking policies by name; nothing here needs torch.

The policies of this package rank tokens, point at spans, learn what to mask, or know the testbed;
each family has one file. To add a policy, write one file, with the preparation of the training set
that it needs, and one entry here, which says where it is.
"""

import pkgutil
from collections.abc import Mapping
from contextlib import suppress
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from mtlib.errors import UserError
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, Share, check, check_choice

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mtlib.masking import MaskingPolicy


class NamedPolicy(NamedTuple):
    """A policy under the name that configurations and records give it.

    Args:
        make: where the class or function is that returns a `MaskingPolicy`, as "module:name". It is
            looked up when the policy is made, so that its name alone loads no torch.
        options: arguments that `make` gets.
        testbed_only: whether it needs the testbed's grammar.
        own_length: whether it masks a whole span, however long that is, and has no rate.
        asks_classifier: whether it uses the classifier in training.
    """

    make: str
    options: Mapping[str, object] = MappingProxyType({})
    testbed_only: bool = False
    own_length: bool = False
    asks_classifier: bool = False


POLICIES: dict[str, NamedPolicy] = {
    "exact": NamedPolicy("mtlib.masking:ExactMasking"),
    "bernoulli": NamedPolicy("mtlib.masking:BernoulliMasking"),
    "whole_word": NamedPolicy("mtlib.masking:WholeWordMasking"),
    "original": NamedPolicy("mtlib.masking:OriginalMasking"),
    "salient_spans": NamedPolicy("mtlib.policies.salient_spans:SalientSpanMasking"),
    "supervised": NamedPolicy("mtlib.policies.supervised:SupervisedMasking", own_length=True),
    "supervised_top5": NamedPolicy(
        "mtlib.policies.supervised:SupervisedMasking", {"best_of": 5}, own_length=True
    ),
    "meta_learned": NamedPolicy("mtlib.policies.meta_learned:MetaLearnedMasking"),
    "frequency_rare": NamedPolicy("mtlib.policies.frequency:FrequencyMasking", {"prefer": "rare"}),
    "frequency_frequent": NamedPolicy(
        "mtlib.policies.frequency:FrequencyMasking", {"prefer": "frequent"}
    ),
    "part_of_speech_content": NamedPolicy(
        "mtlib.policies.part_of_speech:PartOfSpeechMasking", {"prefer": "content"}
    ),
    "part_of_speech_function": NamedPolicy(
        "mtlib.policies.part_of_speech:PartOfSpeechMasking", {"prefer": "function"}
    ),
    "attribution_most": NamedPolicy(
        "mtlib.policies.attribution:AttributionMasking", {"prefer": "most"}, asks_classifier=True
    ),
    "attribution_least": NamedPolicy(
        "mtlib.policies.attribution:AttributionMasking", {"prefer": "least"}, asks_classifier=True
    ),
    "known_shortcut": NamedPolicy("mtlib.policies.known:known_shortcut", testbed_only=True),
    "known_shortcut_first": NamedPolicy(
        "mtlib.policies.known:known_shortcut_first", testbed_only=True
    ),
    "known_cause": NamedPolicy("mtlib.policies.known:known_cause", testbed_only=True),
}
if TYPE_CHECKING:
    Masking = str  # checkers cannot read the names from a table
else:
    Masking = Literal[tuple(POLICIES)]
TESTBED_ONLY = tuple(name for name, entry in POLICIES.items() if entry.testbed_only)
OWN_LENGTH = tuple(name for name, entry in POLICIES.items() if entry.own_length)
ATTRIBUTION = tuple(name for name, entry in POLICIES.items() if entry.asks_classifier)


def masking_policy(
    name: str,
    rate: float | None,
    tokenizer: "PreTrainedTokenizerBase",
    spacy_pipeline: str = ENGLISH_PIPELINE,
) -> "MaskingPolicy":
    """The policy with this name.

    A policy that masks a share of the tokens masks at least one per example, unless the rate is 0.

    Args:
        name: one of `POLICIES`.
        rate: share of the tokens that is masked, 5 % if None. Policies that mask a whole span
            ignore it.
        tokenizer: for `whole_word`, to know where words begin.
        spacy_pipeline: for `salient_spans`, to find named entities.

    Raises:
        UserError: no policy has this name.
    """
    check_choice("masking", name, POLICIES)
    make = pkgutil.resolve_name(POLICIES[name].make)
    available = {
        "rate": MASK_RATE if rate is None else rate,
        "tokenizer": tokenizer,
        "pipeline": spacy_pipeline,
    }
    wanted = signature(make).parameters.keys() & available.keys()
    if rate is not None and "rate" not in wanted and not POLICIES[name].own_length:
        raise UserError(f"masking {name!r} has no argument `rate`, so a rate would not count.")
    arguments = {key: available[key] for key in wanted}
    return make(**arguments, **POLICIES[name].options)


def check_for_pairs(name: str | None) -> None:
    """Raise `UserError` for a policy that cannot learn what to mask in pairs of texts."""
    if name in OWN_LENGTH:
        raise UserError(
            f"masking is {name!r}, which learns from single reviews, those of IMDB-CAD; for pairs "
            "take another policy."
        )


def parse_policy(text: str) -> tuple[str, float | None]:
    """A policy's name and its rate, from "exact:0.15" or "exact" (5 %).

    The rate is None for policies that mask a whole span, such as "supervised".

    Raises:
        UserError: no policy has this name, or the rate is not between 0 and 1.
    """
    name, _, rate = text.partition(":")
    check_choice("policy", name, POLICIES)
    if name in OWN_LENGTH:
        if rate:
            raise UserError(f"policy is {text!r}; {name} masks a whole span, leave the rate out.")
        return name, None
    if not rate:
        return name, MASK_RATE
    return name, _parse_rate(name, rate)


def _parse_rate(name: str, text: str) -> float:
    rate: float | str = text
    with suppress(ValueError):  # what is no number stays a text, which `check` refuses
        rate = float(text)
    check(f"the rate of {name}", rate, Share)
    return float(rate)
