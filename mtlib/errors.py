"""The one exception users see."""


class UserError(ValueError):
    """Bad input: the message names the value, what was expected and what to do about it.

    The command line prints it without a traceback and exits with code 2.
    """
