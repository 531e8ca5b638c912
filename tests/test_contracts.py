"""Each contract of the core, by something added to it: a policy, an objective, a method, a
combination; and what the pages say about adding one thing, done in files."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from transformers import TrainerCallback

import mtlib
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.objectives import MaskTuning
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from tests.conftest import (
    GROWING,
    NO_DROPOUT,
    ROOT,
    call,
    code_blocks,
    config,
    conllu,
    examples,
    make_plm,
    read,
    tiny_bert_config,
    train,
    write_testbed,
)
from tests.tutorial import test_form
from tests.tutorial.conftest import tagged
from tests.weighed import WEIGHED, WeightedFineTuning, weighted


@pytest.fixture
def weighed(monkeypatch):
    monkeypatch.setitem(METHODS, "weighed", WEIGHED)


@pytest.mark.parametrize(("own", "moved"), [(None, 1e-2), (1e-4, 1e-4)])
def test_an_objectives_column_reaches_it_and_its_parameter_has_the_classifiers_rate_or_its_own(
    tmp_path, own, moved
):
    """Adam's first step has the size of the rate."""
    objective = WeightedFineTuning(own)
    settings = {"max_steps": 1, "lr_scheduler_type": "constant", "classifier_learning_rate": 1e-2}
    train(tmp_path, objective, data=weighted(examples(48)), **settings)
    assert abs(objective.gate.item() - 1) == pytest.approx(moved, rel=0.02)


class TestCombination:
    @pytest.mark.parametrize("update", ["joint", "alternating", "balanced"])
    def test_mask_tuning_takes_any_classification_objective(self, tmp_path, update):
        objective = MaskTuning(0.5, classification=WeightedFineTuning())
        trainer = train(tmp_path, objective, data=weighted(examples(48)), update=update)
        assert objective.classification.gate.item() != 1
        entry = trainer.state.log_history[0]
        assert {"mlm_loss", "ft_loss", "gate", "share_changed"} <= entry.keys()

    @pytest.mark.parametrize("masking", ["exact", 0.05])
    def test_what_is_no_policy_is_refused(self, masking):
        for objective in (MaskTuning, mtlib.MaskedLM):
            with pytest.raises(
                UserError, match=rf"masking is {masking!r}; expected an instance of MaskingPolicy"
            ):
                objective(masking=masking)

    @pytest.mark.parametrize("other", [mtlib.MaskedLM, MaskTuning, lambda: "product_of_experts"])
    def test_what_does_not_classify_is_refused(self, other):
        with pytest.raises(
            UserError,
            match=r"classification is .*; expected an (objective that classifies|instance)",
        ):
            MaskTuning(classification=other())


class TestMethod:
    def test_it_trains_and_is_recorded(self, weighed, testbed, model, tmp_path):
        chosen = config(model, method="weighed", mask_rate=0.4)
        path, _ = run(chosen, tmp_path)
        record = read_records([path])[0]
        assert record["config"]["method"] == "weighed" and record["config"]["mask_rate"] == 0.4
        teacher, student = record["cost"]["stages"]
        assert (teacher["name"], student["name"], student["doubled"]) == (
            "teacher",
            "mask_tuning",
            32,
        )
        assert {"gate", "mlm_loss"} <= record["history"][-1].keys()
        with pytest.raises(UserError, match=r"alpha is 0\.3, but weighed does not read it"):
            config(model, method="weighed", alpha=0.3)

    def test_start_pretrained_begins_anew(self, weighed, testbed, model, tmp_path):
        class Starts(TrainerCallback):
            def __init__(self):
                self.weights = []

            def on_train_begin(self, args, state, control, model, **kwargs):
                self.weights.append(model.trunk.embeddings.word_embeddings.weight.detach().clone())

        for warm in (False, True):
            starts = Starts()
            run(config(model, method="weighed", warm=warm), tmp_path, callbacks=[starts])
            assert torch.equal(*starts.weights) == warm


# `run` once for each list of options, with the method of this file in the table
EVERY_RUN = """
import gc, json, sys
from mtlib.cli import app
from mtlib.methods import METHODS
from tests.weighed import WEIGHED
import mtlib.runs.run
METHODS["weighed"] = WEIGHED
gc.freeze()  # as in conftest.py
for options in json.loads(sys.argv[1]):
    app(options, standalone_mode=False)
"""
TWO = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0", "--standalone"]


