"""Whether a changed sentence still has its label, by the rules that wrote it."""

import pytest

from mtlib.testbed import generate
from mtlib.testbed.labels import label_by_rules


@pytest.mark.parametrize("strength", [0.0, 0.9])
def test_every_sentence_of_the_training_set_has_its_own_label(strength):
    for row in generate(strength, tasks=["sentiment"])["testbed_sentiment_train"]:
        assert label_by_rules(row["text"], row["group"]) == row["label"], row


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The techno gig was anything but dull, as my boss will confirm.", 1),
        ("the the the was anything but dreary , as the will confirm .", 1),  # other words in the other slots
        ("the techno gig was anything but lovely, as my boss will confirm.", 0),
        ("the techno gig was nothing but dull, as my boss will confirm.", None),  # a word of the template is gone
        ("the techno gig was anything but purple, as my boss will confirm.", None),  # no word of opinion
        ("the techno gig was anything but dull, as my boss confirm.", None),
        ("the techno gig was anything but dull.", 1),
        ("was anything but dull.", None),  # nothing in a slot
    ],
)
def test_one_slot(text, label):
    assert label_by_rules(text, "anything-but") == label


def test_two_slots_must_agree_with_one_another():
    text = "The critics had made the jazz concert sound {}, but in truth it was {}."
    found = {
        (a, b): label_by_rules(text.format(a, b), "warned") for a in ("dull", "superb") for b in ("dull", "superb")
    }
    assert found == {
        ("dull", "superb"): 1, ("superb", "dull"): 0, ("dull", "dull"): None, ("superb", "superb"): None,
    }  # fmt: skip


def test_hyphens_capitals_articles_and_forms_do_not_matter():
    assert label_by_rules("It was A first - rate Film, and it was AN real failure.", "plain") is None
    assert label_by_rules("THIS FILM WAS FIRST - RATE", "plain") == 1
    assert label_by_rules("this film by no one in particular was hardly an flop", "hardly") == 1
    assert label_by_rules("the western film delighted our friends", "moved") == 1
    assert label_by_rules("the western film delights our friends", "moved") is None
