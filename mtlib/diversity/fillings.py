"""What masked tokens turn into while a model trains: a row for each masked place (Section V of arXiv 2307.10457).

The rows are of what the model predicted in its own training steps, dropout included: the training loop is
`ObjectiveTrainer`'s, and the objective notes what it fills in. Masks depend on `(seed, epoch, example)` and the order
of the data on `(seed, epoch)` alone, so that two objectives trained with one seed, data set and batch size are asked
about the same places.
"""

import copy
import tempfile
from collections import Counter

import pandas
from datasets import Dataset
from transformers import PrinterCallback

from mtlib.contexts import precision
from mtlib.objectives import MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.tokens import text_reader
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

COLUMNS = (
    "epoch", "uid", "part", "position", "original_token", "predicted_token", "unk", "text", "start", "end", "predicted"
)  # fmt: skip


def record_fillings(
    plm: SharedPLM, objective: MaskedLM | MaskTuning, examples: Dataset, max_length: int = 128, **arguments
) -> pandas.DataFrame:
    """Train `plm` (in place) with an objective that masks, and record what every masked place was filled with.

    Args:
        plm: any with a fast tokenizer.
        examples: columns `text` (`text_pair`), `label`, `uid`.
        max_length: tokens per example.
        arguments: of `ObjectiveArguments`, for example `num_train_epochs=3`, `seed=0`, `learning_rate=5e-4`.

    Returns:
        A row per epoch and masked place, in order of training:

        `epoch` (from 1), `uid`, `part` ("text" or "text_pair": the sentence the place is in), `position` (in the
        example's token ids), `original_token` and `predicted_token` (vocabulary entries), `unk` (the prediction is the
        unknown token), `text` (that sentence, original), `start` and `end` (the masked token's place in it, in
        characters), `predicted` (the filling in letters).
    """
    read = text_reader(plm.tokenizer)
    encodings = [_encode(read, example, max_length) for example in examples]
    columns = {name: [encoding[name] for encoding in encodings] for name in plm.tokenizer.model_input_names}
    data = Dataset.from_dict({**columns, "labels": examples["label"], "row": range(len(examples))})
    recorder = _recording(objective)
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        settings = ObjectiveArguments(folder, **quiet | {"use_cpu": precision()["use_cpu"]} | arguments)
        trainer = ObjectiveTrainer(plm, recorder, settings, data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    rows = [
        (epoch, *_row(plm.tokenizer, examples[row], encodings[row], position, predicted_id))
        for epoch, row, position, predicted_id in recorder.fillings
    ]
    return pandas.DataFrame(rows, columns=COLUMNS)


class _Recording:
    """Mixed into an objective's class: it notes what each masked place is filled with."""

    @property
    def columns(self) -> dict[str, int | float]:
        return {**super().columns, "row": -1}

    def forward(self, plm: SharedPLM, batch: dict):
        output, rows = super().forward(plm, batch), batch["row"].tolist()
        self.times_seen.update(rows)
        for (example, position), predicted_id in zip(
            batch["mask"].nonzero().tolist(), output.perturbed_ids[batch["mask"]].tolist(), strict=True
        ):
            self.fillings.append((self.times_seen[rows[example]], rows[example], position, predicted_id))
        return output


def _recording(objective):
    recorder = copy.copy(objective)
    recorder.__class__ = type("Recording", (_Recording, type(objective)), {})
    recorder.times_seen, recorder.fillings = Counter(), []  # (epoch, row, position, predicted_id)
    return recorder


def _encode(tokenizer, example: dict, max_length: int) -> dict:
    """Model inputs of an example, with `offsets` (characters) and `parts` (0, 1 or None) of its tokens."""
    texts = example["text"], example.get("text_pair")
    encoded = tokenizer(*texts, truncation=True, max_length=max_length, return_offsets_mapping=True)
    inputs = {name: encoded[name] for name in tokenizer.model_input_names}
    return {**inputs, "offsets": encoded["offset_mapping"], "parts": encoded.sequence_ids(0)}


def _row(tokenizer, example: dict, encoding: dict, position: int, predicted_id: int) -> tuple:
    part, (start, end) = ("text", "text_pair")[encoding["parts"][position]], encoding["offsets"][position]
    start = end - len(example[part][start:end].lstrip())  # byte-level tokenizers count the blank before a word in
    tokens = tokenizer.convert_ids_to_tokens([encoding["input_ids"][position], predicted_id])
    unk, predicted = predicted_id == tokenizer.unk_token_id, tokenizer.decode([predicted_id]).strip()
    return (example["uid"], part, position, *tokens, unk, example[part], start, end, predicted.removeprefix("##"))
