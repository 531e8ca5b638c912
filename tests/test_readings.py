"""Other readings of Mask-tuning: each option changes what it says, and its default changes nothing."""

import math

import pytest
import torch

from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.masking import ExactMasking, maskable_positions
from mtlib.methods.readings import DoubleValidated, OriginalAndRefilled
from mtlib.objectives import FineTuning, MaskTuning, masked_lm_loss
from mtlib.policies.wrapping import FixedMasking, OneSide
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import ROBERTA_SPECIALS, make_batch, make_plm, make_tokenizer
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)
from tests.test_trainer import arguments, examples, history, train

HALF = ExactMasking(0.5)


def prepared(plm, objective) -> dict:
    return objective.prepare(plm, make_batch(plm), torch.Generator().manual_seed(0))


def test_weighted_masked_lm_loss_by_hand():
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])  # probabilities of the originals 3/4 and 1/2
    loss = masked_lm_loss(logits, torch.tensor([0, 1]), weights=torch.tensor([0.25, 2.0]))
    assert loss.item() == pytest.approx(0.25 * math.log(4 / 3) + 2 * math.log(2))


def test_reductions_of_the_masked_lm_loss(still_plm):
    losses = {}
    for reduction in ("tokens", "examples"):
        objective = MaskTuning(1.0, HALF, mlm_reduction=reduction)
        batch = prepared(still_plm, objective)
        losses[reduction] = objective(still_plm, batch).parts["mlm_loss"]
    alone = MaskTuning(1.0, HALF)
    rows = [{name: value[i : i + 1] for name, value in batch.items()} for i in range(len(batch["labels"]))]
    means = torch.stack([alone(still_plm, row).parts["mlm_loss"] for row in rows])
    torch.testing.assert_close(losses["examples"], means.mean())
    assert losses["examples"] != losses["tokens"]  # the sentences have different lengths


def test_filling_in_evaluation_mode_reads_no_dropout_and_leaves_the_mode():
    plm = make_plm().train()  # dropout in its configuration
    objective = MaskTuning(0.5, ExactMasking(1.0), fill_mode="eval")
    batch = prepared(plm, objective)
    filled = [objective(plm, batch).perturbed_ids for _ in range(5)]
    assert all(torch.equal(filled[0], other) for other in filled[1:])
    assert all(module.training for module in plm.mlm.modules())
    expected = plm.eval().fill_masks(batch, batch["mask"]).perturbed_ids
    assert torch.equal(filled[0], expected)


