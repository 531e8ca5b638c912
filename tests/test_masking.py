import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mtlib.errors import UserError
from mtlib.masking import BernoulliMasking, ExactMasking, WholeWordMasking, maskable_positions
from tests.conftest import ROBERTA_SPECIALS, make_tokenizer

TOKENIZER = make_tokenizer()
FIRST_WORD = 5  # ids below are special
POLICIES = [ExactMasking(0.3), BernoulliMasking(0.3), WholeWordMasking(0.3, TOKENIZER)]

lengths = st.lists(st.integers(0, 20), min_size=1, max_size=5)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**31)


def batch_of(lengths: list[int], pad_to: int = 0, left: bool = False, seed: int = 0) -> dict:
    """[CLS] words [SEP] padded to the longest, or to `pad_to`."""
    generator = torch.Generator().manual_seed(seed)
    width = max(pad_to, max(lengths) + 2)
    ids = torch.zeros(len(lengths), width, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for row, n in enumerate(lengths):
        words = torch.randint(FIRST_WORD, len(TOKENIZER), (n,), generator=generator).tolist()
        text = torch.tensor([TOKENIZER.cls_token_id, *words, TOKENIZER.sep_token_id])
        place = slice(width - n - 2, width) if left else slice(0, n + 2)
        ids[row, place], attention[row, place] = text, 1
    return {"input_ids": ids, "attention_mask": attention}


def draw(policy, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return policy(batch, maskable_positions(batch, TOKENIZER), generator)


@given(lengths, rates | st.just(0), seeds)
@settings(max_examples=60, deadline=None)
def test_exact_masks_the_rounded_share_of_every_example_but_none_at_rate_0(lengths, rate, seed):
    mask = draw(ExactMasking(rate), batch_of(lengths), seed)
    assert mask.sum(1).tolist() == [min(n, max(1, round(rate * n))) if rate else 0 for n in lengths]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@given(lengths=lengths, seed=seeds, extra=st.integers(1, 30), left=st.booleans())
@settings(max_examples=40, deadline=None)
def test_masks_spare_specials_and_ignore_padding(policy, lengths, seed, extra, left):
    narrow = batch_of(lengths)
    wide = batch_of(lengths, pad_to=narrow["input_ids"].shape[1] + extra, left=left)
    mask, wide_mask = draw(policy, narrow, seed), draw(policy, wide, seed)
    assert not (mask & ~maskable_positions(narrow, TOKENIZER)).any()
    assert torch.equal(mask[narrow["attention_mask"].bool()], wide_mask[wide["attention_mask"].bool()])
    assert torch.equal(mask, draw(policy, narrow, seed))


def test_rounding_is_pythons():
    counts = {n: int(draw(ExactMasking(0.05), batch_of([n])).sum()) for n in (1, 9, 10, 29, 30, 50, 70)}
    assert counts == {1: 1, 9: 1, 10: 1, 29: 1, 30: 2, 50: 2, 70: 4}


def test_bernoulli_rate_and_limits():
    batch = batch_of([2000] * 10)
    assert 0.045 < draw(BernoulliMasking(0.05), batch).sum() / 20_000 < 0.055
    assert draw(BernoulliMasking(0.0), batch).sum() == 0
    assert draw(BernoulliMasking(1.0), batch).sum() == 20_000


def test_every_place_is_equally_likely():
    batch = batch_of([10] * 4000)
    share = draw(ExactMasking(0.1), batch).float().mean(0)[1:11]
    assert ((share - 0.1).abs() < 0.02).all()


def test_whole_words_are_masked_with_all_their_pieces():
    batch = dict(TOKENIZER(["goodly filming story", "slow films and goodlys"], padding=True, return_tensors="pt"))
    pieces = [TOKENIZER.convert_ids_to_tokens(row) for row in batch["input_ids"]]
    assert pieces[0][1:6] == ["good", "##ly", "film", "##ing", "story"]
    for seed in range(30):
        for row, mask in enumerate(draw(WholeWordMasking(0.3, TOKENIZER), batch, seed).tolist()):
            masked = [place for place, chosen in enumerate(mask) if chosen]
            word = [masked[0]]
            while pieces[row][word[-1] + 1].startswith("##"):
                word.append(word[-1] + 1)
            assert masked == word and not pieces[row][word[0]].startswith("##")


def test_unknown_tokens_are_not_maskable():
    batch = dict(TOKENIZER(["good zebra film"], return_tensors="pt"))
    assert maskable_positions(batch, TOKENIZER).tolist() == [[False, True, False, True, False]]


def test_what_the_tokenizer_adds_and_special_markers_are_not_maskable():
    """[CLS] and [SEP] of a tokenizer that does not name them, and markers that were added as special tokens."""
    unnamed = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.backend_tokenizer, unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]"
    )
    marked = make_tokenizer()
    marked.add_tokens(["[E1]"], special_tokens=True)
    marked.add_tokens(["zebra"])
    for tokenizer in (unnamed, marked):
        batch = dict(tokenizer(["a [E1] film zebra" if tokenizer is marked else "a film"], return_tensors="pt"))
        tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
        maskable = {token for token, may in zip(tokens, maskable_positions(batch, tokenizer)[0], strict=True) if may}
        assert maskable == {*tokens} - {"[CLS]", "[SEP]", "[E1]"} and "film" in maskable


def test_a_special_tokens_mask_of_the_batch_is_honoured():
    batch = dict(TOKENIZER(["good film"], return_tensors="pt"))
    batch["special_tokens_mask"] = torch.tensor([[1, 0, 1, 1]])
    assert maskable_positions(batch, TOKENIZER).tolist() == [[False, True, False, False]]


def test_pairs_are_maskable_on_both_sides():
    tokenizer = make_tokenizer(ROBERTA_SPECIALS, double_separator=True)
    batch = dict(tokenizer([("good film", "bad plot")], return_tensors="pt"))
    assert maskable_positions(batch, tokenizer)[0].int().tolist() == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.05", None, True])
@pytest.mark.parametrize("policy", [ExactMasking, BernoulliMasking])
def test_bad_rates(policy, rate):
    with pytest.raises(UserError, match=r"rate is .*; expected "):
        policy(rate)
