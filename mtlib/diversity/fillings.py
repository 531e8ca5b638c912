"""What masked tokens turn into while a model trains: one row per masked place (Section V of arXiv 2307.10457).

The rows are of what the model predicted in its own training steps, dropout included: the objective is wrapped, and the
training loop is `ObjectiveTrainer`'s. Masks depend on `(seed, step)` and the order of the data on `(seed, epoch)`
alone, so that two objectives trained with one seed, data set and batch size are asked about the same places.
"""

import json
import tempfile
from collections import Counter
from html import escape
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, PrinterCallback, set_seed

from mtlib.contexts import precision
from mtlib.data.sources import load
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.marking import continues_word
from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM, MaskTuning, Objective, ObjectiveOutput
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs.config import BUNDLED_MODEL, default_rates
from mtlib.runs.records import write_atomically
from mtlib.settings import MASK_RATE
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

ARMS = ("plain_mlm", "mask_tuning")
BATCH_SIZE = 16


def draw_examples(task: str, source: str = "testbed", n: int = 200, seed: int = 0) -> Dataset:
    """`n` training examples of a task, drawn without replacement by `seed`, in file order (the paper took 200)."""
    examples = load(get_task(task).train_set(source), source)
    if not 0 < n <= len(examples):
        raise UserError(f"n is {n}; {task} from {source!r} has {len(examples)} training examples, give 1 to that many.")
    return examples.select(sorted(np.random.default_rng(seed).permutation(len(examples))[:n].tolist()))


def record_arms(
    task: str,
    examples: Dataset,
    model: str = BUNDLED_MODEL,
    seed: int = 0,
    epochs: int = 3,
    batch_size: int = BATCH_SIZE,
    mask_rate: float = MASK_RATE,
) -> tuple[list[dict], dict[str, SharedPLM]]:
    """The paper's study: the same examples and the same masks under plain masked-LM training and under Mask-tuning.

    Both arms start from `model`, with its learning rates for Mask-tuning and the task's alpha.

    Args:
        task: "sentiment", "nli" or "paraphrase".
        examples: from `draw_examples`, or any with columns `text` (`text_pair`), `label`, `uid`.
        model: "mini" (bundled), a hub id or a folder with a masked LM.

    Returns:
        The rows of `record_fillings` with a field `arm`, "plain_mlm" or "mask_tuning"; and each arm's trained model.
    """
    masking = ExactMasking(mask_rate)
    objectives = {"plain_mlm": MaskedLM(masking), "mask_tuning": MaskTuning(get_task(task).alpha, masking)}
    rates = default_rates("mask_tuning", model)
    rows, models = [], {}
    for arm in ARMS:
        set_seed(seed)
        folder = MINI_MODEL_DIR if model == BUNDLED_MODEL else model
        models[arm] = SharedPLM.from_pretrained(folder, num_labels=len(get_task(task).labels))
        recorded = record_fillings(
            models[arm], objectives[arm], examples, seed=seed, num_train_epochs=epochs,
            per_device_train_batch_size=batch_size, learning_rate=rates.trunk,
            classifier_learning_rate=rates.classifier, mlm_head_learning_rate=rates.mlm_head, **precision(),
        )  # fmt: skip
        rows += [{"arm": arm, **row} for row in recorded]
    return rows, models


def record_fillings(
    plm: SharedPLM, objective: Objective, examples: Dataset, max_length: int = 128, **arguments
) -> list[dict]:
    """Train `plm` (in place) with an objective that masks, and record what every masked place was filled with.

    Args:
        plm: any with a fast tokenizer.
        objective: `MaskedLM` or `MaskTuning`.
        examples: columns `text` (`text_pair`), `label`, `uid`.
        max_length: tokens per example.
        arguments: of `ObjectiveArguments`, for example `num_train_epochs=3`, `seed=0`, `learning_rate=5e-4`.

    Returns:
        One dict per epoch and masked place, in order of training:

        `epoch` (from 1), `uid`, `part` ("text" or "text_pair": the sentence the place is in), `position` (in the
        example's token ids), `original_token` and `predicted_token` (vocabulary entries), `unk` (the prediction is the
        unknown token), `p_predicted` and `p_original` (softmax over the whole vocabulary), `rank_original` (1 is
        the likeliest), `text` (that sentence, original), `start` and `end` (the masked token's place in it, in
        characters, with the blank before it), `predicted` (what stands there after the filling, see `filled_text`).

    Raises:
        UserError: an objective without masks; columns missing; several processes.
    """
    _check(plm, objective, examples)
    encodings = _encode(plm.tokenizer, examples, max_length)
    columns = {name: [encoding[name] for encoding in encodings] for name in plm.tokenizer.model_input_names}
    data = Dataset.from_dict({**columns, "labels": examples["label"], "row": range(len(examples))})
    recorder = _Recorder(objective)
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        settings = ObjectiveArguments(folder, **quiet | {"use_cpu": precision()["use_cpu"]} | arguments)
        trainer = ObjectiveTrainer(plm, recorder, settings, data)
        if trainer.args.world_size > 1:
            raise UserError("fillings are recorded in one process; start it without torchrun or accelerate launch.")
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    continues = continues_word(plm.tokenizer)
    return [_row(plm.tokenizer, continues, examples[filling["row"]], encodings[filling["row"]], filling)
            for filling in recorder.fillings]  # fmt: skip


