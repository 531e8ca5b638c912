"""Between texts and model: a set's rows as model inputs, and a model's answers to a set's rows."""

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from datasets import ClassLabel, Dataset

from mtlib.contexts import evaluating, precision
from mtlib.errors import UserError
from mtlib.labels import label_column
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.plm import SharedPLM
from mtlib.rng import KeyedRNG, example_keys
from mtlib.tokens import text_reader

DEFAULT_LENGTH = 128
_SECOND_TEXT = re.compile(r"(?i)(text|sentence|premise|hypothesis|question|.*pair).*|.*(_b|2)")


def tokenise(
    dataset: Dataset, tokenizer, max_length: int | None = None, keep: Collection[str] = ()
) -> Dataset:
    """Columns of model inputs, `labels` and `length`, from `text`, `text_pair` and `label` (where they are there).

    Labels are class numbers and may also be called `labels`; a `ClassLabel` column stays one, with its names. Other
    columns are dropped, with a warning where one looks like a second text. Text that spells out a structural token
    ("[SEP]") is text, see `mtlib.tokens.text_reader`.

    Args:
        dataset: rows with a text or a pair of texts.
        tokenizer: the model's, `plm.tokenizer`.
        max_length: texts are cut to so many tokens. None: to 128, or to fewer where the tokenizer's model reads fewer,
            with a warning if that cuts one.
        keep: columns of `dataset` that are carried through unchanged, for objectives and transforms that need more than
            these. `text` brings `text_pair` with it, where there is one.

    Raises:
        UserError: no `Dataset`; no column `text`; a row without text, or with a label that is no number.
    """
    if not isinstance(dataset, Dataset) or "text" not in dataset.column_names:
        columns = getattr(dataset, "column_names", "no columns")
        raise UserError(
            f"the dataset is a {type(dataset).__name__} with {columns}; expected a Dataset with a column `text`, as "
            "Dataset.from_list(rows) or mtlib.read_table(path, text, label) makes it."
        )
    dataset = dataset.with_format(
        None
    )  # tensors of strings are no texts, tensors of numbers no labels
    texts = [name for name in ("text", "text_pair") if name in dataset.column_names]
    label = label_column(dataset.column_names)
    length = min(DEFAULT_LENGTH, tokenizer.model_max_length) if max_length is None else max_length
    structural = tokenizer.num_special_tokens_to_add(pair=len(texts) == 2)
    if length <= structural:  # tokenizers then cut nothing at all
        raise UserError(
            f"max_length is {length}; the tokenizer adds {structural} tokens to every text, give more."
        )
    kept = {*keep, *(texts if "text" in keep else ())}
    dropped = [name for name in dataset.column_names if name not in kept]
    if lost := [name for name in dropped if _SECOND_TEXT.fullmatch(name) and name not in texts]:
        warnings.warn(
            f"the column {lost[0]} is not read; the second text of a pair is called text_pair.",
            stacklevel=2,
        )
    read, n_cut = text_reader(tokenizer), 0

    def encode(rows, indices):
        for name in texts:
            for index, text in zip(indices, rows[name], strict=True):
                if not isinstance(text, str):
                    raise UserError(
                        f"row {index} has {text!r} for {name}; expected a text. Drop or mend that row."
                    )
        encoded = read(*(rows[name] for name in texts), truncation=True, max_length=length)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        if max_length is None and (full := [row for row, n in enumerate(lengths) if n == length]):
            nonlocal n_cut
            whole = read(*([rows[name][row] for row in full] for name in texts), verbose=False)[
                "input_ids"
            ]
            n_cut += sum(len(ids) > length for ids in whole)
        labels = {"labels": _class_numbers("the dataset", rows[label])} if label else {}
        return {**encoded, **labels, "length": lengths}

    examples = dataset.map(
        encode, batched=True, with_indices=True, remove_columns=dropped, keep_in_memory=True
    )
    if n_cut:
        cut = f"{n_cut} of {len(dataset)} texts were cut to {length} tokens; give max_length to cut them elsewhere."
        warnings.warn(cut, stacklevel=2)
    if label and len(dataset) and isinstance(dataset.features[label], ClassLabel):
        examples = examples.cast_column("labels", dataset.features[label])
    return examples


