"""Which tokens are a tokenizer's own, and reading a text as text: one that spells out "[SEP]" has no separator."""

import copy
import json

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_python import Trie


def structural_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens that give a text its shape: those with a part to play ([SEP], [PAD], [MASK], [UNK] ...), named by the
    tokenizer or not, if only it puts them around every text.
    """
    ids = {tokenizer.convert_tokens_to_ids(token) for token in tokenizer.special_tokens_map.values()}
    for nothing in ([""], ["", ""]):
        empty = tokenizer(*nothing, return_special_tokens_mask=True)
        ids |= {
            token for token, special in zip(empty["input_ids"], empty["special_tokens_mask"], strict=True) if special
        }
    return ids


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that are no words: structural ones, and those that were added as special, such as entity markers.

    They are never masked, and none is ever filled in but [UNK].
    """
    added = {token for token, content in tokenizer.added_tokens_decoder.items() if content.special}
    return sorted(structural_ids(tokenizer) | {*tokenizer.all_special_ids} | added)


def text_reader(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A tokenizer that reads as `tokenizer` does, except that a structural token spelled out in a text is text.

    Tokens that a user added are read whole. So is all else that the tokenizer would read whole.
    """
    reader, structural = copy.copy(tokenizer), structural_ids(tokenizer)
    if not tokenizer.is_fast:
        reader.tokenize = _without(tokenizer, {tokenizer.convert_ids_to_tokens(token) for token in structural})
        return reader
    reader.split_special_tokens = True
    added = tokenizer.added_tokens_decoder
    if {token for token, content in added.items() if content.special} != structural & added.keys():
        # `split_special_tokens` splits all that are marked as special: mark no others
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        for token in backend["added_tokens"]:
            token["special"] = token["id"] in structural
        reader._tokenizer = Tokenizer.from_str(json.dumps(backend))
    return reader


def _without(tokenizer: PreTrainedTokenizerBase, structural: set[str]):
    """The `tokenize` of a tokenizer in Python to which these tokens are text."""
    kept = {*tokenizer.tokens_trie._tokens} - structural

    def tokenize(text: str, **options) -> list[str]:
        if not any(token in text for token in structural):
            return tokenizer.tokenize(text)
        text, _ = tokenizer.prepare_for_tokenization(text)
        pieces = Trie([*kept]).split(text)
        tokens = [token for piece in pieces for token in ([piece] if piece in kept else tokenizer._tokenize(piece))]
        return [tokenizer.unk_token if token in structural else token for token in tokens]  # some cut at spaces alone

    return tokenize
