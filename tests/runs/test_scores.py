"""A training and its scores are two things: what is trained once is scored on further sets."""

import json

import numpy as np
import pytest

from mtlib.data.tasks import TASKS
from mtlib.paths import DATA_DIR
from mtlib.plm import SharedPLM
from mtlib.runs import code, scores
from mtlib.runs.config import configure
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import read_records, training_identity, training_of
from mtlib.runs.run import run
from mtlib.sweeps.sweep_file import identify
from mtlib.sweeps.worker import execute_run
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import config, sentences

SETS = ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")


@pytest.fixture
def evaluation_sets(monkeypatch):
    """Gives the task so many evaluation sets, as an entry in `tasks.yaml` does."""

    def give(n: int) -> None:
        task = TASKS["sentiment"]
        testbed = task.testbed.model_copy(update={"ood": SETS[1:n], "on_request": SETS[n:]})
        monkeypatch.setitem(TASKS, "sentiment", task.model_copy(update={"testbed": testbed}))

    return give


@pytest.fixture
def counted(monkeypatch):
    """How often something was trained, and how many rows were scored each time."""
    counts = {"trained": 0, "scored": []}
    train, predict = ObjectiveTrainer.train, scores.predict

    def counting_train(trainer, **options):
        counts["trained"] += 1
        return train(trainer, **options)

    def counting_predict(plm, rows, *arguments, **options):
        counts["scored"].append(len(rows))
        return predict(plm, rows, *arguments, **options)

    monkeypatch.setattr(ObjectiveTrainer, "train", counting_train)
    monkeypatch.setattr(scores, "predict", counting_predict)
    return counts


def arrays(path) -> dict[str, np.ndarray]:
    with np.load(path.with_suffix(".npz")) as file:
        return dict(file)


@pytest.mark.parametrize(
    "settings",
    [{}, {"shared": False}, {"classification": "product_of_experts"}, {"held_out": 8}],
    ids=str,
)
def test_a_set_that_is_added_to_a_task_is_scored_without_training(
    testbed, model, tmp_path, evaluation_sets, counted, settings
):
    """As a run does that trains and scores all at once."""
    out = tmp_path / "out"
    evaluation_sets(2)
    chosen = config(model, epochs=1, **settings)
    first, _ = run(chosen, out, keep_model=True)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    evaluation_sets(3)
    chosen = config(model, epochs=1, **settings)
    whole = read_records([run(chosen, tmp_path / "whole")[0]])[0]
    counted.update(trained=0, scored=[])
    second, was_there = run(chosen, out, keep_model=True)
    assert counted == {"trained": 0, "scored": [16]} and not was_there and second != first
    assert {file: file.read_bytes() for file in before} == before
    record, earlier = (read_records([path])[0] for path in (second, first))
    assert json.dumps(record["metrics"]) == json.dumps(whole["metrics"])
    kept, old, all_at_once = (
        arrays(path) for path in (second, first, tmp_path / "whole" / second.name)
    )
    assert list(kept) == list(all_at_once) == list(whole["metrics"])
    assert all(np.array_equal(kept[name], all_at_once[name]) for name in kept)
    assert all(kept[name].tobytes() == old[name].tobytes() for name in old)
    for name in ("history", "cost", "environment", "started", "finished", "model"):
        assert record[name] == earlier[name], "it is the same training"
    for name in ("identity", "config", "data"):
        assert record[name] == whole[name]
    assert record["trained_by"] == first.stem and [*record["scored_later"]] == [SETS[2]]
    assert training_of(record) == training_of(earlier) != record["identity"]
    assert run(chosen, out, keep_model=True) == (second, True), "its model is there"


def test_sets_are_added_one_at_a_time(testbed, model, tmp_path, evaluation_sets, counted):
    """The third record goes on from the second, whose model is the first one's."""
    evaluation_sets(1)
    first, _ = run(config(model, epochs=1), tmp_path, keep_model=True)
    for n in (2, 3):
        evaluation_sets(n)
        counted.update(trained=0, scored=[])
        last, _ = run(config(model, epochs=1), tmp_path)
        assert counted == {"trained": 0, "scored": [16]}
    (record,) = read_records([last])
    assert tuple(record["metrics"]) == (*record["scored_later"], *SETS)[-3:]
    assert tuple(record["scored_later"]) == SETS[1:] and record["trained_by"] == first.stem


def test_a_sweep_keeps_models_and_scores_them(testbed, model, tmp_path, evaluation_sets, counted):
    """Run by run as a process of a sweep does it."""
    for n in (2, 3):
        evaluation_sets(n)
        runs = identify(config(model, epochs=1, seed=seed) for seed in (0, 1))
        for run_of_sweep in runs:
            order = (run_of_sweep.config.values(), str(tmp_path), run_of_sweep.file)
            assert execute_run(*order, keep_model=True) == "written"
    assert counted == {"trained": 2, "scored": [20, 16, 20, 16, 16, 16]}
    assert len([*tmp_path.glob("*.json")]) == 4


