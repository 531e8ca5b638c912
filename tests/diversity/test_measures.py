"""Measures of diversity that need no judge."""

import pytest

from mtlib.diversity.measures import (
    changed_by_epoch,
    distinct_fillers,
    embedding_distances,
    filler_entropy,
    self_bleu,
)
from mtlib.errors import UserError
from tests.conftest import make_plm
from tests.diversity.test_fillings import ROW, make_examples


def test_distinct_entropy_and_change():
    rows = [ROW | {"predicted_token": token, "epoch": epoch} for token, epoch in
            (("film", 1), ("film", 1), ("plot", 2), ("story", 2))]  # fmt: skip
    assert distinct_fillers(rows) == 3
    assert filler_entropy(rows) == pytest.approx(1.5)
    assert filler_entropy([]) == 0 and distinct_fillers([]) == 0 and changed_by_epoch([]) == {}
    assert {epoch: part[:2] for epoch, part in changed_by_epoch(rows).items()} == {1: (0, 2), 2: (2, 2)}


def test_untouched_texts_lie_at_distance_0():
    plm, examples = make_plm(), make_examples(5)
    same = [{"epoch": 1, **example} for example in examples]
    other = [row | {"text": "a warm funny story"} for row in same]
    assert embedding_distances(plm, examples, same) == pytest.approx([0] * 5, abs=1e-6)
    assert all(0 < distance <= 2 for distance in embedding_distances(plm, examples, other)[:2])
    assert embedding_distances(plm, examples, []) == []


def test_distances_leave_every_module_in_its_mode():
    plm, examples = make_plm().train(), make_examples(2)
    plm.classifier.base_model.embeddings.eval()  # frozen by the caller, say
    before = [module.training for module in plm.modules()]
    rows = [{"epoch": 1, **example} for example in examples]
    first, second = (embedding_distances(plm, examples, rows) for _ in range(2))
    assert first == second, "dropout was on"
    assert [module.training for module in plm.modules()] == before


def test_self_bleu_of_copies_and_of_strangers():
    assert self_bleu(["the film is very good indeed"] * 3) == pytest.approx(100)
    assert self_bleu(["the film is very good", "a warm story", "nobody came"]) < 10
    with pytest.raises(UserError, match="at least 2"):
        self_bleu(["one"])