def filled_text(row: dict) -> str:
    """The sentence of a row with this one place filled and all others as they were."""
    return _fill(row["text"], row)


def marked_text(row: dict) -> str:
    """`filled_text` with the filling between ⟦ and ⟧, the blank before it inside."""
    return f"{row['text'][: row['start']]}⟦{row['predicted']}⟧{row['text'][row['end'] :]}"


def marked_html(text: str) -> str:
    """A text from `marked_text` as HTML, its filling highlighted."""
    return escape(text).replace("⟦", "<mark>").replace("⟧", "</mark>")


def unmarked(text: str, original: str) -> dict:
    """`text`, `start`, `end` and `predicted` of a row, from `marked_text` and what stood there originally."""
    before, opened, rest = text.partition("⟦")
    predicted, closed, after = rest.partition("⟧")
    if not opened or not closed:
        raise UserError(f"{text!r} has no filling between ⟦ and ⟧; expected a text from `marked_text`.")
    return {
        "text": before + original + after,
        "start": len(before),
        "end": len(before) + len(original),
        "predicted": predicted,
    }


def perturbed_examples(rows: list[dict], examples: Dataset) -> list[dict]:
    """What the classifier read: per epoch and example a dict with `epoch`, `uid`, `label`, `text` (`text_pair`).

    Args:
        rows: of one arm, from `record_fillings`.
        examples: the same that were recorded. One of which nothing was masked in an epoch stands as it is.
    """
    places: dict[tuple[int, str, str], list[dict]] = {}
    for row in rows:
        places.setdefault((row["epoch"], row["uid"], row["part"]), []).append(row)
    perturbed = []
    for epoch in sorted({row["epoch"] for row in rows}):
        for example in examples:
            filled = {"epoch": epoch, "uid": example["uid"], "label": example["label"]}
            for part in ("text", "text_pair"):
                if part in example:
                    filled[part] = _fill_all(example[part], places.get((epoch, example["uid"], part), []))
            perturbed.append(filled)
    return perturbed


