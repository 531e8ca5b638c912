"""The one exception users see, and how it says which names there are."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input: the message names the value, what was expected and what to do about it.

    The command line prints it without a traceback and exits with code 2.
    """


def one_of(value: object, names: Iterable[str]) -> str:
    """What was expected in place of `value`: "expected one of a, b."

    And, if one of them is near, which was meant.
    """
    if not (names := list(names)):
        return "there is none to give."
    near = difflib.get_close_matches(str(value), names, n=1)
    return f"expected one of {', '.join(names)}" + (f"; did you mean {near[0]!r}?" if near else ".")
