"""A tokenizer's special tokens, and reading a text that spells one out ("[SEP]") as plain text."""

import copy
import json
from collections.abc import Callable
from typing import cast

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_python import Trie


def structural_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that give a text its shape ([SEP], [PAD], [MASK], [UNK] ...).

    They are those that the tokenizer names, and those that it puts around every text.
    """
    named = tokenizer.special_tokens_map.values()
    # their types do not say that one token has one number, and one number one token
    ids = {cast(int, tokenizer.convert_tokens_to_ids(token)) for token in named}
    for nothing in ([""], ["", ""]):
        empty = tokenizer(*nothing, return_special_tokens_mask=True)
        pairs = zip(empty["input_ids"], empty["special_tokens_mask"], strict=True)
        ids |= {token for token, special in pairs if special}
    return ids


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Structural tokens, and those that were added as special, such as entity markers.

    They are never masked, and none but [UNK] is ever filled in.
    """
    added_tokens = tokenizer.added_tokens_decoder.items()
    added = {token for token, content in added_tokens if content.special}
    return sorted(structural_ids(tokenizer) | {*tokenizer.all_special_ids} | added)


def text_reader(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy of the tokenizer that reads structural tokens spelled out in a text as text.

    All else is read as `tokenizer` reads it; tokens that a user added stay whole.
    """
    reader = copy.copy(tokenizer)
    structural = structural_ids(tokenizer)
    if not tokenizer.is_fast:
        names = {cast(str, tokenizer.convert_ids_to_tokens(token)) for token in structural}
        reader.tokenize = _without(tokenizer, names)  # type: ignore[method-assign]  # of this copy
        return reader
    reader.split_special_tokens = True
    added = tokenizer.added_tokens_decoder
    special = {token for token, content in added.items() if content.special}
    if special != structural & added.keys():
        # `split_special_tokens` splits all that are marked as special: mark no others
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        for token in backend["added_tokens"]:
            token["special"] = token["id"] in structural
        reader._tokenizer = Tokenizer.from_str(json.dumps(backend))
    return reader


def _without(tokenizer: PreTrainedTokenizerBase, structural: set[str]) -> Callable[..., list[str]]:
    """The `tokenize` of a tokenizer written in Python, which reads these tokens as text."""
    kept = {*tokenizer.tokens_trie._tokens} - structural

    def tokenize(text: str, **options: object) -> list[str]:
        if not any(token in text for token in structural):
            return tokenizer.tokenize(text)
        text, _ = tokenizer.prepare_for_tokenization(text)
        tokens: list[str] = []
        for piece in Trie([*kept]).split(text):
            tokens += [piece] if piece in kept else tokenizer._tokenize(piece)
        # some tokenizers only cut at spaces, and so leave a structural token whole
        return [tokenizer.unk_token if token in structural else token for token in tokens]

    return tokenize
