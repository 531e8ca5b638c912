"""The objectives of the other methods of Table I: values by hand, limits, gradients."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, softplus

from mtlib.methods.confidence_regularization import (
    ConfidenceRegularization,
    confidence_regularization_loss,
)
from mtlib.methods.frozen_bias import (
    BiasProduct,
    LearnedMixin,
    Reweight,
    learned_mixin_losses,
    reweight_loss,
)
from mtlib.methods.product_of_experts import ProductOfExperts, debiased_focal_loss, product_loss
from mtlib.methods.states import classify_with_states
from mtlib.methods.two_views import HiddenCut, SpanCutoff, jensen_shannon
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import (
    NO_DROPOUT,
    architecture,
    arguments,
    examples,
    make_batch,
    make_plm,
    slices_of,
    tiny_bert_config,
)

LN2 = math.log(2)
P = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 8, 1 / 8, 3 / 4]])
B = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 2]])
Y = torch.tensor([0, 1])
LOGITS, BIAS = P.log() + torch.tensor([[3.0], [-1.0]]), B.log()  # a constant changes no softmax
UNIFORM = torch.full((2, 3), 1 / 3)
TEACHER = torch.tensor([[4 / 9, 4 / 9, 1 / 9], [1 / 4, 1 / 4, 1 / 2]])
PRODUCT = (math.log(3 / 2) + math.log(14)) / 2  # (4, 1, 1) / 6 and (1, 1, 12) / 14


def test_losses_by_hand():
    """Two examples, three classes."""
    assert product_loss(LOGITS, BIAS + 2, Y).item() == pytest.approx(PRODUCT)
    assert debiased_focal_loss(LOGITS, BIAS + 2, Y).item() == pytest.approx(
        (LN2 / 4 + 9 / 16 * 3 * LN2) / 2
    )
    assert reweight_loss(LOGITS, BIAS, Y).item() == pytest.approx(
        (LN2 / 2 + 3 / 4 * 3 * LN2) / (5 / 4)
    )
    bias = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 2, 0.0, 1 / 2]]).log()
    # the first target is (2, 2, 1) / 5, the second the teacher as it is
    by_hand = (1.6 * LN2 + 1.5 * LN2 + math.log(4 / 3) / 2) / 2
    assert confidence_regularization_loss(LOGITS, TEACHER, bias, Y).item() == pytest.approx(by_hand)
    losses = learned_mixin_losses(LOGITS, BIAS, Y, torch.tensor([1.0, 2.0]))
    assert losses["ft_loss"].item() == pytest.approx((math.log(3 / 2) + math.log(26)) / 2)
    scaled = math.log(6) / 3 + 2 / 3 * math.log(3 / 2)  # entropy of (1, 1, 4) / 6
    assert losses["entropy"].item() == pytest.approx((1.5 * LN2 + scaled) / 2)


def test_jensen_shannon_by_hand():
    p = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).log()
    q = torch.tensor([[1.0, 1.0, 2.0], [1, 2, 3]]).log()
    # (2, 1, 1) / 4 and (1, 1, 2) / 4 have the mean (3, 2, 3) / 8; the second example agrees
    by_hand = math.log(4 / 3) / 2 + math.log(2 / 3) / 4
    assert jensen_shannon(p, q).item() == jensen_shannon(q, p).item() == pytest.approx(by_hand / 2)
    far = torch.tensor([[200.0, 0.0]])
    assert jensen_shannon(far, -far).item() == pytest.approx(LN2), "its largest value"


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (BiasProduct(), PRODUCT),
        (Reweight(), reweight_loss(LOGITS, BIAS, Y).item()),
        (
            ConfidenceRegularization(),
            confidence_regularization_loss(LOGITS, TEACHER, BIAS, Y).item(),
        ),
    ],
)
def test_an_objective_gives_its_columns_to_its_loss(still_plm, objective, expected):
    still_plm.classify = lambda batch: LOGITS
    batch = {"bias_log_probabilities": BIAS, "teacher_probabilities": TEACHER, "labels": Y}
    output = objective(still_plm, batch)
    assert output.loss.item() == pytest.approx(expected) and {*output.components} == {"ft_loss"}


class TestLimits:
    @pytest.mark.parametrize(
        "loss",
        [
            product_loss(LOGITS, UNIFORM.log(), Y),
            reweight_loss(LOGITS, UNIFORM.log(), Y),
            debiased_focal_loss(LOGITS, BIAS, Y, 0.0),
            learned_mixin_losses(LOGITS, BIAS, Y, torch.zeros(2))["ft_loss"],
        ],
    )
    def test_a_uniform_bias_a_gate_or_a_focus_at_zero_gives_cross_entropy(self, loss):
        torch.testing.assert_close(loss, cross_entropy(LOGITS, Y))

    def test_a_gate_at_one_gives_the_bias_product_and_at_zero_the_largest_entropy(self):
        one, zero = (
            learned_mixin_losses(LOGITS, BIAS, Y, torch.full((2,), gate)) for gate in (1.0, 0.0)
        )
        torch.testing.assert_close(one["ft_loss"], product_loss(LOGITS, BIAS, Y))
        assert zero["entropy"].item() == pytest.approx(math.log(3))

    @pytest.mark.parametrize("focus", [0.0, 0.5, 2.0])
    def test_a_bias_network_that_is_certain_leaves_finite_gradients(self, focus):
        bias = torch.tensor([[40.0, 0.0]], requires_grad=True)
        debiased_focal_loss(torch.zeros(1, 2), bias, torch.tensor([0]), focus).backward()
        assert bias.grad.isfinite().all()

    def test_confidence_is_regularised_as_far_as_the_bias_is_right(self):
        right = torch.eye(3)[Y]
        flat = -(UNIFORM * LOGITS.log_softmax(-1)).sum(-1).mean()
        for teacher in (TEACHER, right):  # 0^0 is 1
            torch.testing.assert_close(
                confidence_regularization_loss(LOGITS, teacher, right.log(), Y), flat
            )
        distilled = -(TEACHER * LOGITS.log_softmax(-1)).sum(-1).mean()
        torch.testing.assert_close(
            confidence_regularization_loss(LOGITS, TEACHER, (1 - right).log(), Y), distilled
        )


def columns(n: int, n_labels: int = 2) -> dict[str, list]:
    """What the objectives read, as columns of a training set."""
    generator = torch.Generator().manual_seed(3)
    probabilities = [torch.rand(n, n_labels, generator=generator).add(0.1) for _ in range(2)]
    bias, teacher = ((rows / rows.sum(1, keepdim=True)) for rows in probabilities)
    return {
        "bias_log_probabilities": bias.log().tolist(),
        "teacher_probabilities": teacher.tolist(),
        "bias_features": torch.rand(n, 4, generator=generator).tolist(),
    }


def with_columns(data, values=None):
    for name, rows in (values or columns(len(data))).items():
        data = data.add_column(name, rows)
    return data


def ready(objective, plm, **changes) -> dict:
    """The objective's batch, with the objective built and all that is random drawn."""
    objective.build(plm, with_columns(examples(4)))
    batch = make_batch(plm) | {name: torch.tensor(rows) for name, rows in columns(4).items()}
    return objective.sample(plm, batch | changes)


