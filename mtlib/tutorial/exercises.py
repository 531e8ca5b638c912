"""Exercises of the notebooks: checks of a student's answer, and solutions with folded output.

In a notebook an exercise has four cells: its statement, a cell to work in that ends with a line
such as `share = ...`, a cell that calls `check`, and a solution. The command
`python -m mtlib notebooks --student` reads what the checks print.
"""

import inspect
import io
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from html import escape

from IPython import get_ipython
from IPython.display import HTML, display

RIGHT, WRONG = "Right.", "Not yet."
UNJUDGED = "Not checkable under this profile:"
_VERDICT = re.compile(rf"^Exercise (\d+): ({re.escape(RIGHT)}|{re.escape(WRONG)})", flags=re.M)
# By number of the exercise: a function of the answer that returns what is wrong, or None.
_judges: dict[int, Callable] = {}
_solved: set[int] = set()


def check(
    number: int,
    name: str,
    expected,
    tolerance: float = 0.0,
    hint: str = "",
    mistakes: Mapping[str, float] | None = None,
    checkable: bool = True,
) -> None:
    """Print whether the student's variable `name` answers exercise `number`.

    Nothing is raised for a wrong answer. The variable is looked up in the notebook that calls this.

    Args:
        number: of the exercise.
        name: of the student's variable.
        expected: a number, any other value, or a function of the student's value. A number is right
            within `tolerance`, also as a tensor without dimensions; per cent in place of a share
            is named as the fault. Other values must be equal, except that "(B)" is "b". A function
            returns None if the value is right, and otherwise a sentence that says what is wrong.
        tolerance: largest difference of a number that is right.
        hint: a sentence that is printed after what is wrong.
        mistakes: what to say of a wrong number, and the number: `{"You exchanged alpha and
            1 - alpha.": 0.3}`.
        checkable: false where the profile trains too little to have the right answer.
    """
    _judges[number] = _judge(name, expected, tolerance, mistakes or {})
    notebook = inspect.currentframe().f_back.f_globals
    _solved.discard(number)
    if name not in notebook or not getattr(get_ipython(), "last_execution_succeeded", True):
        verdict = f"{WRONG} The cell above was not run, or it failed: mend it, and run both."
    elif _untouched(notebook[name]):
        verdict = f"`{name}` is still `...`; put your answer there, and run both cells."
    elif not checkable:
        verdict = f"{UNJUDGED} it trains too little."
    elif fault := _fault(number, notebook[name]):
        verdict = f"{WRONG} {fault} {hint}".rstrip()
    else:
        verdict = RIGHT
        _solved.add(number)
    print(f"Exercise {number}: {verdict}")


def solved(number: int) -> bool:
    """Whether the last check of an exercise found it right.

    If so, a notebook goes on with the student's function in place of its own.
    """
    return number in _solved


def confirm(number: int, right, wrong) -> None:
    """Assert that the check of an exercise accepts `right` and objects to `wrong`.

    It stands in solutions. If the check was not run, it prints a reminder to run it.

    Raises:
        AssertionError: solution and check contradict each other.
    """
    if number not in _judges:
        print(f"Exercise {number}: run the check above too; it tells whether your answer is right.")
        return
    fault = _fault(number, right)
    assert fault is None, f"exercise {number} objects to its own solution: {fault}"
    assert _fault(number, wrong) is not None, f"exercise {number} accepts {wrong!r}, which is wrong"


@contextmanager
def folded(title: str = "What the solution prints") -> Iterator[None]:
    """Show what the block prints behind a line to click on."""
    with redirect_stdout(io.StringIO()) as printed:
        yield
    text = escape(printed.getvalue())
    display(HTML(f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"))


def verdicts(text: str) -> dict[int, bool]:
    """Whether each exercise is right, by its number, from what checks printed.

    An exercise that is still untouched, or cannot be checked, has no verdict.
    """
    return {int(number): verdict == RIGHT for number, verdict in _VERDICT.findall(text)}


def unjudged(text: str) -> set[int]:
    """The numbers of the exercises that the profile cannot check, from what checks printed."""
    return {int(number) for number in re.findall(rf"^Exercise (\d+): {UNJUDGED}", text, re.M)}


def _untouched(value) -> bool:
    """Whether the `...` of the cell to work in still stands there, alone or among other parts."""
    parts = value if isinstance(value, tuple | list) else [value]
    return any(part is ... for part in parts)


def _fault(number: int, value) -> str | None:
    """What is wrong with an answer, in a sentence; None if nothing is."""
    try:
        return _judges[number](value)
    except Exception as error:  # a student's function may raise anything
        return f"Trying your answer raised {type(error).__name__}: {error}."


def _judge(name: str, expected, tolerance: float, mistakes: Mapping[str, float]) -> Callable:
    """A function of the answer that returns what is wrong with it, or None."""
    if callable(expected):
        return expected
    if _is_number(expected):
        return partial(_fault_of_number, name, expected, tolerance, mistakes)
    return partial(_fault_of_value, name, expected)


def _fault_of_number(
    name: str,
    expected: float,
    tolerance: float,
    mistakes: Mapping[str, float],
    value,
) -> str | None:
    if getattr(value, "shape", None) == ():  # a tensor without dimensions
        value = value.item()
    if not _is_number(value) or math.isnan(value):
        return f"`{name}` is {_short(value)}; expected a number."
    if abs(value - expected) <= tolerance:
        return None
    if sentence := _known_mistake(expected, tolerance, mistakes, value):
        return f"`{name}` is {value:.6g}. {sentence}"
    direction = "large" if value > expected else "small"
    return f"`{name}` is {value:.6g}, which is too {direction}."


def _known_mistake(
    expected: float,
    tolerance: float,
    mistakes: Mapping[str, float],
    value: float,
) -> str | None:
    """What to say of a wrong number that many arrive at; None of any other."""
    for sentence, mistake in mistakes.items():
        if abs(value - mistake) <= tolerance:
            return sentence
    if 0 < expected <= 1 < value and abs(value / 100 - expected) <= tolerance:
        return "That is per cent; expected a share, from 0 to 1."
    if 0 < value <= 1 < expected and abs(100 * value - expected) <= tolerance:
        return "That is a share; expected per cent."
    return None


def _fault_of_value(name: str, expected, value) -> str | None:
    if _plain(value) == _plain(expected):
        return None
    return f"`{name}` is {_short(value)}; that is not it."


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _plain(value):
    """A letter without brackets, a list as a tuple: what was meant."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str):
        return value.strip("() ").lower()
    return value


def _short(value) -> str:
    text = " ".join(repr(value).split())  # in one line
    return text if len(text) <= 60 else f"{text[:57]}..."
