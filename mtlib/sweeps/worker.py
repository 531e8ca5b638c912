"""One run of a sweep, in the process that was chosen for it. What became of it goes back as plain values.

The local engine starts `python -m mtlib.sweeps.worker JSON` and reads the last line of its output; Ray calls
`carry_out` on a machine of the cluster.
"""

import json
import sys
import traceback

from mtlib.errors import UserError
from mtlib.runs.config import configure
from mtlib.runs.locks import Busy
from mtlib.runs.run import run
from mtlib.sweeps.store import Store


def carry_out(settings: dict, out: str, file: str) -> dict[str, str]:
    """Do one run and put its record into the store.

    Args:
        settings: of its configuration.
        out: the store's address.
        file: the name of its record.

    Returns:
        `status` ("written", "diverged", "busy" or "failed") and `detail`; for a failed run also its `traceback`.
    """
    try:
        store = Store(out)
        if store.state(file) is None:  # else a worker wrote it that was cut off before it could say so
            record, _ = run(configure(**settings), store.folder)
            if record.name != file:
                raise UserError(
                    f"the worker made {record.name} instead of {file}: its data, its model or its mtlib is not what "
                    "the sweep began with; start the sweep again, with the same on all machines."
                )
        store.put(store.folder / file)
        return {"status": "diverged" if store.state(file) == "diverged" else "written", "detail": ""}
    except Busy as error:
        return {"status": "busy", "detail": str(error)}
    except Exception as error:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return {"status": "failed", "detail": text, "traceback": traceback.format_exc()}


if __name__ == "__main__":
    answer = carry_out(**json.loads(sys.argv[1]))
    print(answer.pop("traceback", ""), file=sys.stderr)
    print(json.dumps(answer))
