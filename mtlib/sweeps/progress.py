"""What `mtlib sweep` shows: the list of a dry run, progress, and the summary."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs import run as runs
from mtlib.sweeps.engines import Outcome
from mtlib.sweeps.grid import Planned, columns, options, seconds
from mtlib.sweeps.store import Store

_SHOWN = 8  # runs in hand that the live table lists


def dry_run(console: Console, planned: Sequence[Planned], trouble: UserError | None, store: Store) -> None:
    """List every run, whether its record is there, and what it may cost by the records there are.

    Args:
        trouble: why some runs' data or model could not be read, if so.
    """
    here, reference = store.records(), runs.read_records([DATA_DIR / "results"])
    settings = columns([run.config for run in planned])
    table = Table("", *settings, "record", "cost", title_justify="left", title=f"{len(planned)} runs")
    total, unknown, used = 0.0, 0, []
    for number, run in enumerate(planned):
        values = [_text(name, values[number]) for name, values in settings.items()]
        there = run.file is not None and store.has(run.file)
        state = "there" if there else "?" if run.file is None else "running" if store.holder(run.file) else "to do"
        cost = None
        if not there:
            records = here if seconds(run, here) is not None else reference
            cost = seconds(run, records)
            total, unknown = total + (cost or 0), unknown + (cost is None)
            used += [] if cost is None else [records]
        table.add_row(str(number + 1), *values, state, "" if there else duration(cost))
    console.print(table)
    console.print(
        f"to do: {duration(total)} one after the other" + (f", and {unknown} of unknown cost" if unknown else "")
    )
    for records, where in ((here, store.address), (reference, "data/results")):
        if any(records is one for one in used):
            devices = ", ".join(sorted({record["environment"]["device"] for record in records}))
            console.print(f"costs by the records of the same task, method and model in {where} (on {devices})")
    if trouble is not None:
        console.print(f"?: cannot tell whether it is there: {trouble}", markup=False)


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

    def __call__(self, ended: list[Outcome], active: list[tuple[Planned, float]], waiting: int) -> None:
        for outcome in ended:
            self.counts[outcome.status] += 1
            if outcome.status != "there":
                done = f"[{self.counts.total()} of {self.total}] {outcome.status:7} {_stem(outcome.run)}"
                text = f"{done}  {duration(outcome.seconds)}  {outcome.detail}".rstrip()
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        if self._live is not None:
            self._live.update(self._state(active, waiting))

    def _state(self, active: list[tuple[Planned, float]], waiting: int) -> Group:
        counts = " · ".join(f"{status} {n}" for status, n in self.counts.items() if n)
        head = f"{self.total} runs: {counts or 'none done'} · in hand {len(active)} · waiting {waiting}"
        table = Table("in hand", "since", box=None)
        for run, since in active[:_SHOWN]:
            table.add_row(_stem(run), duration(since))
        if len(active) > _SHOWN:
            table.add_row(f"and {len(active) - _SHOWN} more", "")
        return Group(Text(head), *([table] if active else []))


def summary(console: Console, outcomes: Sequence[Outcome], store: Store) -> bool:
    """Print what became of the runs, and of failed ones how to see more; True if none has failed."""
    counts = Counter(outcome.status for outcome in outcomes)
    done = [f"{counts['there']} were there", f"{counts['written']} written", f"{counts['failed']} failed"]
    text = f"{len(outcomes)} runs: {', '.join(done)}; records in {store.address}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    for outcome in outcomes:
        if outcome.status == "failed":
            alone = shlex.join(
                ["python", "-m", "mtlib", "run", *options(outcome.run.config), "--out", str(store.folder)]
            )
            lines = [f"failed: {_stem(outcome.run)}", f"  {outcome.detail}", f"  by itself: {alone}"]
            lines += [f"  log: {outcome.log}"] if outcome.log else []
            console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return not counts["failed"]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _stem(run: Planned) -> str:
    return Path(run.file).stem


def _text(name: str, value) -> str:
    if name == "model":
        return Path(value).name
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else ", ".join(value) if isinstance(value, tuple) else str(value)