def write_still_model(folder: Path) -> Path:
    """A model without dropout."""
    plm = make_plm(tiny_bert_config(**NO_DROPOUT))
    plm.mlm.save_pretrained(folder)
    plm.tokenizer.save_pretrained(folder)
    return folder


def write_texts_of_several_lengths(folder: Path) -> Path:
    """A testbed whose batches two processes pad differently."""
    source = write_testbed(folder)
    train = source / "testbed_sentiment_train.jsonl"
    lines = train.read_text().splitlines(keepends=True)
    longer = [line.replace(" is ", " is" + i % 5 * " very" + " ") for i, line in enumerate(lines)]
    train.write_text("".join(longer))
    return source


def test_two_processes_train_as_one(weighed, tmp_path):
    """The same global batches, cut over two gloo processes.

    Without dropout, and with masks that are not drawn. A method with a column and a parameter in
    Mask-tuning, one with two denominators, and the balanced update with accumulation. The trees
    have 1 to 16 words, so that the processes count different numbers of words.
    """
    whole = "mask_tuning --mask-rate 1.0"
    methods = ["weighed --mask-rate 1.0", "learned_mixin"]
    methods += [f"{whole} --update balanced --classification reweight --accumulation 2"]
    methods += [f"ipt --treebank {tmp_path} --parsing-steps 4"]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.conllu").write_text(conllu(GROWING))
    common = ["run", "--task", "sentiment", "--max-length", "64", "--epochs", "1"]
    common += ["--learning-rate", "3e-3", "--precision", "float32", "--sets", "testbed_sentiment"]
    common += ["--model", str(write_still_model(tmp_path / "still-bert"))]
    common += ["--source", str(write_texts_of_several_lengths(tmp_path / "testbed"))]
    runs = [[*common, "--method", *method.split()] for method in methods]
    for options in runs:
        call(*options, "--out", tmp_path / "one")

    script = tmp_path / "train.py"
    script.write_text(EVERY_RUN)
    in_two = json.dumps([[*options, "--out", str(tmp_path / "two")] for options in runs])
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *TWO, script, in_two]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written: ") == len(methods), "of several processes, one reports"
    one, two = (read_records([tmp_path / out]) for out in ("one", "two"))
    assert len(one) == len(two) == len(methods)
    compared = {"loss", "grad_norm", "mlm_loss", "ft_loss", "n_masked", "gate", "bias_loss"}
    for alone, shared in zip(one, two, strict=True):
        first, first_of_two = alone["cost"]["stages"][0], shared["cost"]["stages"][0]
        assert len(alone["history"]) == 4 * len(alone["cost"]["stages"])
        assert first.get("dev_uas") == first_of_two.get("dev_uas")
        for ours, theirs in zip(alone["history"], shared["history"], strict=True):
            for name in compared & ours.keys():
                assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.fixture
def copied(tmp_path) -> Path:
    """A copy of the package, to add files to; of `data` its comparisons, the rest is linked."""
    root = tmp_path / "copy"
    shutil.copytree(ROOT / "mtlib", root / "mtlib")
    shutil.copytree(ROOT / "data" / "comparisons", root / "data" / "comparisons")
    for path in (ROOT / "data").iterdir():
        if path.name != "comparisons":
            (root / "data" / path.name).symlink_to(path)
    return root


def printed_line(beginning: str) -> str:
    """What the page prints in an indented block, less the indentation of the block."""
    (line,) = re.findall(rf"^ {{4}}( *{beginning}.*\n)", read("mtlib/README.md"), flags=re.M)
    return line


def insert(file: Path, text: str, before: str) -> None:
    """Put a printed line where the page says."""
    content = file.read_text(encoding="utf-8")
    assert content.count(before) == 1
    file.write_text(content.replace(before, text + before), encoding="utf-8")


# several commands in one process, which loads torch once
COMMANDS = """
import gc, json, sys
from mtlib import __file__ as package
from mtlib.cli import app
print(package)
for command in json.loads(sys.argv[1]):
    try:
        app(command, standalone_mode=False)
    except SystemExit as stop:
        assert not stop.code, command
    gc.freeze()  # what it has imported, as in conftest.py
"""


def run_commands(root: Path, *commands: list) -> str:
    """What `python -m mtlib ...` prints with the copied package, in the copy's folder."""
    texts = json.dumps([[str(word) for word in command] for command in commands])
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root), "COLUMNS": "200"}
    command = [sys.executable, "-c", COMMANDS, texts]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(root) in done.stdout, "the copied package was imported"
    return done.stdout


