"""Between texts and model: a set's rows as model inputs, and a model's answers to a set's rows."""

import tempfile

import numpy as np
from datasets import Dataset

from mtlib.objectives import FineTuning
from mtlib.plm import SharedPLM
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer, precision


def tokenise(dataset: Dataset, tokenizer, max_length: int = 128) -> Dataset:
    """Columns of model inputs, `labels` and `length`, from `text`, `text_pair` (where there is one) and `label`."""

    def encode(rows):
        # text that spells out a special token ("[SEP]", "</s>") is text
        encoded = tokenizer(
            rows["text"], rows.get("text_pair"), truncation=True, max_length=max_length, split_special_tokens=True
        )
        return {**encoded, "labels": rows["label"], "length": [len(ids) for ids in encoded["input_ids"]]}

    return dataset.map(encode, batched=True, remove_columns=dataset.column_names, keep_in_memory=True)


def predict(plm: SharedPLM, dataset: Dataset, max_length: int = 128) -> np.ndarray:
    """Class logits `(n, num_labels)` of the texts as they stand, in the order of `dataset`."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ObjectiveArguments(
            output_dir=folder, per_device_eval_batch_size=64, disable_tqdm=True, **precision()
        )
        return predict_with(ObjectiveTrainer(plm, FineTuning(), arguments), dataset, max_length)


def predict_with(trainer: ObjectiveTrainer, dataset: Dataset, max_length: int) -> np.ndarray:
    """`predict` with a trainer that is there already."""
    examples = tokenise(dataset, trainer.plm.tokenizer, max_length)
    order = np.argsort(np.asarray(examples["length"]), kind="stable")  # like lengths together: little padding
    logits = np.empty((len(examples), trainer.plm.config.num_labels), dtype=np.float32)
    logits[order] = trainer.predict(examples.select(order)).predictions
    return logits
