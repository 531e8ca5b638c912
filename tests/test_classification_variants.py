"""Variants of Mask-tuning: each option changes what it says, and its default changes nothing."""

import math

import pytest
import torch

from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.methods import get_method
from mtlib.methods.classification_variants import OriginalAndRefilled, ValidatedOrOriginal
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.runs.config import configure
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import arguments, examples, history, make_batch, make_tokenizer, train

HALF = ExactMasking(0.5)


def prepared(plm, objective) -> dict:
    return objective.sample(plm, make_batch(plm), torch.Generator().manual_seed(0))


def test_both_texts_are_classified(still_plm):
    both = MaskTuning(0.0, HALF, classification=OriginalAndRefilled())
    refilled = MaskTuning(0.0, HALF)
    batch = prepared(still_plm, refilled)
    original = FineTuning()(still_plm, batch).loss
    expected = (original + refilled(still_plm, batch).loss) / 2
    torch.testing.assert_close(both(still_plm, batch).loss, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_an_auxiliary_masked_lm_loss_leaves_the_classified_text_alone(still_plm, alpha):
    auxiliary = MaskTuning(alpha, HALF, classifier_reads="original")
    refilled = MaskTuning(alpha, HALF)
    batch = prepared(still_plm, auxiliary)
    output, with_refilling = auxiliary(still_plm, batch), refilled(still_plm, batch)
    on_originals = FineTuning()(still_plm, batch)
    assert output.components["mlm_loss"] == with_refilling.components["mlm_loss"]
    assert torch.equal(output.logits, on_originals.logits)
    assert not torch.equal(output.logits, with_refilling.logits)
    expected = alpha * with_refilling.components["mlm_loss"] + (1 - alpha) * on_originals.loss
    torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize("update", ["joint", "balanced", "alternating"])
def test_an_auxiliary_loss_without_weight_is_fine_tuning(tmp_path, update):
    auxiliary = train(
        tmp_path / "a", MaskTuning(0.0, HALF, classifier_reads="original"), update=update
    )
    plain = train(tmp_path / "b", FineTuning())
    assert history(auxiliary, "ft_loss") == history(plain, "ft_loss")


class FixedAnswers:
    """A model whose answers depend on the first word alone."""

    def __init__(self, logits: dict[int, list[float]]):
        self.logits = logits

    def classify(self, batch):
        return torch.tensor(
            [self.logits[int(row[0])] for row in batch["input_ids"]], requires_grad=True
        )


def test_double_validation_by_hand():
    # word 1: sure of class 0; word 2: class 1; word 3: unsure, class 0
    plm = FixedAnswers({1: [3.0, 0.0], 2: [0.0, 1.0], 3: [0.1, 0.0]})
    # a sure answer that changes, a sure one that stays, an unsure one that changes
    batch = {
        "original_ids": torch.tensor([[1], [1], [3]]),
        "input_ids": torch.tensor([[2], [1], [2]]),
        "labels": torch.tensor([0, 0, 1]),
    }
    output = ValidatedOrOriginal(confidence=0.9)(plm, batch)

    def loss(word: int, label: int) -> float:
        scores = plm.logits[word]
        return math.log(sum(map(math.exp, scores))) - scores[label]

    kept = loss(1, 0) + loss(2, 1) + loss(1, 0)  # the first text is replaced by its original
    assert output.components["n_rejected"] == 1
    assert output.loss.item() == pytest.approx(kept / 3, rel=1e-5)


@pytest.mark.parametrize("reading", [OriginalAndRefilled, ValidatedOrOriginal])
def test_what_only_mask_tuning_brings_is_named(still_plm, tmp_path, reading):
    with pytest.raises(
        UserError, match=r"no column original_ids, which .* MaskTuning\(classification=...\) brings"
    ):
        ObjectiveTrainer(still_plm, reading(), arguments(tmp_path), examples(8))


def test_what_compares_both_texts_needs_the_refilled_one():
    with pytest.raises(
        UserError, match="classifier_reads is 'original', and validated_or_original"
    ):
        MaskTuning(classification=ValidatedOrOriginal(), classifier_reads="original")


def test_every_reading_is_a_setting_of_the_method():
    def objective(**settings) -> MaskTuning:
        chosen = configure("sentiment", "mask_tuning", **settings).resolved()
        return (
            get_method("mask_tuning")
            .stages(chosen.settings, chosen.rates, make_tokenizer())[-1]
            .objective
        )

    assert (
        type(objective(classification="original_and_refilled").classification)
        is OriginalAndRefilled
    )
    validated = objective(classification="validated_or_original")
    assert type(validated.classification) is ValidatedOrOriginal
    assert objective(classifier_reads="original").classifier_reads == "original"
