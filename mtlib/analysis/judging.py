"""What the difference of two arms says: on several sets at once, with a correction for them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import pandas

from mtlib.analysis import intervals
from mtlib.analysis.intervals import Difference

Correction = Literal["bonferroni", "holm", "none"]
Scores = tuple[pandas.Series, pandas.Series]  # of an arm and of its base, by seed


@dataclass(frozen=True)
class Judge:
    """By which rules differences are judged; see the fields of `Comparison` of these names."""

    paired: bool
    correction: Correction
    level_within: float | None

    def lines(
        self,
        scored: Mapping[str, Scores],
        kinds: Mapping[str, str],
        effects: Mapping[str, float | None],
        obstacle: str,
        corrected: bool,
    ) -> Iterator[dict]:
        """The difference of two arms on each set, and what it says.

        Args:
            scored: the scores of both on each set.
            kinds: "id" or "ood", of each set.
            effects: the paper's differences.
            obstacle: why there is no verdict out of distribution, or "".
            corrected: for the number of sets.
        """
        outside = {name: pair for name, pair in scored.items() if kinds[name] == "ood"}
        not_rejected = self._not_rejected_by_holm(outside) if corrected else set()
        level_outside = self._level_outside(kinds) if corrected else 0.95
        for name, pair in scored.items():
            level, why_not = (level_outside, obstacle) if name in outside else (0.95, "")
            measured = intervals.difference(*pair, self.paired, level)
            yield {
                "set": name,
                "kind": kinds[name],
                **asdict(measured),
                "level": level,
                "verdict": self._verdict(pair, measured, why_not, name in not_rejected),
                "paper": effects[name],
                "claim": intervals.claim(measured, effects[name], why_not),
            }

    def _not_rejected_by_holm(self, scored: Mapping[str, Scores]) -> set[str]:
        """The sets on which an arm does not differ significantly, where Holm's correction counts.

        Args:
            scored: the scores of two arms on each set out of distribution.
        """
        if self.correction != "holm":
            return set()
        p_values = [intervals.p_value(*pair, self.paired) for pair in scored.values()]
        corrected = zip(scored, intervals.holm(p_values), strict=True)
        return {name for name, p_value in corrected if p_value >= 0.05}

    def _verdict(
        self, pair: Scores, measured: Difference, obstacle: str, not_rejected: bool
    ) -> str:
        """The verdict on the scores of two arms, of which `measured` is the difference."""
        verdict = intervals.verdict(measured, obstacle)
        if not_rejected and verdict in (intervals.BETTER, intervals.WORSE):
            verdict = intervals.OPEN
        may_be_level = verdict == intervals.OPEN and self.level_within is not None
        if may_be_level and intervals.is_level(*pair, self.level_within, self.paired):
            return f"level (within {self.level_within:g})"
        return verdict

    def _level_outside(self, kinds: Mapping[str, str]) -> float:
        """The level of an interval on a set out of distribution."""
        sets = [name for name, kind in kinds.items() if kind == "ood"]
        return 1 - 0.05 / len(sets) if self.correction == "bonferroni" and sets else 0.95
