"""What `mtlib sweep` shows: the list of a dry run, progress, and the summary."""

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from mtlib.errors import UserError
from mtlib.runs import environment
from mtlib.runs.config import RunConfig, all_settings, command_line
from mtlib.runs.locks import Busy
from mtlib.runs.records import shipped_records
from mtlib.sweeps.engines import Outcome, execute
from mtlib.sweeps.grid import GridRun, expected_seconds
from mtlib.sweeps.store import Store

_ALWAYS_SHOWN = ("task", "method", "model", "seed")


def dry_run(console: Console, runs: Sequence[GridRun], trouble: UserError | None, store: Store) -> None:
    """List every run, whether its record is there, and what it may cost by the records there are.

    Args:
        trouble: why some runs' data or model could not be read, if so.
    """
    # a GPU's seconds say little of a processor's
    here = torch.cuda.is_available()
    shipped = [of for of in shipped_records().values() if environment.is_gpu(of["environment"]["device"]) == here]
    places = store.records(), shipped
    settings = columns([run.config for run in runs])
    table = Table(*settings, "record", "cost", title=f"{len(runs)} runs", title_justify="left")
    costs = []
    for run, *values in zip(runs, *settings.values(), strict=True):
        state, cost = _state(run, store), ""
        if state in ("to do", "running", "?"):
            estimates = (expected_seconds(run, records) for records in places)
            costs.append(next((seconds for seconds in estimates if seconds is not None), None))
            cost = duration(costs[-1])
        table.add_row(*map(_text, settings, values), state, cost)
    console.print(table)
    unknown = f", and {costs.count(None)} of unknown cost" if None in costs else ""
    console.print(f"to do: {duration(sum(filter(None, costs)))} one after the other{unknown}")
    console.print("(by records of the same task, method and model: those here, else the project's)")
    if trouble is not None:
        console.print(f"?: cannot tell whether it is there: {trouble}", markup=False)


def carry_out(console: Console, runs: Sequence[GridRun], store: Store, engine) -> int:
    """Have the record of every run in the store, with progress and a summary; an exit code.

    Returns:
        1 if a run failed, else `Busy.EXIT_CODE` if time was up before all were begun, else 0.
    """
    outcomes = []
    with closing(execute(runs, engine, store)) as ended:  # ends what is running, also where printing is interrupted
        for outcome in ended:
            outcomes.append(outcome)
            if outcome.status not in ("there", "left"):
                done = f"[{len(outcomes)} of {len(runs)}] {outcome.status:8} {Path(outcome.run.file).stem}"
                _print(console, f"{done}  {outcome.detail}".rstrip())
    _summary(console, outcomes, store, engine)
    ends = {outcome.status for outcome in outcomes}
    return 1 if "failed" in ends else Busy.EXIT_CODE if "left" in ends else 0


def columns(configs: Sequence[RunConfig]) -> dict[str, list]:
    """What tells the runs of a sweep apart: settings of which two runs that read them say different things.

    With every run's value, defaults filled in; None for a run that does not read it.
    """
    written, resolved = ([each.values() for each in of] for of in (configs, [each.resolved() for each in configs]))
    names = [
        name
        for name in all_settings()
        if name in _ALWAYS_SHOWN or len({repr(values[name]) for values in written if name in values}) > 1
    ]
    return {name: [values.get(name) for values in resolved] for name in names}


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _summary(console: Console, outcomes: Sequence[Outcome], store: Store, engine) -> None:
    counts = Counter(outcome.status for outcome in outcomes)
    told = ", ".join(f"{counts[status]} {status}" for status in ("there", "written", "diverged", "failed"))
    _print(console, f"{len(outcomes)} runs: {told}; records in {store.address}")
    if counts["diverged"]:
        _print(console, "diverged: the loss was not finite; try a lower learning rate")
    if counts["left"]:
        _print(console, f"{counts['left']} left: time was up before they began; the same command does them")
    for outcome in outcomes:
        if outcome.status == "failed":
            variables = [f"{name}={value}" for name, value in engine.environment.items()]
            command = ["python", "-m", "mtlib", "run", *command_line(outcome.run.config), "--out", str(store.folder)]
            _print(console, f"failed: {Path(outcome.run.file).stem}\n  {outcome.detail}")
            _print(console, f"  by itself: {shlex.join(variables + command)}")
            _print(console, f"  log: {store.log(outcome.run.file)}")


def _state(run: GridRun, store: Store) -> str:
    if run.file is None:
        return "?"
    if (state := store.state(run.file)) is not None:
        return "there" if state == "written" else state
    return "running" if store.holder(run.file) else "with mtlib" if run.shipped else "to do"


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _text(name: str, value) -> str:
    if name == "model":
        return Path(value).name
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else ", ".join(value) if isinstance(value, list | tuple) else str(value)