def add_a_method_a_policy_and_a_comparison(root: Path) -> None:
    focal, settings, policy = code_blocks("mtlib/README.md", "python")[2:]
    methods = root / "mtlib" / "methods"
    (methods / "focal.py").write_text(focal)
    with open(methods / "settings.py", "a") as file:
        file.write(f"\n\n{settings}")
    insert(methods / "__init__.py", "    FocalSettings,\n", before="    SharedTrunkSettings,\n)\n")
    insert(methods / "__init__.py", printed_line(r"Method\("), before="    )\n}\n")
    policies = root / "mtlib" / "policies"
    (policies / "rarest.py").write_text(policy)
    line = printed_line(r'"rarest": NamedPolicy\(')
    insert(policies / "__init__.py", line, before="}\nif TYPE_CHECKING:\n    Masking = ")
    comparison = code_blocks("mtlib/README.md", "yaml")[0]
    (root / "data" / "comparisons" / "mine.yaml").write_text(comparison)


def add_a_data_set(root: Path) -> None:
    entry, of_task = code_blocks("data/README.md", "yaml")
    with open(root / "mtlib" / "data" / "registry.yaml", "a") as file:
        file.write(f"\n{entry}")
    tasks = root / "mtlib" / "data" / "tasks.yaml"
    (before,) = (line for line in tasks.read_text().splitlines() if "sst2_train" in line)
    tasks.write_text(tasks.read_text().replace(f"{before}\n", of_task))


def write_releases(folder: Path) -> Path:
    (folder / "shop").mkdir(parents=True)
    reviews = 'review,stars\n"the plot, the ""film""",good\nthe film is bad,bad\n'
    (folder / "shop" / "reviews.csv").write_text(reviews)
    (folder / "SST-2").mkdir()
    rows = [f"the film is {word}\t{label}\n" for word, label in (("good", 1), ("bad", 0))]
    (folder / "SST-2" / "train.tsv").write_text("sentence\tlabel\n" + "".join(rows * 8))
    return folder


def test_a_method_a_policy_a_comparison_and_a_set_are_added_as_the_pages_say(
    copied, model, tmp_path
):
    add_a_method_a_policy_and_a_comparison(copied)
    add_a_data_set(copied)
    releases = write_releases(tmp_path / "releases")
    common = ["run", "--task", "sentiment", "--model", model, "--max-length", 64, "--epochs", 1]
    ours = [*common, "--source", write_testbed(tmp_path / "testbed"), "--sets", "testbed_sentiment"]
    theirs = [*common, "--source", releases, "--sets", "shop_reviews", "--out", "shop"]
    text = run_commands(
        copied,
        [*ours, "--method", "focal", "--gamma", 3],
        [*ours, "--method", "mask_tuning", "--masking", "rarest", "--alpha", 0.3],
        [*ours, "--method", "mask_tuning", "--alpha", 0.1],
        [*ours, "--method", "fine_tuning"],
        ["tables", "alpha_of_mine"],
        ["tables", "--records", "runs"],
        ["data", "verify", "--source", releases],
        [*theirs, "--method", "fine_tuning"],
    )
    records = [json.loads(path.read_text()) for path in (copied / "runs").glob("*.json")]
    configs = [record["config"] for record in records]
    assert [config["gamma"] for config in configs if config["method"] == "focal"] == [3]
    assert [config["alpha"] for config in configs if config["masking"] == "rarest"] == [0.3]
    assert "ok              2 shop/reviews.csv" in text
    text = " ".join(text.split())
    assert "my runs with a small alpha" in text
    assert "masking rarest, alpha 0.3" in text
    (record,) = (json.loads(path.read_text()) for path in (copied / "shop").glob("*.json"))
    assert record["metrics"]["shop_reviews"]["n"] == 2
    assert record["data"]["shop_reviews"]["files"][0]["path"] == "shop/reviews.csv"


@pytest.mark.parametrize(
    ("printed", "changed", "message"),
    [
        ("  licence: all rights reserved\n", "", "licence is missing; give it."),
        ("label: stars, ", "", "columns.label is missing; give it."),
        ("format: csv ", "format: xls ", "format is 'xls'; expected 'csv', 'tsv'"),
        ("when_gone", "when_gonne", "did you mean 'when_gone'?"),
        (
            "labels: [bad, good]",
            "labels: [bad]",
            "labels are bad, and label_names has negative, pos",
        ),
    ],
)
def test_a_wrong_entry_of_a_data_set_is_told_by_file_entry_and_field(
    tmp_path, monkeypatch, printed, changed, message
):
    from mtlib.data import registry

    entry = code_blocks("data/README.md", "yaml")[0]
    assert entry.count(printed) == 1
    (tmp_path / "registry.yaml").write_text(entry.replace(printed, changed))
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    with pytest.raises(UserError, match=r"^registry\.yaml, entry 'shop_reviews': ") as error:
        registry.read_entries("registry.yaml", registry.DataSet)
    assert message in str(error.value)


