"""A process that does runs of a sweep, whichever executor started it.

It loads nothing heavy before it has a run to do.
"""

import json
import os
import sys
from pathlib import Path
from typing import BinaryIO

from mtlib.errors import UserError
from mtlib.threads import quiet_openmp


def execute_run(settings: dict, out: str, file: str, reuse: bool = False) -> str:
    """Do the run of these settings and put its record into the store at `out`.

    Args:
        file: the name that its record is to have.
        reuse: a record that is there or shipped will do, whatever code made it.

    Returns:
        "written", "diverged", "reused" (a record, in place of training), "other code" (which made
        the record that is there) or "busy" (another process is at it).
    """
    quiet_openmp(os.environ)
    from mtlib.runs.config import configure
    from mtlib.runs.records import Busy
    from mtlib.runs.run import run
    from mtlib.sweeps.store import Store

    store = Store(out, reuse)
    was_there = False
    if store.state(file) is None:  # else another process has done it meanwhile
        try:
            _, was_there = run(configure(**settings), store.folder, reuse=reuse)
        except Busy:
            return "busy"
    state = store.finish(file)
    return "reused" if reuse and was_there else state


def main() -> None:
    """Do the runs that standard input names, a line of JSON each, until one fails.

    Each is answered with its state. What a run prints goes to the `log` that its line names.
    """
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        _print_to(order.pop("log"))
        try:
            answer = execute_run(**order)
        except UserError as error:
            sys.exit(f"error: {error}")
        _print_to(os.devnull)  # on a network a log that is still open cannot be removed
        print(answer, file=answers, flush=True)


def open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "ab")


def _print_to(path: str) -> None:
    sys.stdout.flush()
    with open_log(Path(path)) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


if __name__ == "__main__":
    main()