PEERS = {
    "product_of_experts": ProductOfExperts,
    "focal": lambda: ProductOfExperts(focus=1.5),
    "learned_mixin": lambda: LearnedMixin(0.1),
    "bias_product": BiasProduct,
    "reweight": Reweight,
    "confidence_regularization": ConfidenceRegularization,
    "span_cutoff": lambda: SpanCutoff(0.3),
    "hidden_cut": lambda: HiddenCut(0.3),
}


@pytest.mark.parametrize("name", PEERS)
class TestEveryObjective:
    @pytest.mark.parametrize("of", ["bert", "roberta", "bart"])
    def test_it_has_gradients_where_it_trains(self, name, of):
        plm, objective = architecture(of), PEERS[name]()
        objective.check(plm)
        batch = ready(objective, plm)
        output = objective(plm, batch)
        assert output.logits.shape == (4, 2) and torch.isfinite(output.loss)
        output.loss.backward()
        reached = {name for name, p in plm.classifier.named_parameters() if p.grad is not None}
        assert {name for name, _ in plm.classifier.named_parameters()} - reached <= {
            "model.shared.weight"
        }
        assert all(
            p.grad is not None and torch.isfinite(p.grad).all() for p in objective.parameters()
        )
        trunk = {id(p) for p in plm.trunk.parameters()}
        assert all(p.grad is None for p in plm.mlm.parameters() if id(p) not in trunk), (
            "the masked-LM head"
        )

    def test_slices_of_a_batch_add_up_to_it(self, name):
        plm, objective = make_plm(tiny_bert_config(**NO_DROPOUT)), PEERS[name]()
        batch = ready(objective, plm)
        slices = slices_of(objective, plm, batch, slice(0, 1), slice(1, 4))
        torch.testing.assert_close(sum(part.loss for part in slices), objective(plm, batch).loss)

    def test_mask_tuning_classifies_with_it(self, name):
        plm = architecture("bert").eval()
        objective = MaskTuning(0.3, classification=PEERS[name]())
        batch = ready(objective, plm)
        output = objective(plm, batch)
        alone = objective.classification(plm, batch | {"input_ids": output.perturbed_ids})
        torch.testing.assert_close(
            output.loss, 0.3 * output.components["mlm_loss"] + 0.7 * alone.loss
        )


