"""Words and spans of a text among its tokens, whatever the tokenizer."""

from itertools import count

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from mtlib import GivenWords
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import WholeWordMasking, maskable_positions
from mtlib.plm import SharedPLM
from mtlib.spans import span_numbers, word_marks
from tests.conftest import BERT_SPECIALS, make_plm, tiny_bert_config

LETTERS = "abzéßñÅİǅ\u0301дЖ中文字한אش👍🏽😀ﬁ½²'-,."
UNSPACED = {
    "Chinese": "这部电影的情节非常精彩演员的表演也很出色",
    "Japanese": "とてもおもしろいえいがでした",
    "Thai": "อาหารไม่อร่อยเลยและแพงมาก",
}
text = st.text(
    st.one_of(st.sampled_from(LETTERS + "   \n\u00a0"), st.characters(exclude_categories=["Cs"])),
    max_size=40,
)
latin_words = st.lists(
    st.text(st.sampled_from("abzéñдЖ"), min_size=1, max_size=4), min_size=1, max_size=10
)


def made_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """With a vocabulary of its own: pieces of words, bytes, or a Unigram model's pieces."""
    corpus = ["abab zéß ñдЖ ab zé 中한 א👍 ½ 😀a", "ab ab abz zéß дЖ", LETTERS]
    corpus += [text[i : i + 3] for text in UNSPACED.values() for i in range(len(text) - 2)]
    if kind == "WordPiece":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = (
            normalizers.BertNormalizer()
        )  # strips accents, parts Chinese characters
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            vocab_size=300, special_tokens=[*BERT_SPECIALS.values()]
        )
    elif kind == "byte-level BPE":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[*BERT_SPECIALS.values()],
        )
    else:
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.NFKC()
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=150,
            special_tokens=[*BERT_SPECIALS.values()],
            unk_token="[UNK]",
            initial_alphabet=[*LETTERS, "▁"],
            show_progress=False,
        )
    trainer.show_progress = False
    backend.train_from_iterator(corpus * 3, trainer)
    first, last = (backend.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    bert = processors.BertProcessing(("[SEP]", last), ("[CLS]", first))
    trimmed = processors.ByteLevel(trim_offsets=False)
    backend.post_processor = processors.Sequence([trimmed, bert]) if "byte" in kind else bert
    names = {f"{name}_token": token for name, token in BERT_SPECIALS.items()}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **names)


TOKENIZERS = {
    kind: made_tokenizer(kind) for kind in ("WordPiece", "byte-level BPE", "SentencePiece")
}
MODELS = {
    kind: make_plm(
        tiny_bert_config(vocab_size=len(tokenizer), max_position_embeddings=512), tokenizer
    )
    for kind, tokenizer in TOKENIZERS.items()
}


def mark_spans(text: str, offsets, spans) -> list[int]:
    numbers = span_numbers(text, spans, count(1))
    return [max(numbers[start:end], default=0) for start, end in offsets]


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=text, data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_token_is_marked_if_it_has_a_character_of_the_span(kind, text, data):
    bounds = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=4, max_size=4)))
    spans = [(bounds[0], bounds[1]), (bounds[2], bounds[3])]
    encoded = TOKENIZERS[kind](text, return_offsets_mapping=True, split_special_tokens=True)
    marks = mark_spans(
        text, encoded["offset_mapping"], [(*span, i + 1) for i, span in enumerate(spans)]
    )
    for mark, (start, end) in zip(marks, encoded["offset_mapping"], strict=True):
        # a character between the first and the last of the span that is no white space
        inside = [
            any(
                text[s : i + 1].strip() and text[i:e].strip()
                for i in range(max(s, start), min(e, end))
            )
            for s, e in spans
        ]
        assert mark == (2 if inside[1] else 1 if inside[0] else 0)
    assert marks[0] == marks[-1] == 0, "special tokens"


# --- whole words ---


