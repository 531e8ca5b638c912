import json
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pandas
import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from mtlib import cli
from mtlib.cli import doctor, terminal
from mtlib.data import sources
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs.config import all_settings, configure
from mtlib.runs.locks import Busy
from tests.conftest import ROOT, call, commands

EXIT_CODES = {
    0: "done",
    1: "something failed or does not fit",
    2: "bad input",
    Busy.EXIT_CODE: "try again later",
    cli.INTERRUPTED: "interrupted",
}


def test_run_then_tables(testbed, model, tmp_path):
    common = ["--task", "sentiment", "--model", model, "--out", tmp_path]
    common += ["--epochs", 1, "--max-length", 64]
    for method in ("fine_tuning", "mask_tuning"):
        output = call("run", *common, "--method", method)
        assert "written:" in output and "testbed_counterfactual" in output
    assert "nothing was trained: " in call("run", *common, "--method", "mask_tuning")
    table = call("tables", "--records", tmp_path, "--format", "markdown")
    assert "| fine_tuning | 1 |" in table and "| mask_tuning | 1 |" in table
    assert "mask_tuning" in call("tables", "--records", tmp_path)
    assert len(call("tables", "--records", tmp_path, "--format", "csv").splitlines()) == 1 + 2 * 3
    bundle = tmp_path / "bundle" / "all.jsonl.gz"
    call("bundle", tmp_path, "--to", bundle)
    assert call("tables", "--records", bundle.parent, "--format", "markdown") == table


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {}),
        ("--model x/y --seed 3 --alpha 0.0 --fill sample --separate --epochs 2.5",
         {"model": "x/y", "seed": 3, "alpha": 0.0, "fill": "sample", "shared": False,
          "epochs": 2.5}),
        ("--source hub --sets sst2 --sets imdb_cad --split imdb_cad=test --precision float32",
         {"source": "hub", "sets": ("sst2", "imdb_cad"), "splits": {"imdb_cad": "test"},
          "precision": "float32"}),
        ("--learning-rate 5e-5 --words plot --words acme",
         {"learning_rate": 5e-5, "words": ("acme", "plot")}),
    ],
)  # fmt: skip
def test_options_give_the_configuration(monkeypatch, options, settings):
    seen = []
    monkeypatch.setattr("mtlib.runs.run.run", lambda config, *_, **__: seen.append(config) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call("run", "--task", "sentiment", "--method", "mask_tuning", *options.split())
    assert seen == [configure("sentiment", "mask_tuning", **settings)]


def test_help_says_what_is_taken_by_default():
    help_text = call("run", "--help")
    assert "(0.05 or 0.15)" in help_text and "(argmax)" in help_text
    of_sweep = " ".join(call("sweep", "--help").replace("│", " ").split())
    assert "(1 where the cluster has GPUs)" in of_sweep


def test_help_of_run_leads_with_what_a_beginner_needs():
    panels = re.split(r"^╭─ (.+?) ─+╮$", call("run", "--help"), flags=re.M)[1:]
    options = [re.findall(r"^│[ *]+(--[a-z-]+)", text, flags=re.M) for text in panels[1::2]]
    assert panels[0] == "Options"
    assert options[0] == ["--task", "--method", "--model", "--source", "--out", "--help"]
    assert "--alpha" in options[panels[::2].index("Mask-tuning's losses")]


def test_every_help_has_examples():
    top = get_command(cli.app)
    without = [name for name, command in commands().items() if not command.examples]
    assert without == [] and top.examples and top.commands["data"].examples


def examples() -> list[list[str]]:
    """The words of every example that a help shows, as a shell reads them."""
    top = get_command(cli.app)
    described = [top, *commands().values(), *top.commands.values()]
    texts = {line for one in described for line in shown_lines(one)}
    return [shlex.split(text) for text in sorted(texts)]


def shown_lines(command) -> list[str]:
    return "\n".join(command.examples).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_an_example_is_read_as_it_stands_in_the_help(words, monkeypatch, tmp_path):
    """Its options are there and take their values, and files that it reads come with the project.

    `words.csv` is what the example of `suspects` writes.
    """
    (tmp_path / "data").symlink_to(DATA_DIR)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "words.csv").write_text("word,mask\n")
    monkeypatch.chdir(tmp_path)
    assert words[:3] == cli.PROGRAM.split()
    if "--help" in words:
        assert words[3] in commands()
        return
    length = 2 if words[3] == "data" else 1
    name, arguments = " ".join(words[3 : 3 + length]), words[3 + length :]
    given = commands()[name].make_context(name, [*arguments]).params
    for path in [*map(str, given.values()), *words]:
        assert not path.startswith("data/") or Path(path).exists(), path
    if name == "run":  # its settings fit one another
        configure(**{key: given[key] for key in all_settings() if given[key]})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--help"], "Usage: python -m mtlib run "),
        (["tables", "--help"], "Usage: python -m mtlib tables "),
        (["data", "fetch", "--help"], "Usage: python -m mtlib data fetch "),
    ],
)
def test_the_name_of_the_program(monkeypatch, capsys, arguments, expected):
    monkeypatch.setattr(sys, "argv", ["/somewhere/mtlib", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    assert expected in capsys.readouterr().out


def test_exit_codes_are_stated():
    for text in (call("--help"), (ROOT / "mtlib" / "README.md").read_text(encoding="utf-8")):
        words = " ".join(text.split())
        for code, meaning in EXIT_CODES.items():
            assert f"{code} {meaning}" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "run --task nli --method fine_tuning --alpha 0.3",
            "alpha is '0.3', but fine_tuning does not read it",
        ),
        ("run --task nli --method mask_tunin", "; did you mean 'mask_tuning'?"),
        (
            "run --task nli --method mask_tuning --split hans",
            "--split is 'hans'; expected NAME=VALUE",
        ),
        (
            "bench --json pyproject.toml",
            "--json is pyproject.toml, which is there already; give a new name",
        ),
        ("notebooks 03 --student x", "--student grades whatever is in a folder; leave out names"),
        ("tables claims ablations --format csv", "claims have columns of their own"),
        ("tables /no/such", "comparison is '/no/such'; expected one of"),
        ("bundle runs --to records.json", "expected a file name that ends in .jsonl.gz"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mtlib", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    errors = capsys.readouterr().err
    assert stopped.value.code == 2
    assert errors.startswith("error: ") and message in errors and "Traceback" not in errors


def test_ctrl_c_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mtlib.runs.run.run", interrupted)
    monkeypatch.setattr(
        sys, "argv", ["mtlib", "run", "--task", "sentiment", "--method", "fine_tuning"]
    )
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == cli.INTERRUPTED
    assert (
        "interrupted. What is finished is kept: the same command goes on from there"
        in capsys.readouterr().err
    )


def test_testbed_at_another_strength(tmp_path):
    settings = ["--strength", 0.5, "--seed", 1, "--train-rows", 100]
    call("testbed", *settings, "--out", tmp_path / "new")
    settings = json.loads((tmp_path / "new" / "testbed.json").read_text())
    assert (settings["strength"], settings["seed"], len(settings["sha256"])) == (0.5, 1, 12)
    assert len(sources.load("testbed_contrast", str(tmp_path / "new"))) == 1000
    with pytest.raises(UserError, match=r"is not empty: it holds .*; give a new folder"):
        call("testbed", "--out", tmp_path / "new")
    with pytest.raises(UserError, match=r"strength is 1\.5"):
        call("testbed", "--strength", 1.5, "--out", tmp_path / "other")


def test_verify_fails_on_a_corrupt_file_and_where_nothing_is(tmp_path):
    with pytest.raises(UserError, match="is no folder; expected releases"):
        call("data", "verify", "--source", tmp_path / "nowhere")
    verify = ["data", "verify", "--source", str(tmp_path)]
    result = CliRunner().invoke(cli.app, verify)
    assert result.exit_code == 1 and " missing" in result.output and "FAIL" not in result.output
    (tmp_path / "sst2" / "SST-2").mkdir(parents=True)
    (tmp_path / "sst2" / "SST-2" / "dev.tsv").write_text("sentence\tlabel\ngood\t1\n")
    result = CliRunner().invoke(cli.app, verify)
    assert result.exit_code == 1
    assert "FAIL" in result.output
    assert "sst2/SST-2/dev.tsv" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["testbed", "--out"],
        ["bundle", DATA_DIR / "results" / "sst2_grid.jsonl.gz", "--to"],
        ["bench", "--json"],
        ["suspects", "none.csv", "--text", "t", "--label", "l", "--out"],
        ["train", "none.csv", "--text", "t", "--label", "l", "--out"],
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path, arguments):
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / {"--to": "a.jsonl.gz", "--json": "a.json"}.get(arguments[-1], "a")
    with pytest.raises(UserError, match="cannot write to"):
        call(*arguments, place)


def test_brackets_in_a_path_are_no_markup(tmp_path):
    place = tmp_path / "x[old].jsonl.gz"
    result = CliRunner().invoke(
        cli.app, ["bundle", str(DATA_DIR / "results" / "sst2_grid.jsonl.gz"), "--to", str(place)]
    )
    assert place.exists() and f"records: {place}" in result.output.replace("\n", "")


@pytest.mark.parametrize("problems", [[], ["mtlib needs x>=2, but x 1 is installed."]])
def test_the_doctor_names_versions_then_what_does_not_fit(monkeypatch, problems):
    monkeypatch.setattr(doctor, "misfits", lambda: problems)
    result = CliRunner().invoke(cli.app, ["doctor"])
    lines = result.output.splitlines()
    assert result.exit_code == len(problems)
    names = "mtlib commit Python torch transformers datasets OS processor threads GPU"
    assert [line.partition(":")[0] for line in lines[:10]] == names.split()
    assert lines[3] == f"torch: {metadata.version('torch')}"
    assert (lines[10] == "All packages fit.") == (not problems)
    assert problems == [x for x in problems if x in lines]


@pytest.mark.parametrize(("width", "columns"), [(47, "word kind text"), (46, "word text")])
def test_a_table_fits_the_terminal_with_a_line_for_each_row(width, columns, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(width=width))
    rows = {"word": ["disappointing"], "kind": ["word"], "text": ["a" * 50]}
    shown = terminal.that_fits(pandas.DataFrame(rows), texts=["text"], optional=["kind"])
    assert [*shown] == columns.split()
    room = 20 if "kind" in shown else 26
    assert shown["text"].tolist() == ["a" * (room - 1) + "…"]


@pytest.mark.parametrize(
    ("width", "first", "last"),
    [
        (43, "arm ┃ accuracy ┃ interval ┃ consistency", "b │ 2 │ 2 │ 2"),
        (42, "arm ┃ a ┃ b", "consistency │ 1 │ 2"),
        (22, "arm a", "consistency 2"),
    ],
)
def test_a_table_too_wide_for_the_terminal_stands_on_its_side(width, first, last, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(width=width, record=True))
    columns = ["arm", "accuracy", "interval", "consistency"]
    terminal.print_table("t", columns, [["a", 1, 1, 1], ["b", 2, 2, 2]])
    printed = terminal.console.export_text()
    lines = [" ".join(line.split()).strip("┃│ ") for line in printed.splitlines()]
    lines = [line for line in lines if re.search("[a-z0-9]", line)]
    assert (lines[1], lines[-1]) == (first, last)


def test_no_control_character_of_a_text_reaches_the_terminal(capsys):
    terminal.print_line("\x1b[2Jfilm\u202e\x9b1m\nplot")
    terminal.print_table("words\x1b", ["word"], [["a\x1b]0;x\x07b\nc"], [None]])
    printed = capsys.readouterr().out
    assert not set(printed) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert r"\x1b[2Jfilm\u202e\x9b1m" in printed and r"a\x1b]0;x\x07b\nc" in printed
