"""What a masking policy at a rate is called: in records and on the command line, and in words."""

from collections.abc import Mapping
from typing import NamedTuple

from mtlib.errors import UserError
from mtlib.policies import OWN_LENGTH, POLICIES
from mtlib.settings import MASK_RATE, SHARE


class PolicyAtRate(NamedTuple):
    """A policy and its rate; None for policies that mask a span of its own length."""

    policy: str
    rate: float | None = None

    @classmethod
    def parse(cls, text: str) -> "PolicyAtRate":
        """From "exact:0.15", or "supervised". Without a rate it is 0.05."""
        policy, _, rate = text.partition(":")
        if policy not in POLICIES:
            raise UserError(
                f"policy is {policy!r}; expected one of {', '.join(POLICIES)}, with a rate as in exact:0.15."
            )
        if policy in OWN_LENGTH:
            if rate:
                raise UserError(f"policy is {text!r}; {policy} masks a span of its own length, leave the rate out.")
            return cls(policy)
        try:
            value = float(rate or MASK_RATE)
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
        words = POLICIES[self.policy].words
        if self.rate is None:
            return words
        return words.format("all of them" if self.rate == 1 else f"{100 * self.rate:g} %")