class TestProductOfExperts:
    @pytest.mark.parametrize("focus", [None, 1.5])
    def test_the_loss_is_of_both_and_the_bias_networks_own_stays_out_of_the_trunk(
        self, still_plm, focus
    ):
        objective = ProductOfExperts(focus=focus)
        batch = ready(objective, still_plm)
        output, bias = objective(still_plm, batch), objective.bias_network(batch["bias_features"])
        given = (output.logits, bias, batch["labels"])
        first = product_loss(*given) if focus is None else debiased_focal_loss(*given, 1.5)
        torch.testing.assert_close(output.loss, first + cross_entropy(bias, batch["labels"]))
        network, model = list(objective.parameters()), list(still_plm.classifier.parameters())

        def reaches(name, parameters):
            gradients = torch.autograd.grad(
                output.components[name], parameters, allow_unused=True, retain_graph=True
            )
            return {gradient is not None for gradient in gradients}

        assert reaches("bias_loss", model) == {False} and reaches("bias_loss", network) == {True}
        assert reaches("ft_loss", model) == reaches("ft_loss", network) == {True}

    def test_neutral_and_contradiction_count_half_with_overlap_features(self):
        plm = make_plm(tiny_bert_config(num_labels=3, **NO_DROPOUT))
        objective = ProductOfExperts(halve_others=True)
        batch = ready(objective, plm, labels=torch.tensor([0, 1, 2, 0]))
        losses = cross_entropy(
            objective.bias_network(batch["bias_features"]), batch["labels"], reduction="none"
        )
        assert objective.denominators(batch)["bias_loss"] == 3
        by_hand = (losses * torch.tensor([1.0, 0.5, 0.5, 1.0])).sum() / 3
        torch.testing.assert_close(objective(plm, batch).components["bias_loss"], by_hand)

    def test_the_bias_network_learns_the_bias_at_a_rate_of_its_own(self, tmp_path):
        """Eighteen numbers hardly move at a classifier's rate; the shortcut is right in 3 of 4."""
        data = examples(32)
        suggested = [
            1 - label if row % 8 in (0, 3) else label for row, label in enumerate(data["labels"])
        ]
        data = data.add_column("bias_features", torch.eye(2)[suggested].tolist())

        def learned(rate):
            objective = ProductOfExperts(learning_rate=rate)
            settings = arguments(
                tmp_path, learning_rate=1e-4, max_steps=40, per_device_train_batch_size=32
            )
            ObjectiveTrainer(
                architecture("bert"), MaskTuning(0.3, classification=objective), settings, data
            ).train()
            return objective.bias_network(torch.eye(2)).softmax(1).diagonal().mean().item()

        assert abs(learned(None) - 0.5) < 0.1
        assert learned(0.1) == pytest.approx(0.75, abs=0.05)


