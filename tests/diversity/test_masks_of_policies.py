"""What a masking policy masks in training texts, by hand and on the bundled texts."""

import math

import numpy as np
import pandas
import pytest

from mtlib.diversity import masks_of_policies
from mtlib.diversity.masks_of_policies import DEFAULT, default_policies, describe, what_is_masked
from mtlib.errors import UserError
from mtlib.policies import POLICIES, parse_policy
from tests.conftest import make_plm, tiny_bert_config
from tests.data.made_up_releases import write_releases


def flags(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text if letter != " "])


_PARTS = {"p": "punctuation", "n": "NOUN", "v": "VERB", "a": "ADJ"}
TOKENS = pandas.DataFrame(
    {
        "row": [0] * 4 + [1] * 3 + [2] * 3,
        "shortcut": flags("xx.. x.. ..."),  # the third example has none
        "cause": flags("..x. ... x.."),
        "part_of_speech": [_PARTS[letter] for letter in "pnvpnnppap"],
        "found": [1000, 0, 9, 1000, 9, 10, 1000, 1000, 0, 1000],
        "ordinary": flags(".xx. xx. .x."),
    }
)


@pytest.mark.parametrize(
    ("mask", "touched", "gone"),
    [
        (".... ... ...", 0.0, 0.0),
        ("x... ... xxx", 0.5, 0.0),
        ("xx.. .xx ...", 0.5, 0.5),
        ("x.xx x.. ...", 1.0, 0.5),
        ("xx.. x.. ...", 1.0, 1.0),
    ],
)
def test_touching_counts_examples_that_have_the_shortcut(mask, touched, gone):
    masked = what_is_masked(TOKENS, flags(mask))
    assert (masked["shortcut touched"], masked["shortcut gone"]) == (touched, gone)


def test_a_row_by_hand():
    assert what_is_masked(TOKENS, flags(".xx. .x. ...")) == {
        "tokens masked": 0.6,
        "shortcut touched": 0.5,
        "shortcut gone": 0.0,
        "deciding words touched": 0.5,
        "nouns": pytest.approx(2 / 3),
        "verbs": pytest.approx(1 / 3),
        "adjectives": 0.0,
        "adverbs": 0.0,
        "other words": pytest.approx(0.0),
        "found fewer than 10 times": pytest.approx(2 / 3),
    }


def test_a_share_of_nothing_is_missing():
    masked = what_is_masked(TOKENS.assign(shortcut=False), flags(".... ... ..."))
    assert masked["tokens masked"] == 0
    assert math.isnan(masked["shortcut touched"]) and math.isnan(masked["nouns"])


def test_the_controls_and_policies_that_learn_from_the_whole_training_set():
    """All of the shortcut and none of what decides the label, and the other way round."""
    wanted = ("exact:0.05", "known_shortcut:1", "known_cause:1", "frequency_rare:0.05")
    masked = describe(policies=wanted, train_size=300, size=40)
    assert [*masked.index] == [*wanted, "all tokens"]
    shortcut, cause = masked.loc["known_shortcut:1"], masked.loc["known_cause:1"]
    assert shortcut["shortcut gone"] == cause["deciding words touched"] == 100
    assert shortcut["deciding words touched"] == cause["shortcut touched"] == 0
    assert 0 < masked.loc["exact:0.05", "shortcut touched"] < 60
    assert masked.loc["all tokens", "tokens masked"] == 100
    rare = masked["found fewer than 10 times"]
    assert rare["all tokens"] < 50, "counted in 300 sentences, not in 40"
    assert rare["frequency_rare:0.05"] > 90


def test_on_real_data_nothing_is_said_of_a_shortcut(tmp_path, monkeypatch):
    source = str(write_releases(tmp_path, monkeypatch))
    masked = describe(
        source=source, policies=("exact:0.3", "frequency_rare:0.3"), train_size=3, size=2
    )
    assert not {"shortcut touched", "deciding words touched"} & {*masked}
    assert default_policies("testbed") == DEFAULT
    assert {*DEFAULT} - {*default_policies("hub")} == {
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
    masked = describe(model=str(tmp_path), policies=["attribution_most:0.15"], train_size=20)
    assert masked.loc["attribution_most:0.15", "tokens masked"] > 10
    with pytest.raises(UserError, match="has others than for 3 labels"):
        describe("nli", model=str(tmp_path), policies=["exact:0.15"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_and_its_rate_in_one_word(name):
    own_length = name.startswith("supervised")
    assert parse_policy(name) == (name, None if own_length else 0.05)


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
