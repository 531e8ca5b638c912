"""Between texts and model: a set's rows as model inputs, and a model's answers to a set's rows."""

from collections.abc import Collection

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from mtlib.collator import Collator
from mtlib.errors import UserError
from mtlib.plm import SharedPLM, evaluating
from mtlib.trainer import ObjectiveTrainer, precision


def tokenise(dataset: Dataset, tokenizer, max_length: int = 128, keep: Collection[str] = ()) -> Dataset:
    """Columns of model inputs, `labels` and `length`, from `text`, `text_pair` and `label` (where they are there).

    `keep` names columns of `dataset` that are carried through unchanged, for objectives that need more than these.
    Raises `UserError` for a name that is no column, or that a column of model inputs already has.
    """
    for name in keep:
        if name not in dataset.column_names:
            raise UserError(f"keep names {name!r}; expected some of the columns {', '.join(dataset.column_names)}")
        if name in ("labels", "length", *tokenizer.model_input_names):
            raise UserError(f"keep names {name!r}, which tokenising writes itself; rename that column of the dataset")

    def encode(rows):
        # text that spells out a special token ("[SEP]", "</s>") is text
        encoded = tokenizer(
            rows["text"], rows.get("text_pair"), truncation=True, max_length=max_length, split_special_tokens=True
        )
        labels = {"labels": rows["label"]} if "label" in rows else {}
        return {**encoded, **labels, "length": [len(ids) for ids in encoded["input_ids"]]}

    dropped = [name for name in dataset.column_names if name not in keep]
    return dataset.map(encode, batched=True, remove_columns=dropped, keep_in_memory=True)


@torch.no_grad()
def predict(plm: SharedPLM, dataset: Dataset, max_length: int = 128, batch_size: int = 64) -> np.ndarray:
    """Class logits `(n, num_labels)` of the texts as they stand, in the order of `dataset`; labels are not read.

    In bf16 where the device computes in it. The model is moved to the GPU if there is one; its mode, its precision and
    the random states stay as they were.
    """
    examples, order = _by_length(dataset, plm.tokenizer, max_length)
    logits = [torch.empty(0, plm.config.num_labels)]
    device = torch.device("cpu" if precision()["use_cpu"] else "cuda")
    plm.to(device)
    with evaluating(plm), torch.autocast(device.type, torch.bfloat16, enabled=precision()["bf16"]):
        # a generator of its own: the loader would draw from the global one
        for batch in DataLoader(examples, batch_size, collate_fn=Collator(plm.tokenizer), generator=torch.Generator()):
            logits.append(plm.classify({name: tensor.to(device) for name, tensor in batch.items()}).float().cpu())
    return _in_order(torch.cat(logits).numpy(), order)


def predict_with(trainer: ObjectiveTrainer, dataset: Dataset, max_length: int) -> np.ndarray:
    """`predict` with the trainer of the model, on all its processes."""
    examples, order = _by_length(dataset, trainer.plm.tokenizer, max_length)
    return _in_order(trainer.predict(examples).predictions, order)


def _by_length(dataset: Dataset, tokenizer, max_length: int) -> tuple[Dataset, np.ndarray]:
    """The texts as model inputs, like lengths together (little padding), and which row each one is."""
    texts = dataset.select_columns([name for name in ("text", "text_pair") if name in dataset.column_names])
    examples = tokenise(texts, tokenizer, max_length)
    order = np.argsort([len(ids) for ids in examples["input_ids"]], kind="stable") if len(examples) else np.arange(0)
    return examples.select(order), order


def _in_order(logits: np.ndarray, order: np.ndarray) -> np.ndarray:
    ordered = np.empty_like(logits)
    ordered[order] = logits
    return ordered
