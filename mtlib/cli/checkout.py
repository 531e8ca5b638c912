"""`testbed`, `data list`, `data verify` and `data fetch`: bundled data, and the paper's."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import print_line, print_table


def testbed(
    out: Annotated[Path, typer.Option(help="a new folder, then a --source of `run`")],
    strength: Annotated[
        float,
        typer.Option(help="of the planted shortcut, 0 (none) to 1 (always right)"),
    ] = 0.9,
    seed: Annotated[int, typer.Option(help="same settings and seed, same bytes")] = 0,
    train_rows: Annotated[
        int | None,
        typer.Option(help="size of every training set (default: 4,000 sentences, 6,000 pairs)"),
    ] = None,
) -> None:
    """Generate the testbed with its shortcut at another strength, or with more training rows.

    Examples:
        python -m mtlib testbed --strength 0.5 --out build/testbed
        python -m mtlib run --task nli --method mask_tuning --source build/testbed
    """
    from mtlib.paths import make_writable
    from mtlib.testbed import write

    make_writable(out, empty=True)
    write(out, strength, seed, train_rows)
    print_line(f"written: {out}")


def list_sets() -> None:
    """Name the data sets, and where each comes from.

    Examples:
        python -m mtlib data list
    """
    from mtlib.data.registry import SETS

    rows = []
    for name, data_set in SETS.items():
        place = "a release of your own"
        if data_set.bundled:
            place = "bundled"
        elif data_set.hub:
            place = f"hub: {data_set.hub.id}"
        elif data_set.raw_files:
            place = data_set.raw_files.repository
        rows.append([name, ", ".join(data_set.label_names), place, data_set.licence])
    print_table("data sets", ["name", "labels", "from", "licence"], rows)


def verify(source: Annotated[str, typer.Option(help="a folder of original releases")]) -> None:
    """Check rows, labels and checksum of every file of the releases.

    Exit code 1 if a file fails or none is there.

    Examples:
        python -m mtlib data verify --source releases
    """
    from mtlib.data import releases

    files = releases.verify(source)
    counts = Counter(file["status"] for file in files)
    for file in files:
        rows = file["rows"] or ""
        print(f"{file['status']:9} {rows:>7} {file['file']}")
        if file["note"]:
            print(f"{'':18}{file['note']}")
    print(", ".join(f"{number} {status}" for status, number in counts.items()))
    if counts["FAIL"] or counts["missing"] == len(files):
        raise typer.Exit(1)


def fetch(
    sets: Annotated[
        list[str] | None,
        typer.Argument(help="sets", show_default="all that can be downloaded"),
    ] = None,
) -> None:
    """Download sets into the cache; checksums are verified.

    What is there already is not fetched again.

    Examples:
        python -m mtlib data fetch sst2 imdb_contrast
    """
    from mtlib.data import downloads
    from mtlib.data.registry import SETS

    wanted = sets or [name for name, data_set in SETS.items() if data_set.remote]
    for file in downloads.fetch(wanted):
        print_line(str(file))
