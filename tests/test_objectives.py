import math

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForMaskedLM

from mtlib.errors import UserError
from mtlib.masking import (
    BernoulliMasking,
    ExactMasking,
    MaskingPolicy,
    OriginalMasking,
    maskable_positions,
)
from mtlib.methods.classification_variants import ValidatedOrOriginal
from mtlib.methods.frozen_bias import LearnedMixin
from mtlib.methods.product_of_experts import ProductOfExperts
from mtlib.objectives import (
    FineTuning,
    MaskedLM,
    MaskTuning,
    ObjectiveOutput,
    fine_tuning_loss,
    masked_lm_loss,
)
from tests.conftest import architecture, at_masks, examples, make_batch, make_plm, slices_of, train


def test_equation_1_by_hand():
    # two masked tokens over a vocabulary of two; probabilities of the originals 3/4 and 1/2
    mlm_logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    mlm_labels = torch.tensor([0, 1])
    # two examples, gold probabilities 1/5 and 1/2
    logits = torch.tensor([[0.0, math.log(4.0)], [1.0, 1.0]])
    labels = torch.tensor([0, 0])
    mlm_loss, ft_loss = masked_lm_loss(mlm_logits, mlm_labels), fine_tuning_loss(logits, labels)
    mlm = (math.log(4 / 3) + math.log(2)) / 2
    ft = (math.log(5) + math.log(2)) / 2
    assert mlm_loss.item() == pytest.approx(mlm)
    assert ft_loss.item() == pytest.approx(ft)
    parts = {"mlm_loss": mlm_loss, "ft_loss": ft_loss}
    weighed = ObjectiveOutput(parts, {"mlm_loss": 0.6, "ft_loss": 0.4})
    assert weighed.loss.item() == pytest.approx(0.6 * mlm + 0.4 * ft)


@pytest.mark.parametrize(
    "objective",
    [
        FineTuning(),
        FineTuning([1.0, 3.0], 0.2),
        MaskedLM(),
        MaskTuning(0.7, classification=FineTuning([3.0, 1.0])),
    ],
)
@pytest.mark.parametrize("policy", [ExactMasking(0.5), OriginalMasking(0.5), ExactMasking(0.0)])
def test_slices_of_a_batch_add_up_to_it(still_plm, objective, policy):
    objective.masking = policy
    batch = objective.sample(still_plm, make_batch(still_plm), torch.Generator().manual_seed(0))
    whole = objective(still_plm, batch)
    slices = slices_of(objective, still_plm, batch, slice(0, 1), slice(1, 4))
    torch.testing.assert_close(sum(part.loss for part in slices), whole.loss)
    for name, part in whole.components.items():
        torch.testing.assert_close(sum(of.components[name] for of in slices), part)


class TestClassWeights:
    """Of two labels; `make_batch` has the labels 0, 1, 0, 1."""

    def test_the_loss_by_hand(self, still_plm):
        batch = make_batch(still_plm)
        log_p = still_plm.classify(batch).log_softmax(-1)  # (batch, 2)
        gold = log_p.gather(1, batch["labels"][:, None]).squeeze(1)
        weights = torch.tensor([1.0, 3.0])[batch["labels"]]
        loss = FineTuning([1.0, 3.0])(still_plm, batch).loss
        torch.testing.assert_close(loss, -(weights * gold).sum() / weights.sum())
        smoothed = FineTuning(label_smoothing=0.2)(still_plm, batch).loss
        torch.testing.assert_close(smoothed, -(0.8 * gold + 0.1 * log_p.sum(1)).mean())

    def test_balanced_ones_come_from_the_training_set(self, tmp_path):
        """Three examples of label 0 and nine of label 1: 12 / (2 * 3) and 12 / (2 * 9)."""
        tuning = FineTuning("balanced")
        for name in ("labels", "label"):
            data = examples(12).remove_columns("labels").add_column(name, [0] * 3 + [1] * 9)
            train(tmp_path, MaskTuning(0.5, classification=tuning), data=data, max_steps=2)
            torch.testing.assert_close(tuning.weights, torch.tensor([2.0, 2 / 3]))

    def test_a_label_that_no_example_has_weighs_nothing(self, plm):
        """Or label smoothing would give every example a share of its weight."""
        tuning = FineTuning("balanced", label_smoothing=0.1)
        tuning.build(plm, Dataset.from_dict({"labels": [1] * 8}))
        assert tuning.weights.tolist() == [0.0, 0.5]

    def test_what_is_no_weight_is_refused(self, plm):
        for weights in (5, [1.0, -1.0], "equal"):
            with pytest.raises(UserError, match="class_weights"):
                FineTuning(weights)
        with pytest.raises(UserError, match=r"class_weights has 3 numbers; expected 2"):
            MaskTuning(classification=FineTuning([1.0, 2.0, 3.0])).check(plm)
        assert FineTuning(torch.tensor([1.0, 2.0])).class_weights == [1.0, 2.0]
        with pytest.raises(UserError, match=r"has no parameters yet; call objective\.build"):
            FineTuning("balanced")(plm, make_batch(plm))


