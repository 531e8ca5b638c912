"""Whole runs on a few made-up sentences in the testbed's layout."""

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlib import cli
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.method import LearningRates, Stage
from mtlib.objectives import FineTuning
from mtlib.plm import SharedPLM
from mtlib.runs import training
from mtlib.runs.config import configure
from mtlib.runs.inputs import HELD_OUT, hold_out, read_inputs
from mtlib.runs.locks import Busy, claim, lock_path
from mtlib.runs.records import SCHEMA_VERSION, read_records
from mtlib.runs.run import run
from mtlib.runs.training import last_checkpoint
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import config, make_plm, write_testbed


def test_record(testbed, model, tmp_path):
    path, was_there = run(config(model, seed=3), tmp_path / "out")
    record = json.loads(path.read_text())
    assert not was_there and path.name.startswith("sentiment-mask_tuning-tiny-bert-seed3-")
    assert record["schema_version"] == SCHEMA_VERSION
    assert list(record["metrics"]) == [
        "testbed_sentiment",
        "testbed_contrast",
        "testbed_counterfactual",
    ]
    for metrics in record["metrics"].values():
        assert metrics["accuracy"] == metrics["correct"] / metrics["n"]
    assert record["metrics"]["testbed_contrast"]["pairs"] == 8
    assert record["config"]["alpha"] == get_task("sentiment").alpha
    assert record["config"]["batch_size"] == 16
    assert record["cost"]["steps"] == 8 and record["cost"]["examples_seen"] == 128
    (stage,) = record["cost"]["stages"]
    assert stage == {
        "name": "mask_tuning",
        "seconds": record["cost"]["train_seconds"],
        "steps": 8,
        "examples_seen": 128,
    }
    assert [entry["step"] for entry in record["history"]] == list(range(1, 9))
    assert record["data"]["train"]["rows"] == 64
    assert record["environment"]["torch"] and record["cost"]["peak_memory_mb"] > 0
    assert str(tmp_path) not in path.read_text(), "a record names no path of one machine"
    assert {*(tmp_path / "out").glob("[!.]*")} == {path, path.with_suffix(".npz")}


def test_a_generated_testbed_is_a_source_and_the_record_says_which(model, tmp_path):
    source = str(write_testbed(tmp_path / "generated"))
    record = read_records([run(config(model, source=source, epochs=1), tmp_path / "out")[0]])[0]
    assert record["config"]["source"] == "testbed (strength 0.25, seed 1)"
    assert record["data"]["train"]["set"] == "testbed_sentiment_train"


def test_finished_runs_are_skipped_until_something_changes(testbed, model, tmp_path):
    out = tmp_path / "out"
    first, _ = run(config(model), out)
    before = first.read_bytes()
    assert run(config(model), out) == (first, True)
    assert first.read_bytes() == before
    other, was_there = run(config(model, alpha=0.5), out)
    assert not was_there and other != first
    write_testbed(testbed, train=32)  # other data under the same name
    third, was_there = run(config(model), out)
    assert not was_there and third not in (first, other) and first.exists()


def test_a_kept_model_can_be_loaded(testbed, model, tmp_path):
    path, _ = run(config(model, epochs=1), tmp_path)
    assert not path.with_suffix("").exists()
    assert run(config(model, epochs=1), tmp_path, keep_model=True) == (
        path,
        False,
    )  # made again, for its model
    assert SharedPLM.from_pretrained(path.with_suffix("")).config.id2label == {
        0: "negative",
        1: "positive",
    }
    assert run(config(model, epochs=1), tmp_path, keep_model=True) == (path, True)