def test_both_texts_are_classified(still_plm):
    both, refilled = MaskTuning(0.0, HALF, classification=OriginalAndRefilled()), MaskTuning(0.0, HALF)
    batch = prepared(still_plm, refilled)
    original = FineTuning()(still_plm, batch).loss
    expected = (original + refilled(still_plm, batch).loss) / 2
    torch.testing.assert_close(both(still_plm, batch).loss, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_an_auxiliary_masked_lm_loss_leaves_the_classified_text_alone(still_plm, alpha):
    auxiliary, refilled = MaskTuning(alpha, HALF, classifier_reads="original"), MaskTuning(alpha, HALF)
    batch = prepared(still_plm, auxiliary)
    output, with_refilling = auxiliary(still_plm, batch), refilled(still_plm, batch)
    on_originals = FineTuning()(still_plm, batch)
    assert output.parts["mlm_loss"] == with_refilling.parts["mlm_loss"]
    assert torch.equal(output.logits, on_originals.logits) and not torch.equal(output.logits, with_refilling.logits)
    expected = alpha * with_refilling.parts["mlm_loss"] + (1 - alpha) * on_originals.loss
    torch.testing.assert_close(output.loss, expected)


@pytest.mark.parametrize("update", ["joint", "balanced", "alternating"])
def test_an_auxiliary_loss_without_weight_is_fine_tuning(tmp_path, update):
    auxiliary = train(tmp_path / "a", MaskTuning(0.0, HALF, classifier_reads="original"), update=update)
    plain = train(tmp_path / "b", FineTuning())
    assert history(auxiliary, "ft_loss") == history(plain, "ft_loss")


class FixedAnswers:
    """A model whose answers depend on the first word alone."""

    def __init__(self, logits: dict[int, list[float]]):
        self.logits = logits

    def classify(self, batch):
        return torch.tensor([self.logits[int(row[0])] for row in batch["input_ids"]], requires_grad=True)


@pytest.mark.parametrize("rejected", ["drop", "original"])
def test_double_validation_by_hand(rejected):
    # word 1: sure of class 0; word 2: class 1; word 3: unsure, class 0
    plm = FixedAnswers({1: [3.0, 0.0], 2: [0.0, 1.0], 3: [0.1, 0.0]})
    # a sure answer that changes, a sure one that stays, an unsure one that changes
    batch = {"original_ids": torch.tensor([[1], [1], [3]]), "input_ids": torch.tensor([[2], [1], [2]]),
             "labels": torch.tensor([0, 0, 1])}  # fmt: skip
    output = DoubleValidated(rejected, confidence=0.9)(plm, batch)

    def loss(word: int, label: int) -> float:
        scores = plm.logits[word]
        return math.log(sum(map(math.exp, scores))) - scores[label]

    kept = loss(1, 0) + loss(2, 1) + (loss(1, 0) if rejected == "original" else 0.0)
    assert output.parts["n_rejected"] == 1
    assert output.loss.item() == pytest.approx(kept / 3, rel=1e-5)


def test_masks_on_one_side_of_a_pair():
    for tokenizer in (make_tokenizer(), make_tokenizer(ROBERTA_SPECIALS, double_separator=True)):
        batch = dict(tokenizer([("good film", "bad slow plot"), ("a", "the story")], padding=True, return_tensors="pt"))
        maskable = maskable_positions(batch, tokenizer)
        first, second = (OneSide(ExactMasking(1.0), side, tokenizer)(batch, maskable) for side in ("first", "second"))
        assert first.sum(1).tolist() == [2, 1] and second.sum(1).tolist() == [3, 2]
        assert torch.equal(first | second, maskable) and not (first & second).any()
    alone = dict(tokenizer(["good film"], return_tensors="pt"))
    with pytest.raises(UserError, match="holds no pairs"):
        OneSide(HALF, "second", tokenizer)(alone, maskable_positions(alone, tokenizer))
    empty = dict(tokenizer([("good film", "")], return_tensors="pt"))  # a pair nevertheless
    assert not OneSide(HALF, "second", tokenizer)(empty, maskable_positions(empty, tokenizer)).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaskTuning(fill_mode="both"), "fill_mode is 'both'; expected one of train, eval"),
        (lambda: MaskTuning(mlm_reduction="mean"), "mlm_reduction is 'mean'"),
        (lambda: MaskTuning(classifier_reads="both"), "classifier_reads is 'both'; expected one of refilled, original"),
        (
            lambda: MaskTuning(classification=OriginalAndRefilled(), classifier_reads="original"),
            "is 'original_and_refilled', which compares a text with its refilled copy, but classifier_reads is 'orig",
        ),
        (lambda: DoubleValidated("keep"), "rejected is 'keep'"),
        (lambda: DoubleValidated(confidence=2), "confidence is 2"),
        (lambda: OneSide(HALF, "left", make_tokenizer()), "side is 'left'"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("update", ["joint", "balanced"])
@pytest.mark.parametrize("classification", [OriginalAndRefilled, DoubleValidated])
def test_every_reading_trains(tmp_path, classification, update):
    objective = MaskTuning(0.5, HALF, classification=classification(), fill_mode="eval", mlm_reduction="examples")
    trainer = train(tmp_path, objective, update=update)
    assert all(math.isfinite(loss) for (loss,) in history(trainer, "loss"))


def test_what_only_mask_tuning_brings_is_named(still_plm, tmp_path):
    for objective in (OriginalAndRefilled(), DoubleValidated()):
        with pytest.raises(UserError, match=r"lacks; train MaskTuning\(classification="):
            objective(still_plm, make_batch(still_plm))
        with pytest.raises(UserError, match=r"lacks; train MaskTuning\(classification="):
            ObjectiveTrainer(still_plm, objective, arguments(tmp_path), examples(8))
    with pytest.raises(UserError, match=r"DrawMasks\) add it"):
        FixedMasking(HALF)(make_batch(still_plm), None)


def test_fixed_masks_are_one_draw_for_all_epochs(tmp_path):
    plm, data = make_plm(), examples(16)
    masking = FixedMasking(HALF)
    (draw,) = masking.preparers()
    prepared = draw(plm, data, seed=1)
    assert prepared.examples["mask"][:] == draw(plm, data, seed=1).examples["mask"][:]
    assert prepared.examples["mask"][:] != draw(plm, data, seed=2).examples["mask"][:]
    rows = list(zip(prepared.examples["input_ids"], prepared.examples["mask"], strict=True))
    assert all(sum(mask) == max(1, round(0.5 * (len(ids) - 2))) and len(mask) == len(ids) for ids, mask in rows)
    assert not any(mask[0] or mask[-1] for _, mask in rows)
    batch = Collator(plm.tokenizer, masking.columns)(list(prepared.examples))
    assert torch.equal(MaskTuning(masking=masking).prepare(plm, batch)["mask"].sum(1), batch["mask"].sum(1))
    trainer = train(tmp_path, MaskTuning(masking=masking), data=prepared.examples, max_steps=4)
    assert all(math.isfinite(loss) for (loss,) in history(trainer, "loss"))
    with pytest.raises(UserError, match="no column mask"):
        train(tmp_path, MaskTuning(masking=masking), data=data)


@pytest.mark.parametrize(
    "reading",
    [{"fixed_masks": True},
     {"classifier_reads": "original"}, {"classification": "original_and_refilled"},
     {"classification": "validated_or_dropped"}, {"classification": "validated_or_original"}],
    ids=str,
)  # fmt: skip
def test_every_reading_is_a_setting_of_the_method(testbed, model, tmp_path, reading):  # noqa: F811
    plain, other = (read_records([run(config(model, epochs=1, **more), tmp_path)[0]])[0] for more in ({}, reading))
    assert other["identity"] != plain["identity"]
    assert other["history"] != plain["history"]
