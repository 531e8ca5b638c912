"""The masking policies by name; nothing here needs torch.

Those of this package rank, point, learn or know the testbed, one file for a family. A policy is one file, with what
prepares a training set for it, and one line here, which says where it is.
"""

import pkgutil
from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from mtlib.errors import UserError
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, Share, check, check_choice

if TYPE_CHECKING:
    from mtlib.masking import MaskingPolicy


class NamedPolicy(NamedTuple):
    """A policy under the name that configurations and records give it.

    Args:
        make: makes a `MaskingPolicy`: a class or a function, or where it stands, so that torch is loaded by a training
            and not by the name of a policy.
        words: in tables and figures; {} is its rate.
        options: arguments that make it this one.
        testbed_only: it knows the testbed's grammar.
        own_length: it masks a span, however long that is, and reads no rate.
        asks_classifier: the one in training, as its class says too.
    """

    make: "Callable[..., MaskingPolicy] | str"
    words: str
    options: Mapping[str, object] = MappingProxyType({})
    testbed_only: bool = False
    own_length: bool = False
    asks_classifier: bool = False


POLICIES: dict[str, NamedPolicy] = {
    "exact": NamedPolicy("mtlib.masking:ExactMasking", "random, {}"),
    "bernoulli": NamedPolicy("mtlib.masking:BernoulliMasking", "random (coin), {}"),
    "whole_word": NamedPolicy("mtlib.masking:WholeWordMasking", "random words, {}"),
    "original": NamedPolicy("mtlib.masking:OriginalMasking", "random, all predicted, {}"),
    "salient_spans": NamedPolicy(
        "mtlib.policies.salient_spans:SalientSpanMasking",
        "named entity (else {})",  # the rate is for texts without one
    ),
    "supervised": NamedPolicy(
        "mtlib.policies.supervised:SupervisedMasking",
        "pointed span",
        own_length=True,
    ),
    "supervised_top5": NamedPolicy(
        "mtlib.policies.supervised:SupervisedMasking",
        "one of 5 pointed spans",
        {"best_of": 5},
        own_length=True,
    ),
    "meta_learned": NamedPolicy(
        "mtlib.policies.meta_learned:MetaLearnedMasking",
        "meta-learned (reconstruction), {}",
    ),
    "frequency_rare": NamedPolicy(
        "mtlib.policies.frequency:FrequencyMasking",
        "rare, {}",
        {"prefer": "rare"},
    ),
    "frequency_frequent": NamedPolicy(
        "mtlib.policies.frequency:FrequencyMasking",
        "frequent, {}",
        {"prefer": "frequent"},
    ),
    "part_of_speech_content": NamedPolicy(
        "mtlib.policies.part_of_speech:PartOfSpeechMasking",
        "content words, {}",
        {"prefer": "content"},
    ),
    "part_of_speech_function": NamedPolicy(
        "mtlib.policies.part_of_speech:PartOfSpeechMasking",
        "function words, {}",
        {"prefer": "function"},
    ),
    "attribution_most": NamedPolicy(
        "mtlib.policies.attribution:AttributionMasking",
        "most attributed, {}",
        {"prefer": "most"},
        asks_classifier=True,
    ),
    "attribution_least": NamedPolicy(
        "mtlib.policies.attribution:AttributionMasking",
        "least attributed, {}",
        {"prefer": "least"},
        asks_classifier=True,
    ),
    "known_shortcut": NamedPolicy(
        "mtlib.policies.known:known_shortcut",
        "shortcut's words, {}",
        testbed_only=True,
    ),
    "known_shortcut_first": NamedPolicy(
        "mtlib.policies.known:known_shortcut_first",
        "shortcut's words first, {}",
        testbed_only=True,
    ),
    "known_cause": NamedPolicy(
        "mtlib.policies.known:known_cause",
        "deciding words, {}",
        testbed_only=True,
    ),
}
Masking = Literal[tuple(POLICIES)]
TESTBED_ONLY = tuple(name for name, entry in POLICIES.items() if entry.testbed_only)
OWN_LENGTH = tuple(name for name, entry in POLICIES.items() if entry.own_length)
ATTRIBUTION = tuple(name for name, entry in POLICIES.items() if entry.asks_classifier)


def masking_policy(name: str, rate: float | None, tokenizer, spacy_pipeline: str = ENGLISH_PIPELINE) -> "MaskingPolicy":
    """The policy of that name; those that count mask at least one token of an example, unless the rate is 0.

    Args:
        name: one of `POLICIES`.
        rate: share that is masked; None: 5 %. Policies that mask a span of its own length read none.
        tokenizer: tells where words begin, for `whole_word`.
        spacy_pipeline: finds named entities, for `salient_spans`.

    Raises:
        UserError: no policy has that name.
    """
    check_choice("masking", name, POLICIES)
    make = POLICIES[name].make
    if isinstance(make, str):
        make = pkgutil.resolve_name(make)
    given = {
        "rate": MASK_RATE if rate is None else rate,
        "tokenizer": tokenizer,
        "pipeline": spacy_pipeline,
    }
    wanted = signature(make).parameters.keys() & given.keys()
    return make(**{key: given[key] for key in wanted}, **POLICIES[name].options)


def parse_policy(text: str) -> tuple[str, float | None]:
    """A policy and its rate: "exact:0.15", or "supervised", which masks a span of its own length. The default is 5 %.

    Raises:
        UserError: no such policy, or no such rate.
    """
    name, _, rate = text.partition(":")
    check_choice("policy", name, POLICIES)
    if name in OWN_LENGTH:
        if rate:
            raise UserError(f"policy is {text!r}; {name} masks a span of its own length, leave the rate out.")
        return name, None
    try:
        value = float(rate or MASK_RATE)
    except ValueError:
        value = rate
    check(f"the rate of {name}", value, Share)
    return name, value


def policy_in_words(text: str) -> str:
    """What tables call a policy: "random, 5 %" for "exact:0.05"."""
    name, rate = parse_policy(text)
    return POLICIES[name].words.format("all of them" if rate == 1 else f"{100 * (rate or 0):g} %")
