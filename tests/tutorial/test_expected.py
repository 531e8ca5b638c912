"""Expected results: bounds are inclusive, every fault is named, and only `cpu` is checked."""

import pytest

from mtlib.tutorial.expected import expect


def test_results_on_their_bounds_are_as_expected(capsys):
    expect("cpu", {"lowest": (0, 0, 20), "highest": (20.0, 0, 20)})
    assert capsys.readouterr().out == "All 2 results are within their bounds.\n"


def test_every_result_outside_its_bounds_is_named():
    results = {
        "too low": (79.94, 80, 100),
        "right": (90, 80, 100),
        "not a number": (float("nan"), 0, 1),
    }
    with pytest.raises(AssertionError) as failure:
        expect("cpu", results)
    first, *others = str(failure.value).splitlines()
    assert first.startswith("2 of 3 results are not as expected")
    assert others == [
        "too low: 79.94 is not within 80 to 100",
        "not a number: nan is not within 0 to 1",
    ]


@pytest.mark.parametrize("profile", ["smoke", "gpu", "paper"])
def test_other_profiles_promise_nothing(capsys, profile):
    expect(profile, {"wrong": (2, 0, 1)})
    assert capsys.readouterr().out == f"The profile {profile} promises no results.\n"