def test_a_model_that_could_not_be_kept_leaves_the_run_unfinished(
    testbed, model, tmp_path, monkeypatch
):
    whole, out = SharedPLM.save_pretrained, tmp_path / "out"

    def cut(plm, folder):
        whole(plm, folder)
        if str(folder).endswith(".part"):
            (Path(folder) / "config.json").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SharedPLM, "save_pretrained", cut)
        run(config(model, epochs=1), out, keep_model=True)
    assert not [*out.glob("[!.]*")]
    path, was_there = run(config(model, epochs=1), out, keep_model=True)
    assert not was_there and SharedPLM.from_pretrained(path.with_suffix(""))
    assert [place.name for place in out.glob(".*")] == [".work"]
    assert not [*(out / ".work").iterdir()]


def test_two_stages_of_one_name_are_refused(model, tmp_path):
    stage = Stage(FineTuning(), LearningRates.alike(1e-3))
    with pytest.raises(UserError, match="two stages are called 'fine_tuning'"):
        training.train(config(model), (stage, stage), make_plm(), None, tmp_path)


def test_a_run_that_another_process_is_at(testbed, model, tmp_path, monkeypatch):
    lock = lock_path(read_inputs(config(model)).record_path(tmp_path))
    words = f"mtlib run --task sentiment --method mask_tuning --model {model} --out {tmp_path}"
    words += " --max-length 64"
    monkeypatch.setattr(
        cli.sys, "argv", [*words.split(), "--epochs", "2", "--learning-rate", "3e-3"]
    )
    with claim(lock), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Busy.EXIT_CODE and not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    "name", ["vocab.txt", "merges.txt", "masked_lm/model.safetensors", "tokenizer.model"]
)
def test_all_files_that_decide_are_part_of_the_identity(testbed, model, tmp_path, name):
    shutil.copytree(model, tmp_path / "model")
    one = config(tmp_path / "model")
    before = read_inputs(one).record_path(tmp_path)
    (tmp_path / "model" / "README.md").write_text("decides nothing")
    assert read_inputs(one).record_path(tmp_path) == before
    (tmp_path / "model" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "model" / name).write_text("something else")
    assert read_inputs(one).record_path(tmp_path) != before


# --- training phrases that are kept out ---

WORDS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5).map(" ".join)


@given(st.lists(WORDS, min_size=2, max_size=12))
def test_no_training_text_shares_a_held_out_sentence(texts):
    train, held_out = hold_out(texts, 1)
    assert not {*train} & {*held_out} and len(held_out) == 1
    for row, text in itertools.product(train, texts):
        assert not (is_part(texts[row], text) and is_part(texts[held_out[0]], text))
    assert hold_out(texts, 1) == (train, held_out)


def is_part(phrase: str, text: str) -> bool:
    return f" {phrase} " in f" {text} "


def test_a_phrase_of_a_held_out_sentence_and_of_another_is_in_neither_part():
    """The sentences are "a b c", "b c d" and "e"; the third and the first are drawn."""
    texts = ["a b c", "b c d", "b c", "a b", "c d", "e"]
    assert hold_out(texts, 3) == ([1, 4], [0, 3, 5])


def test_more_than_there_are(testbed, model):
    with pytest.raises(UserError, match="held_out is 3"):
        hold_out(["a b", "a"], 3)
    with pytest.raises(UserError, match="held_out is 64, and each of 64 training examples shares"):
        _ = read_inputs(config(model, held_out=64)).datasets
    inputs = read_inputs(config(model, held_out=8, train_size=64))
    with pytest.raises(UserError, match=r"train_size is 64, but what is not held out has [45]\d"):
        _ = inputs.datasets


def test_seeds_share_their_training_examples_unless_these_are_drawn_anew(testbed, model):
    def texts(**changes) -> list[str]:
        settings = {"held_out": 8, "train_size": 16} | changes
        return list(read_inputs(config(model, **settings)).datasets["train"]["text"])

    assert texts(seed=1) == texts(seed=0) == texts(seed=0, redraw=True)
    assert texts(seed=1, redraw=True) != texts(seed=1)
    assert texts(seed=1, redraw=True) == texts(seed=1, redraw=True, method="fine_tuning")