class TestLearnedMixin:
    @pytest.mark.parametrize(
        ("name", "head"),
        [("bert", "classifier"), ("roberta", "classifier"), ("bart", "classification_head")],
    )
    def test_the_gate_reads_the_state_that_the_classifier_reads(self, name, head):
        """The classifier head over the state gives the logits."""
        plm = architecture(name).eval()
        logits, state, tokens = classify_with_states(plm, batch := make_batch(plm))
        read = (
            state[:, None] if name == "roberta" else state
        )  # its head takes the first token of the sequence
        torch.testing.assert_close(getattr(plm.classifier, head)(read), logits)
        torch.testing.assert_close(plm.classify(batch), logits)
        inputs = plm.inputs(batch)
        own = plm.trunk.encoder(**inputs) if name == "bart" else plm.trunk(**inputs)
        torch.testing.assert_close(tokens, own.last_hidden_state)

    def test_it_minimises_both_terms_and_logs_the_gate(self, still_plm):
        objective = LearnedMixin(0.1)
        batch = ready(objective, still_plm)
        output = objective(still_plm, batch)
        (logits, state, _) = classify_with_states(still_plm, batch)
        gate = softplus(objective.gate(state))[:, 0]
        bias = batch["bias_log_probabilities"]
        labels = batch["labels"]
        losses = learned_mixin_losses(logits, bias, labels, gate)
        torch.testing.assert_close(output.loss, losses["ft_loss"] + 0.1 * losses["entropy"])
        torch.testing.assert_close(output.components["gate"], gate.mean())


# 22 tokens
LONG = "the film is very good and not boring and the plot was slow and a warm story of a film"


@pytest.mark.parametrize("objective", [SpanCutoff(0.3), HiddenCut(0.3)])
def test_two_views_minimise_both_cross_entropies_and_their_divergence(objective):
    plm = architecture("bert").eval()
    batch = ready(objective, plm)
    output, cut = objective(plm, batch), objective.classify_cut(plm, batch)
    plain, labels = plm.classify(batch), batch["labels"]
    assert not torch.equal(cut, plain), "and the hooks are gone again"
    expected = (
        cross_entropy(plain, labels) + cross_entropy(cut, labels) + jensen_shannon(plain, cut)
    )
    torch.testing.assert_close(output.loss, expected)


class TestSpanCutoff:
    def test_the_span_has_the_length_of_the_papers_and_lies_anywhere(self, plm):
        batch = make_batch(plm, [LONG] * 300 + ["not funny"] * 4)
        cut = SpanCutoff(0.1).sample(plm, batch)["cut"]
        assert (cut[:300].sum(1) == 2).all() and not cut[300:].any(), (
            "floor(2.2), and none of 4 tokens"
        )
        assert not (cut & ~batch["attention_mask"].bool()).any()
        starts = cut[:300].long().argmax(1)
        assert set(starts.tolist()) == set(range(22 - 2))
        assert (cut[:300].long().diff().abs().sum(1) <= 2).all()

    def test_nothing_cut_is_fine_tuning_twice(self, still_plm):
        output = SpanCutoff(0.0)(still_plm, batch := make_batch(still_plm))
        torch.testing.assert_close(output.loss, 2 * FineTuning()(still_plm, batch).loss)

    @pytest.mark.parametrize("name", ["bert", "roberta", "bart"])
    def test_the_cut_view_does_not_see_what_was_cut(self, name):
        plm = architecture(name).eval()
        batch = make_batch(plm, [LONG])
        batch["cut"] = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        batch["cut"][0, 3:6] = True
        other = batch["input_ids"].clone()
        other[0, 3:6] = other[0, 6:9]
        same, there = (
            SpanCutoff(0.1).classify_cut(plm, batch | {"input_ids": ids})
            for ids in (batch["input_ids"], other)
        )
        assert torch.equal(same, there) and not torch.equal(same, plm.classify(batch))
        assert not torch.equal(plm.classify(batch), plm.classify(batch | {"input_ids": other}))


