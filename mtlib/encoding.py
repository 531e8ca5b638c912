"""From texts to the inputs of a model, and from its logits back to the rows of a data set."""

import re
import reprlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import ClassLabel, Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mtlib.contexts import evaluating, precision
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.plm import SharedPLM
from mtlib.rng import KeyedRNG, example_keys
from mtlib.rows.labels import label_column
from mtlib.spans import mask_words
from mtlib.tokens import text_reader

DEFAULT_LENGTH = 128
_TEXTS = ("text", "text_pair")
# names of columns that may hold the second text of a pair
_SECOND_TEXT = re.compile(r"(?i)(text|sentence|premise|hypothesis|question|.*pair).*|.*(_b|2)")


def tokenise(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None = None,
    keep: Collection[str] = (),
) -> Dataset:
    """The model's inputs, `labels` and `length`, from `text`, `text_pair` and `label`.

    The last two need not be there. Labels are class numbers and may also be called `labels`; a
    `ClassLabel` column stays one, with its names. Other columns are dropped, with a warning where
    one looks like a second text. Text that spells out a structural token ("[SEP]") is text, see
    `mtlib.tokens.text_reader`.

    Args:
        dataset: rows with a text or a pair of texts.
        tokenizer: the model's, `plm.tokenizer`.
        max_length: texts are cut to so many tokens, with a warning if that cuts one. None: to 128,
            or to fewer where the tokenizer's model reads fewer.
        keep: columns of `dataset` that are carried through unchanged, for objectives and transforms
            that need more than these. `text` brings `text_pair` with it, where there is one.

    Raises:
        UserError: no `Dataset`; no column `text`, or both `label` and `labels`; a row without text,
            or with a label that is no number.
    """
    _check_dataset(dataset)
    dataset = dataset.with_format(None)  # tensors are neither texts nor labels
    texts = [name for name in _TEXTS if name in dataset.column_names]
    label = label_column(dataset.column_names)
    dropped = _dropped_columns(dataset.column_names, texts, label, keep)
    encoder = _Encoder(
        reader=text_reader(tokenizer),
        texts=texts,
        label=label,
        length=max_length or min(DEFAULT_LENGTH, tokenizer.model_max_length),
    )
    examples = dataset.map(
        encoder, batched=True, with_indices=True, remove_columns=dropped, keep_in_memory=True
    )
    if encoder.n_cut:
        message = f"{encoder.n_cut} of {len(dataset)} texts were cut to {encoder.length} tokens"
        warnings.warn(f"{message}; max_length says where.", stacklevel=2)
    if label and len(dataset) and isinstance(dataset.features[label], ClassLabel):
        examples = examples.cast_column("labels", dataset.features[label])
    return examples


def _check_dataset(dataset: object) -> None:
    columns = getattr(dataset, "column_names", None)
    if not isinstance(dataset, Dataset) or "text" not in columns:
        has = "" if columns is None else f" with {columns}"
        raise UserError(
            f"the dataset is a {type(dataset).__name__}{has}; expected a Dataset with a column "
            "`text`, as Dataset.from_list(rows) or mtlib.read_table(path, text, label) makes it."
        )
    if {"label", "labels"} <= {*columns}:
        raise UserError(
            "the dataset has a column label and a column labels; expected one of them. Remove the "
            "other, as with dataset.remove_columns('labels')."
        )


def _dropped_columns(
    names: list[str],
    texts: list[str],
    label: str | None,
    keep: Collection[str],
) -> list[str]:
    """The columns that are not carried through. Warns where one looks like a second text."""
    kept = {keep} if isinstance(keep, str) else {*keep}
    if "length" in kept:
        raise UserError("keep has 'length', which tokenise makes itself; rename your column.")
    if "text" in kept:
        kept.update(texts)
    kept.discard(label)  # it becomes `labels`
    dropped = [name for name in names if name not in kept]
    for name in dropped:
        if name not in texts and _SECOND_TEXT.fullmatch(name):
            message = (
                f"the column {name} is not read; the second text of a pair is called text_pair."
            )
            warnings.warn(message, stacklevel=3)
            break
    return dropped


