"""What a benchmark is, and how its ratio is measured.

A benchmark gives a pair of callables that return seconds (or MB). They take turns, and the ratio is that of their
medians.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """A row of the table. `wanted` is the bound on the ratio, and `most` is True where it is an upper bound."""

    name: str
    what: str
    against: str
    wanted: float
    most: bool
    make: Callable[[bool], tuple[Callable[[], float], Callable[[], float]]]
    repeats: int = 5


@dataclass(frozen=True)
class Measured:
    """`ratio` of the two medians, `low` and `high` the quartiles of the ratios of neighbours in time."""

    name: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    wanted: str
    met: bool
    ours: float
    theirs: float
    unit: str
    repeats: int
    commit: str | None


def measure(benchmark: Benchmark, quick: bool, commit: str | None = None) -> Measured:
    """Both sides in turn, after one round that does not count."""
    ours, theirs = benchmark.make(quick)
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(benchmark.repeats)]
    # "or less" is told as ours / theirs, "or more" (times faster) as theirs / ours
    ratios = sorted(a / b if benchmark.most else b / a for a, b in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = mine / other if benchmark.most else other / mine
    low, _, high = statistics.quantiles(ratios, n=4)
    bound = f"{benchmark.wanted:g} or {'less' if benchmark.most else 'more'}"
    met = ratio <= benchmark.wanted if benchmark.most else ratio >= benchmark.wanted
    unit = "MB" if benchmark.name == "memory" else "s"
    return Measured(
        benchmark.name, benchmark.what, benchmark.against, round(ratio, 3), round(low, 3), round(high, 3), bound, met,
        round(mine, 4), round(other, 4), unit, benchmark.repeats, commit,
    )  # fmt: skip
