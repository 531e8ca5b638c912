"""`figures`, `playground` and `doctor`: the state of a checkout and of the machine."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import print_line


def figures(out: Annotated[Path, typer.Option(help="folder")] = Path("figures")) -> None:
    """Draw the repository's figures, PNG and SVG, from data/results."""
    from mtlib.analysis.figures import save, standard
    from mtlib.paths import make_writable

    make_writable(out)
    for name, (figure, alt) in standard().items():
        for path in save(figure, out, name, alt):
            print_line(f"written: {path}")


def playground() -> None:
    """Train the models of notebook 03 (six minutes) and write figures/playground.html, which runs them in a browser."""
    from mtlib.paths import FIGURE_DIR
    from mtlib.tutorial.playground import contents, page

    (FIGURE_DIR / "playground.html").write_text(page(contents()), encoding="utf-8")
    print_line(f"written: {FIGURE_DIR / 'playground.html'}")


def doctor() -> None:
    """Whether this machine can run everything.

    What `pip check` says of the installed packages, then where training will run. Exit code 1 if packages do not fit.
    """
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    print_line((done.stdout or done.stderr).strip())
    if done.returncode:
        raise typer.Exit(1)
    import torch

    from mtlib.contexts import precision_name

    kind = precision_name()
    if torch.cuda.is_available():
        print_line(f"GPU: {torch.cuda.get_device_name()}, {kind}.")
    else:
        print_line(
            f"CPU, {torch.get_num_threads()} threads, {kind}: right for the testbed and the notebooks. For real data "
            "take a machine with a GPU (on Colab: Runtime > Change runtime type > T4 GPU)."
        )
