"""`figures` and `doctor`: the state of a checkout and of the machine."""

from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import print_line
from mtlib.errors import UserError


def figures(
    out: Annotated[Path | None, typer.Option(help="folder", show_default="figures/ of the checkout")] = None,
) -> None:
    """Draw the repository's figures, PNG and SVG, from data/results."""
    from mtlib.analysis.figures import save, standard
    from mtlib.paths import FIGURE_DIR, make_writable

    if out is None and not FIGURE_DIR.is_dir():
        raise UserError("there is no checkout whose figures/ to write to; give a folder with --out.")
    make_writable(out or FIGURE_DIR)
    for name, (figure, alt) in standard().items():
        for path in save(figure, out or FIGURE_DIR, name, alt):
            print_line(f"written: {path}")


def doctor() -> None:
    """Whether this machine can run everything.

    What `pip check` says of the installed packages, then where training will run. Exit code 1 if packages do not fit.
    """
    from mtlib.runs.doctor import device_note, pip_check

    fit, words = pip_check()
    print_line(words)
    if not fit:
        raise typer.Exit(1)
    print_line(device_note())
