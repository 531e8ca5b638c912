"""The toy that notebooks and the playground share does what notebook 03 writes from nothing."""

import ast

import nbformat
import pytest
import torch

from mtlib.tutorial import toy
from mtlib.tutorial.runner import find
from tests.tutorial.conftest import code_cells


@pytest.fixture(scope="module")
def of_notebook() -> dict:
    """The classes and functions that notebook 03 defines, run beside the toy's words."""
    names = {**vars(toy), "device": "cpu"}
    for cell in code_cells(nbformat.read(find(["03"])[0], as_version=4)):
        if "%pip" in cell.source:
            continue
        kept = [node for node in ast.parse(cell.source).body if _is_shared(node)]
        exec(compile(ast.Module(kept, type_ignores=[]), "03", "exec"), names)
    return names


def _is_shared(node: ast.stmt) -> bool:
    is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef)
    return is_definition and node.name in {"Model", "mask", "fill", "step"}


@pytest.fixture
def model() -> toy.Model:
    torch.manual_seed(1)
    return toy.Model().eval()


def test_the_notebook_writes_the_same_model_masks_filling_and_step(of_notebook, model):
    assert of_notebook["fill"] is not toy.fill
    written = of_notebook["Model"]().eval()
    written.load_state_dict(model.state_dict())
    ids, labels = (part[:50] for part in toy.data["train"])
    torch.manual_seed(0)
    places = toy.mask(ids, 0.3)
    torch.manual_seed(0)
    assert torch.equal(of_notebook["mask"](ids, 0.3), places)
    for found, expected in zip(
        of_notebook["fill"](written, ids, places), toy.fill(model, ids, places), strict=True
    ):
        torch.testing.assert_close(found, expected)
    loss = toy.step(model, ids, labels, places, 0.25)
    torch.testing.assert_close(of_notebook["step"](written, ids, labels, places, 0.25), loss)


def test_masks_are_the_rounded_share_of_ordinary_words():
    ids = toy.data["train"][0]
    places = toy.mask(ids, 0.3)
    assert not (places & (ids <= toy.MASK)).any()
    n_words = (ids > toy.MASK).sum(1)
    assert torch.equal(places.sum(1), (0.3 * n_words).round().clamp(min=1).long())


def test_deleted_words_leave_no_gap():
    ids = toy.encode(["the film by anna was lovely and superb"])
    shorter = toy.without(ids, toy.is_shortcut[ids])
    assert torch.equal(shorter, toy.encode(["the by was lovely and superb"]))


def test_the_shortcut_agrees_nineteen_times_of_twenty_and_never_where_it_misleads():
    for name, low, high in (("train", 0.93, 0.97), ("misleads", 0, 0)):
        ids, labels = toy.data[name]
        places = toy.is_shortcut[ids]
        assert torch.equal(places.sum(1), torch.full((len(ids),), 2)), "a topic and a person"
        agrees = toy.side_of[ids[places]] == labels.repeat_interleave(2)
        assert low <= agrees.float().mean() <= high
