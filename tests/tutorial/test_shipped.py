"""Sentences that the notebooks compute from records."""

from mtlib.tutorial.shipped import compare, shipped
from tests.study.test_claims import records

FINE, MASK = {"method": "fine_tuning"}, {"method": "mask_tuning", "update": "balanced"}
ROW = "mask_tuning (balanced)"


def test_a_file_that_is_not_there_has_no_records():
    assert shipped("no_such_study") == [] and len(shipped("sst2")) == 6


def test_too_few_seeds_give_no_verdict():
    runs = records(FINE, [0.92, 0.91], "sst2") + records(MASK, [0.93], "sst2")
    assert compare(runs, ROW, "fine_tuning", "sst2") == (
        "`sst2`: Mask-tuning (balanced) 93.0 % (1 seed), fine-tuning 92.0 % (1 seed). "  # the other seed has no partner
        "Fewer than three seeds in common, so no verdict."
    )
    assert compare(runs[:2], ROW, "fine_tuning", "sst2") == "`sst2`: no record of Mask-tuning (balanced) yet."


def test_difference_is_paired_by_seed():
    fine = records(FINE, [0.90, 0.80, 0.70], "sst2")
    for shifts, text in (
        # mean 2, standard deviation 1: half the interval is 4.3027 / sqrt(3) = 2.48
        ((0.01, 0.02, 0.03), "Difference +2.0 [-0.5, +4.5] points: not significantly different."),
        ((0.039, 0.04, 0.041), "Difference +4.0 [+3.8, +4.2] points: significantly better."),
        ((-0.039, -0.04, -0.041), "Difference -4.0 [-4.2, -3.8] points: significantly worse."),
    ):
        mask = records(MASK, [run + shift for run, shift in zip((0.9, 0.8, 0.7), shifts, strict=True)], "sst2")
        assert compare(fine + mask, ROW, "fine_tuning", "sst2").endswith(text)
