"""What a masking policy at a rate is called: in records and on the command line, and in words."""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from mtlib.errors import UserError
from mtlib.settings import OWN_LENGTH, SHARE, Masking

_WORDS = {
    "exact": "random", "whole_word": "random words", "original": "random, all predicted", "bernoulli": "random (coin)",
    "supervised": "pointed span", "supervised_top5": "one of 5 pointed spans",
    "salient_spans": "named entity (else {})",  # the rate is for texts without one
    "frequency_rare": "rare", "frequency_frequent": "frequent", "part_of_speech_content": "content words",
    "part_of_speech_function": "function words", "attribution_most": "most attributed",
    "attribution_least": "least attributed", "meta_learned": "meta-learned (reconstruction)",
    "known_shortcut": "shortcut's words", "known_shortcut_first": "shortcut's words first",
    "known_cause": "deciding words",
}  # fmt: skip


class PolicyAtRate(NamedTuple):
    """A policy and its rate; None for policies that mask a span of its own length."""

    policy: str
    rate: float | None = None

    @classmethod
    def parse(cls, text: str) -> "PolicyAtRate":
        """From "exact:0.15", or "supervised". Without a rate it is 0.05."""
        policy, _, rate = text.partition(":")
        if policy not in get_args(Masking):
            raise UserError(
                f"policy is {policy!r}; expected one of {', '.join(get_args(Masking))}, with a rate as in exact:0.15."
            )
        if policy in OWN_LENGTH:
            if rate:
                raise UserError(f"policy is {text!r}; {policy} masks a span of its own length, leave the rate out.")
            return cls(policy)
        try:
            value = float(rate or 0.05)
        except ValueError:
            value = rate
        SHARE.check(f"the rate of {policy}", value)
        return cls(policy, value)

    @classmethod
    def of(cls, config: Mapping) -> "PolicyAtRate":
        """Of a run, by its configuration."""
        return cls(config["masking"], None if config["masking"] in OWN_LENGTH else config["mask_rate"])

    def __str__(self) -> str:
        return self.policy if self.rate is None else f"{self.policy}:{self.rate:g}"

    @property
    def label(self) -> str:
        if self.rate is None:
            return _WORDS[self.policy]
        share = "all of them" if self.rate == 1 else f"{100 * self.rate:g} %"
        return _WORDS[self.policy].format(share) if "{}" in _WORDS[self.policy] else f"{_WORDS[self.policy]}, {share}"
