"""`tables` and `bundle`: what is made of finished runs' records."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtlib.cli.terminal import print_line, print_table
from mtlib.errors import UserError

if TYPE_CHECKING:
    import pandas

    from mtlib.analysis.comparisons import Comparison


Form = Literal["terminal", "markdown", "csv"]


def tables(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="comparisons of data/comparisons, or claims: the paper's", show_default="all"
        ),
    ] = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            help="files or folders with records, repeatable: of the comparison, or, without one, "
            "of any runs"
        ),
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="only name the comparisons, with a line each")
    ] = False,
    form: Annotated[
        Form, typer.Option("--format", help="csv: a line for each run and set")
    ] = "terminal",
) -> None:
    """Accuracies of finished runs, differences with their intervals, and what they say.

    Every arm of a comparison is compared with its base, on each set.

    Examples:
        python -m mtlib tables --list
        python -m mtlib tables ablations decisive
        python -m mtlib tables --records runs
    """
    if only_list:
        _print_names(form)
    elif records and not names:
        _print_plain(records, form)
    else:
        _print_named(names or [], records or (), form)


def _print_named(names: Sequence[str], records: Sequence[Path], form: Form) -> None:
    """The comparisons with these names, and the claims; without names, all comparisons."""
    chosen = _comparisons(names, records)
    if "claims" in names:
        if form == "csv" and len(names) > 1:
            raise UserError("claims have columns of their own; ask for them alone.")
        if records:
            raise UserError("claims are judged by shipped records; leave --records out.")
        _print_claims(form)
    if form == "csv":
        _print_frames(chosen, form)
        return
    for comparison in chosen:
        _print_comparison(comparison, form)
        if records and (arms := comparison.of_several_codes):
            print_line(f"{', '.join(arms)}: these runs come from several versions of the code.")


def _comparisons(names: Sequence[str], records: Sequence[Path]) -> list["Comparison"]:
    """Those that are named; without names, all whose records are here."""
    from mtlib.analysis import comparisons

    if names:
        return [comparisons.load(name, records) for name in names if name != "claims"]
    known = [comparisons.load(name) for name in comparisons.names()]
    return [comparison for comparison in known if all(path.exists() for path in comparison.paths)]


def _print_names(form: Form) -> None:
    import pandas

    from mtlib.analysis import comparisons

    lines = comparisons.names().items()
    _print(pandas.DataFrame(lines, columns=["comparison", "about"]), form, "comparisons")


def _print_claims(form: Form) -> None:
    from mtlib.analysis import claims

    table = claims.claims() if form == "csv" else claims.table()
    heading = "Mask-tuning against the other rows of the paper's Tables I and III, in points"
    _print(table, form, heading)


def _print_frames(chosen: Sequence["Comparison"], form: Form) -> None:
    """A line for each run and set; of several comparisons the first column says which."""
    import pandas

    frames = {comparison.name: comparison.frame() for comparison in chosen}
    if len(frames) == 1:
        _print(*frames.values(), form)
    elif frames:
        table = pandas.concat(frames, names=["comparison", None]).reset_index("comparison")
        _print(table, form)


def _print_comparison(comparison: "Comparison", form: Form) -> None:
    lacking = comparison.without_runs
    if lacking and (comparison.base in lacking or len(lacking) >= len(comparison.arms) - 1):
        print_line(f"{comparison.name}: no record belongs to {', '.join(map(repr, lacking))}.")
    for task in comparison.tasks:
        heading = f"{comparison.name}, {task}"
        table = comparison.table(task)
        judged = [name for name in table if name.endswith("?")]
        if form == "terminal" and judged:  # one below the other, or the columns would be too narrow
            _print(table.drop(columns=judged), form, f"{heading}: {comparison.about}")
            is_judged = (table[judged] != "").any(axis="columns")
            differences = table[["arm", *comparison.by, *judged]][is_judged]
            _print(differences, form, f"{heading}: differences to {comparison.base}")
        else:
            _print(table, form, f"{heading}: {comparison.about}")
        _print(
            comparison.table_of_changes(task),
            form,
            f"{heading}: other differences, 95 %, uncorrected",
        )


def _print_plain(records: Sequence[Path], form: Form) -> None:
    from mtlib.analysis.frame import frame, plain_tables
    from mtlib.runs.records import read_records

    scores = frame(read_records(records))
    if scores.empty:
        raise UserError("no run records found; make some with `python -m mtlib run --out FOLDER`.")
    if form == "csv":
        _print(scores, form)
        return
    for heading, table in plain_tables(scores).items():
        _print(table, form, heading)


def _print(table: "pandas.DataFrame", form: Form, heading: str = "") -> None:
    if table.empty:
        return
    if form == "csv":
        print(table.to_csv(index=False), end="")
        return
    rows = [
        [f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in table.values.tolist()
    ]
    if form == "terminal":
        print_table(heading, list(table), rows)
        return
    lines = [list(table), ["---"] * len(table.columns), *rows]
    print(f"**{heading}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines), end="\n\n")


def bundle(
    folders: Annotated[list[Path], typer.Argument(help="folders with records, or .jsonl.gz files")],
    to: Annotated[Path, typer.Option(help="a .jsonl.gz file; the records it has stay in it")],
) -> None:
    """Put the records of many runs into one file, a line each.

    Their probabilities go into one file beside it.

    Examples:
        python -m mtlib bundle runs --to build/records.jsonl.gz
    """
    from mtlib.paths import make_writable
    from mtlib.runs import records
    from mtlib.runs.code import has_uncommitted_code

    if not to.name.endswith(records.BUNDLES) or to.is_dir():
        raise UserError(f"--to is {to}; expected a file name that ends in .jsonl.gz.")
    make_writable(to.parent)
    bundled = records.bundle([*([to] if to.exists() else []), *folders], to)
    print_line(f"{len(bundled)} records: {to}")
    if n := sum(has_uncommitted_code(record) for record in bundled):
        print_line(
            f"{n} of them were made with uncommitted changes, so that nobody can get at their "
            "code: data/results does not accept such; commit, and run them again."
        )
