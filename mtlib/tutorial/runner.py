"""Run the notebooks with papermill, after all parameters have been checked.

A notebook's `parameters` cell is its interface: one typed, commented assignment per line. papermill
only warns of an unknown name and accepts a value of any type; here both are errors (compare
nteract/papermill#869).
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbclient.exceptions import CellTimeoutError
from papermill import PapermillExecutionError, inspect_notebook
from pydantic import TypeAdapter, ValidationError

from mtlib.errors import UserError, one_of
from mtlib.paths import NOTEBOOK_DIR, make_writable
from mtlib.tutorial.kernel import KernelDied, execute, kill_all
from mtlib.tutorial.pages import as_html

CELL_SECONDS = 1800  # after which a cell is stopped; it takes at most 30 seconds on an idle core
_TYPES = {"str": str, "int": int, "float": float, "bool": bool}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# called with a notebook's name, how many of its cells are done, and how many it has
Progress = Callable[[str, int, int], None]


@dataclass
class Result:
    """How one notebook ended."""

    name: str
    status: str = "failed"  # or "ok"
    seconds: float = 0.0
    cells: list[tuple[float, str]] = field(default_factory=list)  # (seconds, "heading: first line")
    expected: str = ""  # what its cell tagged `expected` says of its results
    error: str = ""


def find(names: Sequence[str] = ()) -> list[Path]:
    """The notebooks with these names, in order; all by default.

    A name is "03", "03_mask_tuning" or a file name.
    """
    all_paths = sorted(NOTEBOOK_DIR.glob("[0-9][0-9]_*.ipynb"))
    if not all_paths:
        raise UserError(f"no notebooks in {NOTEBOOK_DIR}; pip does not install them, git does.")
    if not names:
        return all_paths
    chosen = {path for name in names for path in _named(name, all_paths)}
    return [path for path in all_paths if path in chosen]


def _named(name: str, paths: Sequence[Path]) -> list[Path]:
    stem = Path(name).name.removesuffix(".ipynb")
    found = [path for path in paths if stem in (path.stem, path.stem[:2])]
    if not found:
        raise UserError(f"no notebook {name!r}; {one_of(name, [path.stem for path in paths])}")
    return found


def check_parameters(paths: Sequence[Path], texts: Mapping[str, str]) -> dict[Path, dict]:
    """The parameters of each notebook, converted from `texts` to their declared types.

    Each notebook gets the parameters that it has.

    Raises:
        UserError: no notebook has a parameter with this name, or its value has another type.
    """
    declared = {path: inspect_notebook(path) for path in paths}
    known = sorted(set().union(*declared.values()))
    for name in texts:
        if name not in known:
            raise UserError(f"unknown parameter {name!r}; {one_of(name, known)}")
    return {path: _typed_values(texts, parameters) for path, parameters in declared.items()}


def _typed_values(texts: Mapping[str, str], declared: Mapping[str, Mapping]) -> dict:
    names = [name for name in texts if name in declared]
    return {name: _typed(name, texts[name], declared[name]) for name in names}


def _typed(name: str, text: str, declared: Mapping[str, str]):
    """`text` as the declared type.

    An existing file or folder becomes absolute, because a notebook runs in another folder.
    """
    is_path = re.search(r"\b(file|folder)\b", declared["help"]) is not None
    if is_path and text and Path(text).exists():
        return os.path.abspath(text)
    wanted = declared["inferred_type_name"]
    try:
        return TypeAdapter(_TYPES[wanted]).validate_strings(text)
    except ValidationError as error:
        raise UserError(f"parameter {name} is {text!r}; expected {wanted}.") from error


def run_notebooks(
    values: Mapping[Path, dict],
    out: Path,
    report: Callable[[Result], None] = lambda result: None,
    progress: Progress = lambda name, done, total: None,
    at_once: int = 1,
) -> list[Result]:
    """Execute notebooks; where one fails, the others still run.

    Args:
        values: parameters by notebook, from `check_parameters`.
        out: folder for executed copies, HTML and `summary.md`; also their working directory.
        report: called with each result.
        progress: called when a notebook begins, and before each of its cells.
        at_once: so many notebooks run side by side, begun in order.
    """
    make_writable(out)
    results: list[Result] = []
    with ThreadPoolExecutor(at_once) as pool:
        running = [
            pool.submit(_run, path, parameters, out, progress)
            for path, parameters in values.items()
        ]
        try:
            for ended in as_completed(running):
                results.append(ended.result())
                results.sort(key=lambda result: result.name)
                (out / "summary.md").write_text(_summary(results), encoding="utf-8")
                report(ended.result())
        except BaseException:  # Ctrl-C too: then nothing goes on in the background
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(notebook.done() for notebook in running):
                kill_all()
                time.sleep(0.1)
            raise
    return results


def _run(path: Path, parameters: dict, out: Path, progress: Progress) -> Result:
    copy = out / path.name
    result = Result(path.stem)
    total = len(nbformat.read(path, as_version=4).cells)
    total += bool(parameters)  # papermill adds a cell for them
    progress(path.stem, 0, total)

    def on_cell_start(cell, cell_index: int) -> None:
        progress(path.stem, cell_index, total)

    started = time.monotonic()
    try:
        execute(
            path,
            copy,
            parameters,
            execution_timeout=CELL_SECONDS,
            on_cell_start=on_cell_start,
        )
        result.status = "ok"
    except PapermillExecutionError as error:
        traceback = _ANSI.sub("", "\n".join(error.traceback))
        result.error = f"cell [{error.exec_count}]:\n{error.source}\n\n{traceback}"
    except (CellTimeoutError, KernelDied) as error:
        result.error = f"{error}\nIn the cell:\n{_last_started(copy)}"
    progress(path.stem, total, total)
    result.seconds = round(time.monotonic() - started, 1)
    executed = nbformat.read(copy, as_version=4)
    result.cells = _costs(executed)
    result.expected = _said_of_results(executed)
    _drop_widgets(executed)
    nbformat.write(executed, copy)
    copy.with_suffix(".html").write_text(as_html(executed, path.stem), encoding="utf-8")
    return result


def _last_started(copy: Path) -> str:
    """The code of the cell at which an executed copy ends."""
    cells = nbformat.read(copy, as_version=4).cells
    started = [cell for cell in cells if _times(cell).get("start_time")]
    return started[-1].source if started else "none: the first has not begun."


def _times(cell) -> dict:
    return cell.metadata.get("papermill", {})


def _said_of_results(notebook) -> str:
    """The first line of what the cell tagged `expected` printed or raised."""
    for cell in notebook.cells:
        if "expected" in tags_of(cell):
            outputs = cell.outputs
            said = [output.get("text") or output.get("evalue", "") for output in outputs]
            return "".join(said).partition("\n")[0]
    return ""


def _drop_widgets(notebook) -> None:
    """Remove widgets, which do nothing without a kernel.

    GitHub does not show a notebook whose widget state is incomplete.
    """
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            outputs = [output for output in cell.outputs if _WIDGET not in output.get("data", {})]
            cell.outputs = outputs


def _costs(notebook) -> list[tuple[float, str]]:
    """How long each code cell took, as (seconds, "heading: first line of code")."""
    heading = ""
    costs = []
    for cell in notebook.cells:
        seconds = _times(cell).get("duration")
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.+)$", cell.source, flags=re.M)
            if headings:
                heading = headings[-1]
        elif seconds:
            costs.append((round(seconds, 1), f"{heading}: {_first_line(cell.source)}"))
    return costs


def _first_line(code: str) -> str:
    """The beginning of the first line that is neither empty nor a comment."""
    for line in code.splitlines():
        if line.strip() and not line.startswith("#"):
            return line[:60]
    return ""


def _summary(results: Sequence[Result]) -> str:
    lines = ["| notebook | status | seconds | cell |", "| --- | --- | ---: | --- |"]
    for result in results:
        said = result.expected or "all"
        lines.append(f"| {result.name} | {result.status} | {result.seconds:.0f} | {said} |")
        for seconds, cell in result.cells:
            lines.append(f"| {result.name} | | {seconds:.0f} | `{cell}` |")
    return "\n".join(lines) + "\n"


def tags_of(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))
