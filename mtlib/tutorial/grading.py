"""Grade submitted notebooks: run each one and read which of its exercise checks pass."""

from collections.abc import Callable
from contextlib import suppress
from itertools import starmap
from pathlib import Path

import nbformat
import pandas
from papermill import PapermillExecutionError

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.tutorial import runner
from mtlib.tutorial.exercises import verdicts
from mtlib.tutorial.kernel import execute

RIGHT, WRONG, UNTRIED, CHANGED = "right", "wrong", "not tried", "check changed"
CELL_SECONDS = 600  # then a cell is interrupted, and the next one runs


def grade_folder(folder: Path, profile: str, out: Path, report: Callable[[str], None]) -> None:
    """Grade every student's notebooks, and report a line for each student as soon as it is known.

    Args:
        folder: one subfolder of notebooks for each student, or one notebook each, named after the student.
        out: for executed copies, a folder per student, and `grades.csv`.

    Raises:
        UserError: there is no notebook in `folder`. A broken notebook is no error; its line says what is wrong.
    """
    students = submissions(folder)
    make_writable(out)
    lines = []
    for student, paths in students.items():
        graded = [grade(path, profile, out / student) for path in paths]
        report(f"{student}: {'; '.join(starmap(_sentence, graded))}")
        lines += [(student, name, number, word) for name, words in graded for number, word in words.items()]
    grades = pandas.DataFrame(lines, columns=["student", "notebook", "exercise", "result"])
    grades.astype({"exercise": "Int64"}).to_csv(out / "grades.csv", index=False)


def submissions(folder: Path) -> dict[str, list[Path]]:
    """Notebooks by student: those of a subfolder together, those in `folder` itself each by its name."""
    students: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.ipynb")):
        place = path.relative_to(folder)
        if not any(part.startswith(".") for part in place.parts):  # such as .ipynb_checkpoints
            students.setdefault(place.parts[0].removesuffix(".ipynb"), []).append(path)
    if not students:
        raise UserError(f"{folder} has no notebooks; expected one subfolder of .ipynb files for each student.")
    return students


def grade(path: Path, profile: str, out: Path) -> tuple[str, dict[int | None, str]]:
    """The original's name and a word by number of exercise; or the file's name, and by None why there is no grade."""
    try:
        original = _original_of(path)
        out.mkdir(parents=True, exist_ok=True)
        # raised at the end for cells that failed; all cells have been run by then
        with suppress(PapermillExecutionError):
            options = {"allow_errors": True, "execution_timeout": CELL_SECONDS, "interrupt_on_timeout": True}
            execute(path, out / path.name, {"profile": profile}, **options)
        executed = nbformat.read(out / path.name, as_version=4)
        return original.stem, _results(nbformat.read(original, as_version=4), executed)
    except Exception as error:  # a submission may be broken in any way, and the others are still to be graded
        told = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"
        return path.name, {None: f"could not be graded: {told}"}


def _sentence(name: str, words: dict[int | None, str]) -> str:
    if None in words:
        return f"{name}: {words[None]}"
    each = ", ".join(f"{number} {word}" for number, word in words.items())
    return f"{name} {[*words.values()].count(RIGHT)} of {len(words)} right ({each})"


def _original_of(path: Path) -> Path:
    """The notebook that a submission was made from, by its file name or by the number in its title."""
    cells = nbformat.read(path, as_version=4).cells
    title = next((cell.source for cell in cells if cell.source.startswith("# ")), "")
    for original in runner.find():
        if original.stem in path.stem or title.startswith(f"# {original.stem[:2]} ·"):
            return original
    raise LookupError("neither its name nor its title is that of a notebook of this project")


def _results(original, executed) -> dict[int, str]:
    """What each check of the original printed in the executed submission. A changed check does not count."""
    printed = {cell.source.strip(): "".join(output.get("text", "") for output in cell.get("outputs", []))
               for cell in executed.cells}  # fmt: skip
    checks = [cell.source.strip() for cell in original.cells if "check" in runner.tags_of(cell)]
    words = {True: RIGHT, False: WRONG, None: UNTRIED}
    return {number: words[verdicts(printed[check]).get(number)] if check in printed else CHANGED
            for number, check in enumerate(checks, start=1)}  # fmt: skip
