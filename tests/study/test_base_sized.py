"""The base-sized model on SST-2: what the page says of longer trainings, other rates and other masks."""

from math import sqrt
from statistics import fmean, stdev

import pytest

from mtlib.analysis.comparison import FINE_TUNING, accuracy, difference, in_distribution, verdict
from mtlib.paths import DATA_DIR
from mtlib.study import reviews
from mtlib.study.base_sized import at_several_rates, by_length, longer, with_policies
from mtlib.study.plan import arm_of

RESULTS = DATA_DIR / "results"
PAGE = (RESULTS / "BASE_SIZED.md").read_text(encoding="utf-8")
ARMS = {FINE_TUNING: "fine-tuning", "mask_tuning": "equation 1", "mask_tuning (balanced)": "the balanced update"}


def raised(row: str) -> list[float]:
    """What twice the epochs add to the accuracy in distribution, in points, by seed."""
    arms = by_length(RESULTS)
    once, twice = ({run["config"]["seed"]: in_distribution(run) for run in arms[arm]} for arm in (row, longer(row)))
    return [twice[seed] - once[seed] for seed in twice]


@pytest.mark.parametrize("row", ARMS)
def test_twice_the_epochs(row):
    gains = raised(row)
    mean, error = fmean(gains), stdev(gains) / sqrt(len(gains))
    assert f"{mean:+.2f}" in PAGE and f"{error:.2f}" in PAGE
    said = PAGE.split("After 3 epochs that holds for ")[1].split("Training for 12 epochs")[0]
    holds, does_not = said.split("It does not hold")
    assert ARMS[row] in (holds if mean < error - 1e-9 else does_not)


def test_neither_update_is_significantly_different_after_six_epochs():
    arms = by_length(RESULTS)
    for row in ("mask_tuning", "mask_tuning (balanced)"):
        for name in ("imdb_contrast", "imdb_cad"):
            shift = difference(arms[longer(row)], arms[longer(FINE_TUNING)], name, 1 - 0.05 / 2)
            assert shift.low < 0 < shift.high and -3.5 < shift.mean < -1.5, "two to three points, not significantly"


def test_the_rate_of_the_comparison_is_the_best():
    scores = {}
    for run in at_several_rates(RESULTS):
        scores.setdefault(arm_of(run["config"]), {})[run["config"]["learning_rate"]] = in_distribution(run)
    assert {*scores} == {*ARMS}
    for of_rates in scores.values():
        assert len(of_rates) == 3 and max(of_rates, key=of_rates.get) == 3e-5


def test_other_masks():
    arms = reviews.REFILLING.by_arm(with_policies(RESULTS))
    random = {run["config"]["seed"]: run for run in arms["exact:0.05"]}
    for name in ("imdb_contrast", "imdb_cad"):
        assert verdict(arms, "supervised", FINE_TUNING, name) == "does not hold here"
        pointed = arms["supervised"]
        assert len(pointed) == 5
        assert all(accuracy(run, name) < accuracy(random[run["config"]["seed"]], name) for run in pointed)
        for arm in arms.keys() - {FINE_TUNING}:
            assert verdict(arms, arm, FINE_TUNING, name) != "holds here"
        for arm in ("attribution_most:0.05", "attribution_least:0.05", "meta_learned:0.05"):
            assert difference(arms[arm], arms["exact:0.05"], name).low < 0
        assert abs(difference(arms["attribution_least:0.05"], arms["exact:0.05"], name).mean) < 2
    ahead = difference(arms["meta_learned:0.05"], arms["exact:0.05"], "imdb_contrast").mean
    assert f"are {ahead:.1f} points ahead of them on `imdb_contrast`, a hair more than the two" in PAGE
