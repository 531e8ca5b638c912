"""The balanced update, by hand, in its limits and in equivalent trainings; the alternating one."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning, ObjectiveOutput
from mtlib.updates import AlternatingUpdate, BalancedUpdate
from tests.conftest import NO_DROPOUT, history, make_plm, tiny_bert_config, train


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Parameter(torch.zeros(2))
        self.mlm_head = nn.Parameter(torch.zeros(2))
        self.classifier = nn.Parameter(torch.zeros(2))


def loss(head: str, direction: list[float]):
    """A loss with this gradient, on the trunk and on the head."""

    def output(model, batch):
        logits = model.trunk + getattr(model, head)
        return ObjectiveOutput({"mean": logits @ torch.tensor(direction)}, {"mean": 1.0})

    return output


def step(
    update,
    model: TwoHeads,
    mlm: list[float],
    ft: list[float],
    alpha: float = 0.6,
    last: bool = True,
    unit: float = 0.0,
) -> None:
    """A micro-batch whose losses have these gradients, both on the trunk and each on its head.

    fp16 multiplies all gradients by `unit`.
    """

    objective = SimpleNamespace(
        alpha=alpha, masked_lm=loss("mlm_head", mlm), classify=loss("classifier", ft)
    )
    trainer = SimpleNamespace(
        training_objective=objective,
        args=SimpleNamespace(world_size=1),
        accelerator=SimpleNamespace(
            backward=lambda loss: (loss * (unit or 1.0)).backward(),
            sync_gradients=last,
            no_sync=lambda model: nullcontext(),
            scaler=SimpleNamespace(scale=lambda tensor: tensor * unit) if unit else None,
        ),
        run_loss=lambda model, loss, batch, totals: loss(model, batch),
    )
    update.step(trainer, model, {})


def test_gradient_by_hand():
    model, update = TwoHeads(), BalancedUpdate()
    step(update, model, [0.0, 20.0], [3.0, 4.0])
    # |g_FT| is 5, so g_MLM becomes (0, 5): 0.6 * (0, 5) + 0.4 * (3, 4)
    torch.testing.assert_close(model.trunk.grad, torch.tensor([1.2, 4.6]))
    torch.testing.assert_close(model.mlm_head.grad, torch.tensor([0.0, 20.0]))
    torch.testing.assert_close(model.classifier.grad, torch.tensor([3.0, 4.0]))
    model.zero_grad()
    step(update, model, [0.0, 2.0], [0.0, 25.0])
    assert update.ft_norm.item() == pytest.approx(0.95 * 5 + 0.05 * 25)  # 6
    torch.testing.assert_close(model.trunk.grad, torch.tensor([0.0, 0.6 * 6 + 0.4 * 25]))


def test_fp16_scales_the_step_and_nothing_else():
    plain, scaled, updates = TwoHeads(), TwoHeads(), (BalancedUpdate(), BalancedUpdate())
    overflowing = [torch.inf, 0.0]
    step(updates[1], scaled, [1.0, 0.0], overflowing, unit=65536.0)
    for unit in (1024.0, 512.0):
        for model, update, by in ((plain, updates[0], 0.0), (scaled, updates[1], unit)):
            model.zero_grad()
            step(update, model, [0.0, 20.0 * unit], [3.0, 4.0], unit=by)
        torch.testing.assert_close(scaled.trunk.grad, plain.trunk.grad * unit)
        assert updates[1].ft_norm == updates[0].ft_norm
    step(updates[1], scaled, [1.0, 0.0], [torch.inf, 0.0], unit=512.0)
    assert updates[1].ft_norm == updates[0].ft_norm


def test_alpha_0_is_no_integrated_loss(tmp_path):
    """Dropout on: the random numbers are drawn alike too."""
    masking = ExactMasking(0.3)
    joint = train(tmp_path, MaskTuning(0.0, masking), make_plm(), max_steps=6)
    balanced = train(tmp_path, MaskTuning(0.0, masking), make_plm(), max_steps=6, update="balanced")
    assert history(balanced) == history(joint)
    for a, b in zip(joint.plm.parameters(), balanced.plm.parameters(), strict=True):
        assert torch.equal(a, b)


def test_alpha_1_trains_the_trunk_on_the_masked_lm_alone(tmp_path):
    """SGD with the scale put back: the trunk moves along L_MLM's gradient."""
    masking, moves = ExactMasking(0.3), {}
    for name, objective, changes in (
        ("mlm", MaskedLM(masking), {}),
        ("balanced", MaskTuning(1.0, masking), {"update": "balanced"}),
    ):
        plm = make_plm(tiny_bert_config(**NO_DROPOUT))
        before = {key: p.clone() for key, p in plm.trunk.named_parameters() if "pooler" not in key}
        plain = {
            "optim": "sgd",
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "max_steps": 1,
        }
        train(tmp_path, objective, plm, **plain, **changes)
        after = dict(plm.trunk.named_parameters())
        moves[name] = torch.cat([(after[key] - value).flatten() for key, value in before.items()])
    assert torch.cosine_similarity(moves["mlm"], moves["balanced"], dim=0) > 0.9999


def test_both_alternating_steps_are_weighted_by_alpha():
    """By SGD, since Adam would divide the weights out; 0.1 is the rate that the schedule gives."""
    model, alpha = TwoHeads(), 0.25
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduled = SimpleNamespace(param_groups=[{"lr": 0.1}])
    masked_lm, classify = loss("mlm_head", [0.0, 20.0]), loss("classifier", [3.0, 4.0])
    trainer = SimpleNamespace(
        training_objective=SimpleNamespace(alpha=alpha, masked_lm=masked_lm, classify=classify),
        optimizer=scheduled,
        args=SimpleNamespace(world_size=1, max_grad_norm=0.0),
        accelerator=SimpleNamespace(
            backward=torch.Tensor.backward, clip_grad_norm_=nn.utils.clip_grad_norm_
        ),
        run_loss=lambda model, loss, batch, totals: loss(model, batch),
    )
    AlternatingUpdate(optimizer).step(trainer, model, {})
    torch.testing.assert_close(model.trunk.detach(), torch.tensor([0.0, -0.1 * 0.25 * 20]))
    torch.testing.assert_close(model.mlm_head.detach(), torch.tensor([0.0, -0.1 * 0.25 * 20]))
    torch.testing.assert_close(model.trunk.grad, torch.tensor([0.75 * 3, 0.75 * 4]))
    torch.testing.assert_close(model.classifier.grad, torch.tensor([0.75 * 3, 0.75 * 4]))


def test_what_it_cannot_do_is_an_error(tmp_path):
    with pytest.raises(UserError, match="two losses"):
        train(tmp_path, FineTuning(), update="balanced")

    class WithMore(MaskTuning):
        def forward(self, plm, batch):
            return super().forward(plm, batch)

    with pytest.raises(UserError, match="passes over the forward of WithMore"):
        train(tmp_path, WithMore(), update="alternating")
    frozen = make_plm()
    for parameter in frozen.trunk_parameters():
        parameter.requires_grad = False
    assert any(parameter.requires_grad for parameter in frozen.trunk.pooler.parameters())
    for plm in (frozen, make_plm(shared=False)):
        with pytest.raises(UserError, match="one trunk that is trained"):
            train(tmp_path, MaskTuning(), plm, update="balanced")
