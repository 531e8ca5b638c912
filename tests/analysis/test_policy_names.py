"""The names of masking policies at their rates."""

from typing import get_args

import pytest

from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.errors import UserError
from mtlib.policies import OWN_LENGTH, POLICIES, Masking


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_read_from_its_name(name):
    policy = PolicyAtRate.parse(name)
    assert str(policy) == (name if name in OWN_LENGTH else f"{name}:0.05")
    assert PolicyAtRate.parse(str(policy)) == policy == PolicyAtRate.of({"masking": name, "mask_rate": 0.05})
    assert policy.label


def test_names_stand_in_one_order():
    assert [*POLICIES] == [*get_args(Masking)]


def test_words():
    words = {
        "exact:0.15": "random, 15 %",
        "known_shortcut:1": "shortcut's words, all of them",
        "supervised": "pointed span",
    }
    assert {name: PolicyAtRate.parse(name).label for name in words} == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", "policy is 'none'"),
        ("exact:high", "the rate of exact is 'high'"),
        ("exact:2", "the rate of exact is 2.0"),
        ("exact:nan", "the rate of exact is nan"),
        ("supervised:0.3", "masks a span of its own length, leave the rate out"),
    ],
)
def test_bad_names_and_rates(text, message):
    with pytest.raises(UserError, match=message):
        PolicyAtRate.parse(text)
