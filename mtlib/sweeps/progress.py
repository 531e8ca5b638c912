"""What `mtlib sweep` shows: the list of a dry run, progress, and the summary."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mtlib.errors import UserError
from mtlib.runs import environment
from mtlib.runs.config import command_line
from mtlib.runs.records import shipped_records
from mtlib.sweeps.engines import Engine, Outcome, execute
from mtlib.sweeps.grid import GridRun, columns, expected_seconds
from mtlib.sweeps.store import Store

_SHIPPED = "with mtlib"  # the state of a run whose record comes with the project, and need only be copied
_SHOWN = 8  # active runs that the live table lists


def dry_run(
    console: Console,
    runs: Sequence[GridRun],
    trouble: UserError | None,
    store: Store,
    numbers: Sequence[int] | None = None,
) -> None:
    """List every run, whether its record is there, and what it may cost by the records there are.

    Args:
        trouble: why some runs' data or model could not be read, if so.
        numbers: of the runs in their sweep; None: from 1 on.
    """
    places = {store.address: store.records(), **_shipped_by_device()}
    settings = columns([run.config for run in runs])
    table = Table("", *settings, "record", "cost", title_justify="left", title=f"{len(runs)} runs")
    costs, used = [], set()
    for i, (number, run) in enumerate(zip(numbers or range(1, len(runs) + 1), runs, strict=True)):
        state, cost = _state(run, store), ""
        if state not in ("there", "diverged", _SHIPPED):
            estimates = {place: expected_seconds(run, records) for place, records in places.items()}
            place = next((place for place, seconds in estimates.items() if seconds is not None), None)
            costs.append(estimates.get(place))
            used.add(place)
            cost = duration(costs[-1])
        cells = (_text(name, values[i]) for name, values in settings.items())
        table.add_row(str(number), *cells, state, cost)
    console.print(table)
    unknown = f", and {costs.count(None)} of unknown cost" if None in costs else ""
    console.print(f"to do: {duration(sum(filter(None, costs)))} one after the other{unknown}")
    for place, records in places.items():
        if place not in used:
            continue
        devices = ", ".join(sorted({record["environment"]["device"] for record in records}))
        console.print(f"costs by the records of the same task, method and model in {place} (on {devices})")
    if trouble is not None:
        console.print(f"?: cannot tell whether it is there: {trouble}", markup=False)


def carry_out(console: Console, runs: Sequence[GridRun], store: Store, make_engine: Callable[[], Engine]) -> bool:
    """Have the record of every run in the store, with progress and a summary. Whether none failed."""
    store.check_writable()  # before an engine starts anything
    with Progress(console, len(runs)) as progress:
        outcomes = execute(runs, make_engine(), store, progress)
    return summary(console, outcomes, store)


class Progress:
    """A live table below a line for each run that ends; outside a terminal the lines alone."""

    def __init__(self, console: Console, total: int):
        self.console, self.total, self.counts = console, total, Counter()
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None

    def __enter__(self):
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_):
        if self._live is not None:
            self._live.stop()

    def __call__(self, ended: list[Outcome], active: list[tuple[GridRun, float]], waiting: int) -> None:
        for outcome in ended:
            self.counts[outcome.status] += 1
            if outcome.status != "there":
                done = f"[{self.counts.total()} of {self.total}] {outcome.status:8} {_stem(outcome.run)}"
                _print(self.console, f"{done}  {duration(outcome.seconds)}  {outcome.detail}".rstrip())
        if self._live is not None:
            self._live.update(self._table(active, waiting))

    def _table(self, active: list[tuple[GridRun, float]], waiting: int) -> Group:
        counts = " · ".join(f"{status} {n}" for status, n in self.counts.items() if n)
        head = f"{self.total} runs: {counts or 'none done'} · active {len(active)} · waiting {waiting}"
        table = Table("active", "since", box=None)
        for run, since in active[:_SHOWN]:
            table.add_row(_stem(run), duration(since))
        if len(active) > _SHOWN:
            table.add_row(f"and {len(active) - _SHOWN} more", "")
        return Group(Text(head), *([table] if active else []))


def summary(console: Console, outcomes: Sequence[Outcome], store: Store) -> bool:
    """Print what became of the runs, and of failed ones how to see more; True if none has failed."""
    counts = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts['there']} were there", f"{counts['written']} written", f"{counts['failed']} failed"]
    if counts["diverged"]:
        parts.insert(2, f"{counts['diverged']} diverged")
    _print(console, f"{len(outcomes)} runs: {', '.join(parts)}; records in {store.address}")
    for outcome in outcomes:
        if outcome.status == "diverged":
            _print(console, f"diverged: {_stem(outcome.run)} (its loss was not finite; try a lower learning rate)")
        if outcome.status == "failed":
            variables = [f"{name}={value}" for name, value in outcome.environment.items()]
            command = ["python", "-m", "mtlib", "run", *command_line(outcome.run.config), "--out", str(store.folder)]
            _print(console, f"failed: {_stem(outcome.run)}\n  {outcome.detail}")
            _print(console, f"  by itself: {shlex.join(variables + command)}")
            if outcome.log:
                _print(console, f"  log: {outcome.log}")
    return not counts["failed"]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _state(run: GridRun, store: Store) -> str:
    if run.file is None:
        return "?"
    if (state := store.state(run.file)) is not None:
        return state
    return "running" if store.holder(run.file) else _SHIPPED if run.shipped else "to do"


def _shipped_by_device() -> dict[str, list[dict]]:
    """The project's records by what the dry run calls them: first those made on a device of this machine's kind.

    A GPU's seconds say little of a processor's, so the others are asked only where the first have no answer.
    """
    kinds = {True: [], False: []}
    for record in shipped_records().values():
        kinds[environment.is_gpu(record["environment"]["device"])].append(record)
    here = torch.cuda.is_available()
    return {"data/results": kinds[here], "data/results, on another kind of device": kinds[not here]}


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _stem(run: GridRun) -> str:
    return Path(run.file).stem


def _text(name: str, value) -> str:
    if name == "model":
        return Path(value).name
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else ", ".join(value) if isinstance(value, list | tuple) else str(value)
