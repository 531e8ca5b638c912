"""Between texts and model: a set's rows as model inputs, and a model's answers to a set's rows."""

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from datasets import ClassLabel, Dataset, DatasetDict

from mtlib.contexts import evaluating, precision
from mtlib.draws import Draws
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.plm import SharedPLM
from mtlib.tokens import text_reader

DEFAULT_LENGTH = 128
_SECOND_TEXT = re.compile(r"(?i)(text|sentence|premise|hypothesis|question|.*pair).*|.*(_b|2)")
_CUT_TO = "Texts are cut to {} tokens."  # in a set's description, which goes with its parts and copies


def tokenise(dataset: Dataset, tokenizer, max_length: int | None = None, keep: Collection[str] = ()) -> Dataset:
    """Columns of model inputs, `labels` and `length`, from `text`, `text_pair` and `label` (where they are there).

    Labels are class numbers and may also be called `labels`; a `ClassLabel` column stays one, with its names. Other
    columns are dropped, with a warning where one looks like a second text. Text that spells out a structural token
    ("[SEP]") is text, see `mtlib.tokens.text_reader`.

    Args:
        dataset: rows with a text or a pair of texts.
        tokenizer: the model's, `plm.tokenizer`.
        max_length: texts are cut to so many tokens. None: to 128, or to fewer where the tokenizer's model reads fewer,
            with a warning if that cuts one.
        keep: columns of `dataset` that are carried through unchanged, for objectives and preparers that need more than
            these. `text` brings `text_pair` with it, where there is one.

    Raises:
        UserError: no `Dataset`; no column `text`; a row without text, or with a label that is no number.
    """
    _check_dataset(dataset)
    dataset = dataset.with_format(None)  # tensors of strings are no texts, tensors of numbers no labels
    texts = [name for name in ("text", "text_pair") if name in dataset.column_names]
    label = label_column(dataset.column_names)
    length = min(DEFAULT_LENGTH, tokenizer.model_max_length) if max_length is None else max_length
    structural = tokenizer.num_special_tokens_to_add(pair=len(texts) == 2)
    if length <= structural:  # tokenizers then cut nothing at all
        raise UserError(f"max_length is {length}; the tokenizer adds {structural} tokens to every text, give more.")
    read = text_reader(tokenizer)
    n_cut = 0

    def encode(rows, indices):
        for name in texts:
            for index, text in zip(indices, rows[name], strict=True):
                if not isinstance(text, str):
                    raise UserError(f"row {index} has {text!r} for {name}; expected a text. Drop or mend that row.")
        encoded = read(*(rows[name] for name in texts), truncation=True, max_length=length)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        if max_length is None and (full := [row for row, n in enumerate(lengths) if n == length]):
            nonlocal n_cut
            whole = read(*([rows[name][row] for row in full] for name in texts), verbose=False)["input_ids"]
            n_cut += sum(len(ids) > length for ids in whole)
        labels = {"labels": _class_numbers("the dataset", rows[label])} if label else {}
        return {**encoded, **labels, "length": lengths}

    kept = {*keep, *(texts if "text" in keep else ())}
    dropped = [name for name in dataset.column_names if name not in kept]
    if lost := [name for name in dropped if _SECOND_TEXT.fullmatch(name) and name not in texts]:
        warnings.warn(f"the column {lost[0]} is not read; the second text of a pair is called text_pair.", stacklevel=2)
    examples = dataset.map(encode, batched=True, with_indices=True, remove_columns=dropped, keep_in_memory=True)
    if n_cut:
        warnings.warn(
            f"{n_cut} of {len(dataset)} texts were cut to {length} tokens; give max_length to cut them elsewhere.",
            stacklevel=2,
        )
    if max_length is not None:
        examples.info.description = _CUT_TO.format(max_length)
    if label and len(dataset) and isinstance(dataset.features[label], ClassLabel):
        examples = examples.cast_column("labels", dataset.features[label])
    return examples


def length_given(examples: Dataset) -> int | None:
    """The `max_length` that `tokenise` was given for these examples, or None."""
    description = getattr(getattr(examples, "info", None), "description", "")
    found = re.search(_CUT_TO.format(r"(\d+)"), description)
    return found and int(found[1])


