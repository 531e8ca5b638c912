"""Exercises of the notebooks: checks of a student's answer, and solutions whose output stays folded.

In a notebook an exercise is four cells: its statement, a cell to work in that ends with `share = ...`, a cell that
calls `check`, and a solution. What a check prints is also what `python -m mtlib notebooks --student` reads.
"""

import inspect
import io
import numbers
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from html import escape

from IPython import get_ipython
from IPython.display import HTML, display

RIGHT, WRONG = "Right.", "Not yet."
_VERDICT = re.compile(rf"^Exercise (\d+): ({re.escape(RIGHT)}|{re.escape(WRONG)})", flags=re.M)
# what the notebook's checks expect, by number of the exercise
_judges: dict[int, Callable] = {}
_solved: set[int] = set()


def check(number: int, name: str, expected, tolerance: float = 0.0, hint: str = "") -> None:
    """Print whether the student's variable `name` answers exercise `number`, or that it is still `...`.

    A wrong answer is told, never raised. The variable is looked up in the notebook that calls this.

    Args:
        expected: a number (right within `tolerance`; the answer may be a tensor without dimensions), any other value
            (right if equal, however a letter is bracketed), or a function of the student's value that returns None if
            it is right and otherwise a sentence that says what is wrong.
        hint: a sentence printed after what is wrong.
    """
    _judges[number] = _judge(name, expected, tolerance)
    notebook = inspect.currentframe().f_back.f_globals
    _solved.discard(number)
    if name not in notebook or not getattr(get_ipython(), "last_execution_succeeded", True):
        says = f"{WRONG} The cell above was not run, or it failed: mend it, and run both."
    elif _untouched(notebook[name]):
        says = f"`{name}` is still `...`; put your answer there, and run both cells."
    elif fault := _fault(number, notebook[name]):
        says = f"{WRONG} {fault} {hint}".rstrip()
    else:
        says = RIGHT
        _solved.add(number)
    print(f"Exercise {number}: {says}")


def solved(number: int) -> bool:
    """Whether the last check of an exercise found it right: a notebook then goes on with the student's own function."""
    return number in _solved


def confirm(number: int, right, wrong) -> None:
    """For solutions: the check above must accept `right` and object to `wrong`. Where it was not run, say so.

    Raises:
        AssertionError: it does not, so that solution and check contradict each other.
    """
    if number not in _judges:
        return print(f"Exercise {number}: run the check above too; it tells whether your answer is right.")
    fault = _fault(number, right)
    assert fault is None, f"exercise {number} objects to its own solution: {fault}"
    assert _fault(number, wrong) is not None, f"exercise {number} accepts {wrong!r}, which is wrong"


@contextmanager
def folded(title: str = "What the solution prints") -> Iterator[None]:
    """Everything that the block prints, behind a line to click on."""
    with redirect_stdout(io.StringIO()) as printed:
        yield
    text = escape(printed.getvalue())
    display(HTML(f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"))


def verdicts(text: str) -> dict[int, bool]:
    """Whether each exercise was answered right, by its number, from what the checks of a notebook printed."""
    return {int(number): verdict == RIGHT for number, verdict in _VERDICT.findall(text)}


def _untouched(value) -> bool:
    return value is ... or (isinstance(value, tuple | list) and any(part is ... for part in value))


def _fault(number: int, value) -> str | None:
    """What is wrong with an answer, in a sentence; a student's own function may fail in any way."""
    try:
        return _judges[number](value)
    except Exception as error:
        return f"Trying your answer raised {type(error).__name__}: {error}."


def _judge(name: str, expected, tolerance: float) -> Callable:
    def of_number(value):
        number = value.item() if getattr(value, "shape", None) == () else value  # a tensor without dimensions
        if not isinstance(number, numbers.Real) or isinstance(number, bool) or number != number:
            return f"`{name}` is {_short(value)}; expected a number."
        if abs(number - expected) <= tolerance:
            return None
        return f"`{name}` is {number:.6g}, which is too {'large' if number > expected else 'small'}."

    def of_value(value):
        return None if _plain(value) == _plain(expected) else f"`{name}` is {_short(value)}; that is not it."

    if callable(expected):
        return expected
    is_number = isinstance(expected, numbers.Real) and not isinstance(expected, bool)
    return of_number if is_number else of_value


def _plain(value):
    """A letter without brackets, a list as a tuple: what was meant."""
    return tuple(value) if isinstance(value, list) else value.strip("() ").lower() if isinstance(value, str) else value


def _short(value) -> str:
    text = " ".join(repr(value).split())  # in one line
    return text if len(text) <= 60 else f"{text[:57]}..."
