"""Run the notebooks in order with papermill, strictly: nothing starts before every name, type and value is known.

A notebook's `parameters` cell is its interface: one typed, commented assignment per line. papermill only warns of a
name that is not there, and injects whatever type it is given; here both are errors (compare nteract/papermill#869).
"""

import hashlib
import html
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat

import mtlib
from mtlib.errors import UserError
from mtlib.paths import NOTEBOOK_DIR, make_writable
from mtlib.runs.config import NAMES
from mtlib.runs.records import write_atomically
from mtlib.tutorial.export import as_html

SUMMARY = "summary.json"
_PLACES = ("source", "model", "records")  # parameters that may be a path
_TYPES = {"str": str, "int": int, "float": float, "bool": bool}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Result:
    """How one notebook ended. `slowest` holds (seconds, where), longest first; `key` tells what was run."""

    name: str
    status: str = "not run"  # ok, failed, kept (from an earlier call) or not run
    seconds: float = 0.0
    slowest: list[tuple[float, str]] = field(default_factory=list)
    error: str = ""
    key: str = ""


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
            raise UserError(f"no notebook {name!r}; expected one of {', '.join(path.stem for path in all_paths)}.")
        chosen.update(fitting)
    return [path for path in all_paths if not names or path in chosen]


def parameters_of(path: Path) -> dict[str, dict]:
    """`{name: {inferred_type_name, default, help}}` as papermill reads them from the `parameters` cell."""
    from papermill import inspect_notebook

    return inspect_notebook(path)


def check_parameters(paths: Sequence[Path], texts: Mapping[str, str]) -> dict[Path, dict]:
    """The values that each notebook gets, in the declared types, from `texts` by name.

    A name must be a parameter of at least one of the notebooks; it goes to those that have it.

    Raises:
        UserError: no notebook has the name, or the text does not read as the type.
    """
    declared = {path: parameters_of(path) for path in paths}
    for name in texts:
        if not any(name in parameters for parameters in declared.values()):
            known = sorted({known for parameters in declared.values() for known in parameters})
            raise UserError(f"unknown parameter {name!r}; the chosen notebooks have {', '.join(known)}.")
    return {
        path: {
            name: _typed(name, text, parameters[name]["inferred_type_name"])
            for name, text in texts.items()
            if name in parameters
        }
        for path, parameters in declared.items()
    }


def _typed(name: str, text: str, annotation: str):
    """`text` as `str`, `int`, `float`, `bool`, or an `Optional` of these ("None" is then None)."""
    optional = re.fullmatch(r"Optional\[(\w+)\]", annotation)
    wanted = optional.group(1) if optional else annotation
    if optional and text == "None":
        return None
    if wanted == "bool":
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
    else:
        try:
            # a notebook runs in another folder than the one it is called from
            is_path = name in _PLACES and text not in NAMES and Path(text).exists()
            return os.path.abspath(text) if is_path else _TYPES[wanted](text)
        except ValueError:
            pass
    raise UserError(f"parameter {name} is {text!r}; expected {'true or false' if wanted == 'bool' else wanted}.")


