"""A step that asks its device for nothing, as CUDA graphs need it (see tests/test_gpu.py)."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtlib import FineTuning, MaskTuning, ObjectiveArguments, ObjectiveTrainer
from mtlib.encoding import Collator
from mtlib.graphs import CapturedStep
from mtlib.objectives import MaskedLM
from mtlib.policies.attribution import AttributionMasking
from tests.conftest import examples, make_plm


class Waits(TorchDispatchMode):
    """Notes the operations whose result a CPU has to know before it can go on."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        by_mask = any(index is not None and index.dtype is torch.bool for index in indices)
        if by_mask or name in (
            "_local_scalar_dense",
            "nonzero",
            "masked_select",
            "is_nonzero",
            "unique_dim",
        ):
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def test_it_notes_what_waits():
    numbers = torch.arange(4)
    with Waits() as waits:
        numbers[numbers > 1].sum().item()
        numbers.gather(0, numbers) + 1
    assert waits.found == ["index", "_local_scalar_dense"] or "nonzero" in waits.found


@pytest.mark.parametrize(
    "objective",
    [FineTuning(), MaskedLM(), MaskTuning(0.6), MaskTuning(0.0), MaskTuning(fill="sample")],
)
@pytest.mark.parametrize("update", ["joint", "balanced"])
def test_no_static_step_waits_for_the_device(objective, update, tmp_path, monkeypatch):
    # transformers asks whether all is attended to, but not while a graph is captured
    monkeypatch.setattr("transformers.masking_utils.is_tracing", lambda *_: True)
    if update == "balanced" and not isinstance(objective, MaskTuning):
        pytest.skip("one loss")
    plm = make_plm()
    arguments = ObjectiveArguments(
        str(tmp_path), use_cpu=True, max_steps=3, per_device_train_batch_size=4, update=update
    )
    trainer = ObjectiveTrainer(plm, objective, arguments, examples(12))
    assert objective.static
    found, step = [], trainer.training_step

    def watched(*args, **kwargs):
        with Waits() as waits:
            loss = step(*args, **kwargs)
        found.append(waits.found)
        return loss

    monkeypatch.setattr(trainer, "training_step", watched)
    trainer.train()
    assert found == [[], [], []]


def test_attribution_takes_the_plain_step():
    """Its masks are drawn in the step, in as many sizes as there are lengths."""
    policy = AttributionMasking(0.05)
    assert not MaskTuning(masking=policy).static and not MaskedLM(policy).static


def test_entries_of_a_batch_that_are_no_tensors_are_left_out():
    """The training loops of `data/models` leave the number of an example in the batch."""
    seen = []
    step = CapturedStep(lambda batch: seen.append([*batch]), torch.nn.Linear(1, 1))
    step({"input_ids": torch.zeros(1, 2), "example": 3})
    assert seen == [["input_ids"]]


def test_masks_depend_on_seed_epoch_and_example_alone(plm):
    texts = examples(12)
    rows = [{**row, "example": number} for number, row in enumerate(texts.to_list())]

    def masks(rows, seed=0, epoch=0) -> dict[int, list[int]]:
        collate = Collator(plm.tokenizer, {}, MaskTuning().masking, seed)
        collate.epoch.fill_(epoch)
        batch = collate(rows)
        assert torch.equal(batch["mask"].sum(1), batch["mlm_weights"].sum(1).long())
        return {
            row["example"]: mask.nonzero().flatten().tolist()
            for row, mask in zip(rows, batch["mask"], strict=True)
        }

    together = masks(rows)
    alone = {number: places for row in rows for number, places in masks([row]).items()}
    assert together == alone == masks(rows[::-1])
    assert masks(rows, epoch=1) != together != masks(rows, seed=1)


def test_batches_come_in_few_shapes(plm):
    plm.tokenizer.model_max_length = 512
    collate = Collator(plm.tokenizer, {"column": -1}, MaskTuning().masking, 0, buckets=True)
    text = {**examples(1).to_list()[0], "example": 0, "column": [1, 2, 3]}
    for n, padded in ((3, 8), (9, 16), (63, 64), (65, 96)):
        ids = text["input_ids"][:1] * n
        row = text | {
            "input_ids": ids,
            "attention_mask": [1] * n,
            "token_type_ids": [0] * n,
            "column": [7] * n,
        }
        batch = collate([row])
        assert (
            batch["input_ids"].shape == batch["column"].shape == batch["mask"].shape == (1, padded)
        )
        assert batch["attention_mask"].sum() == n
        assert batch["column"].tolist()[0][n:] == [-1] * (padded - n)