def test_nothing_masked_is_zero_not_nan():
    empty = torch.zeros(0, 11, requires_grad=True)
    loss = masked_lm_loss(empty, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (MaskTuning, "alpha", -0.1),
        (MaskTuning, "alpha", float("nan")),
        (MaskTuning, "alpha", "0.6"),
        (MaskTuning, "fill", "beam"),
        (ExactMasking, "rate", 1.1),
        (BernoulliMasking, "rate", "0.05"),
        (FineTuning, "label_smoothing", 2),
        (ValidatedOrOriginal, "confidence", 7.0),
        (ProductOfExperts, "focus", -1.0),
        (LearnedMixin, "entropy_weight", -1.0),
    ],
)
def test_bad_options(make, name, value):
    with pytest.raises(UserError, match=f"{name} is {value!r}; expected "):
        make(**{name: value})


@pytest.mark.parametrize(
    ("components", "weights", "message"),
    [
        ({"kl": 1}, {"lk": 1.0}, r"weights has 'lk'; the components are kl"),
        ({"n_kl": 1}, {"n_kl": 1.0}, "n_kl is a loss, but n_ begins the names of counts"),
        ({"loss": 1}, {"loss": 1.0}, "a component is called 'loss'"),
    ],
)
def test_names_of_components_that_would_be_misread(components, weights, message):
    with pytest.raises(UserError, match=message):
        ObjectiveOutput(components, weights)


def test_a_second_loss_does_not_replace_the_first(still_plm):
    twice = MaskTuning(classification=_TwoLosses())
    with pytest.raises(UserError, match=r"_TwoLosses has components .* itself \(mlm_loss\)"):
        twice(still_plm, make_batch(still_plm))


class _TwoLosses(FineTuning):
    def forward(self, plm, batch):
        output = super().forward(plm, batch)
        output.components["mlm_loss"] = output.components["ft_loss"]
        return output


@pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.ones(3, dtype=torch.bool)])
def test_a_policy_gives_a_boolean_for_each_token(still_plm, mask):
    class Odd(MaskingPolicy):
        def __call__(self, batch, maskable, rng=None, plm=None):
            return mask

    with pytest.raises(UserError, match=r"Odd gives torch\.\w+ of shape .*; expected torch.bool"):
        MaskTuning(masking=Odd())(still_plm, make_batch(still_plm))


class TestLimits:
    def test_alpha_0_and_no_masks_is_fine_tuning(self, still_plm):
        batch = make_batch(still_plm)
        tuned = MaskTuning(0.0, ExactMasking(0.0))(still_plm, batch)
        plain = FineTuning()(still_plm, batch)
        assert torch.equal(tuned.loss, plain.loss) and torch.equal(tuned.logits, plain.logits)

    def test_alpha_1_gives_the_trunk_the_stock_masked_lm_gradient(self, still_plm):
        stock = AutoModelForMaskedLM.from_config(still_plm.config)
        stock.load_state_dict(still_plm.mlm.state_dict(), strict=False)
        batch = MaskTuning().sample(still_plm, make_batch(still_plm))
        MaskTuning(1.0)(still_plm, batch).loss.backward()
        labels = batch["input_ids"].masked_fill(~batch["mask"], -100)
        masked = batch["input_ids"].masked_fill(batch["mask"], still_plm.tokenizer.mask_token_id)
        stock(
            input_ids=masked,
            attention_mask=batch["attention_mask"],
            token_type_ids=batch["token_type_ids"],
            labels=labels,
        ).loss.backward()
        ours = dict(still_plm.mlm.named_parameters())
        for name, parameter in stock.named_parameters():
            torch.testing.assert_close(ours[name].grad, parameter.grad, atol=1e-6, rtol=1e-5)
        assert all(p.grad is None for p in still_plm.classifier.classifier.parameters())

    def test_no_gradient_passes_through_filled_tokens(self, still_plm):
        batch = make_batch(still_plm)
        parts = MaskTuning(0.5, ExactMasking(0.5))(still_plm, batch).components
        head = list(still_plm.mlm.cls.predictions.transform.parameters())
        through_fill = torch.autograd.grad(
            parts["ft_loss"], head, allow_unused=True, retain_graph=True
        )
        assert all(gradient is None for gradient in through_fill)
        gradients = torch.autograd.grad(parts["mlm_loss"], head)
        assert all(gradient is not None for gradient in gradients)

    def test_the_classifier_reads_the_filled_text(self, still_plm):
        batch = MaskTuning().sample(still_plm, make_batch(still_plm))
        output = MaskTuning(0.5)(still_plm, batch)
        perturbed = still_plm.fill_masks(batch, batch["mask"]).perturbed_ids
        assert torch.equal(output.perturbed_ids, perturbed)
        expected = still_plm.classify({**batch, "input_ids": perturbed})
        torch.testing.assert_close(output.logits, expected)
        assert output.components["n_masked"] == batch["mask"].sum() == 4
        assert output.components["n_changed"] == (perturbed != batch["input_ids"]).sum()


