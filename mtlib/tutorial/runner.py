"""Run the notebooks in order with papermill, strictly: nothing starts before every name, type and value is known.

A notebook's `parameters` cell is its interface: one typed, commented assignment per line. papermill only warns of a
name that is not there, and injects whatever type it is given; here both are errors (compare nteract/papermill#869).
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import nbformat
from nbclient.exceptions import CellTimeoutError
from papermill import PapermillExecutionError, inspect_notebook
from pydantic import TypeAdapter, ValidationError

from mtlib.errors import UserError, one_of
from mtlib.paths import NOTEBOOK_DIR, make_writable
from mtlib.runs.config import NAMES
from mtlib.tutorial.kernel import KernelDied, execute
from mtlib.tutorial.pages import as_html

SLOWER = 30  # a cell may take so many times what its notebook has taken before it, whatever the limit
_TYPES = {"str": str, "int": int, "float": float, "bool": bool}
_TYPES |= {f"Optional[{name}]": Optional[kind] for name, kind in _TYPES.items()}  # noqa: UP045 (as papermill reads it)
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Result:
    """How one notebook ended, "ok" or "failed". `cells` holds what each cost: (seconds, "heading: first line")."""

    name: str
    status: str = "failed"
    seconds: float = 0.0
    cells: list[tuple[float, str]] = field(default_factory=list)
    error: str = ""

    def slowest(self, n: int = 3) -> list[tuple[float, str]]:
        return sorted(self.cells, reverse=True)[:n]


def find(names: Sequence[str] = ()) -> list[Path]:
    """The notebooks of these names ("03", "03_mask_tuning" or a file name), in order; all of them by default."""
    all_paths = sorted(NOTEBOOK_DIR.glob("[0-9][0-9]_*.ipynb"))
    if not all_paths:
        raise UserError(f"no notebooks in {NOTEBOOK_DIR}; they come with a checkout of the repository, not with pip.")
    chosen = set()
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        fitting = [path for path in all_paths if stem in (path.stem, path.stem[:2])]
        if not fitting:
            raise UserError(f"no notebook {name!r}; {one_of(name, [path.stem for path in all_paths])}")
        chosen.update(fitting)
    return [path for path in all_paths if not names or path in chosen]


def check_parameters(paths: Sequence[Path], texts: Mapping[str, str]) -> dict[Path, dict]:
    """The values that each notebook gets, in the declared types, from `texts` by name.

    A name must be a parameter of at least one of the notebooks; it goes to those that have it.

    Raises:
        UserError: no notebook has the name, or the text does not read as the type.
    """
    declared = {path: inspect_notebook(path) for path in paths}
    known = sorted({name for parameters in declared.values() for name in parameters})
    for name in texts:
        if name not in known:
            raise UserError(f"unknown parameter {name!r}; {one_of(name, known)}")
    return {
        path: {name: _typed(name, text, parameters[name]) for name, text in texts.items() if name in parameters}
        for path, parameters in declared.items()
    }


def _typed(name: str, text: str, declared: Mapping[str, str]):
    """`text` as the declared type ("None" where that is optional); a file or folder that is there by its whole path."""
    wanted = declared["inferred_type_name"]
    if wanted.startswith("Optional") and text == "None":
        return None
    may_be_path = re.search(r"\b(file|folder)\b", declared["help"]) and text not in NAMES
    if may_be_path and Path(text).exists():  # a notebook runs in another folder than the one it is called from
        return os.path.abspath(text)
    try:
        return TypeAdapter(_TYPES[wanted]).validate_strings(text)
    except ValidationError as error:
        raise UserError(f"parameter {name} is {text!r}; expected {wanted}.") from error


def run_notebooks(
    values: Mapping[Path, dict],
    out: Path,
    cell_minutes: float,
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Execute notebooks one after the other. Where one fails, the others run all the same: each makes what it lacks.

    Args:
        values: parameters by notebook, from `check_parameters`.
        out: folder for executed copies, HTML and `summary.md`; also the notebooks' working directory, so that the
            next one finds the records of the one before.
        cell_minutes: how long a cell may take. It grows with the machine's slowness: a cell always has `SLOWER`
            times the time that its notebook took to get there.
        report: called with each result as it is known.
    """
    make_writable(out)
    results = []
    for path, parameters in values.items():
        results.append(_run(path, parameters, out, 60 * cell_minutes))
        (out / "summary.md").write_text(_summary(results), encoding="utf-8")
        report(results[-1])
    return results


def _run(path: Path, parameters: dict, out: Path, seconds: float) -> Result:
    copy, started, result = out / path.name, time.monotonic(), Result(path.stem)

    def limit(cell) -> float:
        return max(seconds, SLOWER * (time.monotonic() - started))

    try:
        execute(path, copy, parameters, timeout_func=limit)
        result.status = "ok"
    except PapermillExecutionError as error:
        traceback = _ANSI.sub("", "\n".join(error.traceback))
        result.error = f"cell [{error.exec_count}]:\n{error.source}\n\n{traceback}"
    except (CellTimeoutError, KernelDied) as error:
        result.error = f"{error}\nIn the cell:\n{_last_started(copy)}"
    result.seconds = round(time.monotonic() - started, 1)
    executed = nbformat.read(copy, as_version=4)
    result.cells = _costs(executed)
    _drop_widgets(executed)
    nbformat.write(executed, copy)
    copy.with_suffix(".html").write_text(as_html(executed, path.stem), encoding="utf-8")
    return result


def _drop_widgets(notebook) -> None:
    """Without a kernel a widget does nothing; GitHub shows no notebook whose state is incomplete."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _WIDGET not in output.get("data", {})]


def _last_started(copy: Path) -> str:
    """The code of the cell that an executed copy ends at."""
    cells = nbformat.read(copy, as_version=4).cells
    started = [cell.source for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return started[-1] if started else "none: the first has not begun."


def _costs(notebook) -> list[tuple[float, str]]:
    """What each cell of code took, as (seconds, "heading: first line of code")."""
    heading, costs = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.+)$", cell.source, flags=re.M)
            heading = headings[-1] if headings else heading
        elif seconds := cell.metadata.get("papermill", {}).get("duration"):
            lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith("#")]
            costs.append((round(seconds, 1), f"{heading}: {lines[0][:60] if lines else ''}"))
    return costs


def source_sha256(notebook) -> str:
    """Of the code cells in order: outputs made by other code than this are out of date.

    The install cell, which does nothing outside Colab, is left out.
    """
    tags = {"injected-parameters", "install"}
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not tags & tags_of(cell)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def tags_of(cell) -> set[str]:
    return {*cell.metadata.get("tags", [])}


def _summary(results: Sequence[Result]) -> str:
    lines = ["| notebook | status | seconds | cell |", "| --- | --- | ---: | --- |"]
    for result in results:
        lines.append(f"| {result.name} | {result.status} | {result.seconds:.0f} | all |")
        lines += [f"| {result.name} | | {seconds:.0f} | `{where}` |" for seconds, where in result.cells]
    return "\n".join(lines) + "\n"
