"""Measures of diversity that need no judge."""

import pytest
import torch

from mtlib.diversity.measures import (
    changed_by_epoch,
    distinct_fillers,
    embedding_distances,
    filler_entropy,
    label_consistency,
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


def test_untouched_texts_lie_at_distance_0_and_keep_their_label():
    plm, examples = make_plm(), make_examples(5)
    same = [{"epoch": 1, **example} for example in examples]
    other = [row | {"text": "a warm funny story"} for row in same]
    assert embedding_distances(plm, examples, same) == pytest.approx([0] * 5, abs=1e-6)
    assert all(0 < distance <= 2 for distance in embedding_distances(plm, examples, other)[:2])
    assert label_consistency(plm, examples, same)[:2] == (5, 5)
    assert embedding_distances(plm, examples, []) == [] and label_consistency(plm, examples, []).n == 0


@pytest.mark.parametrize("measure", [embedding_distances, label_consistency])
def test_measures_leave_every_module_in_its_mode(measure):
    plm, examples = make_plm().train(), make_examples(2)
    plm.classifier.base_model.embeddings.eval()  # frozen by the caller, say
    before = [module.training for module in plm.modules()]
    rows = [{"epoch": 1, **example} for example in examples]
    assert measure(plm, examples, rows) == measure(plm, examples, rows), "dropout was on"
    assert [module.training for module in plm.modules()] == before


def test_label_consistency_counts_flips():
    plm, examples = make_plm().eval(), make_examples(4)
    with torch.no_grad():  # a classifier that gives two of the four sentences either label
        batch = plm.tokenizer(list(examples["text"]), padding=True, return_tensors="pt")
        lead = plm.classify(batch) @ torch.tensor([-1.0, 1.0])
        plm.classifier.classifier.bias[0] += lead.sort().values[1:3].mean()
    texts = [examples["text"][i] for i in lead.argsort().tolist()]
    swap = dict(zip(texts, texts[2:] + texts[:2], strict=True))  # one label's texts for the other's
    rows = [{"epoch": 1, **example} for example in examples]
    flipped = [rows[0] | {"text": swap[rows[0]["text"]]}, *rows[1:3], rows[3] | {"text": swap[rows[3]["text"]]}]
    assert label_consistency(plm, examples, rows)[:2] == (4, 4)
    assert label_consistency(plm, examples, flipped)[:2] == (2, 4)


def test_self_bleu_of_copies_and_of_strangers():
    assert self_bleu(["the film is very good indeed"] * 3) == pytest.approx(100)
    assert self_bleu(["the film is very good", "a warm story", "nobody came"]) < 10
    with pytest.raises(UserError, match="at least 2"):
        self_bleu(["one"])
