"""Measures of diversity that need no judge. Rows are those of `fillings.record_fillings`."""

import math
from collections import Counter
from collections.abc import Sequence

from mtlib.diversity.categories import Share, share


def distinct_fillers(rows: Sequence[dict]) -> int:
    """How many different tokens the masked places were filled with."""
    return len({row["predicted_token"] for row in rows})


def filler_entropy(rows: Sequence[dict]) -> float:
    """-sum p log2 p over the filled-in tokens, in bits: 0 if all are one token, log2 n if all n differ."""
    counts = Counter(row["predicted_token"] for row in rows)
    return sum(count / len(rows) * math.log2(len(rows) / count) for count in counts.values())


def changed_by_epoch(rows: Sequence[dict]) -> dict[int, Share]:
    """Per epoch the share of masked places that were filled with another token than the original."""
    changed: dict[int, list[bool]] = {}
    for row in rows:
        changed.setdefault(row["epoch"], []).append(row["predicted_token"] != row["original_token"])
    return {epoch: share(sum(flags), len(flags)) for epoch, flags in sorted(changed.items())}