def words_of(tokenizer, text: str) -> list[list[str]]:
    """The pieces of each word that `WholeWordMasking` masks together, by masking many times."""
    batch = dict(tokenizer([text], return_tensors="pt"))
    maskable = maskable_positions(batch, tokenizer)
    policy, found = WholeWordMasking(1e-9, tokenizer), {}
    for seed in range(300):
        if sum(map(len, found.values())) == maskable.sum():
            break
        places = (
            policy(batch, maskable, torch.Generator().manual_seed(seed))[0]
            .nonzero()
            .flatten()
            .tolist()
        )
        found[places[0]] = tokenizer.convert_ids_to_tokens(batch["input_ids"][0, places])
    assert sum(map(len, found.values())) == maskable.sum()
    return [found[place] for place in sorted(found)]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("script", UNSPACED)
def test_a_text_without_spaces_is_not_one_word(kind, script):
    found = words_of(TOKENIZERS[kind], UNSPACED[script])
    letters = [TOKENIZERS[kind].convert_tokens_to_string(word).replace(" ", "") for word in found]
    assert len(found) > 5 and max(map(len, letters)) <= 4


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(words=latin_words)
@settings(max_examples=15, deadline=None)
def test_words_between_spaces_are_words(kind, words):
    tokenizer = TOKENIZERS[kind]
    pieces = [
        tokenizer.convert_ids_to_tokens(tokenizer(word, add_special_tokens=False)["input_ids"])
        for word in words
    ]
    if not any(tokenizer.unk_token in word for word in pieces):
        found = words_of(tokenizer, " ".join(words))
        assert sorted(map(str, found)) == sorted(map(str, pieces))


def test_a_latin_word_among_chinese_characters_is_a_word():
    found = words_of(TOKENIZERS["SentencePiece"], "这部abab电影")
    assert "".join(found[-1]) in "电影" and any("".join(word) == "abab" for word in found)


@pytest.mark.parametrize(
    ("vocabulary", "text", "words"),
    [
        (
            ["lo@@", "w@@", "er", "the", "film"],
            "lo@@ w@@ er the film",
            ["lo@@ w@@ er", "the", "film"],
        ),
        (["lo", "w", "er</w>", "the</w>"], "lo w er</w> the</w>", ["lo w er</w>", "the</w>"]),
        (
            ["Ġthe", "Ġfilm", "ing", "The", "##"],
            "The Ġfilm ing ## Ġthe",
            ["The", "Ġfilm ing ##", "Ġthe"],
        ),
    ],
)
def test_marks_of_other_vocabularies(vocabulary, text, words):
    """fastBPE says where a word goes on, the first BPE where it ends."""
    backend = Tokenizer(
        models.WordLevel(
            {token: i for i, token in enumerate([*BERT_SPECIALS.values(), *vocabulary])}
        )
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {f"{name}_token": token for name, token in BERT_SPECIALS.items()}
    found = words_of(PreTrainedTokenizerFast(tokenizer_object=backend, **names), text)
    assert [" ".join(word) for word in found] == words


def test_a_vocabulary_without_marks_has_no_words():
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1}))
    with pytest.raises(UserError, match="use ExactMasking"):
        word_marks(PreTrainedTokenizerFast(tokenizer_object=backend))


# --- words that are named ---


def examples_of(plm: SharedPLM, rows: list[dict]) -> Dataset:
    data = Dataset.from_list([row | {"label": 0} for row in rows])
    return tokenise(data, plm.tokenizer, 256, keep=data.column_names)


def masked_by(
    policy: GivenWords, plm: SharedPLM, rows: list[dict], seed: int = 0
) -> list[list[int]]:
    """The places that the policy masks in each text."""
    (prepare,) = policy.transforms()
    masked = []
    for row in prepare(plm, examples_of(plm, rows)).examples:
        batch = {
            "input_ids": torch.tensor([row["input_ids"]]),
            "given_words": torch.tensor([row["given_words"]]),
        }
        mask = policy(
            batch, maskable_positions(batch, plm.tokenizer), torch.Generator().manual_seed(seed)
        )
        masked.append(mask[0].nonzero().flatten().tolist())
    return masked


