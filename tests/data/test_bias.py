"""Bias-only models: what they look at, and how they are fitted."""

import numpy as np
import pytest
from datasets import Dataset

from mtlib.errors import UserError
from mtlib.methods.bias import AddBias, BiasModel, bias_quality, predict_out_of_fold
from mtlib.methods.bias_models import BIAS_MODELS, lexical_overlap, overlap, token_overlap
from mtlib.testbed import generate
from tests.conftest import make_plm, tiny_bert_config


class TestOverlap:
    @pytest.mark.parametrize(
        ("premise", "hypothesis", "first_three"),
        [
            ("a cat sat here", "cat sat", [1, 1, 1]),
            ("a cat here sat", "cat sat", [0, 1, 1]),
            ("the tomcat saturday", "cat sat", [0, 0, 0]),
            ("cat", "?!", None),
            ("...", "cat", None),
            ("", "", None),
        ],
    )
    def test_a_part_of_the_premise_is_one_of_whole_words(self, premise, hypothesis, first_three):
        row = overlap(make_plm(), [premise], [hypothesis])[0]
        assert np.isfinite(row).all(), "also of texts without words"
        assert first_three is None or row[:3].tolist() == first_three

    def test_a_word_is_the_mean_of_its_pieces_in_the_trunk(self):
        plm = make_plm()
        table = plm.trunk.get_input_embeddings().weight.detach().double().numpy()
        slow, ly, film, the = table[plm.tokenizer.convert_tokens_to_ids(["slow", "##ly", "film", "the"])]
        cosine = (slow + ly) @ film / np.linalg.norm(slow + ly) / np.linalg.norm(film)
        assert overlap(plm, ["film"], ["slowly"])[0, 4:] == pytest.approx([cosine] * 3)
        other = the @ film / np.linalg.norm(the) / np.linalg.norm(film)
        mean, smallest, second = overlap(plm, ["film"], ["the slowly film"])[0, 4:]
        assert [smallest, second] == pytest.approx(sorted([cosine, other])), "and film itself has 1"
        assert mean == pytest.approx((1 + cosine + other) / 3)

    def test_what_is_no_entailment_is_halved(self):
        features = np.repeat([[1.0], [0.0]], 20, axis=0) * np.ones(7)
        labels = np.array([0] * 20 + [1, 2] * 10)
        probabilities = predict_out_of_fold(BIAS_MODELS["overlap"], features, labels, 3, folds=1)
        assert (probabilities[:, 1] == probabilities[:, 2]).all() and probabilities.sum(1) == pytest.approx(np.ones(40))
        assert (probabilities[:20, 0] > 0.9).all() and (probabilities[20:, 0] < 0.1).all()


class TestTokenOverlap:
    @pytest.mark.parametrize(
        ("hypothesis", "first_three"),
        [
            ("film is", [1, 1, 1]),
            ("is film", [1, 1, 0]),
            ("film film good", [0, 1 / 2, 0]),  # of two distinct tokens, one
            ("the film is slow", [1, 1, 1]),
        ],
    )
    def test_the_three_features_of_tokens_by_hand(self, hypothesis, first_three):
        assert token_overlap(make_plm(), ["the film is slow"], [hypothesis])[0, :3].tolist() == first_three

    def test_the_cosines_are_those_of_the_states_of_each_text_alone(self):
        """Against transformers' own model, one text at a time, without padding; more pairs than go through at once."""
        plm = make_plm(tiny_bert_config(hidden_dropout_prob=0.5)).train()
        texts = ["a good film", *["it is slow and good and slow"] * 70]
        pairs = ["good", *["the film is bad"] * 70]
        rows = token_overlap(plm, texts, pairs)
        assert plm.training and rows.shape == (71, 6), "the model is left as it was"
        plm.eval()
        for text, pair, row in zip(texts[:2], pairs[:2], rows[:2], strict=True):
            states = []
            for words_of in (text, pair):
                encoded = plm.tokenizer(words_of, return_tensors="pt")
                state = plm.trunk(**encoded).last_hidden_state[0, 1:-1].detach().numpy()
                states.append(state / np.linalg.norm(state, axis=1, keepdims=True))
            best = (states[1] @ states[0].T).max(axis=1)
            assert row[3:] == pytest.approx([best.mean(), best.max(), best.min()], abs=1e-5)


def test_lexical_overlap_is_shares_of_words():
    assert lexical_overlap(None, ["Is it a cat"], ["a cat?"])[0] == pytest.approx([2 / 4, 2 / 4, 2 / 2])