@pytest.mark.parametrize(
    "objective", [FineTuning(), MaskTuning(), MaskTuning(masking=BernoulliMasking(0.0)), MaskedLM()]
)
@pytest.mark.parametrize(
    "texts", [["good"], [""], ["", ""], ["[MASK] [SEP]"], ["zebra"], ["", "the film is good"]]
)
def test_degenerate_texts_never_give_nan(plm, objective, texts):
    output = objective(plm, make_batch(plm, texts))
    output.loss.backward()
    assert torch.isfinite(output.loss)
    assert all(torch.isfinite(p.grad).all() for p in plm.parameters() if p.grad is not None)


def test_the_two_losses_are_the_two_halves_of_equation_1(still_plm):
    objective = MaskTuning(0.7)
    batch = objective.sample(still_plm, make_batch(still_plm))
    filled = objective.masked_lm(still_plm, batch)
    classified = objective.classify(still_plm, batch | {"perturbed_ids": filled.perturbed_ids})
    expected = 0.7 * filled.loss + 0.3 * classified.loss
    torch.testing.assert_close(expected, objective(still_plm, batch).loss)


def test_masked_lm_counts_right_predictions(still_plm):
    batch = MaskedLM(ExactMasking(0.5)).sample(still_plm, make_batch(still_plm))
    parts = MaskedLM()(still_plm, batch).components
    predicted = at_masks(still_plm, batch, batch["mask"]).argmax(-1)
    assert parts["n_correct"] == (predicted == batch["input_ids"][batch["mask"]]).sum()


class TestWholeTextPredicted:
    """The loss over the whole text (+Orig)."""

    def test_an_encoder_decoder_writes_the_full_text(self):
        """The loss of BART's own language model, whose decoder reads the text shifted right."""
        plm = architecture("bart").eval()
        objective = MaskedLM(OriginalMasking(0.5))
        batch = objective.sample(plm, make_batch(plm), torch.Generator().manual_seed(0))
        masked = batch["input_ids"].masked_fill(batch["mask"], plm.tokenizer.mask_token_id)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        shifted = plm.shifted_right(batch["input_ids"])
        inputs = {
            "input_ids": masked,
            "attention_mask": batch["attention_mask"],
            "decoder_input_ids": shifted,
        }
        expected = plm.mlm(labels=labels, **inputs).loss
        torch.testing.assert_close(objective(plm, batch).loss, expected)

    def test_it_is_the_mean_over_every_token_and_fills_masks_alone(self, still_plm):
        batch = make_batch(still_plm)
        objective = MaskedLM(OriginalMasking(0.5))
        batch = objective.sample(still_plm, batch, torch.Generator().manual_seed(0))
        assert torch.equal(batch["mlm_weights"], batch["attention_mask"].float())
        output = objective(still_plm, batch)
        masked = batch["input_ids"].masked_fill(batch["mask"], still_plm.tokenizer.mask_token_id)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        inputs = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
        expected = still_plm.mlm(input_ids=masked, labels=labels, **inputs).loss
        torch.testing.assert_close(output.loss, expected)
        unplaced = {name: value for name, value in batch.items() if not name.startswith("mlm_")}
        alone = MaskedLM()(still_plm, unplaced)
        assert torch.equal(output.perturbed_ids, alone.perturbed_ids)
        assert output.components["n_masked"] == batch["mask"].sum()
        assert output.components["n_correct"] == alone.components["n_correct"]


def test_structural_tokens_stay_whatever_a_policy_says(plm):
    class All(MaskingPolicy):
        def __call__(self, batch, maskable, generator=None, plm=None):
            return torch.ones_like(maskable)

    batch = make_batch(plm)
    prepared = MaskTuning(0.6, All()).sample(plm, batch, torch.Generator())
    assert torch.equal(prepared["mask"], maskable_positions(batch, plm.tokenizer))


@pytest.mark.parametrize(
    "objective",
    [MaskTuning(0.0), MaskTuning(0.6, classification=ValidatedOrOriginal())],
    ids=["alpha 0", "validated"],
)
def test_a_pass_without_gradients_takes_none_from_the_next_one(objective):
    """In one block of autocast, which keeps the weights that it has cast."""
    plm = make_plm()
    with torch.autocast("cpu", torch.bfloat16):
        batch = objective.sample(plm, make_batch(plm), torch.Generator().manual_seed(0))
        objective(plm, batch).loss.backward()
    reached = [*plm.trunk.encoder.parameters(), *plm.classifier.classifier.parameters()]
    assert all(parameter.grad is not None for parameter in reached)
