"""The front page: short, true, and its example runs as printed."""

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import pipeline

from mtlib import ObjectiveArguments, ObjectiveTrainer
from mtlib.data import training_pairs
from mtlib.data.sources import load_described
from mtlib.paths import MINI_MODEL_DIR
from tests.data.made_up_releases import write_releases

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = (
    "README.md",
    *(f"{folder}/README.md" for folder in ("mtlib", "data", "notebooks")),
    *(f"data/results/{page.name}" for page in (ROOT / "data/results").glob("*.md")),
)


def test_a_page_that_is_read_to_its_end():
    assert len([word for word in README.split() if word.strip("|-:")]) <= 850  # the lines of tables are no words


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    targets = re.findall(r"\]\((?!https?:)(.*?)\)", text)
    for target in targets:
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        headings = re.findall(r"^#+ (.+)$", file.read_text(), flags=re.M) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings]


def test_own_data_and_a_loop_of_ones_own_run_as_printed(tmp_path, monkeypatch):
    own_data, loop, told_the_bias, policy, own_spans = (
        code.replace('"bert-base-uncased"', repr(str(MINI_MODEL_DIR)))
        for code in re.findall(r"```python\n(.*?)```", (ROOT / "mtlib/README.md").read_text(), flags=re.S)
    )
    source = str(write_releases(tmp_path, monkeypatch))
    monkeypatch.setattr(training_pairs, "load_described", lambda name, _: load_described(name, source))
    rows = ["this was a good film with a plot,positive,1", "the film has a dull plot,negative,2"] * 16
    (tmp_path / "reviews.csv").write_text("\n".join(["review,opinion,number", *rows]))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(own_data, names)
    assert names["dataset"].features["label"].names == ["negative", "positive"] and names["plm"].config.num_labels == 2
    exec(loop, names)
    assert names["output"].parts.keys() >= {"mlm_loss", "ft_loss"} and names["output"].loss.isfinite()
    exec(told_the_bias, names)
    assert {"bias_accuracy", "bias_calibration_error"} <= names["quality"].keys()
    for printed in (policy, policy.replace("frequency_rare", "supervised"), own_spans):
        exec(printed, names)
        trainer = ObjectiveTrainer(
            names["plm"], names["objective"], ObjectiveArguments("out", max_steps=1), names["examples"]
        )
        assert math.isfinite(trainer.train().training_loss)
    assert {*names["examples"].column_names} >= {"span_start", "span_end"}


def test_the_example_runs_as_printed(tmp_path):
    snippet, printed = re.search(r"```python\n(.*?)```\s+(\[.*?\])\n", README, flags=re.S).groups()
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    (wanted,), (answer,) = ast.literal_eval(printed), ast.literal_eval(done.stdout.splitlines()[-1])
    assert answer["label"] == wanted["label"] and answer["score"] == pytest.approx(wanted["score"], abs=0.1)
    classify = pipeline("text-classification", str(tmp_path / "out" / "model"), device="cpu")
    assert classify("a dull, lifeless plot")[0]["label"] == "LABEL_0"