class TestHiddenCut:
    @pytest.mark.parametrize("name", ["bert", "roberta", "electra", "bart"])
    def test_every_layer_is_cut_and_the_residual_path_is_whole(self, name):
        """Where it is cut, a layer's last norm reads what went round the feed-forward sublayer."""
        plm = architecture(name).eval()
        objective, cuts, round_it, read = HiddenCut(0.2), [], [], []
        objective.build(plm)
        find = objective.cut_at
        objective.cut_at = lambda *arguments: cuts.append(find(*arguments)) or cuts[-1]
        for path, module in plm.trunk.named_modules():
            encoder = "self_attn_layer_norm" if name == "bart" else "attention.output.LayerNorm"
            if path.endswith("encoder_attn_layer_norm" if path.startswith("decoder") else encoder):
                module.register_forward_hook(lambda module, args, output: round_it.append(output))
            elif path.endswith(("output.LayerNorm", "final_layer_norm")):
                module.register_forward_hook(lambda module, args, output: read.append(args[0]))
        batch = objective.sample(
            plm, make_batch(plm, [LONG, "the film is very good and not boring"])
        )  # 22, 10 tokens
        attended = batch["attention_mask"].bool()
        same = objective.classify_cut(plm, batch)
        assert len(cuts) == len(round_it) == len(read) == (4 if name == "bart" else 2)
        for cut, residual, total in zip(cuts, round_it, read, strict=True):
            assert torch.equal((residual == total).all(-1) & attended, cut)
            assert (cut.sum(1) >= 1).all() and (cut.sum(1) <= torch.tensor([4, 2])).all()
        assert torch.equal(objective.classify_cut(plm, batch), same), (
            "the draws decide, and they are in the batch"
        )

    def test_it_asks_the_model_for_attention_weights(self, plm, tmp_path):
        ObjectiveTrainer(
            plm, MaskTuning(classification=HiddenCut()), arguments(tmp_path), examples(8)
        )
        assert plm.config._attn_implementation == "eager"
        assert HiddenCut()(plm, make_batch(plm)).loss.isfinite()

    def test_spans_start_where_attention_goes(self):
        objective, attended = HiddenCut(0.1), torch.ones(1, 10, dtype=torch.bool)
        attended[0, 8:] = False  # 8 tokens: 3 candidates, 1 token cut
        weights = torch.zeros(1, 2, 10, 10)
        weights[0, :, :8, 5], weights[0, 0, :8, 1], weights[0, :, :4, 3] = (
            0.5,
            0.6,
            0.2,
        )  # 8, 2.4, 0.8 in all
        weights[0, :, 8:, 7] = 100.0  # what padding attends to does not count
        starts = [
            objective.cut_at(weights, attended, torch.tensor([draw]))[0].nonzero().tolist()
            for draw in (0, 0.4, 0.9)
        ]
        assert starts == [[[5]], [[1]], [[3]]]
        weights[0, :, :8, 7] = 1.0
        long = HiddenCut(0.5).cut_at(weights, attended, torch.tensor([0.0]))
        assert long[0].nonzero().tolist() == [[7]], "four tokens, but the text ends"
