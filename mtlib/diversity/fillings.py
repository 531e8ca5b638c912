"""What masked tokens turn into while a model trains (Section V of arXiv 2307.10457).

The rows hold what the model predicted in its own training steps, dropout included: the training
loop is that of `ObjectiveTrainer`, and the objective records what it fills in. Masks depend only on
`(seed, epoch, example)`, and the order of the data only on `(seed, epoch)`. So two objectives that
are trained with one seed, data set and masking policy fill the same positions.
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
    "epoch",
    "uid",
    "part",
    "position",
    "original_token",
    "predicted_token",
    "unk",
    "text",
    "start",
    "end",
    "predicted",
)


def record_fillings(
    plm: SharedPLM,
    objective: MaskedLM | MaskTuning,
    examples: Dataset,
    max_length: int = 128,
    **arguments,
) -> pandas.DataFrame:
    """Train `plm` in place and record what every masked position is filled with.

    Args:
        plm: a model with a fast tokenizer.
        objective: one that masks.
        examples: columns `text` (`text_pair`), `label`, `uid`.
        max_length: tokens per example.
        arguments: of `ObjectiveArguments`, for example `num_train_epochs=3`, `seed=0`,
            `learning_rate=5e-4`.

    Returns:
        A row for each epoch and masked position, in order of training:

        - `epoch`, from 1, and `uid` of the example;
        - `part`: "text" or "text_pair", the sentence that the position is in;
        - `position` among the example's token ids;
        - `original_token` and `predicted_token`, entries of the vocabulary;
        - `unk`: whether the prediction is the unknown token;
        - `text`: the original sentence, with the masked token from character `start` to `end`;
        - `predicted`: the filling as text.
    """
    read = text_reader(plm.tokenizer)
    encodings = [_encode(read, example, max_length) for example in examples]
    columns = {}
    for name in plm.tokenizer.model_input_names:
        columns[name] = [encoding[name] for encoding in encodings]
    for name in {"text", "text_pair"} & {*examples.column_names}:  # which some policies read
        columns[name] = examples[name]
    data = Dataset.from_dict({**columns, "labels": examples["label"], "row": range(len(examples))})
    recorder = _recording(objective)
    options = {
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": precision()["use_cpu"],
    }
    with tempfile.TemporaryDirectory() as folder:
        settings = ObjectiveArguments(folder, **options | arguments)
        trainer = ObjectiveTrainer(plm, recorder, settings, data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    rows = [
        (epoch, *_row(plm.tokenizer, examples[row], encodings[row], position, predicted_id))
        for epoch, row, position, predicted_id in recorder.fillings
    ]
    return pandas.DataFrame(rows, columns=COLUMNS)


class _Recording:
    """Mixed into an objective: records what each masked position is filled with."""

    times_seen: Counter  # of each example, which tells the epoch
    fillings: list[tuple[int, int, int, int]]  # (epoch, row, position, predicted_id)

    @property
    def columns(self) -> dict[str, int | float]:
        return {**super().columns, "row": -1}

    def forward(self, plm: SharedPLM, batch: dict):
        output = super().forward(plm, batch)
        rows = batch["row"].tolist()
        self.times_seen.update(rows)
        masked = batch["mask"].nonzero().tolist()
        predicted = output.perturbed_ids[batch["mask"]].tolist()
        for (example, position), predicted_id in zip(masked, predicted, strict=True):
            row = rows[example]
            self.fillings.append((self.times_seen[row], row, position, predicted_id))
        return output


def _recording(objective: MaskedLM | MaskTuning) -> _Recording:
    """The objective, recording; the one that was given stays as it is."""
    recorder = copy.deepcopy(objective)
    # a subclass of the objective's own class, so that a user's `forward` is what is recorded
    recorder.__class__ = type("Recording", (_Recording, type(objective)), {})
    recorder.static = False  # it reads from the device in each step
    recorder.times_seen = Counter()
    recorder.fillings = []
    return recorder


def _encode(tokenizer, example: dict, max_length: int) -> dict:
    """Model inputs of an example, and for each token its `offsets` in characters and its `parts`.

    The part of a token is 0 or 1, the sentence that it is in, or None for a special token.
    """
    encoded = tokenizer(
        example["text"],
        example.get("text_pair"),
        truncation=True,
        max_length=max_length,
        return_offsets_mapping=True,
    )
    inputs = {name: encoded[name] for name in tokenizer.model_input_names}
    return {**inputs, "offsets": encoded["offset_mapping"], "parts": encoded.sequence_ids(0)}


def _row(tokenizer, example: dict, encoding: dict, position: int, predicted_id: int) -> tuple:
    """A filling as `COLUMNS` has it, but for the epoch."""
    part = ("text", "text_pair")[encoding["parts"][position]]
    text = example[part]
    start, end = encoding["offsets"][position]
    start = end - len(text[start:end].lstrip())  # byte-level offsets include the blank before
    original_id = encoding["input_ids"][position]
    original_token, predicted_token = tokenizer.convert_ids_to_tokens([original_id, predicted_id])
    is_unknown = predicted_id == tokenizer.unk_token_id
    predicted = tokenizer.decode([predicted_id]).strip().removeprefix("##")
    return (
        example["uid"],
        part,
        position,
        original_token,
        predicted_token,
        is_unknown,
        text,
        start,
        end,
        predicted,
    )
