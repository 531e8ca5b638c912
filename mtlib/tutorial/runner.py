"""Run the notebooks with papermill, after all parameters have been checked.

A notebook's `parameters` cell is its interface: one typed, commented assignment per line. papermill
only warns of an unknown name and accepts a value of any type; here both are errors (compare
nteract/papermill#869).
"""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError
from papermill import PapermillExecutionError, inspect_notebook
from pydantic import TypeAdapter, ValidationError

import mtlib
from mtlib.errors import UserError, one_of
from mtlib.paths import NOTEBOOK_DIR, make_writable
from mtlib.tutorial.pages import as_html

CELL_SECONDS = 1800  # after which a cell is stopped; it takes at most 30 seconds on an idle core
_START_SECONDS = 600  # a slow machine imports slowly
_TYPES = {"str": str, "int": int, "float": float, "bool": bool}
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Result:
    """How one notebook ended."""

    name: str
    status: str = "failed"  # or "ok"
    seconds: float = 0.0
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
    at_once: int = 1,
) -> list[Result]:
    """Execute notebooks; where one fails, the others still run.

    Args:
        values: parameters by notebook, from `check_parameters`.
        out: folder for executed copies and HTML; also their working directory.
        report: called with each result.
        at_once: so many notebooks run side by side, begun in order, each in a process of its own.
    """
    make_writable(out)
    run = partial(_run, out, CELL_SECONDS)
    results = []
    with get_context("spawn").Pool(at_once, _leave_ctrl_c_to_the_parent) as pool:
        for result in pool.imap_unordered(run, values.items()):
            results.append(result)
            report(result)
        pool.close()  # or leaving the block would interrupt processes that are about to end
        pool.join()
    return sorted(results, key=lambda result: result.name)


def _leave_ctrl_c_to_the_parent() -> None:
    """Let Ctrl-C end the parent alone, whose pool then ends this process, which ends its kernel."""
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def _run(out: Path, cell_seconds: int, notebook: tuple[Path, dict]) -> Result:
    path, parameters = notebook
    copy = out / path.name
    result = Result(path.stem)
    started = time.monotonic()
    try:
        execute(path, copy, parameters, execution_timeout=cell_seconds)
        result.status = "ok"
    except PapermillExecutionError as error:
        traceback = _ANSI.sub("", "\n".join(error.traceback))
        result.error = f"cell [{error.exec_count}]:\n{error.source}\n\n{traceback}"
    except (CellTimeoutError, RuntimeError) as error:  # the second: its kernel died
        result.error = f"{error}\nIn the cell:\n{_last_started(copy)}"
    result.seconds = round(time.monotonic() - started, 1)
    executed = nbformat.read(copy, as_version=4)
    result.expected = _said_of_results(executed)
    _drop_widgets(executed)
    nbformat.write(executed, copy)
    copy.with_suffix(".html").write_text(as_html(executed, path.stem), encoding="utf-8")
    return result


class OwnKernel(AsyncKernelManager):
    """A kernel of this Python, in which the mtlib that runs here comes first.

    The kernel that is registered as `python3` may belong to another environment.
    """

    kernel_spec = KernelSpec(
        argv=[
            sys.executable,
            "-Xfrozen_modules=off",  # or ipykernel's debugger warns of frozen modules
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
            "--log-level=ERROR",  # or ipykernel warns of every kernel that listens on localhost
        ],
        env={
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(mtlib.__file__).parents[1]), os.environ.get("PYTHONPATH")])
            )
        },
        display_name="Python 3",
        language="python",
    )


def execute(path: Path, copy: Path, parameters: dict, **options) -> None:
    """Run a notebook with papermill, with a progress bar on a terminal.

    Args:
        path: the notebook. It is run by the current Python, whatever kernel it names.
        copy: where the executed notebook is written. Its folder is the working directory, of this
            process too as long as the notebook runs.
        parameters: values for the cell that is tagged `parameters`.
        options: further options of papermill and nbclient, such as `allow_errors`.

    Raises:
        papermill.PapermillExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell took longer than `execution_timeout`.
        RuntimeError: the kernel did not start, or died.
    """
    papermill.execute_notebook(
        path,
        copy,
        parameters,
        cwd=copy.parent,
        kernel_name="python3",
        language="python",
        kernel_manager_class=OwnKernel,
        shutdown_kernel="immediate",
        start_timeout=_START_SECONDS,
        progress_bar={"desc": path.stem, "leave": False, "disable": None},  # None: off a terminal
        **options,
    )


def _last_started(copy: Path) -> str:
    """The code of the cell at which an executed copy ends."""
    cells = nbformat.read(copy, as_version=4).cells
    started = [cell for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return started[-1].source if started else "none: the first has not begun."


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


def tags_of(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))
