"""What a masking policy masks in training texts, on masks that are made by hand and on the bundled
texts.
"""

import json

import numpy as np
import pandas
import pytest

from mtlib.diversity import masks_of_policies
from mtlib.diversity.masks_of_policies import (
    DEFAULT,
    default_policies,
    describe,
    table,
    what_is_masked,
)
from mtlib.errors import UserError
from mtlib.policies import POLICIES, parse_policy, policy_in_words
from tests.conftest import make_plm, tiny_bert_config
from tests.data.made_up_releases import write_releases


def flags(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text if letter != " "])


TOKENS = pandas.DataFrame(
    {
        "row": [0] * 4 + [1] * 3 + [2] * 3,
        "shortcut": flags("xx.. x.. ..."),  # the third example has none
        "cause": flags("..x. ... x.."),
        "part_of_speech": [0, 1, 2, 0, 1, 1, 0, 0, 3, 0],
        "frequency": [3, 0, 0, 3, 0, 1, 3, 3, 0, 3],
        "ordinary": flags(".xx. xx. .x."),
    }
)


@pytest.mark.parametrize(
    ("mask", "any_", "all_", "tokens"),
    [
        (".... ... ...", 0.0, 0.0, 0.0),
        ("x... ... xxx", 0.5, 0.0, 1 / 3),
        ("xx.. .xx ...", 0.5, 0.5, 2 / 3),
        ("x.xx x.. ...", 1.0, 0.5, 2 / 3),
        ("xx.. x.. ...", 1.0, 1.0, 1.0),
    ],
)
def test_touching_counts_examples_and_tokens(mask, any_, all_, tokens):
    found = what_is_masked(TOKENS, flags(mask))["touches_shortcut"]
    assert found == {
        "examples": 2,
        "any": any_,
        "all": all_,
        "tokens": pytest.approx(tokens, abs=1e-4),
    }


def test_nothing_marked_has_no_share():
    found = what_is_masked(TOKENS.assign(shortcut=False), flags(".... ... ..x"))["touches_shortcut"]
    assert found == {"examples": 0, "any": None, "all": None, "tokens": None}


def test_the_table_in_per_cent():
    masks = {"exact:0.3": ".xx. .x. ...", "exact:0": ".... ... ..."}
    lines = {name: what_is_masked(TOKENS, flags(mask)) for name, mask in masks.items()}
    assert lines["exact:0.3"]["frequency"] == {
        "below 10": 0.6667,
        "10 to 99": 0.3333,
        "100 to 999": 0.0,
        "1,000 and more": 0.0,
    }
    frame = table({"policies": lines, "all_tokens": what_is_masked(TOKENS, TOKENS["ordinary"])})
    assert frame.loc["exact:0.3"].round(1).to_dict() == {
        "tokens masked": 60,
        "shortcut touched": 50,
        "shortcut gone": 0,
        "deciding words touched": 50,
        "nouns": 100,
        "verbs": 0,
        "adjectives": 0,
        "adverbs": 0,
        "other words": 0,
        "found fewer than 10 times": 66.7,
    }
    assert frame.loc["exact:0"].dropna().to_dict() == dict.fromkeys([*frame][:4], 0)
    assert [*frame.index] == ["exact:0.3", "exact:0", "all tokens"]


def test_the_controls_and_policies_that_learn_from_the_whole_training_set():
    """All of the shortcut and none of what decides the label, and the other way round, on the
    bundled texts.
    """
    wanted = ("exact:0.05", "known_shortcut:1", "known_cause:1", "frequency_rare:0.05")
    description = describe(policies=wanted, train_size=300, size=40)
    assert json.loads(json.dumps(description)) == description and description["examples"] == 40
    lines = description["policies"]
    assert lines["known_shortcut:1"]["touches_shortcut"] == {
        "examples": 40,
        "any": 1.0,
        "all": 1.0,
        "tokens": 1.0,
    }
    assert (
        lines["known_shortcut:1"]["touches_cause"]["any"]
        == lines["known_cause:1"]["touches_shortcut"]["any"]
        == 0
    )
    assert lines["known_cause:1"]["touches_cause"]["all"] == 1.0
    assert 0 < lines["exact:0.05"]["touches_shortcut"]["any"] < 0.6
    assert description["all_tokens"]["tokens_masked"] == 1.0
    assert description["all_tokens"]["frequency"]["below 10"] < 0.5, (
        "counted in 300 sentences, not in 40"
    )
    assert lines["frequency_rare:0.05"]["frequency"]["below 10"] > 0.9


def test_on_real_data_nothing_is_said_of_a_shortcut(tmp_path, monkeypatch):
    source = str(write_releases(tmp_path, monkeypatch))
    description = describe(
        source=source, policies=("exact:0.3", "frequency_rare:0.3"), train_size=3, size=2
    )
    assert not {"touches_shortcut", "touches_cause"} & {*description["policies"]["exact:0.3"]}
    assert "shortcut gone" not in table(description)
    assert default_policies("testbed") == DEFAULT and {*DEFAULT} - {*default_policies("hub")} == {
        "supervised",
        "supervised_top5",
        "known_cause:0.05",
        "known_shortcut:0.05",
        "known_shortcut:1",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "hub", "policies": ["known_cause:1"]}, "knows the testbed's grammar"),
        (
            {"policies": ["attribution_most:0.1"]},
            "attribution_most asks a classifier, and that of mini is not trained",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(settings, message, monkeypatch):
    monkeypatch.setattr(masks_of_policies, "DrawMasks", lambda *_: pytest.fail("has begun"))
    with pytest.raises(UserError, match=message):
        describe(**{"policies": ["exact:0.05"]} | settings)


def test_attribution_asks_the_classifier_of_a_trained_model(tmp_path):
    plm = make_plm(tiny_bert_config(id2label={0: "negative", 1: "positive"}))
    plm.save_pretrained(tmp_path)
    description = describe(model=str(tmp_path), policies=["attribution_most:0.15"], train_size=20)
    assert description["policies"]["attribution_most:0.15"]["tokens_masked"] > 0.1
    with pytest.raises(UserError, match="has others than for 3 labels"):
        describe("nli", model=str(tmp_path), policies=["exact:0.15"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_and_its_rate_in_one_word(name):
    own_length = name.startswith("supervised")
    assert parse_policy(name) == (name, None if own_length else 0.05)
    assert "{}" not in policy_in_words(name) and ("5 %" in policy_in_words(name)) != own_length
    assert policy_in_words("known_shortcut:1") == "shortcut's words, all of them"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exakt", "policy is 'exakt'"),
        ("exact:2", "the rate of exact is 2.0"),
        ("supervised:0.1", "leave the rate out"),
    ],
)
def test_bad_policies(text, message):
    with pytest.raises(UserError, match=message):
        parse_policy(text)
