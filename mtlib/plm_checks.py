"""What a shared model refuses: labels, a tokenizer or a way of filling that cannot be its own."""

from mtlib.errors import UserError
from mtlib.settings import Count, Fill, check


def label_settings(num_labels: int | None, changes: dict) -> dict:
    """The number of labels and their names in both directions, as far as they are given."""
    ids = changes.get("label2id")
    names = changes.get("id2label") or {number: name for name, number in (ids or {}).items()}
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not names:
        return {} if num_labels is None else {"num_labels": num_labels}
    number = len(names) if num_labels is None else num_labels
    inverse = {name: index for index, name in names.items()}
    if {*names} != {*range(number)} or len(inverse) < number or (ids or inverse) != inverse:
        raise UserError(
            f"id2label is {names!r} and label2id {ids!r}, for num_labels={number}; expected one name for each of 0 to "
            f"{number - 1}, which are numbers, not texts. Give id2label alone: label2id and num_labels follow from it."
        )
    return {"num_labels": number, "id2label": names, "label2id": inverse}


def require_classes(config) -> None:
    kind = getattr(config, "problem_type", None)
    if config.num_labels < 2 or kind not in (None, "single_label_classification"):
        raise UserError(
            f"num_labels is {config.num_labels} and problem_type {kind!r}; expected 2 labels or more, of which each "
            "text has one (problem_type=None): all losses here are of single-label classification."
        )


def require_tokens(tokenizer) -> None:
    of_whom = f"The tokenizer of {tokenizer.name_or_path!r} ({type(tokenizer).__name__})"
    if tokenizer.mask_token_id is None:
        raise UserError(
            f"{of_whom} has no mask token: Mask-tuning needs a masked language model such as bert-base-uncased, "
            "roberta-base or facebook/bart-base."
        )
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"{of_whom} has no padding token, which batches of texts need; set tokenizer.pad_token to one of its "
            "special tokens and save it into the model's folder."
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
        else "expected no more tokens than that. Take the tokenizer that came with the model; add tokens to "
        "plm.tokenizer, and call plm.resize_token_embeddings()."
    )
    raise UserError(
        f"the tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the model has embeddings for "
        f"{n_rows}; {expected}"
    )


def check_fill(fill: str, top_k: int) -> None:
    check("fill", fill, Fill)
    check("top_k", top_k, Count)