def label_column(columns: Collection[str]) -> str | None:
    """Which of these columns holds the class numbers: `labels`, or `label`; None if neither is there."""
    return next((name for name in ("labels", "label") if name in columns), None)


def check_labels(name: str, dataset: Dataset, num_labels: int) -> None:
    """Raise `UserError` where a label is none of the model's, in a dataset with labels that messages call `name`."""
    labels = dataset.with_format(None)[label_column(dataset.column_names)]  # a format may hide columns
    labels = {*_class_numbers(name, labels)}
    if not labels <= {*range(num_labels)} or not labels:
        raise UserError(
            f"{name} has labels {', '.join(map(str, sorted(labels))) or 'of no row'}; a classifier with "
            f"num_labels={num_labels} takes 0 to {num_labels - 1}. Renumber them or give the model another "
            "num_labels; where labels are not known, remove the column."
        )


class Collator:
    """Pads the model's inputs to the longest of the batch and keeps `labels`; other columns are left behind.

    A column `label` becomes `labels`, as in transformers' collators.

    Always on the right, whatever the tokenizer's `padding_side`: classifier heads read the first token.

    Args:
        tokenizer: decides which inputs there are, and what pads them.
        columns: further columns to keep, each with the value that pads it. A column holds a number for each example
            `(batch,)`, or a list: one entry a token `(batch, seq)`, or a list of one length for all `(batch, n)`.
    """

    def __init__(self, tokenizer, columns: Mapping[str, int | float] | None = None):
        self.keys = {*tokenizer.model_input_names}
        self.tokenizer = tokenizer
        self.columns = dict(columns or {})

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        inputs = [{key: example[key] for key in self.keys & example.keys()} for example in examples]
        if (label := label_column(examples[0])) is not None:
            inputs = [row | {"labels": example[label]} for row, example in zip(inputs, examples, strict=True)]
        lengths = [len(row["input_ids"]) for row in inputs]
        length = self.padded_length(max(lengths))
        padding = {"padding": "max_length", "max_length": length, "padding_side": "right"}
        batch = dict(self.tokenizer.pad(inputs, return_tensors="pt", **padding))
        for name in self.columns.keys() & examples[0].keys():  # texts to predict on have none of them
            rows = [torch.as_tensor(example[name]) for example in examples]
            if rows[0].ndim == 0:
                batch[name] = torch.stack(rows)  # (batch,)
                continue
            value = self.columns[name]
            column = torch.nn.utils.rnn.pad_sequence(rows, True, value)  # (batch, longest)
            of_tokens = [len(row) for row in rows] == lengths
            missing = length - column.shape[1] if of_tokens else 0
            batch[name] = torch.nn.functional.pad(column, (0, missing), value=value)  # (batch, seq)
        return batch

    def padded_length(self, longest: int) -> int:
        return longest


