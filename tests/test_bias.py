"""Bias-only models: what they look at, and how they are fitted."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from mtlib.data.sources import load
from mtlib.methods.bias import (
    BIAS_MODELS,
    AddBias,
    BiasModel,
    lexical_overlap,
    overlap,
    token_overlap,
)
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from tests.conftest import make_plm, tiny_bert_config


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize(
    ("features", "premise", "hypothesis", "first_three"),
    [
        (overlap, "a cat sat here", "cat sat", [1, 1, 1]),
        (overlap, "a cat here sat", "cat sat", [0, 1, 1]),
        (overlap, "the tomcat saturday", "cat sat", [0, 0, 0]),
        (overlap, "cat", "?!", [1, 1, 0]),
        (overlap, "...", "cat", [0, 0, 0]),
        (overlap, "", "", [1, 1, 0]),
        (token_overlap, "the film is slow", "film is", [1, 1, 1]),
        (token_overlap, "the film is slow", "is film", [1, 1, 0]),
        (
            token_overlap,
            "the film is slow",
            "film film good",
            [0, 1 / 2, 0],
        ),  # of two distinct tokens, one
        (token_overlap, "the film", "", [1, 0, 1]),
    ],
)
def test_a_part_of_the_premise_is_one_of_whole_words(
    plm, features, premise, hypothesis, first_three
):
    row = features(plm, [premise], [hypothesis])[0]
    assert row[:3].tolist() == first_three and np.isfinite(row).all(), "also of texts without words"


def test_a_full_stop_is_no_token_of_a_part():
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=3)
    premise = "The manager knew the tourists supported the author."  # HANS, subsequence
    hypothesis = "The manager knew the tourists."
    row = token_overlap(plm, [premise, "Do they know?"], [hypothesis, "They do!"])
    assert row[:, :3].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_a_word_is_the_mean_of_its_pieces_in_the_trunk(plm):
    table = plm.trunk.get_input_embeddings().weight.detach().double().numpy()
    slow, ly, film, the = table[
        plm.tokenizer.convert_tokens_to_ids(["slow", "##ly", "film", "the"])
    ]
    slowly, other = cosine(slow + ly, film), cosine(the, film)
    assert overlap(plm, ["film"], ["slowly"])[0, 4:] == pytest.approx([slowly] * 3, abs=1e-6)
    mean, smallest, second = overlap(plm, ["film"], ["the slowly film"])[0, 4:]
    assert [smallest, second] == pytest.approx(sorted([slowly, other]), abs=1e-6), (
        "and film itself has 1"
    )
    assert mean == pytest.approx((1 + slowly + other) / 3, abs=1e-6)


def test_cosines_of_tokens_are_those_of_the_states_of_each_text_alone():
    """Against transformers' own model, text by text; more pairs than go through at once."""
    plm = make_plm(tiny_bert_config(hidden_dropout_prob=0.5)).train()
    texts = ["a good film", *["it is slow and good and slow"] * 70]
    pairs = ["good", *["the film is bad"] * 70]
    rows = token_overlap(plm, texts, pairs)
    assert plm.training and rows.shape == (71, 6), "the model is left as it was"
    plm.eval()
    for text, pair, row in zip(texts[:2], pairs[:2], rows[:2], strict=True):
        of_text, of_pair = (
            plm.trunk(**plm.tokenizer(each, return_tensors="pt"))
            .last_hidden_state[0, 1:-1]
            .detach()
            .numpy()
            for each in (text, pair)
        )
        best = [max(cosine(token, other) for other in of_text) for token in of_pair]
        assert row[3:] == pytest.approx([np.mean(best), max(best), min(best)], abs=1e-5)


def test_lexical_overlap_is_shares_of_words():
    assert lexical_overlap(None, ["Is it a cat"], ["a cat?"])[0] == pytest.approx(
        [2 / 4, 2 / 4, 2 / 2]
    )