def test_a_run_keeps_probabilities(model, testbed, tmp_path):
    path, _ = run(config(model, held_out=8, epochs=1, method="fine_tuning"), tmp_path / "out")
    (record,) = read_records([path])
    assert record["metrics"][HELD_OUT]["n"] == 8
    assert record["data"][HELD_OUT]["used_rows"] == 8
    with np.load(path.with_suffix(".npz")) as probabilities:
        assert {*probabilities} == {*record["metrics"]}
        for name, metrics in record["metrics"].items():
            assert probabilities[name].dtype == np.float32 and probabilities[name].shape[1] == 2
            assert np.allclose(probabilities[name].astype(float).sum(axis=1), 1, atol=1e-2)
            if "pairs" not in metrics:
                assert len(probabilities[name]) == metrics["n"]


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "sentimnt"}, "task is 'sentimnt'; expected one of sentiment, nli, paraphrase"),
        (
            {"sets": ("sst3",)},
            "'sst3' is no evaluation set of sentiment from 'testbed'; expected one of testbed_sent",
        ),
        ({"splits": {"hans": "dev"}}, "'hans' is no evaluation set"),
        ({"splits": {"testbed_contrast": "dev"}}, "splits has 'testbed_contrast', which is not"),
        ({"redraw": True}, "redraw is True, but train_size is not given"),
        ({"task": "nli", "held_out": 8}, "held_out is 8, but nli has pairs of texts"),
        ({"train_size": 65}, "train_size is 65, but testbed_sentiment_train has 64"),
        ({"eval_max_length": 65}, r"eval_max_length is 65; .* reads at most 64 tokens"),
        (
            {"masking": "attribution_most", "barred": True},
            "masking is 'attribution_most', .* barred asks which words",
        ),
        ({"accumulation": 3}, "batch_size 16 cannot be cut into 3 equal parts"),
    ],
)
def test_bad_input_is_told_before_training(testbed, model, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(ObjectiveTrainer, "train", lambda self: pytest.fail("trained"))
    with pytest.raises(UserError, match=message):
        run(config(model, **changes), tmp_path / "out")


@pytest.mark.parametrize("shared", [True, False])
def test_a_saved_model_of_other_trunks_is_told_before_training(testbed, tmp_path, shared):
    make_plm(shared=not shared).save_pretrained(tmp_path / "saved")
    with pytest.raises(UserError, match=f"saved with .* trunks?, but shared is {shared}"):
        run(config(tmp_path / "saved", shared=shared), tmp_path / "out")


# --- interrupted runs: see tests/test_methods.py too ---


def test_torn_checkpoint_is_passed_over(tmp_path):
    for step, state in ((50, "{}"), (100, '{"epoch": 1.'), (150, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_checkpoint(tmp_path).name == "checkpoint-50"
    assert not (tmp_path / "checkpoint-100").exists() and (tmp_path / "checkpoint-best").exists()


def test_checkpoints_stand_where_the_log_has_a_line(tmp_path):
    """Of 1990 steps each 19th is logged; a resumed log would else lack steps."""
    chosen = configure("sentiment", "fine_tuning", learning_rate=1e-3).resolved()
    stage = training.Stage(FineTuning(), chosen.rates, steps=1990)
    stages = training._Training(chosen, None, tmp_path, ())
    arguments = stages._arguments(stage, 64, tmp_path, False)
    assert (arguments.logging_steps, arguments.save_steps) == (19, 190)


def test_checkpoints_take_a_tenth_of_the_time(monkeypatch):
    """Begun at 100 s, written in 2 s: the next one 20 s after the first was begun."""
    now, saved = [0.0], []
    saves = training._SeldomSaves()
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for time in (100.0, 119.0, 120.0):
        now[0] = time
        control = SimpleNamespace(should_save=True)
        saves.on_step_end(None, None, control)
        saved.append(control.should_save)
        now[0] += 2
        if control.should_save:
            saves.on_save(None, None, control)
    assert saved == [True, False, True]