def check_labels(name: str, dataset: Dataset, num_labels: int) -> None:
    """Raise `UserError` where a label is none of the model's, in a dataset with labels that messages call `name`."""
    labels = dataset.with_format(None)[
        label_column(dataset.column_names)
    ]  # a format may hide columns
    labels = {*_class_numbers(name, labels)}
    if not labels <= {*range(num_labels)} or not labels:
        raise UserError(
            f"{name} has labels {', '.join(map(str, sorted(labels))) or 'of no row'}; a classifier with "
            f"num_labels={num_labels} takes 0 to {num_labels - 1}. Renumber them or give the model another "
            "num_labels; where labels are not known, remove the column."
        )


class Collator:
    """Pads the model's inputs to the longest of the batch and keeps `labels`; other columns are left behind.

    A column `label` becomes `labels`, as in transformers' collators. Always on the right, whatever the tokenizer's
    `padding_side`: classifier heads read the first token.

    With a seed, for examples with their number in the training set as `example`, it also draws masks, which depend on
    `(seed, epoch, example)` alone, and adds their `keys` `(batch,)`, for what is drawn in the step.

    Args:
        tokenizer: decides which inputs there are, and what pads them.
        columns: further columns to keep, each with the value that pads it. A column holds a number for each example
            `(batch,)`, or a list: one entry a token `(batch, seq)`, or a list of one length for all `(batch, n)`.
        masking: a policy; None draws no masks.
        seed: of all draws; None: there are none.
        buckets: pad to multiples of 8 tokens up to 64, of 32 above, and to 1, 2, 4, 8 ... places, so that few shapes
            come often (which CUDA graphs need).
    """

    def __init__(
        self, tokenizer, columns: Mapping[str, int | float] | None = None, masking: MaskingPolicy | None = None,
        seed: int | None = None, buckets: bool = False,
    ):  # fmt: skip
        self.tokenizer, self.columns = tokenizer, dict(columns or {})
        self.masking, self.seed, self.buckets = masking, seed, buckets
        self.epoch = torch.zeros(
            (), dtype=torch.int64
        ).share_memory_()  # the processes that load data see it change

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        batch = self._padded(examples)
        if self.seed is None or "example" not in examples[0]:
            return batch
        numbers = torch.tensor([example["example"] for example in examples])
        batch["keys"] = example_keys(self.seed, self.epoch, numbers)
        if self.masking is None or self.masking.asks_classifier:
            return batch
        rng = KeyedRNG(batch["keys"], stream="masks")
        return draw_mask(batch, self.masking, self.tokenizer, rng, round_up=self.buckets)

    def _padded(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        keys, label = {*self.tokenizer.model_input_names}, label_column(examples[0])
        inputs = [{key: example[key] for key in keys & example.keys()} for example in examples]
        if label is not None:
            inputs = [
                row | {"labels": example[label]}
                for row, example in zip(inputs, examples, strict=True)
            ]
        lengths = [len(row["input_ids"]) for row in inputs]
        length = longest = max(lengths)
        if self.buckets:
            step = 8 if longest <= 64 else 32
            length = max(longest, min(-(-longest // step) * step, self.tokenizer.model_max_length))
        padding = {"padding": "max_length", "max_length": length, "padding_side": "right"}
        batch = dict(self.tokenizer.pad(inputs, return_tensors="pt", **padding))
        for name in (
            self.columns.keys() & examples[0].keys()
        ):  # texts to predict on have none of them
            rows = [torch.as_tensor(example[name]) for example in examples]
            if rows[0].ndim == 0:
                batch[name] = torch.stack(rows)  # (batch,)
                continue
            value = self.columns[name]
            column = torch.nn.utils.rnn.pad_sequence(rows, True, value)  # (batch, longest)
            missing = length - column.shape[1] if [len(row) for row in rows] == lengths else 0
            batch[name] = torch.nn.functional.pad(column, (0, missing), value=value)  # (batch, seq)
        return batch


def batches_by_length(
    examples: Dataset,
    collate: Callable[[list[dict]], dict],
    device: torch.device,
    batch_size: int = 64,
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """`(row numbers, batch on the device)` over all tokenised examples, like lengths together: little padding."""
    lengths = (
        [len(ids) for ids in examples["input_ids"]] if len(examples) else []
    )  # an empty set may lack the column
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size].tolist()
        batch = collate(examples.select(rows).to_list())
        yield rows, {name: tensor.to(device) for name, tensor in batch.items()}


@torch.no_grad()
def each_token(
    plm: SharedPLM,
    examples: Dataset,
    answer: Callable[[list[int], dict], torch.Tensor],
    columns: Mapping | None = None,
    batch_size: int = 64,
) -> list[torch.Tensor]:
    """What `answer(row numbers, batch)`, `(batch, seq, ...)`, says of the tokens of each example: `(tokens, ...)`.

    On the CPU, in the order of the examples; `columns` are those that the batch brings beside the model's inputs.
    """
    answers: list[torch.Tensor] = [torch.empty(0)] * len(examples)
    for rows, batch in batches_by_length(
        examples, Collator(plm.tokenizer, columns), plm.device, batch_size
    ):
        attended = batch["attention_mask"].bool().cpu()  # (batch, seq)
        for row, of_tokens, own in zip(rows, answer(rows, batch).cpu(), attended, strict=True):
            answers[row] = of_tokens[own]
    return answers


@torch.no_grad()
def predict(
    plm: SharedPLM,
    texts: Dataset | Sequence[str] | Sequence[tuple[str, str]],
    max_length: int | None = None,
    batch_size: int = 64,
    bf16: bool | None = None,
    names: bool = False,
) -> np.ndarray | list[str]:
    """Class logits `(n, num_labels)` of the texts as they stand, in their order, or names of labels.

    The model is moved to the GPU if there is a CUDA one, else to the CPU. Its mode, its precision and the random states
    stay as they were.

    Args:
        plm: the model.
        texts: a list or a pandas column of texts or of pairs of texts, or a dataset as `tokenise` takes it, whose
            labels are not read.
        max_length: texts are cut to so many tokens, see `tokenise`; by default to 128, or to more where the model was
            trained on longer ones.
        batch_size: texts that go through the model together.
        bf16: compute in bf16, or in float32. None: in bf16 where the device has it. A few architectures (DeBERTa's
            first version, X-MOD) need False.
        names: return the name of each text's likeliest label, of `plm.config.id2label`, in place of logits.
    """
    texts = texts.tolist() if hasattr(texts, "tolist") else texts
    if isinstance(texts, list | tuple):
        rows = [(text,) if isinstance(text, str) else text for text in texts]
        columns = dict(zip(("text", "text_pair"), map(list, zip(*rows, strict=True)), strict=False))
        texts = Dataset.from_dict(columns or {"text": []})
    if isinstance(texts, Dataset):
        texts = texts.remove_columns(
            [name for name in ("label", "labels") if name in texts.column_names]
        )
    if max_length is None and getattr(plm.config, "trained_length", 0) > DEFAULT_LENGTH:
        max_length = plm.config.trained_length
    examples = tokenise(texts, plm.tokenizer, max_length)
    if len(examples):
        plm.check_inputs(examples["input_ids"], "the dataset")
    autocast = precision()["bf16"] if bf16 is None else bf16
    logits = torch.empty(len(examples), plm.config.num_labels)
    device = torch.device("cpu" if precision()["use_cpu"] else "cuda")
    plm.to(device)
    with evaluating(plm), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
        for rows, batch in batches_by_length(examples, Collator(plm.tokenizer), device, batch_size):
            logits[rows] = plm.classify(batch).float().cpu()
    return (
        [plm.config.id2label[label] for label in logits.argmax(1).tolist()]
        if names
        else logits.numpy()
    )


def _class_numbers(name: str, labels: Sequence) -> list[int]:
    """The labels of a set, all of which must be numbers."""
    for label in labels:
        if type(label) is not int:
            raise UserError(
                f"{name} has the label {label!r}; expected class numbers, whole and from 0 on. "
                '`dataset.class_encode_column("label")` numbers names; drop rows without a label.'
            )
    return list(labels)
