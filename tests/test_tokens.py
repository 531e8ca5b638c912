"""Tokens that are no words, and texts that spell them out, in tokenizers of every kind."""

import pytest
from transformers import EsmTokenizer, PreTrainedTokenizerFast

from mtlib.masking import maskable_positions
from mtlib.tokens import special_tokens, text_reader
from tests.conftest import ROBERTA_SPECIALS, WORDS, make_plm, make_tokenizer, tiny_bert_config

AMINO_ACIDS = list("LAGVSERTIDPKQNFYMHWC")


@pytest.fixture
def marking():
    """A tokenizer to which a user has added markers in two ways, and a word."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E1]", "[/E1]"]})
    tokenizer.add_tokens(["[E2]"], special_tokens=True)
    tokenizer.add_tokens(["covidxyz"])
    return tokenizer


@pytest.fixture
def protein(tmp_path):
    """A tokenizer in Python that finds its letters as added tokens."""
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *AMINO_ACIDS, "<mask>"])
    )
    return EsmTokenizer(tmp_path / "vocab.txt", model_max_length=64)


def nameless():
    """A tokenizer that names padding and mask alone; its template has the other tokens."""
    names = {
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
        "unk_token": "[UNK]",
        "model_max_length": 64,
    }
    return PreTrainedTokenizerFast(tokenizer_object=make_tokenizer().backend_tokenizer, **names)


def test_tokens_that_a_user_added_are_read_whole(marking):
    text = "the [E1] film [/E1] [E2] was covidxyz"
    assert text_reader(marking)(text)["input_ids"] == marking(text)["input_ids"]
    assert marking.unk_token_id not in marking(text)["input_ids"]


def test_text_that_spells_out_a_structural_token_is_text(marking):
    for tokenizer in (
        make_tokenizer(),
        make_tokenizer(ROBERTA_SPECIALS, double_separator=True),
        nameless(),
        marking,
    ):
        separator = tokenizer.convert_ids_to_tokens(tokenizer("")["input_ids"][-1])
        plain, spelt = (
            text_reader(tokenizer)(text)["input_ids"]
            for text in ("good bad", f"good {separator} bad")
        )
        assert spelt.count(plain[-1]) == 1 and len(spelt) > len(plain)
    assert text_reader(marking)("[E1] [SEP]").tokens()[1] == "[E1]"


def test_letters_of_a_protein_are_tokens(protein):
    reader = text_reader(protein)
    assert reader(["MKTAYIAK"])["input_ids"] == protein(["MKTAYIAK"])["input_ids"]
    assert protein.unk_token_id not in protein("MKTAYIAK")["input_ids"]
    for spelt in ("MK<mask>TA", "<eos>"):
        ids = reader(spelt)["input_ids"]
        assert protein.mask_token_id not in ids and ids.count(protein.eos_token_id) == 1


@pytest.mark.parametrize("kind", ["marking", "nameless"])
def test_what_is_no_word_is_neither_masked_nor_filled_in(kind, marking):
    tokenizer = marking if kind == "marking" else nameless()
    batch = tokenizer(["the [E1] film is covidxyz"], return_tensors="pt")
    words = [
        tokenizer.convert_ids_to_tokens(int(i))
        for i in batch["input_ids"][maskable_positions(batch, tokenizer)]
    ]
    assert not {"[CLS]", "[SEP]", "[E1]"} & {*words} and "film" in words
    assert kind == "nameless" or "covidxyz" in words, "an added word is a word"
    plm = make_plm(tiny_bert_config(vocab_size=len(tokenizer)), tokenizer)
    forbidden = {*plm._blocked.nonzero().flatten().tolist()}
    assert forbidden == {*special_tokens(tokenizer)} - {tokenizer.unk_token_id}
    assert len(forbidden) == (4 if kind == "nameless" else 7) and len(tokenizer) >= len(WORDS) + 5
