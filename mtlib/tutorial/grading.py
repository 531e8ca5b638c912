"""Grade submitted notebooks: run each one and read which of its exercise checks pass."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pandas

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.tutorial import runner
from mtlib.tutorial.exercises import verdicts

RIGHT, WRONG, UNTRIED, CHANGED = "right", "wrong", "not tried", "check changed"
CELL_SECONDS = 600  # then a cell is interrupted, and the next one runs


@dataclass
class Grade:
    """What one submitted notebook scored: `exercises` by number, or why there is none."""

    student: str
    notebook: str
    exercises: dict[int, str] = field(default_factory=dict)
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.notebook}: {self.error}"
        right = sum(word == RIGHT for word in self.exercises.values())
        words = ", ".join(f"{number} {word}" for number, word in self.exercises.items())
        return f"{self.notebook} {right} of {len(self.exercises)} right ({words})"


def grade_folder(folder: Path, profile: str, out: Path, report: Callable[[str], None]) -> list[Grade]:
    """Grade every student's notebooks, and report a line for each student as soon as it is known.

    Args:
        folder: one subfolder of notebooks for each student, or one notebook each, named after the student.
        out: for executed copies, a folder per student, and `grades.csv`.

    Raises:
        UserError: there is no notebook in `folder`. A broken notebook is no error; its line says what is wrong.
    """
    students = submissions(folder)
    make_writable(out)
    grades = []
    for student, paths in students.items():
        of_student = [grade(student, path, profile, out / student) for path in paths]
        report(f"{student}: {'; '.join(map(str, of_student))}")
        grades += of_student
    lines = [
        {"student": grade.student, "notebook": grade.notebook, "exercise": number, "result": word}
        for grade in grades
        for number, word in (grade.exercises or {None: grade.error}).items()
    ]
    pandas.DataFrame(lines).astype({"exercise": "Int64"}).to_csv(out / "grades.csv", index=False)
    return grades


def submissions(folder: Path) -> dict[str, list[Path]]:
    """Notebooks by student: those of a subfolder together, those in `folder` itself each by its name."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; expected one with a subfolder of notebooks for each student.")
    students: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.ipynb")):
        place = path.relative_to(folder)
        if not any(part.startswith(".") for part in place.parts):  # such as .ipynb_checkpoints
            students.setdefault(place.parts[0].removesuffix(".ipynb"), []).append(path)
    if not students:
        raise UserError(f"{folder} has no notebooks; expected one subfolder of .ipynb files for each student.")
    return students


def grade(student: str, path: Path, profile: str, out: Path) -> Grade:
    """Run one submitted notebook to its end, whatever fails on the way, and compare its checks with the original's."""
    try:
        submitted = _read(path)
        original = _original_of(path, submitted)
        executed = _execute(path, profile, out)
        return Grade(student, original.stem, _results(nbformat.read(original, as_version=4), executed))
    except UserError as error:
        return Grade(student, path.name, error=f"could not be graded: {error}")
    except Exception as error:  # a submission may be broken in any way, and the others are still to be graded
        reason = str(error).strip().splitlines() or [""]
        return Grade(student, path.name, error=f"could not be graded ({type(error).__name__}: {reason[0][:100]})")


def _read(path: Path):
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever a broken file leads it to, with the file's text in it
        raise UserError("the file is no whole notebook (empty or cut off?); ask for it again") from error


def _original_of(path: Path, submitted) -> Path:
    """The notebook that a submission was made from, by its file name or by the number in its title."""
    title = next((cell.source for cell in submitted.cells if cell.source.startswith("# ")), "")
    for original in runner.find():
        if original.stem in path.stem or title.startswith(f"# {original.stem[:2]} ·"):
            return original
    raise UserError("neither its name nor its title is that of a notebook of this project")


def _execute(path: Path, profile: str, out: Path):
    import papermill

    out.mkdir(parents=True, exist_ok=True)
    copy = out / path.name
    runner.set_kernel_environment()
    # raised at the end for cells that failed; all cells have been run by then
    with suppress(papermill.PapermillExecutionError):
        papermill.execute_notebook(
            path,
            copy,
            {"profile": profile},
            cwd=out,
            progress_bar=False,
            kernel_name="python3",  # a submission may name the kernel of another machine
            language="python",
            allow_errors=True,
            execution_timeout=CELL_SECONDS,
            interrupt_on_timeout=True,
            extra_arguments=["--log-level=ERROR"],
        )
    return nbformat.read(copy, as_version=4)


def _results(original, executed) -> dict[int, str]:
    """What each check of the original printed in the executed submission. A changed check does not count."""
    printed = {cell.source.strip(): _text(cell) for cell in executed.cells if cell.cell_type == "code"}
    return dict(_result(number, cell.source.strip(), printed) for number, cell in _checks(original))


def _result(number: int, check: str, printed: dict[str, str]) -> tuple[int, str]:
    if check not in printed:
        return number, CHANGED
    verdict = verdicts(printed[check]).get(number)
    return number, {True: RIGHT, False: WRONG, None: UNTRIED}[verdict]


def _checks(original) -> Iterator[tuple[int, object]]:
    cells = [cell for cell in original.cells if "check" in cell.metadata.get("tags", [])]
    return enumerate(cells, start=1)


def _text(cell) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)
