"""The form that all notebooks share: first screen, path, exercises, closing box; and the words that we avoid."""

import re

import nbformat
import pytest

from mtlib.paths import NOTEBOOK_DIR
from mtlib.tutorial.exercises import verdicts
from mtlib.tutorial.runner import find

FIRST_SCREEN = ("**Question**", "**Answer**", "**You need**", "**Afterwards you can**", "**Time**")
CLOSING = ("**What to take away**", "**What this does not show**")
STATEMENT = re.compile(r"\*\*Exercise (\d+)\*\* \((easy|medium|hard), \d+ minutes?\)\.")
# our own words for what the field says otherwise: "not significantly better than", "fails to train", "bit-identical"
UNWANTED = ("can be told to", "told from", "begun to learn", "to the last bit")
# what the plan calls "does not hold here"; only pages with the plan's own verdicts say it
OF_THE_PLAN = "contradicted"
PAGES_OF_THE_PLAN = ("data/results/PLAN.md", "data/results/STUDY.md")
AMERICAN = re.compile(
    r"\b(?:\w*(?:color|behavior|favor(?!ite)|labeled|labeling|modeled|modeling|analyz|optimiz|generaliz|normaliz|minimiz"
    r"|maximiz|summariz|recogniz|initializ)\w*|center|gray)\b",
    flags=re.I,
)
ROOT = NOTEBOOK_DIR.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (
        *(ROOT / folder / "README.md" for folder in ("", "notebooks", "mtlib")),
        *ROOT.glob("data/**/README.md"),
        *(page for page in ROOT.glob("data/results/*.md") if page.name != "README.md"),
    )
)


def faults(text: str) -> list[str]:
    """Unwanted phrases and American spellings in prose; code and addresses are not prose."""
    text = " ".join(text.split())
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text)
    return [phrase for phrase in UNWANTED if phrase in text.lower()] + AMERICAN.findall(prose)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def statements(notebook) -> list[tuple[int, int]]:
    """`(place of the cell, number of the exercise)`."""
    return [
        (place, int(match[1]))
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown"
        for match in STATEMENT.finditer(cell.source)
    ]


def optional_from(notebook) -> int:
    """Where the optional section begins; the number of cells if there is none."""
    headings = (
        place
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown" and re.match(r"## .*\(optional\)", cell.source)
    )
    return next(headings, len(notebook.cells))


@pytest.fixture(params=find(), ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def test_first_screen(path, notebook):
    opening = notebook.cells[0]
    assert opening.cell_type == "markdown" and opening.source.startswith(f"# {path.stem[:2]} · ")
    places = [opening.source.find(part) for part in FIRST_SCREEN]
    assert -1 not in places and places == sorted(places), "all parts, in this order"
    parts = dict(zip(FIRST_SCREEN, re.split("|".join(map(re.escape, FIRST_SCREEN)), opening.source)[1:], strict=True))
    assert re.search(r"\d", parts["**Answer**"]), "an answer has numbers"
    assert len(re.findall(r"^- ", parts["**Afterwards you can**"], flags=re.M)) >= 2, "goals stand in a list"
    assert re.search(r"\d+ minutes? to read.*minutes? to run", parts["**Time**"], flags=re.S)
    assert "https://arxiv.org/abs/2307.10457" in opening.source


def test_minutes_in_the_teachers_guide(path, notebook):
    guide = (NOTEBOOK_DIR / "README.md").read_text(encoding="utf-8")
    minutes = re.search(r"(\d+) minutes? to read", notebook.cells[0].source)[1]
    assert re.search(rf"^\| \[{path.stem}\]\({path.name}\) \| .* \| {minutes} \|", guide, flags=re.M)


def test_length_of_the_path(notebook):
    path = notebook.cells[: optional_from(notebook)]
    assert sum(not {"exercise", "check", "solution"} & {*tags(cell)} for cell in path) <= 30


def test_sections_are_numbered(notebook):
    markdown = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    numbers = [int(number) for number in re.findall(r"^## (\d+)", markdown, flags=re.M)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 2


def test_closing_box(notebook):
    box = notebook.cells[optional_from(notebook) - 1]
    assert box.cell_type == "markdown" and all(part in box.source for part in CLOSING)


def test_exercises(notebook):
    found = statements(notebook)
    assert [number for _, number in found] == list(range(1, len(found) + 1)) and found
    for kind in ("exercise", "check", "solution"):
        assert sum(kind in tags(cell) for cell in notebook.cells) == len(found)
    for place, number in found:
        work, check, solution = notebook.cells[place + 1 : place + 4]
        lines = [line for line in work.source.splitlines() if line.strip() and not line.startswith("#")]
        assert tags(work) == ["exercise"] and lines, "an empty cell to work in"
        assert re.fullmatch(r"\w+ = \.\.\.( +# .*)?", lines[-1]), work.source
        for cell, title in ((check, "Check"), (solution, "Solution")):  # both hold the answer
            assert cell.source.startswith(f"# @title {title}")
            assert cell.metadata.jupyter.source_hidden is True and cell.metadata.cellView == "form"
        assert tags(check) == ["check"] and f'check({number}, "{lines[-1].split()[0]}"' in re.sub(
            r"\(\n\s+", "(", check.source.replace(",\n    ", ", ")
        )
        assert tags(solution) == ["solution"]
        assert "with folded(" in solution.source and f"confirm({number}," in solution.source


def test_questions_have_folded_answers(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "**To think about**" in cell.source:
            questions, _, answers = cell.source.partition("<details>")
            assert "<summary>Answers</summary>" in answers and "</details>" in answers, cell.source[:80]
            assert len(re.findall(r"^\d\. ", questions, flags=re.M)) == len(re.findall(r"^\d\. ", answers, flags=re.M))


def test_stored_outputs_are_those_of_an_untouched_notebook(notebook):
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        assert not any(output.output_type == "error" for output in outputs)
        if "check" in tags(cell):
            assert not verdicts("".join(output.get("text", "") for output in outputs)), "somebody's answers"
        if "solution" in tags(cell):
            for output in outputs:
                assert output.data["text/html"].startswith("<details>"), "a solution's output is folded"


def test_phrases(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert not faults(cell.source) and OF_THE_PLAN not in cell.source, cell.source


@pytest.mark.parametrize("page", PAGES)
def test_phrases_of_the_pages(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not faults(text)
    assert OF_THE_PLAN not in text or page in PAGES_OF_THE_PLAN


def test_faults_are_found():
    assert faults("No arm can be told\nto beat it, and the colors `color` stay.") == ["can be told to", "colors"]
    assert not faults("Cohen's `analyze`, colours, [a colour](color.md), confidence regularization")
