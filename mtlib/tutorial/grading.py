"""Grade submitted notebooks: run each one and read which of its exercise checks pass."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import nbformat
import pandas
from papermill import PapermillExecutionError

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.tutorial import runner
from mtlib.tutorial.exercises import unjudged, verdicts

RIGHT = "right"
WRONG = "wrong"
UNTRIED = "not tried"
UNJUDGED = "not checkable"  # under the profile
CHANGED = "check changed"
CELL_SECONDS = 600  # after which a cell is interrupted and the next one runs


def grade_folder(folder: Path, profile: str, out: Path, report: Callable[[str], None]) -> None:
    """Grade every student's notebooks, and report one line per student as soon as it is known.

    A broken notebook is no error; its student's line says what is wrong with it.

    Args:
        folder: a subfolder of notebooks for each student, or a notebook named after each student.
        profile: of the notebooks, how much they train.
        out: gets `grades.csv`, and for each student a folder of executed copies.
        report: called with each line.

    Raises:
        UserError: there is no notebook in `folder`.
    """
    students = submissions(folder, out)
    make_writable(out)
    rows = []
    for student, paths in students.items():
        sentences = []
        for path in paths:
            within = path.relative_to(folder).parts[1:] or (path.name,)
            name, results = grade(path, profile, out.joinpath(student, *within))
            sentences.append(_sentence(name, results))
            rows += [(student, name, number, result) for number, result in results.items()]
        report(f"{student}: {'; '.join(sentences)}")
    grades = pandas.DataFrame(rows, columns=["student", "notebook", "exercise", "result"])
    grades.astype({"exercise": "Int64"}).to_csv(out / "grades.csv", index=False)


def submissions(folder: Path, out: Path) -> dict[str, list[Path]]:
    """Notebooks by student, but for what an earlier call has left in `out`.

    A student's name is that of the subfolder, or that of a notebook that is in none.
    """
    students: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.ipynb")):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)  # such as .ipynb_checkpoints
        if not is_hidden and out.absolute() not in path.absolute().parents:
            student = parts[0].removesuffix(".ipynb")
            students.setdefault(student, []).append(path)
    if not students:
        raise UserError(
            f"{folder} has no notebooks; expected one subfolder for each student, with the .ipynb "
            "files that the student handed in."
        )
    return students


def grade(path: Path, profile: str, copy: Path) -> tuple[str, dict[int | None, str]]:
    """The name of the original notebook, and the result of each exercise by its number.

    If it cannot be graded, the name of the file, and the reason under None.
    """
    try:
        original = _original_of(path)
        _execute_all_cells(path, copy, profile)
        executed = nbformat.read(copy, as_version=4)
        return original.stem, _results(nbformat.read(original, as_version=4), executed)
    except Exception as error:  # a submission may be broken in any way; the others are graded still
        first_line = str(error).strip().partition("\n")[0]
        message = f"{type(error).__name__}: {first_line[:100]}"
        return path.name, {None: f"could not be graded: {message}"}


def _execute_all_cells(path: Path, copy: Path, profile: str) -> None:
    """Run a notebook to its end, whatever cells fail on the way."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    # papermill raises for failed cells at the end, when all cells have been run
    with suppress(PapermillExecutionError):
        runner.execute(
            path,
            copy,
            {"profile": profile},
            allow_errors=True,
            execution_timeout=CELL_SECONDS,
            interrupt_on_timeout=True,
        )


def _sentence(name: str, results: dict[int | None, str]) -> str:
    """A notebook's results, as they are reported."""
    if None in results:
        return f"{name}: {results[None]}"
    n_right = list(results.values()).count(RIGHT)
    listed = ", ".join(f"{number} {result}" for number, result in results.items())
    return f"{name} {n_right} of {len(results)} right ({listed})"


def _original_of(path: Path) -> Path:
    """The notebook that a submission was made from, by its file name or the number in its title."""
    cells = nbformat.read(path, as_version=4).cells
    title = next((cell.source for cell in cells if cell.source.startswith("# ")), "")
    for original in runner.find():
        if original.stem in path.stem or title.startswith(f"# {original.stem[:2]} ·"):
            return original
    raise LookupError("neither its name nor its title is that of a notebook of this project")


def _results(original, executed) -> dict[int, str]:
    """The result of each exercise, from what its check printed in the executed submission.

    A check whose code was changed does not count.
    """
    printed = {cell.source.strip(): _printed(cell) for cell in executed.cells}
    checks = [cell.source.strip() for cell in original.cells if "check" in runner.tags_of(cell)]
    results = {}
    for number, check in enumerate(checks, start=1):
        if check in printed and number in unjudged(printed[check]):
            results[number] = UNJUDGED
        elif check in printed:
            is_right = verdicts(printed[check]).get(number)
            results[number] = {True: RIGHT, False: WRONG, None: UNTRIED}[is_right]
        else:
            results[number] = CHANGED
    return results


def _printed(cell) -> str:
    """What an executed cell printed."""
    return "".join(output.get("text", "") for output in cell.get("outputs", []))
