"""What a shared model refuses: labels, a tokenizer or a way of filling that cannot be its own."""

from collections.abc import Mapping

from mtlib.errors import UserError
from mtlib.settings import COUNT, Fill, check_choice


def label_settings(num_labels: int | None, changes: dict) -> dict:
    """The number of labels and their names in both directions, as far as they are given."""
    names, ids = changes.get("id2label"), changes.get("label2id")
    for setting, value, form in (("id2label", names, '{0: "negative", 1: "positive"}'),
                                 ("label2id", ids, '{"negative": 0, "positive": 1}')):  # fmt: skip
        if value is not None and not isinstance(value, Mapping):
            raise UserError(f"{setting} is {value!r}; expected a dictionary such as {form}.")
    if names is None and ids is not None:
        names = {index: name for name, index in ids.items()}
    number = num_labels if names is None or num_labels is not None else len(names)
    if number is None:
        return {}
    COUNT.check("num_labels", number)
    if names is None:
        return {"num_labels": int(number)}
    inverse = {name: index for index, name in names.items()}
    if {*names} != {*range(number)} or len(inverse) < number or (ids is not None and ids != inverse):
        raise UserError(
            f"id2label is {names!r} and label2id {ids!r}, for num_labels={number}; expected one name for each of 0 to "
            f"{number - 1}, which are numbers, not texts. Give id2label alone: label2id and num_labels follow from it."
        )
    return {"num_labels": int(number), "id2label": names, "label2id": inverse}


def require_classes(config) -> None:
    kind = getattr(config, "problem_type", None)
    if config.num_labels < 2 or kind not in (None, "single_label_classification"):
        raise UserError(
            f"num_labels is {config.num_labels} and problem_type {kind!r}; expected 2 labels or more, of which each "
            "text has one (problem_type=None): all losses here are of single-label classification."
        )


def require_mask_token(tokenizer) -> None:
    if tokenizer.mask_token_id is None:
        raise UserError(
            f"The tokenizer of {tokenizer.name_or_path!r} ({type(tokenizer).__name__}) has no mask token: Mask-tuning "
            "needs a masked language model such as bert-base-uncased, roberta-base or facebook/bart-base."
        )


def check_vocabulary(tokenizer, n_rows: int) -> None:
    """The tokenizer must be the model's; embeddings padded with unused rows (DeBERTa) are fine.

    Without tokenizer files transformers makes a tokenizer of a handful of tokens, and every word is unknown.
    """
    if n_rows / 4 <= len(tokenizer) <= n_rows:
        return
    expected = (
        "expected nearly as many. Put the model's tokenizer files (tokenizer.json, or vocab.txt and the like) into its "
        "folder."
        if len(tokenizer) < n_rows
        else "expected no more tokens than that. Take the tokenizer that came with the model, or enlarge the model by "
        "resize_token_embeddings and save it again."
    )
    raise UserError(
        f"the tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the model has embeddings for "
        f"{n_rows}; {expected}"
    )


def check_fill(fill: str, top_k: int) -> None:
    check_choice("fill", fill, Fill)
    COUNT.check("top_k", top_k)


def check_top_k(fill: str, top_k: int, tokenizer) -> None:
    if fill == "top_k" and top_k > len(tokenizer):
        raise UserError(f"top_k is {top_k}; the vocabulary has {len(tokenizer)} tokens, give no more.")
