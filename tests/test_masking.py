import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    assert [int(draw(ExactMasking(0.05), batch_of([n])).sum()) for n in (1, 9, 10, 29, 30, 50, 70)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        4,
    ]


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


def test_whole_words_of_a_tokenizer_that_marks_beginnings():
    class Marked:
        def __len__(self):
            return 7

        def convert_ids_to_tokens(self, ids):
            return [["<s>", "</s>", "Ġthe", "Ġfilm", "ing", "The", "##"][i] for i in ids]

    ids = torch.tensor([[0, 5, 3, 4, 4, 2, 1]])  # <s> The film ing ing the </s>
    mask = WholeWordMasking(1 / 3, Marked())({"input_ids": ids}, torch.tensor([[0, 1, 1, 1, 1, 1, 0]]).bool())
    assert mask[0].tolist() in ([0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0])


def test_whole_words_need_a_marking_tokenizer():
    class Plain:
        def __len__(self):
            return 2

        def convert_ids_to_tokens(self, ids):
            return ["a", "b"]

    with pytest.raises(UserError, match="use ExactMasking"):
        WholeWordMasking(0.1, Plain())


def test_unknown_tokens_are_not_maskable():
    batch = dict(TOKENIZER(["good zebra film"], return_tensors="pt"))
    assert maskable_positions(batch, TOKENIZER).tolist() == [[False, True, False, True, False]]


def test_pairs_are_maskable_on_both_sides():
    tokenizer = make_tokenizer(ROBERTA_SPECIALS, double_separator=True)
    batch = dict(tokenizer([("good film", "bad plot")], return_tensors="pt"))
    assert maskable_positions(batch, tokenizer)[0].int().tolist() == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("temperature", [-0.1, float("inf"), float("nan"), "warm", None])
def test_bad_temperatures(temperature):
    with pytest.raises(UserError, match=rf"temperature is {temperature!r}; expected 0 or more"):
        ExactMasking(0.1, temperature=temperature)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.05", None, True])
@pytest.mark.parametrize("policy", [ExactMasking, BernoulliMasking])
def test_bad_rates(policy, rate):
    with pytest.raises(UserError, match=r"rate is .*expected a number from 0 to 1"):
        policy(rate)