def test_the_planted_shortcut_is_read_off_the_text():
    """It is right in s + (1 - s)^2 / k of the rows, and the bias model says so."""
    for task, n_labels, right in (("sentiment", 2, 0.905), ("nli", 3, 0.9033), ("paraphrase", 2, 0.905)):
        rows = generate(tasks=[task])[f"testbed_{task}_train"][:2000]
        data = Dataset.from_list(rows).rename_column("label", "labels")
        prepared = AddBias(BIAS_MODELS["shortcut"])(make_plm(tiny_bert_config(num_labels=n_labels)), data)
        assert prepared.counts["bias_accuracy"] == pytest.approx(right, abs=0.02)
        assert prepared.counts["bias_calibration_error"] < 0.03  # one fold's accuracy varies by 0.015
        assert np.array(prepared.examples["bias_features"][:]).sum(1).tolist() == [1] * 2000


class TestAddBias:
    ROWS = {"text": ["a good film", "a bad film"] * 20, "labels": [1, 0] * 20}

    @pytest.mark.parametrize("name", ["bag_of_words", "hypothesis_only"])
    def test_words_that_tell_the_label(self, plm, name):
        pairs = {"text_pair": ["so good", "so bad"] * 20} if name == "hypothesis_only" else {}
        data = Dataset.from_dict(self.ROWS | pairs)
        examples, counts = AddBias(BIAS_MODELS[name])(plm, data)
        logs = np.array(examples["bias_log_probabilities"][:])
        assert np.exp(logs).sum(1) == pytest.approx(np.ones(40), abs=1e-5)
        assert (logs.argmax(1) == data["labels"][:]).all() and counts["bias_accuracy"] == 1.0
        assert examples["bias_features"][:] == examples["bias_log_probabilities"][:], "words are no numbers"
        assert examples.remove_columns(["bias_log_probabilities", "bias_features"])[:] == data[:]

    @pytest.mark.parametrize("name", ["overlap", "token_overlap", "lexical_overlap"])
    def test_numbers_of_pairs_are_what_a_bias_network_reads(self, name):
        """Three labels: all words shared, none shared, and half of them."""
        plm = make_plm(tiny_bert_config(num_labels=3))
        pairs = [("a good film", "a good film"), ("a good film", "slow plot"), ("a good film", "good plot")]
        rows = [{"text": a, "text_pair": b, "labels": label} for label, (a, b) in enumerate(pairs)] * 20
        examples, counts = AddBias(BIAS_MODELS[name])(plm, Dataset.from_list(rows))
        logs, features = np.array(examples["bias_log_probabilities"][:]), np.array(examples["bias_features"][:])
        assert logs.shape == (60, 3) and np.exp(logs).sum(1) == pytest.approx(np.ones(60), abs=1e-5)
        texts, others = zip(*pairs, strict=True)
        assert features[:3] == pytest.approx(BIAS_MODELS[name].features(plm, texts, others), rel=1e-4)
        assert counts["bias_accuracy"] > 0.6  # overlap tells entailment from the two others, which share a probability

    def test_out_of_fold_nobody_predicts_what_it_was_fitted_on(self, plm):
        """Every text has a word of its own: by heart in its own training data, unknown otherwise."""
        labels = np.random.default_rng(0).integers(2, size=200).tolist()
        data = Dataset.from_dict({"text": [f"w{i}" for i in range(200)], "labels": labels})
        model = BIAS_MODELS["bag_of_words"]
        accuracy = {folds: AddBias(model, folds)(plm, data).counts["bias_accuracy"] for folds in (1, 5)}
        assert accuracy[1] > 0.95 and accuracy[5] < 0.6

    def test_labels_that_are_not_the_models_are_told(self, plm):
        with pytest.raises(UserError, match="the training set has labels 0, 2; a classifier with num_labels=2"):
            AddBias(BIAS_MODELS["bag_of_words"])(plm, Dataset.from_dict(self.ROWS | {"labels": [0, 2] * 20}))

    def test_a_label_that_the_other_folds_lack_is_learned_from_all_examples(self):
        features, labels = np.arange(12.0)[:, None], np.array([0, 1] * 5 + [0, 2])
        probabilities = predict_out_of_fold(BiasModel("number", None), features, labels, 3, folds=12)
        assert (probabilities > 0).all() and probabilities[11, 2] > 0.5, "not the least that a probability can be"
        assert probabilities[10, 0] < 0.5, "its own fold is left out, as the others have its label"


def test_quality_by_hand():
    probabilities = np.array([[0.95, 0.05], [0.85, 0.15], [0.15, 0.85], [0.45, 0.55]])
    assert bias_quality(probabilities, np.array([0, 1, 1, 0])) == {
        "bias_accuracy": 0.5,
        "bias_gold_probability": (0.95 + 0.15 + 0.85 + 0.45) / 4,
        # bins 0.9 (right), 0.8 (one of two right), 0.5 (wrong): |0.95 - 1| + |1.7 - 1| + |0.55 - 0|, over 4
        "bias_calibration_error": (0.05 + 0.7 + 0.55) / 4,
    }
