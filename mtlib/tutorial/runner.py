"""Run the notebooks in order with papermill, strictly: nothing starts before every name, type and value is known.

A notebook's `parameters` cell is its interface: one typed, commented assignment per line. papermill only warns of a
name that is not there, and injects whatever type it is given; here both are errors (compare nteract/papermill#869).
"""

import hashlib
import json
import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbclient.exceptions import CellTimeoutError
from papermill import PapermillExecutionError, inspect_notebook
from pydantic import TypeAdapter, ValidationError

from mtlib.errors import UserError, one_of
from mtlib.paths import NOTEBOOK_DIR, make_writable
from mtlib.tutorial.kernel import KernelDied, execute
from mtlib.tutorial.pages import as_html

CELL_SECONDS = 1800  # then a cell is stopped; on an idle core it takes half a minute at most
_TYPES = {"str": str, "int": int, "float": float, "bool": bool}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_KEPT = ("cellView", "jupyter", "slideshow", "tags")  # of a cell's metadata; the rest is of one run, such as timings


@dataclass
class Result:
    """How one notebook ended, "ok" or "failed". `cells` holds what each cost: (seconds, "heading: first line")."""

    name: str
    status: str = "failed"
    seconds: float = 0.0
    cells: list[tuple[float, str]] = field(default_factory=list)
    error: str = ""


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
    """`text` as the declared type; a file that is there by its whole path, for a notebook runs in another folder."""
    if re.search(r"\bfile\b", declared["help"]) and Path(text).is_file():
        return os.path.abspath(text)
    wanted = declared["inferred_type_name"]
    try:
        return TypeAdapter(_TYPES[wanted]).validate_strings(text)
    except ValidationError as error:
        raise UserError(f"parameter {name} is {text!r}; expected {wanted}.") from error


def run_notebooks(
    values: Mapping[Path, dict], out: Path, report: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Execute notebooks one after the other. Where one fails, the others run all the same.

    Args:
        values: parameters by notebook, from `check_parameters`.
        out: folder for executed copies, HTML and `summary.md`; also the notebooks' working directory.
        report: called with each result as it is known.
    """
    make_writable(out)
    results = []
    for path, parameters in values.items():
        results.append(_run(path, parameters, out))
        (out / "summary.md").write_text(_summary(results), encoding="utf-8")
        report(results[-1])
    return results


def _run(path: Path, parameters: dict, out: Path) -> Result:
    copy, started, result = out / path.name, time.monotonic(), Result(path.stem)
    try:
        execute(path, copy, parameters, execution_timeout=CELL_SECONDS)
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


def _last_started(copy: Path) -> str:
    """The code of the cell that an executed copy ends at."""
    started = [cell for cell in nbformat.read(copy, as_version=4).cells if _times(cell).get("start_time")]
    return started[-1].source if started else "none: the first has not begun."


def _times(cell) -> dict:
    return cell.metadata.get("papermill", {})


def _drop_widgets(notebook) -> None:
    """Without a kernel a widget does nothing; GitHub shows no notebook whose state is incomplete."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _WIDGET not in output.get("data", {})]


def _costs(notebook) -> list[tuple[float, str]]:
    """What each cell of code took, as (seconds, "heading: first line of code")."""
    heading, costs = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.+)$", cell.source, flags=re.M)
            heading = headings[-1] if headings else heading
        elif seconds := _times(cell).get("duration"):
            lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith("#")]
            costs.append((round(seconds, 1), f"{heading}: {lines[0][:60] if lines else ''}"))
    return costs


def _summary(results: Sequence[Result]) -> str:
    lines = ["| notebook | status | seconds | cell |", "| --- | --- | ---: | --- |"]
    for result in results:
        lines.append(f"| {result.name} | {result.status} | {result.seconds:.0f} | all |")
        lines += [f"| {result.name} | | {seconds:.0f} | `{where}` |" for seconds, where in result.cells]
    return "\n".join(lines) + "\n"


def publish(executed: Path, target: Path) -> None:
    """Put an executed copy in place of its source: outputs, and in the metadata the code they were made by."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        "mtlib": {"source_sha256": source_sha256(notebook)},
    }
    for cell in notebook.cells:
        cell.metadata = {name: cell.metadata[name] for name in _KEPT if cell.metadata.get(name)}
        if "install" in tags_of(cell):
            cell.source = with_address(cell.source)
    nbformat.write(notebook, target)


def with_address(install: str) -> str:
    """The code of an install cell with the project's address, from [project.urls] of pyproject.toml, "" without one.

    A cell without an address asks for it when it is run on Colab.
    """
    project = tomllib.loads((NOTEBOOK_DIR.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "")
    return re.sub(r'^repository = ".*?"', f'repository = "{address}"', install, flags=re.M)


def source_sha256(notebook) -> str:
    """Of the code cells in order: outputs made by other code than this are out of date.

    The install cell, which does nothing outside Colab, is left out.
    """
    tags = {"injected-parameters", "install"}
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not tags & tags_of(cell)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def tags_of(cell) -> set[str]:
    return {*cell.metadata.get("tags", [])}
