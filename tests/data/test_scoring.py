"""Scoring, by hand-computed examples."""

import json
import math

import datasets
import numpy as np
import pytest

from mtlib.data.registry import SETS
from mtlib.data.scoring import score
from mtlib.errors import UserError


def one_hot(predictions, num_labels):
    return np.eye(num_labels)[list(predictions)]


def test_plain_accuracy_and_constant_baseline():
    metrics = score("sst2", one_hot([1, 1, 0, 1, 1], 2), np.array([1, 0, 0, 1, 0]), [""] * 5)
    assert metrics == {
        "n": 5,
        "correct": 3,
        "accuracy": 0.6,
        "majority": 0.6,
        "per_label": {
            "positive": {"n": 2, "correct": 2, "accuracy": 1.0},
            "negative": {"n": 3, "correct": 1, "accuracy": 1 / 3},
        },
    }


# Probabilities (entailment, neutral, contradiction). In rows 1 and 4 entailment is the largest, and
# so it is the answer, though the other two together outweigh it.
HANS_PROBABILITIES = np.array(
    [[0.7, 0.2, 0.1], [0.4, 0.3, 0.3], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.45, 0.35, 0.2]]
)
HANS_LABELS = np.array([0, 1, 0, 1, 0])
HANS_GROUPS = [
    "subsequence/se_PP_on_subj",
    "lexical_overlap/ln_subject/object_swap",
    "subsequence/se_PP_on_subj",
    "lexical_overlap/ln_subject/object_swap",
    "lexical_overlap/le_conjunction",
]


@pytest.mark.parametrize("set_name", [name for name in SETS if SETS[name].folded])
def test_three_labels_fold_into_two_by_the_largest(set_name):
    logits = np.log(HANS_PROBABILITIES) + 7  # a softmax does not see a constant
    metrics = score(set_name, logits, HANS_LABELS, HANS_GROUPS)
    # 0 0 1 1 0 against 0 1 0 1 0, right in rows 0, 3, 4
    assert [metrics[name] for name in ("n", "correct", "accuracy", "majority")] == [5, 3, 0.6, 0.6]
    assert metrics["per_group"] == {
        "subsequence": {
            "n": 2,
            "correct": 1,
            "accuracy": 0.5,
            "entailment": {"n": 2, "correct": 1, "accuracy": 0.5},
        },
        "lexical_overlap": {
            "n": 3,
            "correct": 2,
            "accuracy": 2 / 3,
            "non-entailment": {"n": 2, "correct": 1, "accuracy": 0.5},
            "entailment": {"n": 1, "correct": 1, "accuracy": 1.0},
        },
    }


@pytest.mark.parametrize("set_name", [name for name in SETS if SETS[name].paired])
def test_contrast_sets_score_edited_halves_originals_and_consistency(set_name):
    groups = ["7:original", "8:original", "9:original", "8:edited", "9:edited", "7:edited"]
    labels = np.array([0, 1, 1, 0, 0, 1])
    # right:        yes yes no | 8: yes, 9: yes, 7: no  ->  originals 2 of 3, edited 2 of 3, both
    # only in pair 8
    metrics = score(set_name, one_hot([0, 1, 0, 0, 0, 0], 2), labels, groups)
    assert metrics.pop("per_label") == {
        "positive": {"n": 1, "correct": 0, "accuracy": 0.0},
        "negative": {"n": 2, "correct": 2, "accuracy": 1.0},
    }
    assert metrics == {
        "n": 3,
        "correct": 2,
        "accuracy": 2 / 3,
        "majority": 2 / 3,
        "original": 2 / 3,
        "original_correct": 2,
        "consistency": 1 / 3,
        "consistent": 1,
        "pairs": 3,
    }


def test_scores_are_json_and_take_columns_of_a_dataset():
    rows = datasets.Dataset.from_dict({"label": [0, 1], "group": ["a/x", "a/y"]})
    metrics = score("hans", np.zeros((2, 3), dtype=np.float32), rows["label"], rows["group"])
    assert json.loads(json.dumps(metrics)) == metrics
    assert metrics["accuracy"] == 0.5, "a draw goes to the first label"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("sst2", [[0, math.nan], [0, 1]], [0, 1], ["", ""]),
            "logits of 1 of 2 rows are NaN or infinite",
        ),
        (("mnli_m", np.zeros((2, 2)), [0, 2], ["", ""]), "expected 3 logits, found 2"),
        (("sst2", np.zeros((1, 2)), [-1], [""]), r"gold labels \[-1\]"),
        (("imdb_cad", np.zeros((2, 2)), [1, 0], ["7:edited"] * 2), "found 0 and 1 in 2 rows"),
        (("imdb_cad", np.zeros((1, 2)), [1], ["7:edited"]), r"alone are \['7'\]"),
    ],
)
def test_bad_input_to_score(arguments, message):
    with pytest.raises(UserError, match=message):
        score(*arguments)