@dataclass
class _Encoder:
    """Tokenises batches of rows.

    Args:
        reader: a tokenizer that reads structural tokens as text.
        texts: the columns of the texts.
        label: the column of the labels, if there is one.
        length: texts are cut to so many tokens.
        n_cut: how many were longer.
    """

    reader: PreTrainedTokenizerBase
    texts: list[str]
    label: str | None
    length: int
    n_cut: int = 0

    def __call__(self, rows: Mapping[str, list], indices: list[int]) -> dict[str, list]:
        texts = [rows[name] for name in self.texts]
        for name, column in zip(self.texts, texts, strict=True):
            _check_texts(name, column, indices)
        encoded = self.reader(*texts, truncation=True, max_length=self.length)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        if encoded.is_fast:
            self.n_cut += sum(bool(encoding.overflowing) for encoding in encoded.encodings)
        else:
            self.n_cut += self._count_cut(texts, lengths)
        examples = dict(encoded)
        if self.label is not None:
            examples["labels"] = _class_numbers("the dataset", rows[self.label])
        return examples | {"length": lengths}

    def _count_cut(self, texts: list[list[str]], lengths: list[int]) -> int:
        """How many of these texts are longer than what is read of them."""
        full = [row for row, n_tokens in enumerate(lengths) if n_tokens == self.length]
        if not full:
            return 0
        long_texts = [[column[row] for row in full] for column in texts]
        whole = self.reader(*long_texts, verbose=False)["input_ids"]
        return sum(len(ids) > self.length for ids in whole)


def _check_texts(name: str, texts: Sequence, indices: Sequence[int]) -> None:
    for index, text in zip(indices, texts, strict=True):
        if not isinstance(text, str):
            raise UserError(
                f"row {index} has {text!r} for {name}; expected a text. Drop or mend that row."
            )


def check_labels(name: str, dataset: Dataset, num_labels: int) -> None:
    """Raise `UserError` where a label is none of the model's.

    Args:
        name: what messages call the dataset.
        dataset: with labels.
        num_labels: of the model.
    """
    column = label_column(dataset.column_names)
    labels = {*_class_numbers(name, dataset.with_format(None)[column])}  # a format may hide columns
    if not labels <= {*range(num_labels)} or not labels:
        found = ", ".join(map(str, sorted(labels))) or "of no row"
        raise UserError(
            f"{name} has labels {found}; a classifier with num_labels={num_labels} takes 0 to "
            f"{num_labels - 1}. Renumber them or give the model another num_labels; where labels "
            "are not known, remove the column."
        )


