"""The masking policies by name; those of this package rank, point, learn or know the testbed, one file for a family.

A policy is one file, with what prepares a training set for it, and one line here.
"""

from collections.abc import Mapping
from inspect import signature
from types import MappingProxyType
from typing import Literal, NamedTuple

from mtlib.errors import UserError
from mtlib.masking import BernoulliMasking, ExactMasking, MaskingPolicy, OriginalMasking, WholeWordMasking
from mtlib.policies.attribution import AttributionMasking
from mtlib.policies.frequency import FrequencyMasking
from mtlib.policies.known import KnownMasking, MarkCause, MarkShortcut
from mtlib.policies.meta_learned import MetaLearnedMasking
from mtlib.policies.part_of_speech import PartOfSpeechMasking
from mtlib.policies.salient_spans import SalientSpanMasking
from mtlib.policies.supervised import SupervisedMasking
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, Share, check, check_choice


class NamedPolicy(NamedTuple):
    """A policy under the name that configurations and records give it."""

    policy: type[MaskingPolicy]
    words: str  # in tables and figures; {} is its rate
    options: Mapping[str, object] = MappingProxyType({})  # arguments that make it this one


POLICIES: dict[str, NamedPolicy] = {
    "exact": NamedPolicy(ExactMasking, "random, {}"),
    "bernoulli": NamedPolicy(BernoulliMasking, "random (coin), {}"),
    "whole_word": NamedPolicy(WholeWordMasking, "random words, {}"),
    "original": NamedPolicy(OriginalMasking, "random, all predicted, {}"),
    "salient_spans": NamedPolicy(SalientSpanMasking, "named entity (else {})"),  # the rate is for texts without one
    "supervised": NamedPolicy(SupervisedMasking, "pointed span"),
    "supervised_top5": NamedPolicy(SupervisedMasking, "one of 5 pointed spans", {"best_of": 5}),
    "meta_learned": NamedPolicy(MetaLearnedMasking, "meta-learned (reconstruction), {}"),
    "frequency_rare": NamedPolicy(FrequencyMasking, "rare, {}", {"prefer": "rare"}),
    "frequency_frequent": NamedPolicy(FrequencyMasking, "frequent, {}", {"prefer": "frequent"}),
    "part_of_speech_content": NamedPolicy(PartOfSpeechMasking, "content words, {}", {"prefer": "content"}),
    "part_of_speech_function": NamedPolicy(PartOfSpeechMasking, "function words, {}", {"prefer": "function"}),
    "attribution_most": NamedPolicy(AttributionMasking, "most attributed, {}", {"prefer": "most"}),
    "attribution_least": NamedPolicy(AttributionMasking, "least attributed, {}", {"prefer": "least"}),
    "known_shortcut": NamedPolicy(KnownMasking, "shortcut's words, {}", {"marker": MarkShortcut}),
    "known_shortcut_first": NamedPolicy(
        KnownMasking, "shortcut's words first, {}", {"marker": MarkShortcut, "then_others": True}
    ),
    "known_cause": NamedPolicy(KnownMasking, "deciding words, {}", {"marker": MarkCause}),
}
Masking = Literal[tuple(POLICIES)]
TESTBED_ONLY = tuple(name for name, entry in POLICIES.items() if entry.policy.testbed_only)
OWN_LENGTH = tuple(name for name, entry in POLICIES.items() if entry.policy.own_length)
ATTRIBUTION = tuple(name for name, entry in POLICIES.items() if entry.policy.asks_classifier)


def masking_policy(name: str, rate: float | None, tokenizer, spacy_pipeline: str = ENGLISH_PIPELINE) -> MaskingPolicy:
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
    policy, _, options = POLICIES[name]
    given = {"rate": MASK_RATE if rate is None else rate, "tokenizer": tokenizer, "pipeline": spacy_pipeline}
    return policy(**{key: value for key, value in given.items() if key in signature(policy).parameters}, **options)


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
