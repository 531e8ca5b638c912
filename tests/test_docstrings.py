"""The examples in the docstrings of the losses run, and give what their comments say."""

import inspect
from itertools import dropwhile, takewhile
from math import exp, log

import pytest
import torch
from torch import tensor

from mtlib.methods.confidence_regularization import confidence_regularization_loss
from mtlib.methods.frozen_bias import learned_mixin_losses, reweight_loss
from mtlib.methods.ipt import parsing_losses
from mtlib.methods.product_of_experts import debiased_focal_loss, product_loss
from mtlib.methods.two_views import jensen_shannon
from mtlib.objectives import fine_tuning_loss, masked_lm_loss

RESULTS = {
    fine_tuning_loss: tensor(log(1 + exp(-2))),
    masked_lm_loss: tensor(log(1 + exp(-2))),
    product_loss: tensor(-log(0.9)),
    debiased_focal_loss: tensor(0.5**2 * log(2)),
    learned_mixin_losses: (tensor(log(2)), tensor(log(2))),
    reweight_loss: tensor(log(2)),
    confidence_regularization_loss: tensor(log(2)),
    jensen_shannon: tensor(log(2)),
    parsing_losses: {"arc_loss": tensor(log(2)), "relation_loss": tensor(log(37))},
}


def example_of(function) -> list[str]:
    """The first indented block of a docstring."""
    lines = inspect.getdoc(function).splitlines()
    block = dropwhile(lambda line: not line.startswith("    "), lines)
    return [line[4:] for line in takewhile(lambda line: line.startswith("    "), block)]


@pytest.mark.parametrize("function", RESULTS, ids=lambda function: function.__name__)
def test_the_example_of_a_loss(function):
    *statements, expression = example_of(function)
    names = {"torch": torch, function.__name__: function}
    exec("\n".join(statements), names)
    torch.testing.assert_close(eval(expression, names), RESULTS[function])