class Collator:
    """Pads the model's inputs to the longest of the batch and keeps `labels`.

    Other columns are left behind. A column `label` becomes `labels`, as in transformers' collators.
    Padding is always on the right, whatever the tokenizer's `padding_side`: classifier heads read
    the first token.

    With a seed, and examples that bring their number in the training set as `example`, it also
    draws the masks, which depend only on (seed, epoch, example). It adds `keys`, `(batch,)`, from
    which the training step draws its own random numbers.

    Args:
        tokenizer: decides which inputs there are, and what pads them.
        columns: further columns to keep, each with the value that pads it. A column holds a number
            for each example `(batch,)`, or a list: one entry a token `(batch, seq)`, or a list of
            one length for all `(batch, n)`.
        masking: a policy; None draws no masks.
        seed: of all random numbers; None draws none.
        buckets: pad to multiples of 8 tokens up to 64, of 32 above, and to 1, 2, 4, 8 ... masked
            positions. Batches then have few shapes, which CUDA graphs need.
        longest: the tokens that the model reads at most, beyond which nothing is padded. None: as
            the tokenizer says.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        columns: Mapping[str, int | float] | None = None,
        masking: MaskingPolicy | None = None,
        seed: int | None = None,
        buckets: bool = False,
        longest: int | None = None,
    ):
        self.tokenizer = tokenizer
        self.longest = longest or tokenizer.model_max_length
        self.columns = dict(columns or {})
        self.masking = masking
        self.seed = seed
        self.buckets = buckets
        # the processes that load data see it change
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __call__(self, examples: list[dict]) -> dict[str, Tensor]:
        batch = self._padded(examples)
        if self.seed is None or "example" not in examples[0]:
            return batch
        numbers = torch.tensor([example["example"] for example in examples])
        batch["keys"] = example_keys(self.seed, self.epoch, numbers)
        if self.masking is None or self.masking.asks_classifier:
            return batch
        rng = KeyedRNG(batch["keys"], stream="masks")
        return draw_mask(batch, self.masking, self.tokenizer, rng, round_up=self.buckets)

    def _padded(self, examples: list[dict]) -> dict[str, Tensor]:
        rows = self._model_inputs(examples)
        lengths = [len(row["input_ids"]) for row in rows]
        length = self._padded_length(max(lengths))
        inputs = self.tokenizer.pad(
            rows,
            return_tensors="pt",
            padding="max_length",
            max_length=length,
            padding_side="right",
        )
        batch = dict(inputs)
        for name, padding in self.columns.items():
            if name in examples[0]:  # texts to predict on have none of them
                values = [torch.as_tensor(example[name]) for example in examples]
                batch[name] = _padded_column(values, padding, lengths, length)
        return batch

    def _model_inputs(self, examples: list[dict]) -> list[dict]:
        """What the model reads of each example, and its label."""
        label = label_column(examples[0])
        rows = []
        for example in examples:
            names = self.tokenizer.model_input_names
            row = {name: example[name] for name in names if name in example}
            if label is not None:
                row["labels"] = example[label]
            rows.append(row)
        return rows

    def _padded_length(self, longest: int) -> int:
        if not self.buckets:
            return longest
        step = 8 if longest <= 64 else 32
        rounded_up = -(-longest // step) * step
        return max(longest, min(rounded_up, self.longest))


def _padded_column(
    values: list[Tensor], padding: int | float, lengths: list[int], length: int
) -> Tensor:
    """A column of a batch, padded like the tokens where it has an entry for each of them.

    Args:
        values: of each example, `()` or `(entries,)`.
        padding: the value that pads.
        lengths: of the examples in tokens.
        length: of the batch in tokens.
    """
    if values[0].ndim == 0:
        return torch.stack(values)  # (batch,)
    column = torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=padding)
    if [len(entries) for entries in values] != lengths:
        return column  # (batch, entries)
    missing = length - column.shape[1]
    return torch.nn.functional.pad(column, (0, missing), value=padding)  # (batch, seq)


def batches_by_length(
    examples: Dataset,
    collate: Callable[[list[dict]], dict],
    device: torch.device,
    batch_size: int = 64,
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """`(row numbers, batch on the device)` over all tokenised examples.

    Examples of similar lengths go together, so that little is padded.
    """
    # an empty set may lack the column
    lengths = [len(ids) for ids in examples["input_ids"]] if len(examples) else []
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size].tolist()
        batch = collate(examples.select(rows).to_list())
        yield rows, {name: tensor.to(device) for name, tensor in batch.items()}


@torch.no_grad()
def each_token(
    plm: SharedPLM,
    examples: Dataset,
    compute: Callable[[list[int], dict], Tensor],
    columns: Mapping | None = None,
) -> list[Tensor]:
    """What `compute(row numbers, batch)` gives for the tokens of each example, without padding.

    Args:
        plm: whose tokenizer and device are used.
        examples: tokenised.
        compute: returns `(batch, seq, ...)`.
        columns: those that a batch brings beside the model's inputs, each with its padding.

    Returns:
        A tensor `(tokens, ...)` on the CPU for each example, in their order.
    """
    results: list[Tensor] = [torch.empty(0)] * len(examples)
    collate = Collator(plm.tokenizer, columns)
    for rows, batch in batches_by_length(examples, collate, plm.device):
        attended = batch["attention_mask"].bool().cpu()  # (batch, seq)
        computed = compute(rows, batch).cpu()  # (batch, seq, ...)
        for row, values, is_token in zip(rows, computed, attended, strict=True):
            results[row] = values[is_token]
    return results


def predict(
    plm: SharedPLM,
    texts: Dataset | Sequence[str] | Sequence[tuple[str, str]],
    max_length: int | None = None,
    batch_size: int = 64,
    bf16: bool | None = None,
    names: bool = False,
    hide: str | Iterable[str] = (),
) -> np.ndarray | list[str]:
    """Class logits `(n, num_labels)` of the texts, in their order, or label names.

    The model is moved to the GPU if there is a CUDA one, else to the CPU. Its mode, its precision
    and the random states stay as they were.

    Args:
        plm: the model.
        texts: a list, an array or a pandas column of texts or of pairs of texts, or a dataset as
            `tokenise` takes it, whose labels are not read.
        max_length: texts are cut to so many tokens, see `tokenise`; by default to 128, or to more
            where the model was trained on longer ones.
        batch_size: texts that go through the model together.
        bf16: compute in bf16, or in float32. None: in bf16 where the device has it. A few
            architectures (DeBERTa's first version, X-MOD) need False.
        names: return the name of each text's likeliest label, of `plm.config.id2label`, in place of
            logits.
        hide: words, phrases and forms that the model is not to see: a mask takes the place of each
            of their pieces. By default texts are read as they stand.

    Raises:
        UserError: something that is neither a text nor a pair of texts, or texts and pairs in one
            list.
    """
    trained_length = getattr(plm.config, "trained_length", 0)
    if max_length is None and trained_length > DEFAULT_LENGTH:
        max_length = trained_length
    kept = ("text",) if hide else ()
    examples = tokenise(_unlabelled_dataset(texts), plm.tokenizer, max_length, keep=kept)
    if hide:
        examples = mask_words(plm, examples, hide)
    if len(examples):
        plm.check_inputs(examples["input_ids"], "the dataset")
    logits = _logits(plm, examples, batch_size, bf16)  # (n, num_labels)
    if not names:
        return logits.numpy()
    return [plm.config.id2label[label] for label in logits.argmax(1).tolist()]


@torch.no_grad()
def _logits(plm: SharedPLM, examples: Dataset, batch_size: int, bf16: bool | None) -> Tensor:
    """Class logits of tokenised examples, `(n, num_labels)`, in float32 on the CPU."""
    available = precision()
    autocast = available["bf16"] if bf16 is None else bf16
    device = torch.device("cpu" if available["use_cpu"] else "cuda")
    plm.to(device)
    logits = torch.empty(len(examples), plm.config.num_labels)
    collate = Collator(plm.tokenizer)
    with evaluating(plm), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
        for rows, batch in batches_by_length(examples, collate, device, batch_size):
            logits[rows] = plm.classify(batch).float().cpu()
    return logits


def _unlabelled_dataset(texts: object) -> Dataset:
    """Texts or pairs of texts as a dataset; a dataset without its labels."""
    if isinstance(texts, Dataset):
        labels = [name for name in ("label", "labels") if name in texts.column_names]
        return texts.remove_columns(labels)
    if hasattr(texts, "tolist"):  # a column of pandas, an array of NumPy
        texts = texts.tolist()
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise UserError(
            f"texts is a {type(texts).__name__}; expected a list of texts or of pairs of texts, or "
            "a Dataset with a column `text`, as mtlib.read_table(path, text, label) makes it."
        )
    rows = _alike(texts)
    n_texts = len(rows[0]) if rows else 1
    columns = [[row[place] for row in rows] for place in range(n_texts)]
    return Dataset.from_dict(dict(zip(_TEXTS, columns, strict=False)))


def _alike(texts: Sequence) -> list[Sequence[str]]:
    """Each text as a row of one, each pair of texts as a row of two, and all of one kind."""
    for number, row in enumerate(texts):
        if _texts_in(row) not in (1, 2) or _texts_in(row) != _texts_in(texts[0]):
            raise UserError(
                f"texts[{number}] is {reprlib.repr(row)}; expected a text or a pair of texts, "
                "alike in all rows."
            )
    return [(row,) if isinstance(row, str) else row for row in texts]


def _texts_in(row: object) -> int:
    """How many texts there are in a row; 0 if it holds anything else."""
    if isinstance(row, str):
        return 1
    are_texts = isinstance(row, list | tuple) and all(isinstance(text, str) for text in row)
    return len(row) if are_texts else 0


def _class_numbers(name: str, labels: Sequence) -> list[int]:
    """The labels of a dataset, all of which must be class numbers."""
    for label in labels:
        if type(label) is not int:
            raise UserError(
                f"{name} has the label {label!r}; expected class numbers, whole and from 0 on. "
                '`dataset.class_encode_column("label")` numbers names; drop rows without a label.'
            )
    return list(labels)
