"""The objectives of the other methods of Table I: values by hand, limits, and whom their gradients reach."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from mtlib.errors import UserError
from mtlib.methods.confidence_regularization import ConfidenceRegularization, confidence_regularization_loss
from mtlib.methods.frozen_bias import (
    BiasProduct,
    LearnedMixin,
    Reweight,
    bias_product_loss,
    classify_with_state,
    learned_mixin_loss,
    reweight_loss,
)
from mtlib.methods.product_of_experts import ProductOfExperts, debiased_focal_loss, product_of_experts_loss
from mtlib.methods.two_views import HiddenCut, SpanCutoff, jensen_shannon
from mtlib.objectives import FineTuning, MaskTuning
from tests.conftest import make_batch, make_plm, make_tokenizer, tiny_bert_config
from tests.test_plm import ARCHITECTURES
from tests.test_trainer import NO_DROPOUT, arguments, examples, history

LN2 = math.log(2)
P = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 8, 1 / 8, 3 / 4]])
B = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 2]])
Y = torch.tensor([0, 1])
LOGITS, BIAS = P.log() + torch.tensor([[3.0], [-1.0]]), B.log()  # a constant changes no softmax
UNIFORM = torch.full((2, 3), 1 / 3)


class TestByHand:
    """Two examples, three classes."""

    def test_product_of_experts(self):
        loss, parts = product_of_experts_loss(LOGITS, BIAS + 2, Y, 0.5)
        product = (math.log(3 / 2) + math.log(14)) / 2  # (4, 1, 1) / 6 and (1, 1, 12) / 14
        assert parts["ft_loss"].item() == pytest.approx(product)
        assert parts["bias_loss"].item() == pytest.approx(1.5 * LN2)
        assert loss.item() == pytest.approx(product + 0.75 * LN2)
        weighted, parts = product_of_experts_loss(LOGITS, BIAS, Y, class_weights=torch.tensor([1.0, 0.5, 0.5]))
        assert parts["bias_loss"].item() == pytest.approx((LN2 + 0.5 * 2 * LN2) / 1.5)
        assert weighted.item() == pytest.approx(product + 4 / 3 * LN2)

    def test_debiased_focal_loss(self):
        loss, parts = debiased_focal_loss(LOGITS, BIAS, Y, focus=2.0)
        assert parts["ft_loss"].item() == pytest.approx((LN2 / 4 + 9 / 16 * 3 * LN2) / 2)
        assert loss.item() == pytest.approx(parts["ft_loss"].item() + 1.5 * LN2)

    def test_learned_mixin(self):
        loss, parts = learned_mixin_loss(LOGITS, BIAS, Y, torch.tensor([1.0, 2.0]))
        assert parts["ft_loss"].item() == pytest.approx((math.log(3 / 2) + math.log(26)) / 2)
        scaled = math.log(6) / 3 + 2 / 3 * math.log(3 / 2)  # entropy of (1, 1, 4) / 6
        assert parts["entropy"].item() == pytest.approx((1.5 * LN2 + scaled) / 2)
        assert loss.item() == pytest.approx(parts["ft_loss"].item() + 0.03 * parts["entropy"].item())

    def test_bias_product(self, still_plm):
        loss, parts = bias_product_loss(LOGITS, BIAS, Y)
        by_hand = (math.log(3 / 2) + math.log(14)) / 2  # (4, 1, 1) / 6 and (1, 1, 12) / 14
        assert loss.item() == parts["ft_loss"].item() == pytest.approx(by_hand)
        still_plm.classify = lambda batch: LOGITS
        output = BiasProduct()(still_plm, {"bias_log_probabilities": BIAS, "labels": Y})
        assert output.loss.item() == pytest.approx(by_hand) and {*output.parts} == {"ft_loss"}

    def test_reweight(self):
        loss, parts = reweight_loss(LOGITS, B, Y)
        assert loss.item() == parts["ft_loss"].item() == pytest.approx((LN2 / 2 + 3 / 4 * 3 * LN2) / (5 / 4))

    def test_confidence_regularization(self):
        teacher = torch.tensor([[4 / 9, 4 / 9, 1 / 9], [1 / 4, 1 / 4, 1 / 2]])
        bias = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 2, 0.0, 1 / 2]])
        loss, parts = confidence_regularization_loss(LOGITS, teacher, bias, Y)
        first = 1.6 * LN2  # the target is (2, 2, 1) / 5
        second = 1.5 * LN2 + math.log(4 / 3) / 2  # the teacher as it is
        assert loss.item() == parts["ft_loss"].item() == pytest.approx((first + second) / 2)

    def test_jensen_shannon(self):
        p, q = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 3.0]]).log(), torch.tensor([[1.0, 1.0, 2.0], [1, 2, 3]]).log()
        # (2, 1, 1) / 4 and (1, 1, 2) / 4 have the mean (3, 2, 3) / 8; the second example agrees
        by_hand = math.log(4 / 3) / 2 + math.log(2 / 3) / 4
        assert jensen_shannon(p, q).item() == jensen_shannon(q, p).item() == pytest.approx(by_hand / 2)
        released = 3 / 8 * math.log(3 / 4) + 3 / 8 * math.log(3 / 2)
        assert jensen_shannon(p, q, released=True).item() == pytest.approx(released / 2)
        far = torch.tensor([[200.0, 0.0]])
        assert jensen_shannon(far, -far).item() == pytest.approx(LN2), "its largest value"


class TestLimits:
    def test_a_uniform_bias_gives_cross_entropy(self):
        plain = cross_entropy(LOGITS, Y)
        torch.testing.assert_close(product_of_experts_loss(LOGITS, UNIFORM.log(), Y, 0.0)[0], plain)
        torch.testing.assert_close(reweight_loss(LOGITS, UNIFORM, Y)[0], plain)
        torch.testing.assert_close(learned_mixin_loss(LOGITS, UNIFORM.log(), Y, torch.ones(2), 0.0)[0], plain)
        torch.testing.assert_close(bias_product_loss(LOGITS, UNIFORM.log(), Y)[0], plain)
        torch.testing.assert_close(debiased_focal_loss(LOGITS, BIAS, Y, 0.0, 0.0)[0], plain)

    @pytest.mark.parametrize("loss", [bias_product_loss, lambda z, b, y: learned_mixin_loss(z, b, y, torch.zeros(2))])
    def test_a_bias_model_that_is_certain_leaves_the_loss_finite(self, loss):
        certain = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).log()
        logits = LOGITS.clone().requires_grad_()
        loss(logits, certain, Y)[0].backward()
        assert logits.grad.isfinite().all()

    @pytest.mark.parametrize("focus", [0.0, 0.5, 2.0])
    def test_a_bias_network_that_is_certain_leaves_finite_gradients(self, focus):
        bias = torch.tensor([[40.0, 0.0]], requires_grad=True)
        debiased_focal_loss(torch.zeros(1, 2), bias, torch.tensor([0]), focus)[0].backward()
        assert bias.grad.isfinite().all()

    def test_a_gate_at_one_gives_the_bias_product(self):
        loss, _ = learned_mixin_loss(LOGITS, BIAS, Y, torch.ones(2), 0.0)
        torch.testing.assert_close(loss, bias_product_loss(LOGITS, BIAS, Y)[0])

    def test_a_gate_at_zero_gives_cross_entropy(self):
        loss, parts = learned_mixin_loss(LOGITS, BIAS, Y, torch.zeros(2), 0.03)
        torch.testing.assert_close(parts["ft_loss"], cross_entropy(LOGITS, Y))
        assert (loss - parts["ft_loss"]).item() == pytest.approx(0.03 * math.log(3)), "and the largest entropy"

    def test_confidence_regularization_without_bias_distils_and_with_a_certain_one_flattens(self):
        teacher, certain = P.flip(1), torch.eye(3)[Y]
        distilled = -(teacher * LOGITS.log_softmax(-1)).sum(-1).mean()
        torch.testing.assert_close(confidence_regularization_loss(LOGITS, teacher, 0 * B, Y)[0], distilled)
        flat = -(UNIFORM * LOGITS.log_softmax(-1)).sum(-1).mean()
        torch.testing.assert_close(confidence_regularization_loss(LOGITS, teacher, certain, Y)[0], flat)
        hard = confidence_regularization_loss(LOGITS, certain, certain, Y)[0]  # 0^0 is 1
        torch.testing.assert_close(hard, flat)

    def test_nothing_left_to_learn_is_zero_not_nan(self):
        assert reweight_loss(LOGITS, torch.eye(3)[Y], Y)[0].item() == 0.0


def architecture(name: str, **changes):
    """A tiny model with two labels."""
    config, (specials, double) = ARCHITECTURES[name]
    config = type(config).from_dict(config.to_dict() | {"num_labels": 2} | changes)
    config._attn_implementation = "eager"  # for HiddenCut
    return make_plm(config, make_tokenizer(specials, double))


# the objectives with what they read, as rows of a training set
def columns(n: int, n_labels: int = 2) -> dict[str, list]:
    generator = torch.Generator().manual_seed(3)
    probabilities = [torch.rand(n, n_labels, generator=generator).add(0.1) for _ in range(2)]
    bias, teacher = ((rows / rows.sum(1, keepdim=True)) for rows in probabilities)
    return {
        "bias_log_probabilities": bias.log().tolist(),
        "teacher_probabilities": teacher.tolist(),
        "bias_features": torch.rand(n, 4, generator=generator).tolist(),
    }


PEERS = {
    "product_of_experts": lambda: ProductOfExperts(0.7),
    "focal": lambda: ProductOfExperts(focus=2.0),
    "learned_mixin": LearnedMixin,
    "bias_product": BiasProduct,
    "reweight": Reweight,
    "confidence_regularization": ConfidenceRegularization,
    "span_cutoff": lambda: SpanCutoff(0.3, divergence_weight=0.5),
    "hidden_cut": lambda: HiddenCut(0.3),
}


def of_network(objective, batch):
    return objective.bias_network(batch["bias_features"])


def of_two_views(objective, plm, logits, batch):
    cut = objective.classify_cut(plm, batch)
    return (
        cross_entropy(logits, batch["labels"])
        + 0.6 * cross_entropy(cut, batch["labels"])
        + 0.5 * jensen_shannon(logits, cut, released=True)
    )


def of_gate(objective, plm, logits, batch):
    _, state = classify_with_state(plm, batch)
    gate = torch.log1p(objective.gate(state).exp()).squeeze(1)  # softplus
    return learned_mixin_loss(logits, batch["bias_log_probabilities"], batch["labels"], gate, 0.1)[0]


def of_teacher(objective, plm, logits, batch):
    bias = batch["bias_log_probabilities"].exp()
    return confidence_regularization_loss(logits, batch["teacher_probabilities"], bias, batch["labels"])[0]


FORMULAS = {  # an objective with settings of its own, and its loss by the pure function
    "product_of_experts": (
        lambda: ProductOfExperts(0.7),
        lambda o, plm, z, b: product_of_experts_loss(z, of_network(o, b), b["labels"], 0.7)[0],
    ),
    "focal": (
        lambda: ProductOfExperts(0.7, focus=1.5),
        lambda o, plm, z, b: debiased_focal_loss(z, of_network(o, b), b["labels"], 1.5, 0.7)[0],
    ),
    "learned_mixin": (lambda: LearnedMixin(0.1), of_gate),
    "bias_product": (
        BiasProduct, lambda o, plm, z, b: bias_product_loss(z, b["bias_log_probabilities"], b["labels"])[0]
    ),
    "reweight": (
        Reweight, lambda o, plm, z, b: reweight_loss(z, b["bias_log_probabilities"].exp(), b["labels"])[0]
    ),
    "confidence_regularization": (ConfidenceRegularization, of_teacher),
    "span_cutoff": (lambda: SpanCutoff(0.3, 0.6, 0.5, faithful_to_code=True), of_two_views),
    "hidden_cut": (lambda: HiddenCut(0.3, 0.6, 0.5, faithful_to_code=True), of_two_views),
}  # fmt: skip


def with_columns(data):
    for name, values in columns(len(data)).items():
        data = data.add_column(name, values)
    return data


def peer_batch(plm, texts=None):
    batch = make_batch(plm, *([texts] if texts else []))
    return batch | {name: torch.tensor(rows) for name, rows in columns(len(batch["labels"])).items()}


def built(name: str, plm):
    objective = PEERS[name]()
    objective.build(plm, with_columns(examples(4)))
    return objective


class TestObjectives:
    @pytest.mark.parametrize("name", PEERS)
    @pytest.mark.parametrize("of", ["bert", "roberta", "bart"])
    def test_it_has_gradients_where_it_trains(self, name, of):
        plm = architecture(of)
        objective = built(name, plm)
        objective.check(plm)
        batch = objective.prepare(plm, peer_batch(plm), torch.Generator().manual_seed(0))
        frozen = [batch[column].requires_grad_() for column in ("bias_log_probabilities", "teacher_probabilities")]
        output = objective(plm, batch)
        assert output.logits.shape == (4, 2) and torch.isfinite(output.loss)
        output.loss.backward()
        reached = {name for name, p in plm.classifier.named_parameters() if p.grad is not None}
        assert {name for name, _ in plm.classifier.named_parameters()} - reached <= {"model.shared.weight"}
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in objective.parameters())
        trunk = {id(p) for p in plm.trunk.parameters()}
        assert all(p.grad is None for p in plm.mlm.parameters() if id(p) not in trunk), "the masked-LM head"
        assert all(probabilities.grad is None for probabilities in frozen), "bias model and teacher"

    @pytest.mark.parametrize("name", FORMULAS)
    def test_it_minimises_its_formula(self, name):
        """With weights that are not the defaults, on the model's own logits."""
        plm = architecture("bert").eval()
        make, formula = FORMULAS[name]
        objective = make()
        objective.build(plm, with_columns(examples(4)))
        batch = objective.prepare(plm, peer_batch(plm), torch.Generator().manual_seed(0))
        output = objective(plm, batch)
        torch.testing.assert_close(output.logits, plm.classify(batch))
        torch.testing.assert_close(output.loss, formula(objective, plm, output.logits, batch))

    def test_the_bias_networks_loss_stays_out_of_the_trunk(self, still_plm):
        objective = ProductOfExperts()
        objective.build(still_plm, with_columns(examples(4)))
        parts = objective(still_plm, peer_batch(still_plm)).parts
        network, model = list(objective.parameters()), list(still_plm.classifier.parameters())

        def reaches(loss, parameters):
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
            return {gradient is not None for gradient in gradients}

        assert reaches(parts["bias_loss"], model) == {False} and reaches(parts["bias_loss"], network) == {True}
        assert reaches(parts["ft_loss"], model) == reaches(parts["ft_loss"], network) == {True}

    def test_the_gate_reads_the_state_that_the_classifier_reads(self):
        """The classifier head over the state gives the logits."""

        for name in ("bert", "roberta", "bart"):
            plm = architecture(name).eval()
            batch = make_batch(plm)
            logits, state = classify_with_state(plm, batch)
            head = {"bert": "classifier", "roberta": "classifier", "bart": "classification_head"}[name]
            read = state[:, None] if name == "roberta" else state  # its head takes the first token of the sequence
            torch.testing.assert_close(getattr(plm.classifier, head)(read), logits)
            torch.testing.assert_close(plm.classify(batch), logits)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("bias_log_probabilities", [0.0, 0.0], "expected the logarithms of probabilities of 2 labels, which add"),
            ("bias_log_probabilities", [1.0, 1.0], r"row 3 of the training set has \[1.0, 1.0\] for bias_log_prob"),
            ("bias_log_probabilities", [float("nan")] * 2, r"has \[nan, nan\] for bias_log_probabilities"),
            ("bias_log_probabilities", [0.0], r"has \[0.0\] for bias_log_probabilities"),
            ("teacher_probabilities", [0.0, 0.0], "expected the probabilities of 2 labels, which add up to 1"),
        ],
    )
    def test_what_is_no_distribution_is_told_before_the_training(self, plm, name, value, message):
        """Bias probabilities of 1 for every label would make the loss of Reweight 0, and train nothing."""
        rows = columns(4)
        rows[name][3] = value
        data = examples(4)
        for column, values in rows.items():
            data = data.add_column(column, values)
        reading = [objective for objective in (Reweight(), BiasProduct(), LearnedMixin(), ConfidenceRegularization())
                   if name in objective.columns]  # fmt: skip
        for objective in (*reading, MaskTuning(classification=reading[0])):
            with pytest.raises(UserError, match=message):
                objective.build(plm, data)

    @pytest.mark.parametrize(
        "make", [ProductOfExperts, LearnedMixin, lambda: MaskTuning(classification=LearnedMixin())]
    )
    def test_an_optimizer_without_the_objectives_parameters_is_refused(self, tmp_path, make):
        """It was made of the model alone; the bias network or the gate would stay as it was drawn."""
        from mtlib.trainer import ObjectiveTrainer

        plm, data = architecture("bert"), with_columns(examples(8))
        optimizer = torch.optim.SGD(plm.parameters(), lr=0.1)
        trainer = ObjectiveTrainer(plm, make(), arguments(tmp_path, max_steps=1), data, optimizers=(optimizer, None))
        message = r"no group with .*(bias_network\.0\.weight|gate\.weight), .* leave `optimizers` out"
        with pytest.raises(UserError, match=message):
            trainer.train()
        assert trainer.state.global_step == 0 and plm.objective is None
        before = [parameter.detach().clone() for parameter in trainer.training_objective.parameters()]
        optimizer.add_param_group({"params": list(trainer.training_objective.parameters())})
        trainer.train()
        moved = [not torch.equal(a, b) for a, b in zip(before, trainer.training_objective.parameters(), strict=True)]
        assert trainer.state.global_step == 1 and all(moved)

    @pytest.mark.parametrize("name", PEERS)
    def test_it_trains_alike_however_the_batch_is_cut(self, tmp_path, name):
        from mtlib.trainer import ObjectiveTrainer

        def trained(size):
            slices = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size, "max_steps": 3}
            plm = architecture("bert", **NO_DROPOUT)
            trainer = ObjectiveTrainer(plm, PEERS[name](), arguments(tmp_path, **slices), with_columns(examples(24)))
            trainer.train()
            return torch.tensor(history(trainer))

        torch.testing.assert_close(trained(8), trained(2), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("name", [name for name in PEERS if name != "hidden_cut"])
    def test_mask_tuning_classifies_with_it(self, still_plm, name):
        objective = MaskTuning(0.3, classification=built(name, still_plm))
        batch = objective.prepare(still_plm, peer_batch(still_plm), torch.Generator().manual_seed(0))
        output = objective(still_plm, batch)
        alone = objective.classification(still_plm, batch | {"input_ids": output.perturbed_ids})
        torch.testing.assert_close(output.loss, 0.3 * output.parts["mlm_loss"] + 0.7 * alone.loss)

    @pytest.mark.parametrize("name", ["product_of_experts", "focal", "learned_mixin"])
    def test_in_mask_tuning_the_masked_lm_loss_reaches_neither_gate_nor_bias_network(self, still_plm, name):
        objective = MaskTuning(0.3, classification=built(name, still_plm))
        batch = objective.prepare(still_plm, peer_batch(still_plm), torch.Generator().manual_seed(0))
        output, own = objective(still_plm, batch), [*objective.parameters()]
        alone = objective.classification(still_plm, batch | {"input_ids": output.perturbed_ids})
        of_mlm = torch.autograd.grad(output.parts["mlm_loss"], own, allow_unused=True, retain_graph=True)
        assert of_mlm == (None,) * len(own)
        combined, of_classification = (torch.autograd.grad(loss, own) for loss in (output.loss, alone.loss))
        torch.testing.assert_close(combined, tuple(0.7 * gradient for gradient in of_classification))
        assert all(gradient.any() for gradient in combined)

    @pytest.mark.parametrize("combined", [False, True])
    def test_the_bias_network_learns_the_bias_at_a_rate_of_its_own(self, tmp_path, combined):
        """Eighteen numbers hardly move at the rate of a classifier; alone, the shortcut is right in 3 of 4 rows."""
        from mtlib.trainer import ObjectiveTrainer

        data = examples(32)
        suggested = [1 - label if row % 8 in (0, 3) else label for row, label in enumerate(data["labels"])]
        data = data.add_column("bias_features", torch.eye(2)[suggested].tolist())

        def learned(rate):
            experts = ProductOfExperts(learning_rate=rate)
            objective = MaskTuning(0.3, classification=experts) if combined else experts
            settings = arguments(tmp_path, learning_rate=1e-4, max_steps=150, per_device_train_batch_size=32)
            ObjectiveTrainer(architecture("bert"), objective, settings, data).train()
            return experts.bias_network(torch.eye(2)).softmax(1).diagonal().mean().item()

        assert abs(learned(None) - 0.5) < 0.1
        assert learned(3e-2) == pytest.approx(0.75, abs=0.05)

    def test_neutral_and_contradiction_count_half_with_overlap_features(self):
        plm = make_plm(tiny_bert_config(num_labels=3, **NO_DROPOUT))
        objective = ProductOfExperts(halve_others=True)
        objective.build(plm, with_columns(examples(4)))
        batch = peer_batch(plm) | {"labels": torch.tensor([0, 1, 2, 0])}
        assert objective.sizes(batch)["bias_loss"] == 3
        bias_logits, weights = objective.bias_network(batch["bias_features"]), torch.tensor([1.0, 0.5, 0.5])
        loss, _ = product_of_experts_loss(plm.classify(batch), bias_logits, batch["labels"], class_weights=weights)
        torch.testing.assert_close(objective(plm, batch).loss, loss)


class TestSpanCutoff:
    LONG = "the film is very good and not boring and the plot was slow and a warm story of a film"  # 22 tokens

    def test_the_span_has_the_length_of_the_papers_and_lies_anywhere(self, plm):
        batch = make_batch(plm, [self.LONG] * 300 + ["not funny"] * 4)
        cut = SpanCutoff(0.1).prepare(plm, batch, torch.Generator().manual_seed(0))["cut"]
        assert (cut[:300].sum(1) == 2).all() and not cut[300:].any(), "floor(2.2), and none of 4 tokens"
        assert not (cut & ~batch["attention_mask"].bool()).any()
        starts = cut[:300].long().argmax(1)
        assert set(starts.tolist()) == set(range(22 - 2)) and (cut[:300].long().diff().abs().sum(1) <= 2).all()

    def test_nothing_cut_is_fine_tuning_twice(self, still_plm):
        output = SpanCutoff(0.0)(still_plm, batch := make_batch(still_plm))
        plain = FineTuning()(still_plm, batch).loss
        torch.testing.assert_close(output.loss, 2 * plain)
        assert output.parts["divergence"].item() == pytest.approx(0, abs=1e-7)

    @pytest.mark.parametrize("name", ["bert", "roberta", "bart"])
    def test_the_cut_view_does_not_see_what_was_cut(self, name):
        plm = architecture(name).eval()
        batch = make_batch(plm, [self.LONG])
        batch["cut"] = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        batch["cut"][0, 3:6] = True
        other = batch["input_ids"].clone()
        other[0, 3:6] = other[0, 6:9]
        objective = SpanCutoff(0.1)
        same, there = (objective.classify_cut(plm, batch | {"input_ids": ids}) for ids in (batch["input_ids"], other))
        assert torch.equal(same, there)
        assert not torch.equal(plm.classify(batch), plm.classify(batch | {"input_ids": other}))
        assert not torch.equal(same, plm.classify(batch)), "the hooks are gone again"


class TestHiddenCut:
    TEXTS = (TestSpanCutoff.LONG, "the film is very good and not boring")  # 22 and 10 tokens

    @pytest.mark.parametrize("name", ["bert", "roberta", "electra", "bart"])
    def test_every_layer_is_cut_and_the_residual_path_is_whole(self, name):
        """What the last layer norm of a layer reads is what went round the feed-forward sublayer, where that is cut."""
        plm = architecture(name).eval()
        objective, cuts, round_it, read = HiddenCut(0.2), [], [], []
        find = objective._span
        objective._span = lambda *arguments: cuts.append(find(*arguments)) or cuts[-1]
        for path, module in plm.trunk.named_modules():
            encoder = "self_attn_layer_norm" if name == "bart" else "attention.output.LayerNorm"
            if path.endswith("encoder_attn_layer_norm" if path.startswith("decoder") else encoder):
                module.register_forward_hook(lambda module, args, output: round_it.append(output))
            elif path.endswith(("output.LayerNorm", "final_layer_norm")):
                module.register_forward_hook(lambda module, args, output: read.append(args[0]))
        batch = objective.prepare(plm, make_batch(plm, list(self.TEXTS)), torch.Generator().manual_seed(1))
        attended = batch["attention_mask"].bool()
        same = objective.classify_cut(plm, batch)
        assert len(cuts) == len(round_it) == len(read) == (4 if name == "bart" else 2)
        for cut, residual, total in zip(cuts, round_it, read, strict=True):
            assert torch.equal((residual == total).all(-1) & attended, cut)
            assert (cut.sum(1) >= 1).all() and (cut.sum(1) <= torch.tensor([4, 2])).all()
        assert torch.equal(objective.classify_cut(plm, batch), same), "the draws decide, and they are in the batch"
        assert not torch.equal(plm.classify(batch), same), "the hooks are gone again"

    def test_it_asks_the_model_for_attention_weights(self, plm, tmp_path):
        """Which give none by themselves; the trainer builds the objective, a loop of one's own has to."""
        from mtlib.trainer import ObjectiveTrainer

        message = r"this model gives none \(its attn_implementation is 'sdpa'\); call objective.build\(plm\) before"
        with pytest.raises(UserError, match=message):
            HiddenCut()(plm, make_batch(plm))
        eager = make_plm(tiny_bert_config(attn_implementation="eager"))
        eager.load_state_dict(plm.state_dict())
        losses = []
        for model in (plm, eager):
            objective = HiddenCut()
            ObjectiveTrainer(model.eval(), objective, arguments(tmp_path), examples(8))
            batch = objective.prepare(model, make_batch(model), torch.Generator().manual_seed(0))
            losses.append(objective(model, batch).loss.item())
        assert losses[0] == losses[1]
        inside = make_plm(tiny_bert_config())
        ObjectiveTrainer(inside, MaskTuning(classification=HiddenCut()), arguments(tmp_path), examples(8))
        assert inside.config._attn_implementation == "eager"

    def test_a_model_that_computes_its_states_twice_is_told(self):
        plm = architecture("bert")
        HiddenCut().check(plm)
        plm.gradient_checkpointing_enable()
        with pytest.raises(UserError, match="cannot be computed a second time; leave gradient_checkpointing out"):
            HiddenCut().check(plm)

    def test_spans_start_where_attention_goes(self):
        objective, attended = HiddenCut(0.1), torch.ones(1, 10, dtype=torch.bool)
        attended[0, 8:] = False  # 8 tokens: 3 candidates, 1 token cut
        weights = torch.zeros(1, 2, 10, 10)
        weights[0, :, :8, 5], weights[0, 0, :8, 1], weights[0, :, :4, 3] = 0.5, 0.6, 0.2  # 8, 2.4, 0.8 in all
        weights[0, :, 8:, 7] = 100.0  # what padding attends to does not count
        starts = [
            objective._span(weights, attended, torch.tensor([draw]))[0].nonzero().tolist() for draw in (0, 0.4, 0.9)
        ]
        assert starts == [[[5]], [[1]], [[3]]]
        faithful = HiddenCut(0.1, faithful_to_code=True)
        assert faithful._span(weights, attended, torch.tensor([0.0]))[0].nonzero().tolist() == [[7]]
        weights[0, :, :8, 7] = 1.0
        long = HiddenCut(0.5)._span(weights, attended, torch.tensor([0.0]))
        assert long[0].nonzero().tolist() == [[7]], "four tokens, but the text ends"


def test_learned_mixin_logs_the_gate_where_the_bias_model_is_wrong():
    plm = architecture("bert").eval()
    objective, batch = built("learned_mixin", plm), peer_batch(plm)
    parts = objective(plm, batch).parts
    gates = torch.log1p(objective.gate(classify_with_state(plm, batch)[1]).exp()).squeeze(1).tolist()
    wrong = [row.index(max(row)) != y for row, y in
             zip(batch["bias_log_probabilities"].tolist(), batch["labels"].tolist(), strict=True)]  # fmt: skip
    assert 0 < sum(wrong) < len(wrong)
    assert parts["gate"].item() == pytest.approx(sum(gates) / len(gates), abs=1e-5)
    assert parts["misled"].item() == pytest.approx(sum(wrong) / len(wrong))
    of_the_misled = sum(gate for gate, misled in zip(gates, wrong, strict=True) if misled)
    assert parts["gate_misled"].item() == pytest.approx(of_the_misled / len(gates), abs=1e-5)
