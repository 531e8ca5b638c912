"""Bias-only models: what they look at, and how they are fitted."""

import numpy as np
import pytest
from datasets import Dataset

from mtlib.errors import UserError
from mtlib.methods.bias import (
    AddBias,
    BiasModel,
    bias_quality,
    predict_out_of_fold,
)
from mtlib.methods.bias_models import BagOfWords, HypothesisOnly, LexicalOverlap, Overlap, Shortcut, TokenOverlap
from mtlib.testbed import generate
from tests.conftest import make_plm, tiny_bert_config


class TestOverlap:
    def features(self, premise, hypothesis):
        return Overlap().features(make_plm(), [premise], [hypothesis])[0]

    def test_a_part_of_the_premise_is_one_of_whole_words(self):
        assert self.features("a cat sat here", "cat sat")[:3].tolist() == [1, 1, 1]
        assert self.features("a cat here sat", "cat sat")[:3].tolist() == [0, 1, 1]
        assert self.features("the tomcat saturday", "cat sat")[0] == 0

    def test_texts_without_words_have_features_too(self):
        for premise, hypothesis in (("cat", "?!"), ("...", "cat"), ("", "")):
            assert np.isfinite(self.features(premise, hypothesis)).all()

    def test_without_vectors_a_word_is_the_mean_of_its_pieces_in_the_trunk(self):
        plm = make_plm()
        table = plm.trunk.get_input_embeddings().weight.detach().double().numpy()
        slow, ly, film = (table[plm.tokenizer.convert_tokens_to_ids(piece)] for piece in ("slow", "##ly", "film"))
        slowly = (slow + ly) / 2
        cosine = slowly @ film / np.linalg.norm(slowly) / np.linalg.norm(film)
        row = Overlap().features(plm, ["film"], ["slowly"])[0]
        assert row[4:] == pytest.approx([cosine] * 3)

    def test_what_is_no_entailment_is_halved(self):
        features = np.repeat([[1.0], [0.0]], 20, axis=0) * np.ones(7)
        labels = np.array([0] * 20 + [1, 2] * 10)
        probabilities = predict_out_of_fold(Overlap(), features, labels, 3, folds=1)
        assert (probabilities[:, 1] == probabilities[:, 2]).all() and probabilities.sum(1) == pytest.approx(np.ones(40))
        assert (probabilities[:20, 0] > 0.9).all() and (probabilities[20:, 0] < 0.1).all()


class TestTokenOverlap:
    def features(self, premise, hypothesis, plm=None, **options):
        return TokenOverlap(**options).features(plm or make_plm(), [premise], [hypothesis])[0]

    def test_the_three_features_of_tokens_by_hand(self):
        assert self.features("the film is slow", "film is")[:3].tolist() == [1, 1, 1]
        assert self.features("the film is slow", "is film")[:3].tolist() == [1, 1, 0]
        row = self.features("the film is slow", "film film good")  # of two distinct tokens, one
        assert row[:3].tolist() == [0, 1 / 2, 0]
        assert self.features("the film is slow", "the film is slow")[:3].tolist() == [1, 1, 1]

    def test_the_cosines_are_those_of_the_states_of_each_text_alone(self):
        """Against transformers' own model, one text at a time and without padding."""
        plm = make_plm(tiny_bert_config(hidden_dropout_prob=0.5)).train()
        texts, pairs = ["a good film", "it is slow and good and slow"], ["good", "the film is bad"]
        rows = TokenOverlap().features(plm, texts, pairs)
        assert plm.training, "the model is left as it was"
        plm.eval()
        for text, pair, row in zip(texts, pairs, rows, strict=True):
            states = []
            for words_of in (text, pair):
                encoded = plm.tokenizer(words_of, return_tensors="pt")
                state = plm.trunk(**encoded).last_hidden_state[0, 1:-1].detach().numpy()
                states.append(state / np.linalg.norm(state, axis=1, keepdims=True))
            best = (states[1] @ states[0].T).max(axis=1)
            assert row[3:] == pytest.approx([best.mean(), best.max(), best.min()], abs=1e-5)

    def test_neither_batches_nor_padding_count(self):
        plm = make_plm()
        texts, pairs = ["a good film"] + ["it is slow and good and slow"] * 70, ["good"] + ["the film is bad"] * 70
        together = TokenOverlap().features(plm, texts, pairs)
        assert together.shape == (71, 6)
        assert together[0] == pytest.approx(self.features("a good film", "good", plm), abs=1e-5)

    def test_they_tell_what_is_entailed_on_a_made_up_task(self):
        """Hypotheses within the premise are entailed: the bias model must find that."""
        plm = make_plm()
        data = Dataset.from_dict(
            {
                "text": ["the film is good", "a slow film and it is bad"] * 20,
                "text_pair": ["the film", "the acting was great"] * 20,
                "labels": [0, 1] * 20,
                "input_ids": [[2, 5, 3]] * 40,
            }
        )
        plm.config.num_labels = 3
        added = AddBias(TokenOverlap(), folds=2)(plm, data)
        assert added.counts["bias_accuracy"] == 1 and len(added.examples[0]["bias_features"]) == 6
        assert len(added.examples[0]["bias_log_probabilities"]) == 3


def test_lexical_overlap_is_shares_of_words():
    row = LexicalOverlap().features(None, ["Is it a cat"], ["a cat?"])[0]
    assert row == pytest.approx([2 / 4, 2 / 4, 2 / 2])