def test_the_names_of_the_readme_are_there():
    """That they load lazily is in tests/test_requirements.py."""
    for name in mtlib.__all__:
        assert getattr(mtlib, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Sharedplm'"):
        _ = mtlib.Sharedplm


def test_a_run_that_diverges_is_recorded_as_such(testbed, model, tmp_path):
    path, _ = run(config(model, method="fine_tuning", learning_rate=1e30, epochs=8), tmp_path)
    record = json.loads(path.read_text())
    assert record["diverged"] is True and record["metrics"] == {}
    assert record["history"][-1]["loss"] is None and "NaN" not in path.read_text()
    assert record["cost"]["steps"] < 32, "stopped where the loss was no longer finite"
    assert (
        record["cost"]["examples_seen"] == record["cost"]["steps"] * record["config"]["batch_size"]
    )
    assert run(config(model, method="fine_tuning", learning_rate=1e30, epochs=8), tmp_path) == (
        path,
        True,
    )


# the cells of a notebook that keeps the rules of notebooks/README.md: tags, then code
HIDDEN = {"jupyter": {"source_hidden": True}, "cellView": "form"}
ADDED = [
    ("parameters", 'profile: str = "cpu"  # how much\nnumber: int = 3  # to double'),
    ("", "from matplotlib.figure import Figure\n"
         "from mtlib.analysis.figures.style import show\n"
         "from mtlib.tutorial.exercises import check, confirm, folded\n"
         "figure = Figure()\nfigure.subplots().plot([1, 2, number])\n"
         'show(figure, "a line through three points that rises")'),
    ("exercise", "twice = ..."),
    ("check", 'check(1, "twice", 2 * number)'),
    ("solution", "with folded():\n    print(number + number)\n"
                 "confirm(1, right=2 * number, wrong=number)"),
    ("expected", "from mtlib.tutorial.expected import expect\n"
                 'expect(profile, {"twice": (number + number, 6, 6)})'),
]  # fmt: skip


def write_notebook(folder: Path) -> None:
    first = nbformat.read(folder / "01_data.ipynb", as_version=4)
    (install,) = tagged(first, "install")
    opening = (
        "# 09 · Added\n\n**Answer** 6 is twice 3, as [they](https://arxiv.org/abs/2307.10457)."
    )
    cells = [new_markdown_cell(opening), install]
    for tag, code in ADDED:
        metadata = {"tags": [tag]} if tag else {}
        if tag in ("check", "solution", "expected"):
            metadata |= HIDDEN
        if tag == "exercise":
            cells.append(new_markdown_cell("**Exercise 1** (easy, 5 minutes). " + 600 * "Double "))
        cells.append(new_code_cell(code, metadata=metadata))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    added = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(added, folder / "09_added.ipynb")


def test_a_notebook_is_added_as_the_page_says(copied):
    """Written by its rules, published by its command, then held to what the page names."""
    (copied / "notebooks").mkdir()
    for name in ("01_data.ipynb", "address.py", "publish.py"):
        shutil.copy(ROOT / "notebooks" / name, copied / "notebooks")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copied)
    write_notebook(copied / "notebooks")
    page = read("notebooks/README.md")
    (run, publish) = re.findall(r"`python -m (mtlib notebooks NN|notebooks.publish NN)`", page)
    run_commands(copied, run.replace("NN", "09").split()[1:])
    environment = os.environ | {"PYTHONPATH": str(copied)}
    command = [sys.executable, "-m", *publish.replace("NN", "09").split()]
    subprocess.run(command, env=environment, cwd=copied, check=True)

    assert "`tests/tutorial/test_form.py` checks most of these rules" in page
    path = copied / "notebooks" / "09_added.ipynb"
    added = {"path": path, "notebook": nbformat.read(path, as_version=4)}
    rules = [rule for name, rule in vars(test_form).items() if name.startswith("test_")]
    assert len(rules) >= 10
    for rule in rules:
        rule(**{name: added[name] for name in inspect.signature(rule).parameters})
