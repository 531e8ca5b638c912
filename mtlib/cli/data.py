"""`data verify`, `data fetch` and `testbed`: the data of a run."""

from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import console, print_line
from mtlib.errors import UserError


def testbed(
    out: Annotated[Path, typer.Option(help="a new folder, then a --source of `run`")],
    strength: Annotated[float, typer.Option(help="of the planted shortcut, 0 (none) to 1 (always right)")] = 0.9,
    seed: Annotated[int, typer.Option(help="same settings and seed, same bytes")] = 0,
    train_rows: Annotated[
        int | None, typer.Option(help="size of every training set (default: 4,000 sentences, 6,000 pairs)")
    ] = None,
) -> None:
    """Generate the testbed with its shortcut at another strength, or with more training rows."""
    from mtlib.paths import make_writable
    from mtlib.testbed import write

    make_writable(out)
    if any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder with --out.")
    write(out, strength, seed, train_rows)
    print_line(f"written: {out}")


def verify(source: Annotated[str, typer.Option(help="a folder of original releases")]) -> None:
    """Check every file of the releases: rows, labels, checksums. Exit code 1 if one fails."""
    from mtlib.data import verification

    rows = verification.verify(source)
    width = max(len(row.file) for row in rows)
    for row in rows:
        of = f"of {row.expected:,}" if row.expected != row.rows and row.expected else ""
        counted = f"{_number(row.rows):>7} {of:>10}  {row.labels}"
        print(f"{row.status:9} {row.file:{width}} {counted}; checksum {row.checksum}")
    print("\nNotes")
    for row in rows:
        if row.note:
            print(f"  {row.file}: {row.note}")
    print()
    counts = {status: sum(row.status == status for row in rows) for status in ("ok", "deviation", "missing", "FAIL")}
    print(", ".join(f"{n} {status}" for status, n in counts.items()))
    if counts["missing"] == len(rows):
        raise UserError(f"{source} holds none of the files; expected for example {rows[0].file} below it.")
    if counts["FAIL"]:
        raise typer.Exit(1)


def fetch(
    sets: Annotated[list[str] | None, typer.Argument(help="sets", show_default="all that can be downloaded")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder for raw files", show_default="in the hub's cache")] = None,
) -> None:
    """Download sets into the cache; a cut download resumes, a checksum is verified."""
    from rich.progress import Progress

    from mtlib.data import downloads
    from mtlib.data.registry import SETS

    wanted = sets or [name for name, data_set in SETS.items() if data_set.remote is not None]
    downloads.check(wanted)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bars = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=total)
            progress.update(bars[file], completed=done, total=total)

        for name in wanted:
            paths = downloads.fetch([name], cache or downloads.CACHE_DIR, show)
            console.print(f"{name}: {len(paths)} file(s)")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
