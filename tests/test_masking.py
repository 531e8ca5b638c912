import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlib.masking import BernoulliMasking, ExactMasking, WholeWordMasking, maskable_positions
from tests.conftest import ROBERTA_SPECIALS, batch_of, make_tokenizer

TOKENIZER = make_tokenizer()
FIRST_WORD = 5  # ids below are special

lengths = st.lists(st.integers(0, 20), min_size=1, max_size=5)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**31)


def draw(policy, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return policy(batch, maskable_positions(batch, TOKENIZER), generator)


@given(lengths, rates | st.just(0), seeds)
@settings(max_examples=60, deadline=None)
def test_exact_masks_the_rounded_share_of_every_example_but_none_at_rate_0(lengths, rate, seed):
    mask = draw(ExactMasking(rate), batch_of(lengths), seed)
    assert mask.sum(1).tolist() == [min(n, max(1, round(rate * n))) if rate else 0 for n in lengths]


@pytest.mark.parametrize(("rate", "n_words"), [(0, 0), (0.1, 1), (0.25, 1), (0.5, 2), (1, 4)])
def test_whole_words_are_a_share_of_the_words_and_not_of_their_pieces(rate, n_words):
    """Of nine pieces, which make up four words."""
    batch = dict(TOKENIZER(["plotings filmings slowly the"], return_tensors="pt"))
    pieces_of_words = [{1, 2, 3}, {4, 5, 6}, {7, 8}, {9}]
    seen = set()
    for seed in range(20):
        (mask,) = draw(WholeWordMasking(rate, TOKENIZER), batch, seed)
        masked = {*mask.nonzero().flatten().tolist()}
        words = [number for number, pieces in enumerate(pieces_of_words) if pieces <= masked]
        assert len(words) == n_words
        assert sum(len(pieces_of_words[word]) for word in words) == len(masked)
        seen.update(words)
    assert seen == ({0, 1, 2, 3} if rate else set())


def test_bernoulli_rate_and_limits():
    batch = batch_of([2000] * 10)
    assert 0.045 < draw(BernoulliMasking(0.05), batch).sum() / 20_000 < 0.055
    assert draw(BernoulliMasking(0.0), batch).sum() == 0
    assert draw(BernoulliMasking(1.0), batch).sum() == 20_000


def test_every_place_is_equally_likely():
    batch = batch_of([10] * 4000)
    share = draw(ExactMasking(0.1), batch).float().mean(0)[1:11]
    assert ((share - 0.1).abs() < 0.02).all()


def test_unknown_tokens_are_not_maskable():
    batch = dict(TOKENIZER(["good zebra film"], return_tensors="pt"))
    assert maskable_positions(batch, TOKENIZER).tolist() == [[False, True, False, True, False]]


def test_pairs_are_maskable_on_both_sides():
    tokenizer = make_tokenizer(ROBERTA_SPECIALS, double_separator=True)
    batch = dict(tokenizer([("good film", "bad plot")], return_tensors="pt"))
    assert maskable_positions(batch, tokenizer)[0].int().tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