def test_the_planted_shortcut_is_read_off_the_text():
    """It is right in s + (1 - s)^2 / k of the rows, and the bias model says so."""
    for task, n_labels, right in (("sentiment", 2, 0.905), ("nli", 3, 0.9033), ("paraphrase", 2, 0.905)):
        rows = generate(tasks=[task])[f"testbed_{task}_train"][:2000]
        data = Dataset.from_list(rows).rename_column("label", "labels")
        plm = make_plm(tiny_bert_config(num_labels=n_labels))
        prepared = AddBias(Shortcut())(plm, data)
        assert prepared.counts["bias_accuracy"] == pytest.approx(right, abs=0.02)
        assert prepared.counts["bias_calibration_error"] < 0.03  # one fold's accuracy varies by 0.015
        assert np.array(prepared.examples["bias_features"][:]).sum(1).tolist() == [1] * 2000


class TestAddBias:
    def data(self, n=40, pair=False):
        row = {"text": ["a good film", "a bad film"], "labels": [1, 0]}
        row |= {"text_pair": ["so good", "so bad"]} if pair else {}
        return Dataset.from_list([{name: values[i % 2] for name, values in row.items()} for i in range(n)])

    @pytest.mark.parametrize(("model", "pair"), [(BagOfWords(), False), (HypothesisOnly(), True)])
    def test_words_that_tell_the_label(self, plm, model, pair):
        data = self.data(pair=pair)
        examples, counts = AddBias(model)(plm, data)
        logs = np.array(examples["bias_log_probabilities"][:])
        assert np.exp(logs).sum(1) == pytest.approx(np.ones(40), abs=1e-5)
        assert (logs.argmax(1) == data["labels"][:]).all() and counts["bias_accuracy"] == 1.0
        assert examples["bias_features"][:] == examples["bias_log_probabilities"][:], "words are no numbers"
        assert examples.remove_columns(["bias_log_probabilities", "bias_features"])[:] == data[:]

    @pytest.mark.parametrize("model", [Overlap(), LexicalOverlap()])
    def test_numbers_of_pairs_are_what_a_bias_network_reads(self, model):
        """Three labels: all words shared, none shared, and half of them."""
        plm = make_plm(tiny_bert_config(num_labels=3))
        pairs = [("a good film", "a good film"), ("a good film", "slow plot"), ("a good film", "good plot")]
        rows = [{"text": a, "text_pair": b, "labels": label} for label, (a, b) in enumerate(pairs)] * 20
        examples, counts = AddBias(model)(plm, Dataset.from_list(rows))
        logs, features = np.array(examples["bias_log_probabilities"][:]), np.array(examples["bias_features"][:])
        assert logs.shape == (60, 3) and np.exp(logs).sum(1) == pytest.approx(np.ones(60), abs=1e-5)
        texts, others = zip(*pairs, strict=True)
        assert features[:3] == pytest.approx(model.features(plm, texts, others), rel=1e-5)
        assert counts["bias_accuracy"] > 0.6  # overlap tells entailment from the two others, which share a probability

    def test_out_of_fold_nobody_predicts_what_it_was_fitted_on(self, plm):
        """Every text has a word of its own: by heart in its own training data, unknown otherwise."""
        generator = np.random.default_rng(0)
        labels = generator.integers(2, size=200).tolist()
        data = Dataset.from_dict({"text": [f"w{i}" for i in range(200)], "labels": labels})
        accuracy = {folds: AddBias(BagOfWords(), folds)(plm, data).counts["bias_accuracy"] for folds in (1, 5)}
        assert accuracy[1] > 0.95 and accuracy[5] < 0.6

    def test_what_does_not_fit_is_told(self, plm):
        with pytest.raises(UserError, match="the bias model HypothesisOnly is for pairs of texts"):
            AddBias(HypothesisOnly())(plm, self.data())
        with pytest.raises(UserError, match="the training set has one label only"):
            AddBias(BagOfWords())(plm, self.data().filter(lambda row: row["labels"] == 1))

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (None, "AddBias reads the labels, but the examples have no column `labels`, only text; tokenise them with"),
            ([0, 2], "the training set has labels 0 to 2; a classifier with num_labels=2 takes 0 to 1"),
            ([0, -1], "the training set has labels -1 to 0"),
            (["bad", "good"], "the training set has the label 'bad'; expected class numbers"),
        ],
    )
    def test_labels_that_a_bias_model_cannot_be_fitted_to(self, plm, labels, message):
        columns = {"text": ["a bad film", "a good film"]} | ({} if labels is None else {"labels": labels})
        with pytest.raises(UserError, match=message):
            AddBias(BagOfWords())(plm, Dataset.from_dict(columns))

    def test_a_label_that_the_other_folds_lack_is_learned_from_all_examples(self):
        class Number(BiasModel):
            def features(self, plm, texts, pairs):
                return np.arange(12.0)[:, None]

        labels = np.array([0, 1] * 5 + [0, 2])
        probabilities = predict_out_of_fold(Number(), Number().features(None, None, None), labels, 3, folds=12)
        assert (probabilities > 0).all() and probabilities[11, 2] > 0.5, "not the least that a probability can be"
        assert probabilities[10, 0] < 0.5, "its own fold is left out, as the others have its label"


def test_quality_by_hand():
    probabilities = np.array([[0.95, 0.05], [0.85, 0.15], [0.15, 0.85], [0.45, 0.55]])
    quality = bias_quality(probabilities, np.array([0, 1, 1, 0]))
    # bins 0.9 (right), 0.8 (one of two right), 0.5 (wrong): |0.95 - 1| + |1.7 - 1| + |0.55 - 0|, over 4
    assert quality["bias_calibration_error"] == pytest.approx((0.05 + 0.7 + 0.55) / 4)
    assert (quality["bias_accuracy"], quality["bias_gold_probability"]) == (
        0.5,
        pytest.approx((0.95 + 0.15 + 0.85 + 0.45) / 4),
    )
