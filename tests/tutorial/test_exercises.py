"""Checks of exercises: silent, right, wrong, never raising; and folded outputs."""

from types import SimpleNamespace

import numpy
import pytest
import torch

from mtlib.tutorial import exercises
from mtlib.tutorial.exercises import check, confirm, folded, solved, unjudged, verdicts


@pytest.fixture(autouse=True)
def own_checks(monkeypatch):
    monkeypatch.setattr(exercises, "_judges", {})


def printed(capsys, value, *args, **kwargs) -> str:
    globals()["answer"] = value
    check(3, "answer", *args, **kwargs)
    return capsys.readouterr().out.strip()


def test_an_exercise_is_solved_by_its_last_check(capsys):
    for value, right in ((0.64, True), (..., False), (0.64, True), (0.8, False)):
        printed(capsys, value, 0.64)
        assert solved(3) is right


def test_untouched_is_no_answer(capsys):
    for value in (..., (1, ...)):
        said = printed(capsys, value, 0.5)
        assert said.startswith("Exercise 3: `answer` is still `...`") and not verdicts(said)


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [
        (0.645, 0.64, "Right."),
        (torch.tensor(0.64), 0.64, "Right."),
        (numpy.float32(0.64), 0.64, "Right."),
        (0.8, 0.64, "Not yet. `answer` is 0.8, which is too large. Think."),
        (0, 0.64, "Not yet. `answer` is 0, which is too small. Think."),
        ("0.64", 0.64, "Not yet. `answer` is '0.64'; expected a number. Think."),
        (True, 0.64, "Not yet. `answer` is True; expected a number. Think."),
        (
            torch.tensor([0.64]),
            0.64,
            "Not yet. `answer` is tensor([0.6400]); expected a number. Think.",
        ),
        (float("nan"), 0.64, "Not yet. `answer` is nan; expected a number. Think."),
        (["a"], ["a"], "Right."),
        (["b"], ["a"], "Not yet. `answer` is ['b']; that is not it. Think."),
        (["open", "no"], ("open", "no"), "Right."),
        ("(B)", "b", "Right."),
    ],
)
def test_numbers_and_other_values(capsys, value, expected, said):
    assert printed(capsys, value, expected, tolerance=0.01, hint="Think.") == f"Exercise 3: {said}"


@pytest.mark.parametrize(
    ("value", "expected", "said"),
    [
        (64, 0.64, "That is per cent; expected a share, from 0 to 1."),
        (0.64, 64.0, "That is a share; expected per cent."),
        (0.36, 0.64, "You exchanged alpha and 1 - alpha."),
        (63, 0.64, "which is too large."),
    ],
)
def test_common_mistakes_are_named(capsys, value, expected, said):
    mistakes = {"You exchanged alpha and 1 - alpha.": 0.36}
    verdict = printed(capsys, value, expected, tolerance=0.001, mistakes=mistakes)
    assert verdict.startswith("Exercise 3: Not yet.") and verdict.endswith(said)


def test_what_the_profile_cannot_check_is_neither_right_nor_wrong(capsys):
    for value in (0.64, 0.8):
        said = printed(capsys, value, 0.64, checkable=False)
        assert said == "Exercise 3: Not checkable under this profile: it trains too little."
        assert unjudged(said) == {3} and not verdicts(said) and not solved(3)


def test_a_function_says_what_is_wrong(capsys):
    def judge(rule):
        return None if rule(2) == 4 else f"rule(2) is {rule(2)}."

    assert printed(capsys, lambda x: 2 * x, judge) == "Exercise 3: Right."
    wrong = printed(capsys, lambda x: x, judge, hint="Double it.")
    assert wrong == "Exercise 3: Not yet. rule(2) is 2. Double it."
    failed = printed(capsys, lambda x: 1 / 0, judge)
    assert failed.startswith("Exercise 3: Not yet. Trying your answer raised ZeroDivisionError")


def test_a_cell_that_failed_or_was_not_run(capsys, monkeypatch):
    said = "Exercise 3: Not yet. The cell above was not run, or it failed: mend it, and run both."
    check(3, "never_defined", 1)
    assert capsys.readouterr().out.strip() == said
    shell = SimpleNamespace(last_execution_succeeded=False)
    monkeypatch.setattr(exercises, "get_ipython", lambda: shell)
    assert printed(capsys, 1, 1) == said, "what the variable holds is of before"


def test_a_solution_and_its_check_agree():
    globals()["answer"] = ...
    check(3, "answer", 4)
    confirm(3, right=4, wrong=5)
    message = "objects to its own solution: `answer` is 5, which is too large"
    with pytest.raises(AssertionError, match=message):
        confirm(3, right=5, wrong=4)
    with pytest.raises(AssertionError, match="accepts 4, which is wrong"):
        confirm(3, right=4, wrong=4)


def test_a_solution_that_is_opened_before_its_check_says_what_to_do(capsys):
    confirm(3, right=4, wrong=5)
    said = capsys.readouterr().out
    assert said == "Exercise 3: run the check above too; it tells whether your answer is right.\n"


def test_verdicts_are_read_from_what_was_printed(capsys):
    globals()["answer"] = 1
    check(1, "answer", 1)
    check(12, "answer", 2, hint="Exercise 4: Right.")
    check(2, "missing", 2)
    assert verdicts(f"before\n{capsys.readouterr().out}after") == {1: True, 12: False, 2: False}
    assert verdicts("") == {}


def test_output_is_folded(monkeypatch):
    shown = []
    monkeypatch.setattr(exercises, "display", shown.append)
    with folded("Two <lines>"):
        print("1 < 2")
    (html,) = shown
    summary = "<summary>Two &lt;lines&gt;</summary>"
    assert html.data == f"<details>{summary}<pre>1 &lt; 2\n</pre></details>"
    with pytest.raises(ValueError), folded():
        raise ValueError("a fault in the solution is raised")
