"""The four categories of fillings of the paper's Section V, and their shares.

Rows are those of `fillings.record_fillings`. A judge says whether a filling is plausible: `PlausibilityJudge` (a proxy)
or persons (`annotation.as_judge`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from mtlib.analysis.statistics import wilson
from mtlib.errors import UserError

Category = Literal["same", "plausible_different", "implausible", "unk"]
CATEGORIES: tuple[Category, ...] = ("same", "plausible_different", "implausible", "unk")
# the paper's shares of examples: BERT, 200 training examples per task, three epochs, judged by two persons
PAPER_SHARES: dict[str, dict[Category, float]] = {
    "plain_mlm": {"same": 0.76, "plausible_different": 0.18, "implausible": 0.05, "unk": 0.01},
    "mask_tuning": {"same": 0.37, "plausible_different": 0.60, "implausible": 0.02, "unk": 0.01},
}
# the gravest category among an example's places decides
_GRAVITY = ("unk", "implausible", "plausible_different", "same")


class Share(NamedTuple):
    """`count` of `n`, and the 95 % Wilson interval of the share (nan where n is 0)."""

    count: int
    n: int
    share: float
    low: float
    high: float


def share(count: int, n: int) -> Share:
    """A share with its 95 % Wilson score interval."""
    if n == 0:
        return Share(0, 0, math.nan, math.nan, math.nan)
    low, high = wilson(count, n)
    return Share(count, n, count / n, float(low), float(high))


def open_questions(rows: Sequence[dict]) -> list[dict]:
    """The rows that need a judge: neither the original token nor the unknown one was filled in."""
    return [row for row in rows if not row["unk"] and row["predicted_token"] != row["original_token"]]


def categorise(rows: Sequence[dict], plausible: Callable[[list[dict]], Sequence[bool]]) -> list[Category]:
    """The category of each row.

    "unk" where the unknown token was predicted, "same" where the original token was; of the others, `plausible` is
    asked, which gets their rows and returns a verdict for each.
    """
    differing = open_questions(rows)
    verdicts = list(plausible(differing)) if differing else []
    if len(verdicts) != len(differing):
        raise UserError(f"the judge gave {len(verdicts)} verdicts on {len(differing)} rows; expected one for each.")
    verdict = iter(verdicts)
    return [
        "unk" if row["unk"]
        else "same" if row["predicted_token"] == row["original_token"]
        else "plausible_different" if next(verdict) else "implausible"
        for row in rows
    ]  # fmt: skip


def example_categories(
    rows: Sequence[dict], categories: Sequence[Category], over_epochs: bool = False
) -> dict[tuple[int, str], Category] | dict[str, Category]:
    """The category of each `(epoch, uid)`; with `over_epochs`, of each `uid`.

    An example with several masked places is "unk" if any place is, else "implausible" if any is, else
    "plausible_different" if any differs, else "same". An example without a masked place is not counted. The paper
    counts examples over three epochs ("at least in one of the three epochs") and does not say how it ranks the four.

    Raises:
        UserError: rows of several arms, which would be counted as one example.
    """
    if len({row.get("arm") for row in rows}) > 1:
        raise UserError("the rows are of several arms; categorise one arm at a time.")
    of_example: dict = {}
    for row, category in zip(rows, categories, strict=True):
        key = row["uid"] if over_epochs else (row["epoch"], row["uid"])
        of_example[key] = min(category, of_example.get(key, "same"), key=_GRAVITY.index)
    return of_example


def category_shares(categories: Iterable[Category]) -> dict[Category, Share]:
    """The share of each category, in the order of `CATEGORIES`."""
    counts = Counter(categories)
    return {name: share(counts[name], counts.total()) for name in CATEGORIES}
