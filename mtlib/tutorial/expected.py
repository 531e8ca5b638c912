"""The results that a notebook promises: its last cell, tagged `expected`, checks them.

It calls `expect` with each result and its bounds. So every run of a notebook by papermill is also a
regression test.
"""

from collections.abc import Mapping

CHECKED_PROFILE = "cpu"  # the other ones train more, or too little to promise anything


def expect(profile: str, results: Mapping[str, tuple[float, float, float]]) -> None:
    """Check that every result lies within its bounds, under the profile `cpu`.

        expect(profile, {"accuracy where the names mislead, %": (misled, 0, 20)})

    Args:
        profile: the notebook's parameter.
        results: by its name, each result with its lower and its upper bound.

    Raises:
        AssertionError: names the results that lie outside their bounds.
    """
    if profile != CHECKED_PROFILE:
        print(f"The profile {profile} promises no results.")
        return
    outside = [
        f"{name}: {result:.4g} is not within {low:g} to {high:g}"
        for name, (result, low, high) in results.items()
        if not low <= result <= high
    ]
    if outside:
        failed = f"{len(outside)} of {len(results)} results are not as expected"
        raise AssertionError("\n".join([f"{failed} from this notebook as published:", *outside]))
    print(f"All {len(results)} results are within their bounds.")