class TrainingCollator(Collator):
    """A collator that also draws masks, for examples with their number in the training set as `example`.

    A mask depends on `(seed, epoch, example)` alone. It also adds `keys` `(batch,)`, of `Draws`, for what is drawn in
    the step.

    Args:
        tokenizer, columns: see `Collator`.
        masking: a policy; None draws no masks.
        seed: of all draws.
        buckets: pad to multiples of 8 tokens up to 64, of 32 above, and to 1, 2, 4, 8 ... places, so that few shapes
            come often (which CUDA graphs need).
    """

    def __init__(self, tokenizer, columns: Mapping, masking: MaskingPolicy | None, seed: int, buckets: bool = False):
        super().__init__(tokenizer, columns)
        self.masking, self.seed, self.buckets = masking, seed, buckets
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # the processes that load data see it change

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        batch = super().__call__(examples)
        if "example" not in examples[0]:
            return batch
        draws = Draws.of(self.seed, self.epoch, torch.tensor([example["example"] for example in examples]))
        batch["keys"] = draws.keys
        if self.masking is None or self.masking.asks_classifier:
            return batch
        return draw_mask(batch, self.masking, self.tokenizer, draws, round_up=self.buckets)

    def padded_length(self, longest: int) -> int:
        step = (8 if longest <= 64 else 32) if self.buckets else 1
        return max(longest, min(-(-longest // step) * step, self.tokenizer.model_max_length))


def batches_by_length(
    examples: Dataset, collate: Callable[[list[dict]], dict], device: torch.device, batch_size: int = 64
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """`(row numbers, batch on the device)` over all tokenised examples, like lengths together: little padding."""
    order = order_by_length(examples)
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size].tolist()
        batch = collate(examples.select(rows).to_list())
        yield rows, {name: tensor.to(device) for name, tensor in batch.items()}


def order_by_length(examples: Dataset) -> np.ndarray:
    """Row numbers from the shortest example to the longest, `(n,)`; equals in their order."""
    lengths = [len(ids) for ids in examples["input_ids"]] if len(examples) else []  # an empty set may lack the column
    return np.argsort(lengths, kind="stable")


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
    for rows, batch in batches_by_length(examples, Collator(plm.tokenizer, columns), plm.device, batch_size):
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
        texts: a list of texts, or of pairs of texts, or a dataset as `tokenise` takes it, whose labels are not read.
        max_length: texts are cut to so many tokens. None: to as many as in the model's training, where that was given
            a `max_length`; else see `tokenise`.
        batch_size: texts that go through the model together.
        bf16: compute in bf16, or in float32. None: in bf16 where the device has it. A few architectures (DeBERTa's
            first version, X-MOD) need False.
        names: return the name of each text's likeliest label, of `plm.config.id2label`, in place of logits.
    """
    examples = _inputs(_as_dataset(texts), plm.tokenizer, plm.trained_length if max_length is None else max_length)
    if len(examples):
        plm.check_inputs(examples["input_ids"], "the dataset")
    autocast = precision()["bf16"] if bf16 is None else bf16
    logits = torch.empty(len(examples), plm.config.num_labels)
    device = torch.device("cpu" if precision()["use_cpu"] else "cuda")
    plm.to(device)
    with evaluating(plm), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
        for rows, batch in batches_by_length(examples, Collator(plm.tokenizer), device, batch_size):
            logits[rows] = plm.classify(batch).float().cpu()
    return [plm.config.id2label[label] for label in logits.argmax(1).tolist()] if names else logits.numpy()


def _as_dataset(texts) -> Dataset:
    """Lists of texts or of pairs as a dataset; whatever else this is, `tokenise` will tell."""
    if isinstance(texts, Sequence) and not isinstance(texts, str):
        if all(isinstance(text, str) for text in texts):
            return Dataset.from_dict({"text": list(texts)})
        if all(isinstance(pair, Sequence) and len(pair) == 2 for pair in texts):
            return Dataset.from_dict(dict(zip(("text", "text_pair"), map(list, zip(*texts, strict=True)), strict=True)))
    return texts


def _inputs(dataset: Dataset, tokenizer, max_length: int | None) -> Dataset:
    """The texts as model inputs, without labels."""
    _check_dataset(dataset)
    dataset = dataset.remove_columns([name for name in ("label", "labels") if name in dataset.column_names])
    return tokenise(dataset, tokenizer, max_length)


def _class_numbers(name: str, labels: Sequence) -> list[int]:
    """The labels of a set, all of which must be numbers."""
    for label in labels:
        if type(label) is not int:
            raise UserError(
                f"{name} has the label {label!r}; expected class numbers, whole and from 0 on. "
                '`dataset.class_encode_column("label")` numbers names; drop rows without a label.'
            )
    return list(labels)


def _check_dataset(dataset: Dataset) -> None:
    if not isinstance(dataset, Dataset):
        sets = f" of {', '.join(dataset)}; give one of these" if isinstance(dataset, DatasetDict) else ""
        raise UserError(
            f"the dataset is a {type(dataset).__name__}{sets}; expected a Dataset, as Dataset.from_list(rows), "
            "Dataset.from_pandas(frame) or mtlib.read_table(path, text, label) makes."
        )
    if "text" not in dataset.column_names:
        raise UserError(
            f"the dataset has no column `text`, but {', '.join(dataset.column_names)}; rename the one that holds the "
            "texts."
        )
