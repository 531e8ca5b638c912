"""The pages: short, linked, and what they print as code runs as printed."""

import re
from pathlib import Path

import pytest
import yaml
from typer.core import TyperCommand

from mtlib.analysis.comparisons import Comparison
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.sweeps.sweep_file import expand
from tests.conftest import ROOT, code_blocks, commands, make_batch, read

PAGES = [
    *ROOT.glob("README.md"),
    *(
        page
        for folder in ("mtlib", "data", "notebooks")
        for page in (ROOT / folder).rglob("*.md")
        if page.parent.name != ".ipynb_checkpoints"  # Jupyter's copies
    ),
]
MOST_WORDS = {
    "README.md": 900,
    "mtlib/README.md": 1800,
    "notebooks/README.md": 2000,
    "data/results/REPORT.md": 3560,
}

# what follows the program's name
COMMAND = r"(?:^ {4}|`)(?:python -m )?mtlib ((?:data )?[a-z]+(?: [^`#\n]*)?)(?:`|#|$)"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", read(page), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in MOST_WORDS if (ROOT / page).exists()])
def test_a_page_that_is_read_to_its_end(page):
    seen = re.sub(r"<!--.*?-->", "", read(page), flags=re.S)  # what tables are made of is not
    words = [word for word in seen.split() if word.strip("|-:")]  # no lines of tables
    assert len(words) <= MOST_WORDS[page]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(
        r"\]\((?!https?:)(.*?)\)", re.sub(r"```.*?```", "", read(page), flags=re.S)
    ):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def options(command: TyperCommand) -> set[str]:
    names = {"--help"}
    for parameter in command.params:
        names.update(parameter.opts, parameter.secondary_opts)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_are_there(page):
    for line in re.findall(COMMAND, read(page), flags=re.M):
        words = line.split()
        name = " ".join(words[:2]) if words[0] == "data" else words[0]
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options(
            commands()[name]
        ), line


NOT_EDITED = ROOT / "data" / "results" / "PLAN.md"  # a plan, as it was before its runs


@pytest.mark.parametrize("page", [ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.name)
def test_the_program_has_one_name(page):
    """What works everywhere: `mtlib` alone needs an environment that is active."""
    if page != NOT_EDITED:
        assert re.findall(r"(?<!-m )\bmtlib (?:-|[a-z]+ --|[a-z]+`)", read(page)) == []


def test_options_that_are_named_by_themselves_are_there():
    named = {*re.findall(r"`(--[a-z-]+)", read("mtlib/README.md"))}
    assert named and named <= set().union(*map(options, commands().values()))


# What makes the front page's example short. The second model need not learn anything: what is
# printed comes from the first.
SHORTER = {
    'out="out/before")': 'out="out/before", epochs=2)',
    'leans("out/before", data)': 'leans("out/before", data, n_rows=20)',
    "debias(data, brands,": "debias(data.select(range(0, 600, 3)), brands, epochs=1,",
    'leans("out/after", data)': 'leans("out/after", data, n_rows=4)',
}


def test_the_front_pages_example_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ((code, line),) = re.findall(
        r"```python\n(.*?)```\s+ {4}([^\n]+)", read("README.md"), flags=re.S
    )
    for printed, shorter in SHORTER.items():
        assert code.count(printed) == 1
        code = code.replace(printed, shorter)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert (tmp_path / "out" / "leans.png").exists()


def test_the_developers_code_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_data, loop, *_ = code_blocks("mtlib/README.md", "python")
    names = {}
    own_data = own_data.replace("num_train_epochs=1", "max_steps=2")
    exec(own_data.replace('reviews.csv")', 'reviews.csv").sample(100, random_state=0)'), names)
    assert any("eval_accuracy" in entry for entry in names["trainer"].state.log_history)
    exec(loop.replace("DataLoader(train,", "DataLoader(train.select(range(32)),"), names)
    assert names["output"].components.keys() >= {"mlm_loss", "ft_loss"}
    assert names["output"].loss.isfinite()


def test_the_loss_that_is_printed_is_the_focal_loss():
    names = {}
    exec(code_blocks("mtlib/README.md", "python")[2], names)
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    output = names["Focal"](gamma=3.0)(plm, make_batch(plm))
    p = output.logits.softmax(-1)[range(4), [0, 1, 0, 1]]  # (4,): of the gold labels
    assert output.loss.item() == pytest.approx(((1 - p) ** 3 * -p.log()).mean().item(), abs=1e-6)


def test_the_comparison_and_the_sweep_that_are_printed_are_read(tmp_path):
    comparison, sweep = code_blocks("mtlib/README.md", "yaml")
    ((name, entry),) = yaml.safe_load(comparison).items()
    assert Comparison(name=name, **entry).base in entry["arms"]
    (tmp_path / "sweep.yaml").write_text(sweep)
    assert len(expand(tmp_path / "sweep.yaml")) == 2 * 3 * (1 + 2)


def test_the_table_of_modules_is_whole_and_its_lines_are_about_right():
    rows = re.findall(r"^\| (`.+?) \| ([\d,]+) \|", read("mtlib/README.md"), flags=re.M)
    for modules, lines in rows:
        places = [ROOT / "mtlib" / name for name in re.findall(r"`([\w./]+)`", modules)]
        files = [
            file
            for place in places
            for file in (place.rglob("*.py") if place.is_dir() else [place])
        ]
        counted = sum(len(read(file).splitlines()) for file in files)
        assert counted == pytest.approx(int(lines.replace(",", "")), rel=0.25), modules
    named = " ".join(modules for modules, _ in rows)
    assert all(
        f"`{place.parent.name}/`" in named for place in (ROOT / "mtlib").glob("*/__init__.py")
    )