def run_notebooks(
    values: Mapping[Path, dict],
    out: Path,
    silent_minutes: float,
    resume: bool = False,
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Execute notebooks one after the other. Where one fails, the others run all the same: each makes what it lacks.

    Args:
        values: parameters by notebook, from `check_parameters`.
        out: folder for executed copies, HTML and the summary; also the notebooks' working directory, so that the
            next one finds the records of the one before.
        silent_minutes: how long a cell may go without output and without a forward pass of a model. Then it hangs,
            and its notebook has failed; a notebook that is only slow has all the time it needs.
        resume: keep what earlier calls in `out` finished with the same cells and parameters.
        report: called with each result as it is known.

    Returns:
        A result per notebook, also written to `out/summary.json` and `out/summary.md`, which keep those of other
        notebooks.
    """
    make_writable(out)
    before = {result.name: result for result in _read_summary(out)}
    results = [Result(path.stem, key=_key(path, parameters)) for path, parameters in values.items()]
    for result, (path, parameters) in zip(results, values.items(), strict=True):
        old = before.get(result.name)
        if resume and old is not None and old.key == result.key and old.status in ("ok", "kept"):
            result.status, result.seconds, result.slowest = "kept", old.seconds, old.slowest
        else:
            _execute(path, parameters, out, silent_minutes, result)
        run = {result.name: result for result in results if result.status != "not run"}
        known = {result.name: result for result in results} | before | run
        _write_summary(out, [known[name] for name in sorted(known)])
        report(result)
    return results


def _execute(path: Path, parameters: dict, out: Path, silent_minutes: float, result: Result) -> None:
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel

    copy, started = out / path.name, time.monotonic()
    set_kernel_environment()
    with tempfile.NamedTemporaryFile("r") as hang:
        watchdog = f"from mtlib.tutorial.watchdog import watch; watch({silent_minutes}, {hang.name!r}); del watch"
        try:
            papermill.execute_notebook(
                path,
                copy,
                parameters,
                cwd=out,
                progress_bar=False,
                start_timeout=max(60, int(60 * silent_minutes)),
                # ipykernel warns of every kernel that listens on localhost
                extra_arguments=["--log-level=ERROR", f"--IPKernelApp.exec_lines={watchdog}"],
            )
            result.status = "ok"
        except papermill.PapermillExecutionError as error:
            traceback = _ANSI.sub("", "\n".join(error.traceback))
            result.status, result.error = "failed", f"cell [{error.exec_count}]:\n{error.source}\n\n{traceback}"
        except (RuntimeError, NoSuchKernel) as error:  # the kernel died, or did not start
            result.status, result.error = "failed", f"{type(error).__name__}: {error} (out of memory?)"
            if traceback := hang.read():
                result.error = (
                    f"stopped: no output and no training step for {silent_minutes:.2g} minutes, so it hangs. Last "
                    f"cell:\n{_last_started(copy)}\n\n{traceback}"
                )
    result.seconds = round(time.monotonic() - started, 1)
    if copy.exists():
        executed = nbformat.read(copy, as_version=4)
        result.slowest = _slowest(executed)
        executed.metadata.pop("widgets", None)
        nbformat.write(executed, copy)
        copy.with_suffix(".html").write_text(as_html(executed, path.stem), encoding="utf-8")


def set_kernel_environment() -> None:
    """See to it that kernels started from here import this mtlib, without the debugger's warnings."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # ipykernel's debugger warns of frozen modules
    # a kernel starts in `out`; it is to take the mtlib that runs here, not another that may be installed
    here, known = str(Path(mtlib.__file__).parents[1]), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, *(path for path in known if path != here)]))


def _last_started(copy: Path) -> str:
    """The code of the cell that an executed copy ends at."""
    cells = nbformat.read(copy, as_version=4).cells
    started = [cell.source for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return started[-1] if started else ""


def _slowest(notebook, n: int = 3) -> list[tuple[float, str]]:
    """The `n` longest cells as (seconds, "heading: first line of code")."""
    heading, cells = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.+)$", cell.source, flags=re.M)
            heading = headings[-1] if headings else heading
        elif seconds := cell.metadata.get("papermill", {}).get("duration"):
            lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith("#")]
            cells.append((round(seconds, 1), f"{heading}: {lines[0][:60] if lines else ''}"))
    return sorted(cells, reverse=True)[:n]


def source_sha256(notebook) -> str:
    """Of the code cells in order: outputs made by other code than this are out of date.

    The install cell, which does nothing outside Colab, is left out.
    """
    code = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and not is_injected(cell) and not has_tag(cell, "install")
    ]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def is_injected(cell) -> bool:
    return has_tag(cell, "injected-parameters")


def has_tag(cell, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def _key(path: Path, parameters: dict) -> str:
    notebook = nbformat.read(path, as_version=4)
    return hashlib.sha256(json.dumps([source_sha256(notebook), parameters], sort_keys=True).encode()).hexdigest()


def _read_summary(out: Path) -> list[Result]:
    file = out / SUMMARY
    return [Result(**entry) for entry in json.loads(file.read_text())] if file.exists() else []


def _write_summary(out: Path, results: list[Result]) -> None:
    write_atomically(out / SUMMARY, json.dumps([asdict(result) for result in results], indent=1) + "\n")
    lines = ["| notebook | status | minutes | slowest cells (seconds) |", "| --- | --- | ---: | --- |"]
    for result in results:
        slowest = "; ".join(f"{html.escape(where)} ({seconds:.0f})" for seconds, where in result.slowest)
        lines.append(f"| {result.name} | {result.status} | {result.seconds / 60:.1f} | {slowest} |")
    (out / "summary.md").write_text("\n".join(lines) + "\n")