def test_what_other_records_of_the_training_have_needs_no_model(testbed, model, tmp_path, counted):
    whole, _ = run(config(model, epochs=1), tmp_path)
    part, _ = run(config(model, epochs=1, sets=SETS[:1]), tmp_path)
    assert counted["trained"] == 1 and len(counted["scored"]) == 3
    ours, theirs = (read_records([path])[0]["metrics"] for path in (part, whole))
    assert ours == {SETS[0]: theirs[SETS[0]]} and list(arrays(part)) == [SETS[0]]


def test_a_model_that_was_not_kept_is_trained_again(
    testbed, model, tmp_path, evaluation_sets, counted, capsys
):
    evaluation_sets(2)
    first, _ = run(config(model, epochs=1), tmp_path)
    evaluation_sets(3)
    second, _ = run(config(model, epochs=1), tmp_path)
    assert counted == {"trained": 2, "scored": [20, 16, 20, 16, 16]}
    assert f"{first} has this training, but its model was not kept" in capsys.readouterr().err
    assert "trained_by" not in read_records([second])[0]


def test_a_model_by_other_code_answers_to_reuse_alone(
    testbed, model, tmp_path, evaluation_sets, counted, capsys, monkeypatch
):
    evaluation_sets(2)
    run(config(model, epochs=1), tmp_path, keep_model=True)
    evaluation_sets(3)
    monkeypatch.setattr(code, "code_sha256", lambda: "0" * 64)
    reused, was_there = run(config(model, epochs=1), tmp_path, reuse=True)
    assert counted["trained"] == 1 and not was_there
    assert SETS[2] in read_records([reused])[0]["scored_later"]
    reused.unlink()
    run(config(model, epochs=1), tmp_path)
    assert counted["trained"] == 2
    assert "code that is here (" in (said := capsys.readouterr().err) and "--reuse takes it" in said


@pytest.mark.filterwarnings("ignore:.*texts were cut")
@pytest.mark.parametrize("change", ["rows", "eval_max_length"])
def test_other_rows_or_another_cut_are_another_score(testbed, model, tmp_path, counted, change):
    run(config(model, epochs=1), tmp_path, keep_model=True)
    counted.update(trained=0, scored=[])
    settings = {}
    if change == "rows":
        lines = [json.dumps(row) + "\n" for row in sentences(12, 200)]
        (testbed / "testbed_sentiment.jsonl").write_text("".join(lines))
    else:
        settings = {"eval_max_length": 4}
    run(config(model, epochs=1, **settings), tmp_path)
    assert counted == {"trained": 0, "scored": [12] if change == "rows" else [20, 16, 16]}


@pytest.mark.parametrize("change", ["alpha", "diverged"])
def test_another_training_gives_no_scores(testbed, model, tmp_path, counted, change):
    path, _ = run(config(model, epochs=1, sets=SETS[:1]), tmp_path, keep_model=True)
    if change == "diverged":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"diverged": True}))
    run(config(model, epochs=1, **({"alpha": 0.5} if change == "alpha" else {})), tmp_path)
    assert counted["trained"] == 2


def test_a_model_that_fails_on_a_further_set_has_diverged(
    testbed, model, tmp_path, evaluation_sets
):
    evaluation_sets(2)
    path, _ = run(config(model, epochs=1), tmp_path, keep_model=True)
    plm = SharedPLM.from_pretrained(path.with_suffix(""))
    next(iter(plm.classifier.parameters())).data.fill_(float("nan"))
    plm.save_pretrained(path.with_suffix(""))
    evaluation_sets(3)
    (record,) = read_records([run(config(model, epochs=1), tmp_path)[0]])
    assert record["diverged"] and record["metrics"] == {}


def test_a_shipped_record_has_its_old_name_and_its_training():
    """The identity by which a training is known does not replace that of a record."""
    for record in read_records([DATA_DIR / "results" / "short.jsonl.gz"]):
        names = ("task", "method", "train_size", "epochs", "precision", "sets")
        settings = {name: record["config"][name] for name in names}
        inputs = read_inputs(configure(**settings))
        assert inputs.identity == record["identity"] and inputs.shipped_record() == record
        assert inputs.training == training_of(record)


CONFIG = {"task": "sentiment", "method": "mask_tuning", "model": "mini", "alpha": 0.6}


def data(**contents: str) -> dict:
    return {name: {"content_sha256": content} for name, content in contents.items()}


@pytest.mark.parametrize(
    ("change", "sets", "same"),
    [
        ({}, data(train="a", sst2="c"), True),
        ({"sets": ["sst2"], "eval_max_length": 64}, data(train="a"), True),
        ({"alpha": 0.5}, data(train="a"), False),
        ({"max_length": 64}, data(train="a"), False),
        ({}, data(train="b"), False),
    ],
)
def test_what_decides_a_training(change, sets, same):
    one = training_identity(CONFIG, "m", data(train="a", sst2="b"))
    assert (training_identity(CONFIG | change, "m", sets) == one) == same
