"""What users meet when models and data come from the hub, against a server on localhost that stands
in for it.

Each test starts `mtlib` in a process of its own, with HF_ENDPOINT and MTLIB_RAW_ENDPOINT set to the
stand-in.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs.records import read_records
from tests.hub.made_up import MODELS, ROWS, write_hub
from tests.hub.stand_in import GATED, GONE, commit_of, serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def hub(folder):
    with serving(folder) as hub:
        yield hub


@pytest.fixture
def start(hub, tmp_path):
    """Start `python ...` as a client of the stand-in, with a cache of this test's own."""

    def start(*arguments: str, **environment: str) -> subprocess.Popen:
        ours = {
            "HF_ENDPOINT": hub.address,
            "MTLIB_RAW_ENDPOINT": hub.address,
            "MTLIB_TEST_HUB": str(hub.root),
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "site"), str(ROOT)]),
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.Popen(command, cwd=tmp_path, env=os.environ | ours | environment, **pipes)

    return start


@pytest.fixture
def fetch(start):
    """`mtlib data fetch`: its exit code, and what it printed, in one line."""

    def fetch(*names: str) -> tuple[int, str]:
        process = start("-m", "mtlib", "data", "fetch", *names)
        text, _ = process.communicate()
        return process.returncode, " ".join(text.split())

    return fetch


TRAIN = """
import sys
from pathlib import Path
from mtlib.runs.config import configure
from mtlib.runs.run import run

models = {"bert-base-uncased": "sentiment", "roberta-base": "nli", "facebook/bart-base": "nli"}
for model, task in models.items():
    settings = {"seed": int(sys.argv[1]), "train_size": 16, "epochs": 1}
    config = configure(task, "mask_tuning", source="hub", model=model, **settings)
    run(config, Path("runs"))
"""


def test_models_and_sets_train_and_then_need_no_network(hub, start, tmp_path):
    text, _ = start("-c", TRAIN, "0").communicate()
    records = {record["config"]["model"]: record for record in read_records([tmp_path / "runs"])}
    assert records.keys() == MODELS.keys(), text
    sets = {"sst2", "imdb_contrast", "imdb_cad"}
    for model, record in records.items():
        assert {name for name in record["metrics"] if " " not in name} >= (
            sets
            if model == "bert-base-uncased"
            else {"mnli_m", "mnli_mm", "hans", "anli_r1", "anli_r2", "anli_r3"}
        )
        assert (
            record["data"]["train"]["rows"] == ROWS["train"]
            and record["data"]["train"]["used_rows"] == 16
        )
        assert (
            record["data"]["train"]["revision"]
            == "nyu-mll/glue@bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
        )
    asked = len(hub.asked)
    text, _ = start("-c", TRAIN, "1", HF_HUB_OFFLINE="1").communicate()
    assert len(read_records([tmp_path / "runs"])) == 2 * len(MODELS), text
    assert len(hub.asked) == asked


def test_a_causal_model_is_shown_examples_of_the_hub(start, tmp_path):
    command = ["-m", "mtlib", "prompt", "--causal", "--model", "gpt2", "--shots", "16"]
    command += ["--task", "nli", "--source", "hub", "--json", "out.json"]
    process = start(*command, "--sets", "mnli_m", "--sets", "hans")
    text, _ = process.communicate()
    assert process.returncode == 0, text
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["prompting"]["model"] == "gpt2"
    for name, labels in (("mnli_m", 3), ("hans", 2)):
        prompt = result["prompts"][name]
        assert len({*prompt["shown"]}) == 16
        assert len(prompt["answers"]) == labels
        assert result["metrics"][name]["calibrated"]["n"] == ROWS["test"]


def test_cut_downloads_resume(hub, fetch):
    hub.cut |= {"dev_paired.tsv": 50, "validation-00000-of-00001.parquet": 50}
    code, text = fetch("imdb_cad", "sst2")
    assert code == 0 and text.count("Trying to resume") == 2 and "sst2: 1 file(s)" in text, text
    assert not hub.cut


@pytest.mark.parametrize(
    ("refusal", "said"), [(GONE, "doesn't exist"), (GATED, "is a gated dataset")]
)
def test_a_repository_that_is_gone_or_gated(hub, fetch, refusal, said):
    hub.refused["facebook/anli"] = refusal
    code, text = fetch("anli_r1")
    assert code == 2 and "of facebook/anli" in text and said in text, text
    assert "give a folder as source. On the hub" in text and "anli_v1.0.zip" in text, "what to do"


def test_a_model_that_is_gated(hub, start):
    hub.refused["roberta-base"] = GATED
    process = start(
        "-m",
        "mtlib",
        "run",
        "--task",
        "sentiment",
        "--method",
        "fine_tuning",
        "--model",
        "roberta-base",
    )
    text, _ = process.communicate()
    assert process.returncode == 2 and "error: " in text and "roberta-base" in text, text


LOAD = """
import sys
from mtlib import SharedPLM

for name in sys.argv[1:]:
    plm = SharedPLM.from_pretrained(name, revision="v1.0", subfolder="inner")
    print("loaded", name, plm.shared, plm.config.num_labels)
"""


def test_models_that_mtlib_saved_come_from_the_hub_at_a_revision(hub, start):
    for shared in (True, False):
        plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=3, shared=shared)
        plm.save_pretrained(hub.root / "models" / "someone" / f"saved-{shared}" / "inner")
    text, _ = start("-c", LOAD, "someone/saved-True", "someone/saved-False").communicate()
    assert (
        "loaded someone/saved-True True 3" in text and "loaded someone/saved-False False 3" in text
    ), text
    for shared in (True, False):
        name = f"someone/saved-{shared}"
        asked = {
            path.partition("/resolve/")[2]
            for _, path in hub.asked
            if path.startswith(f"/{name}/resolve/")
        }
        of_revision = ("v1.0/inner/", f"{commit_of(name, 'v1.0')}/inner/")
        assert asked and all(path.startswith(of_revision) for path in asked), asked


def test_two_processes_fetch_at_once(hub, start):
    names = ("sst2", "imdb_contrast")
    both = [start("-m", "mtlib", "data", "fetch", *names) for _ in range(2)]
    for process in both:
        text, _ = process.communicate()
        assert process.returncode == 0, text
    raw = [path for _, path in hub.asked if path.endswith(".tsv")]
    assert len(raw) == len(set(raw)) == 4, "each file was downloaded once"
