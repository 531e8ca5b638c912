"""A process that does a run of a sweep, whichever executor started it."""

import json
import os
import sys

from mtlib.errors import UserError


def execute_run(
    settings: dict, out: str, file: str, reuse: bool = False, keep_model: bool = False
) -> str:
    """Do the run of these settings and put its record into the store at `out`.

    Args:
        file: the name that its record is to have.
        reuse: a record that is there or shipped will do, whatever code made it.
        keep_model: keep the trained model beside the record.

    Returns:
        "written", "diverged", "reused" (a record, in place of training), "other code" (which made
        the record that is there) or "busy" (another process is at it).
    """
    from mtlib.runs.config import configure
    from mtlib.runs.locks import Busy
    from mtlib.runs.run import run
    from mtlib.sweeps.store import Store

    config = configure(**settings)
    store = Store(out, reuse, keep_model)
    answered = False
    if store.state(file, config.precision) is None:  # else another process has done it meanwhile
        try:
            _, answered = run(config, store.folder, keep_model, reuse=reuse)
        except Busy:
            return "busy"
    state = store.finish(file)
    return "reused" if reuse and answered else state


def main() -> None:
    """Do the run that standard input describes, and answer with its state.

    All that the run prints goes to standard error, which is its log.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = execute_run(**json.load(sys.stdin))
    except UserError as error:
        sys.exit(f"error: {error}")
    print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