def write_rows(path: Path, rows: list[dict]) -> None:
    """Rows as JSON lines; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict]:
    """Rows that `write_rows` wrote."""
    lines = Path(path).read_text(encoding="utf-8").split("\n")  # not splitlines, which cuts at more than these
    return [json.loads(line) for line in lines if line]


def rendered(
    tokenizer: PreTrainedTokenizerBase, continues: torch.Tensor, text: str, start: int, end: int, filler_id: int,
    next_continues: bool,
) -> tuple[int, str]:  # fmt: skip
    """A vocabulary entry as it reads at one place of a text: the place's start (its blank included), and the string.

    A piece that continues a word is glued to what stands before; one that begins a word gets a blank where the masked
    one had one, or where two words would run together. Where the tokenizer lower-cases, a word in place of a
    capitalised one is capitalised, which no entry of such a vocabulary could be.

    Args:
        continues: from `marking.continues_word`.
        start, end: the masked token's characters in `text`.
        next_continues: the token after the place goes on with the same word.
    """
    surface = tokenizer.decode([filler_id]).strip()
    glued = bool(continues[filler_id])
    if glued and len(surface) > 2:
        surface = surface.removeprefix("##")
    lower_cases = tokenizer.tokenize("A") == tokenizer.tokenize("a")
    if lower_cases and text[start:end][:1].isupper() and surface.islower() and not glued:
        surface = surface.capitalize()
    place = start
    while place > 0 and text[place - 1].isspace():
        place -= 1
    before, after = text[:place], text[end:]
    had_blank = place < start
    if before and not glued and (had_blank or (before[-1].isalnum() and surface[:1].isalnum())):
        surface = " " + surface
    if after[:1].isalnum() and surface[-1:].isalnum() and not next_continues:
        surface += " "
    return place, surface


class _Recorder(Objective):
    """Wraps an objective, and records what each masked place was filled with."""

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective
        self.classifies, self.learning_rate = objective.classifies, objective.learning_rate
        self.times_seen: Counter[int] = Counter()
        self.fillings: list[dict] = []

    @property
    def columns(self) -> dict[str, int | float]:
        return {**self.objective.columns, "row": -1}

    def check(self, plm: SharedPLM) -> None:
        self.objective.check(plm)

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.objective.build(plm, examples)

    def sizes(self, batch: dict) -> dict[str, torch.Tensor | int]:
        return self.objective.sizes(batch)

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return self.objective.prepare(plm, batch, generator)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        output = self.objective(plm, batch)
        mask = batch["mask"]  # (batch, seq)
        logits = output.mlm_logits.detach().float()  # (n_masked, vocab)
        predicted, original = output.perturbed_ids[mask], batch["input_ids"][mask]  # (n_masked,)
        log_p = logits.log_softmax(dim=-1)
        of_original = log_p.gather(1, original[:, None])  # (n_masked, 1)
        columns = {
            "example": mask.nonzero()[:, 0],
            "position": mask.nonzero()[:, 1],
            "original_id": original,
            "predicted_id": predicted,
            "p_predicted": log_p.gather(1, predicted[:, None])[:, 0].exp(),
            "p_original": of_original[:, 0].exp(),
            "rank_original": 1 + (log_p > of_original).sum(dim=-1),
        }
        numbers = batch["row"].tolist()
        self.times_seen.update(numbers)
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            filling = dict(zip(columns, values, strict=True))
            row = numbers[filling.pop("example")]
            self.fillings.append({"epoch": self.times_seen[row], "row": row, **filling})
        return output


def _encode(tokenizer, examples: Dataset, max_length: int) -> list[dict]:
    """Model inputs of each example, with `offsets` (characters) and `parts` (0, 1 or None) of its tokens."""
    encodings = []
    for example in examples:
        # text that spells out a special token is text, as in a run
        encoded = tokenizer(
            example["text"], example.get("text_pair"), truncation=True, max_length=max_length,
            split_special_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        inputs = {name: encoded[name] for name in tokenizer.model_input_names}
        encodings.append({**inputs, "offsets": encoded["offset_mapping"], "parts": encoded.sequence_ids(0)})
    return encodings


def _row(tokenizer, continues: torch.Tensor, example: dict, encoding: dict, filling: dict) -> dict:
    position, parts = filling["position"], encoding["parts"]
    part = ("text", "text_pair")[parts[position]]
    text = example[part]
    start, end = encoding["offsets"][position]
    ids = encoding["input_ids"]
    after = position + 1
    next_continues = after < len(ids) and bool(continues[ids[after]]) and parts[after] == parts[position]
    place, surface = rendered(tokenizer, continues, text, start, end, filling["predicted_id"], next_continues)
    original, predicted = tokenizer.convert_ids_to_tokens([filling["original_id"], filling["predicted_id"]])
    return {
        "epoch": filling["epoch"],
        "uid": example["uid"],
        "part": part,
        "position": position,
        "original_token": original,
        "predicted_token": predicted,
        "unk": filling["predicted_id"] == tokenizer.unk_token_id,
        "p_predicted": float(f"{filling['p_predicted']:.5g}"),
        "p_original": float(f"{filling['p_original']:.5g}"),
        "rank_original": filling["rank_original"],
        "text": text,
        "start": place,
        "end": end,
        "predicted": text[place:end] if original == predicted else surface,
    }


def _fill_all(text: str, rows: list[dict]) -> str:
    for row in sorted(rows, key=lambda row: row["start"], reverse=True):  # from the end, so that places stay put
        text = _fill(text, row)
    return text


def _fill(text: str, row: dict) -> str:
    return text[: row["start"]] + row["predicted"] + text[row["end"] :]


def _check(plm: SharedPLM, objective: Objective, examples: Dataset) -> None:
    if not isinstance(objective, (MaskedLM, MaskTuning)):
        raise UserError(f"{type(objective).__name__} masks nothing; expected MaskedLM or MaskTuning.")
    if missing := {"text", "label", "uid"} - set(examples.column_names):
        raise UserError(
            f"the examples lack {', '.join(sorted(missing))}; they have {', '.join(examples.column_names)}."
        )
    if len(set(examples["uid"])) != len(examples):
        raise UserError("two examples have the same uid; give each a different one.")
    if not plm.tokenizer.is_fast:
        raise UserError(f"{type(plm.tokenizer).__name__} tells no character offsets; a fast tokenizer is needed.")