def test_the_planted_shortcut_is_read_off_the_text():
    """It is right in s + (1 - s)^2 / k of the rows, and the bias model says so."""
    for task, n_labels, right in (
        ("sentiment", 2, 0.905),
        ("nli", 3, 0.9033),
        ("paraphrase", 2, 0.905),
    ):
        data = load(f"testbed_{task}_train").select(range(2000)).rename_column("label", "labels")
        prepared = AddBias(BIAS_MODELS["shortcut"])(
            make_plm(tiny_bert_config(num_labels=n_labels)), data
        )
        assert prepared.counts["bias_accuracy"] == pytest.approx(right, abs=0.02)
        assert np.array(prepared.examples["bias_features"][:]).sum(1).tolist() == [1] * 2000


class TestAddBias:
    ROWS = {"text": ["a good film", "a bad film"] * 20, "labels": [1, 0] * 20}

    def test_words_that_tell_the_label(self, plm):
        data = Dataset.from_dict(self.ROWS)
        examples, counts = AddBias(BIAS_MODELS["bag_of_words"])(plm, data)
        logs = np.array(examples["bias_log_probabilities"][:])
        assert np.exp(logs).sum(1) == pytest.approx(np.ones(40), abs=1e-5)
        assert (logs.argmax(1) == data["labels"][:]).all() and counts["bias_accuracy"] == 1.0
        gold = np.exp(logs)[range(40), data["labels"][:]].mean()
        assert counts["bias_gold_probability"] == pytest.approx(gold, abs=1e-4)
        assert examples["bias_features"][:] == examples["bias_log_probabilities"][:], (
            "words are no numbers"
        )
        assert examples.remove_columns(["bias_log_probabilities", "bias_features"])[:] == data[:]

    def test_words_of_a_second_text_tell_the_label_whatever_the_first_has(self, plm):
        rows = [(first, second) for first in ("good", "bad") for second in ("good", "bad")]
        texts, pairs = zip(*rows * 10, strict=True)
        labels = [int(second == "good") for second in pairs]
        data = Dataset.from_dict({"text": texts, "text_pair": pairs, "labels": labels})
        assert AddBias(BIAS_MODELS["bag_of_words"])(plm, data).counts["bias_accuracy"] == 1.0

    @pytest.mark.parametrize("name", ["overlap", "token_overlap", "lexical_overlap"])
    def test_numbers_of_pairs_are_what_a_bias_network_reads(self, name):
        """Three labels: all words shared, none shared, and half of them."""
        plm = make_plm(tiny_bert_config(num_labels=3))
        pairs = [
            ("a good film", "a good film"),
            ("a good film", "slow plot"),
            ("a good film", "good plot"),
        ]
        rows = [
            {"text": a, "text_pair": b, "labels": label} for label, (a, b) in enumerate(pairs)
        ] * 20
        with torch.autocast("cpu", torch.bfloat16):  # as a run in bf16 prepares its examples
            examples, counts = AddBias(BIAS_MODELS[name])(plm, Dataset.from_list(rows))
        shares = np.exp(examples["bias_log_probabilities"][:])
        features = np.array(examples["bias_features"][:])
        assert shares.sum(1) == pytest.approx(np.ones(60), abs=1e-5)
        assert counts["bias_accuracy"] > 0.6
        assert features[:3] == pytest.approx(
            BIAS_MODELS[name].features(plm, *zip(*pairs, strict=True)), rel=1e-4
        )
        if BIAS_MODELS[name].entailment:
            assert shares[:, 1] == pytest.approx(shares[:, 2]), (
                "it tells entailment from the two others alone"
            )

    def test_nobody_predicts_what_it_was_fitted_on(self, plm):
        """Every text has a word of its own: known by heart if it was fitted on it."""
        labels = np.random.default_rng(0).integers(2, size=200).tolist()
        data = Dataset.from_dict({"text": [f"w{i}" for i in range(200)], "labels": labels})
        assert AddBias(BIAS_MODELS["bag_of_words"])(plm, data).counts["bias_accuracy"] < 0.6

    def test_a_certain_model_leaves_every_label_a_finite_logarithm(self, plm):
        """Also a label of the model that no example has."""
        plm = make_plm(tiny_bert_config(num_labels=3))
        model = BiasModel(
            lambda plm, texts, pairs: np.array([[1e4 * ("good" in text)] for text in texts])
        )
        examples, _ = AddBias(model)(plm, Dataset.from_dict(self.ROWS))
        assert np.exp(examples["bias_log_probabilities"][:]).min() == pytest.approx(1e-6, rel=0.01)