def shown(plm: SharedPLM, text: str, places: list[int]) -> str:
    """What the tokens at these places stand for, by characters of the text."""
    offsets = plm.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    chosen = {i for place in places for i in range(*offsets[place])}
    return "".join(letter if i in chosen else "_" for i, letter in enumerate(text))


@pytest.mark.parametrize("kind", MODELS)
@given(
    words=st.lists(st.text(st.sampled_from("abz"), min_size=1, max_size=4), min_size=1, max_size=9),
    data=st.data(),
)
@settings(max_examples=30, deadline=None)
def test_given_words_are_masked_with_all_pieces_and_no_others(kind, words, data):
    plm, wanted = MODELS[kind], data.draw(st.lists(st.sampled_from(words), min_size=1, unique=True))
    (places,) = masked_by(GivenWords(wanted), plm, [{"text": " ".join(words)}])
    covered = shown(plm, " ".join(words), places).replace("_", " ")
    expected = " ".join(word if word in wanted else " " * len(word) for word in words)
    assert covered.split() == expected.split() and places
    assert [covered[i] for i, letter in enumerate(expected) if letter != " "] == [
        *expected.replace(" ", "")
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ab", "ab __   ab ___ AB ____"),
        (["zb ab"], "__ zb   ab ___ __ ____"),
        (["abz", "a"], "__ __   __ abz __ ___a"),
        (["zb-a", "zb"], "__ zb   __ ___ __ zb-a"),
    ],
)
def test_whole_words_and_phrases(words, expected):
    text = "ab zb   ab abz AB zb-a"
    spans = GivenWords(words).spans.spans_in(text)
    found = "".join(
        letter if any(a <= i < b for a, b in spans) else "_" for i, letter in enumerate(text)
    )
    assert found.replace(" ", "_") == expected.replace(" ", "_")


def test_any_case_and_both_texts_of_a_pair():
    rows = [
        {"text": "zz AB ab", "text_pair": "zz"},
        {"text": "zz", "text_pair": "zz Ab"},
        {"text": "zz", "text_pair": "z"},
        {"text": "ab zz ab", "text_pair": "zz ab"},  # numbers go on in the second text
    ]
    policy = GivenWords(["AB"])
    prepared = policy.spans(MODELS["WordPiece"], examples_of(MODELS["WordPiece"], rows))
    assert [max(numbers) for numbers in prepared.examples["given_words"]] == [2, 1, 0, 3]
    assert prepared.counts == {"given_words_unmarked": 1}


def test_a_word_that_is_nowhere_is_told():
    plm, rows = MODELS["WordPiece"], [{"text": "abab zb"}, {"text": "zb zz"}]
    with pytest.warns(UserWarning, match=r"not found in 2 texts: 'ababa'\."):
        masked_by(GivenWords(["zb", "ababa"]), plm, rows)
    with pytest.raises(
        UserError,
        match=r"not found in 2 texts: 'ababa', 'Q'\. Words like these stand there: abab\.",
    ):
        masked_by(GivenWords(["ababa", "Q"]), plm, rows)
    with pytest.raises(UserError, match="not found in 2 texts: 'xy'"):
        masked_by(GivenWords("xy"), plm, rows)
    with pytest.warns(
        UserWarning, match=r"in 1 of 2 texts with given words none can be hidden: .* as \[UNK\]"
    ):
        masked_by(GivenWords(["ab", "ш"]), plm, [{"text": "ab"}, {"text": "ш"}])
    with pytest.raises(UserError, match=r"in 1 of 1 texts .* a model of their language"):
        masked_by(GivenWords("ш"), plm, [{"text": "ш ab"}])
