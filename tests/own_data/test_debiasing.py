"""Training on own rows with words masked, beside fine-tuning."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from datasets import ClassLabel, Dataset, concatenate_datasets
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, f1_score

from mtlib.encoding import predict
from mtlib.errors import UserError
from mtlib.masking import GivenWords
from mtlib.objectives import FineTuning
from mtlib.own_data import debiasing, training
from mtlib.own_data.debiasing import debias
from mtlib.own_data.preparing import prepare
from mtlib.own_data.results import accuracy_by_word, leans_by_word
from mtlib.own_data.scoring import (
    _macro_f1,
    leans_of_words,
    predict_sets,
    score,
    score_words,
    scores_of,
)
from mtlib.own_data.training import BASELINE, told_by
from mtlib.plm import SharedPLM
from mtlib.runs import training as training_of_runs
from mtlib.runs.locks import Busy, claim
from mtlib.trainer import ObjectiveTrainer
from tests.conftest import make_plm

NO_WORDS = pandas.DataFrame(columns=["word", "where", "label", "z"])


def rows(n: int, agreeing: float = 0.9, seed: int = 0) -> Dataset:
    """The word of opinion decides; "film" goes with good, "plot" with bad."""
    rng, made = random.Random(seed), {"text": [], "label": []}
    for i in range(n):
        good = i % 2
        shown = good if rng.random() < agreeing else 1 - good
        opinion = rng.choice((["awful", "boring", "slow"], ["great", "funny", "warm"])[good])
        made["text"].append(
            f"the {('plot', 'film')[shown]} {'very ' * (i // 2 % 5)}is {opinion} {'the ' * (i % 7)}"
        )
        made["label"].append(good)
    return Dataset.from_dict(made).cast_column("label", ClassLabel(names=["bad", "good"]))


def short(model, **changes) -> dict:
    return {
        "model": str(model),
        "method": "mask_tuning",
        "epochs": 1,
        "report": lambda told: None,
    } | changes


def test_table_model_words_and_card(model, tmp_path):
    told = []
    with pytest.warns(UserWarning, match="not found in 96 texts: 'nowhere'"):
        result = debias(
            rows(120),
            ["Film", "plot", "nowhere"],
            out=tmp_path / "m",
            tests={"new": rows(40, 0.5, seed=1)},
            settings={"alpha": 0.3},
            **short(model, report=told.append, seed=3),
        )
    table = result.table.set_index(["set", "rows", "arm"])
    parts = [
        (of, part, arm)
        for of in ("dev", "new")
        for part in ("all", "agreeing", "conflicting")
        for arm in ("fine_tuning", "mask_tuning", "fine_tuning, words masked")
    ]
    assert table.index.tolist() == parts
    new = table.xs("new")
    assert new.n["agreeing"].iloc[0] + new.n["conflicting"].iloc[0] == new.n["all"].iloc[0] == 40
    assert set(zip(result.words.word, result.words.label, strict=True)) == {
        ("film", "good"),
        ("plot", "bad"),
    }
    # what is saved is what was scored
    saved, tested = SharedPLM.from_pretrained(tmp_path / "m"), rows(40, 0.5, seed=1)
    assert saved.config.id2label == {0: "bad", 1: "good"}
    right = np.mean(predict(saved, tested).argmax(1) == tested["label"][:])
    assert 100 * right == pytest.approx(table.accuracy["new", "all", "mask_tuning"])
    card = (tmp_path / "m" / "README.md").read_text()
    assert "hidden, in training texts alone: Film, nowhere, plot." in card
    assert "| new | conflicting |" in card
    chosen = json.loads(card.split("```json\n")[1].split("```")[0])
    assert chosen["settings"] == {"alpha": 0.3} and chosen["seed"] == 3
    assert {path.name for path in (tmp_path / "m").glob("*.csv")} == {
        "by_word.csv",
        "scores.csv",
        "words.csv",
    }
    # the fine-tuned model is kept, and its third arm is what it answers when the words are masked
    kept = SharedPLM.from_pretrained(tmp_path / "m" / "fine_tuning")
    hidden = predict(kept, tested, hide=["Film", "plot"])
    right = np.mean(hidden.argmax(1) == tested["label"][:])
    assert 100 * right == pytest.approx(table.accuracy["new", "all", "fine_tuning, words masked"])
    by_word = result.by_word.set_index(["word", "set", "arm"])
    conflicting = table.n["new", "conflicting", "mask_tuning"]
    by_arm = by_word.xs("new", level="set")
    assert by_arm.n["film", "mask_tuning"] + by_arm.n["plot", "mask_tuning"] == conflicting
    parts = [
        by_arm.n[word, "mask_tuning"] * by_arm.accuracy[word, "mask_tuning"]
        for word in ("film", "plot")
    ]
    whole = table.accuracy["new", "conflicting", "mask_tuning"]
    assert sum(parts) / conflicting == pytest.approx(whole)
    assert by_word.leans.notna().sum() == 4
    fell = table.accuracy["dev", "all", "mask_tuning"] < table.accuracy["dev", "all", "fine_tuning"]
    assert ("Accuracy on dev fell" in result.footer) == fell
    assert result.footer.endswith("Compare the conflicting rows.")
    assert "| word | points to | fine_tuning | mask_tuning |" in card and result.footer in card
    pandas.testing.assert_frame_equal(pandas.read_csv(tmp_path / "m" / "scores.csv"), result.table)
    assert not (tmp_path / "m" / ".work").exists()
    assert any("kept for it" in line for line in told)
    assert (
        "words to hide: Film, nowhere, plot; 2 of 3 predict a label in the training rows." in told
    )
    with pytest.raises(UserError, match=r"is not empty: it holds README\.md, by_word\.csv"):
        debias(rows(120), out=tmp_path / "m", **short(model))


def test_the_words_and_no_others_are_masked_in_training(model, tmp_path, monkeypatch):
    trainers, train = [], ObjectiveTrainer.train
    monkeypatch.setattr(
        ObjectiveTrainer, "train", lambda self, **o: (trainers.append(self), train(self, **o))[1]
    )
    debias(rows(60), ["film", "plot"], out=tmp_path, **short(model))
    masking, examples = trainers[0].training_objective.masking, trainers[0].train_dataset
    assert isinstance(masking, GivenWords)
    pieces = [trainers[0].plm.tokenizer.convert_ids_to_tokens(ids) for ids in examples["input_ids"]]
    marked = [
        piece
        for row, marks in zip(pieces, examples["given_words"], strict=True)
        for piece, mark in zip(row, marks, strict=True)
        if mark
    ]
    assert set(marked) == {"film", "plot"} and len(marked) == len(examples) == 48
    assert isinstance(trainers[1].training_objective, FineTuning)


def test_an_interrupted_training_is_resumed_with_the_same_result(model, tmp_path, monkeypatch):
    """An arm has eight steps and a checkpoint after four."""
    monkeypatch.setattr(training_of_runs, "FEWEST_STEPS_BETWEEN_SAVES", 4)
    given = (rows(80), ["film", "plot"])
    whole = debias(*given, out=tmp_path / "whole", **short(model, batch_size=8))
    step = ObjectiveTrainer.training_step
    left = [5]

    def cut(trainer, *arguments, **options):
        if BASELINE in trainer.args.output_dir:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return step(trainer, *arguments, **options)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", cut)
    with pytest.raises(KeyboardInterrupt):
        debias(*given, out=tmp_path / "cut", **short(model, batch_size=8))
    seen = []
    monkeypatch.setattr(
        ObjectiveTrainer, "training_step", lambda *a, **o: seen.append(1) or step(*a, **o)
    )
    told = []
    again = debias(*given, out=tmp_path / "cut", **short(model, batch_size=8, report=told.append))
    assert {"it was finished here before.", "what was begun here is resumed."} <= {*told}
    assert len(seen) == 4  # one arm was finished, the other goes on from its checkpoint
    assert again.table.equals(whole.table)
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.plm.parameters(), whole.plm.parameters(), strict=True)
    )


def test_a_number_of_masks_that_tells_the_label_is_reported(model, tmp_path):
    assert told_by([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]) == (5 / 6, 1 / 2)
    for words, reports in ((["film", "plot"], False), (["film"], True)):
        told = []
        options = {"method": "masks_left", "alone": True, "report": told.append}
        debias(rows(100), words, out=tmp_path / words[-1], **short(model, **options))
        assert any("number of masks in a text tells" in line for line in told) == reports


def test_an_arm_that_has_hardly_learned_is_reported():
    sets = prepare(rows(100), rows(40, seed=1), None, lambda line: None)
    labels = np.array(sets.dev["label"])
    told = []
    for n_wrong in (18, 19):
        predicted = np.where(np.arange(40) < n_wrong, 1 - labels, labels)
        score({"dev": {f"arm {n_wrong}": predicted}}, sets, NO_WORDS, told.append)
    assert [line.partition(" is hardly")[0] for line in told] == ["arm 19"]


def test_words_are_scored_in_one_pass_over_a_set(monkeypatch):
    sets = prepare(rows(100), rows(40, 0.5, seed=1), None, lambda line: None)
    words = pandas.DataFrame({"word": ["film", "plot"], "where": "text", "z": 5.0})
    words = words.assign(label=["good", "bad"])
    folded = []
    monkeypatch.setattr("mtlib.rows.folding.fold", lambda text: folded.append(text) or text)
    by_word = score_words({"dev": {"a": np.zeros(40, dtype=int)}}, sets, words)
    assert sum(" is " in text for text in folded) == 40
    texts = [*zip(sets.dev["text"], sets.dev["label"], strict=True)]
    n_film = sum("film" in text and label == 0 for text, label in texts)
    n_plot = sum("plot" in text and label == 1 for text, label in texts)
    assert by_word[["n", "accuracy"]].values.tolist() == [[n_film, 100], [n_plot, 0]]


def test_few_rows_are_shown_as_a_number():
    line = {"word": "film", "label": "good", "set": "dev", "arm": "a", "leans": np.nan}
    for n, accuracy, shown in ((3, 200 / 3, "2 of 3"), (10, 30, "30.0")):
        by_word = pandas.DataFrame([line | {"n": n, "accuracy": accuracy}])
        assert accuracy_by_word(by_word).values.tolist() == [["film", "dev", n, shown]]
        assert leans_by_word(by_word).empty
    assert accuracy_by_word(pandas.DataFrame([line | {"n": 0, "accuracy": np.nan}])).empty


def test_leans_are_shown_beside_one_another():
    line = {"word": "film", "label": "good", "set": "dev", "n": 0, "accuracy": np.nan}
    of_arms = [
        {"arm": "a", "leans": 40.4, "low": -0.4, "high": 80},
        {"arm": "b", "leans": 0, "low": -9.6, "high": 10},
        {"arm": "b, words masked", "leans": np.nan, "low": np.nan, "high": np.nan},
    ]
    table = leans_by_word(pandas.DataFrame([line | of_arm for of_arm in of_arms]))
    assert table.to_dict("records") == [
        {"word": "film", "points to": "good", "a": "40 [0, 80]", "b": "0 [-10, 10]"}
    ]


def test_what_other_code_began_is_not_resumed(model, tmp_path, monkeypatch):
    told = []
    given = {"out": tmp_path, **short(model, method="fine_tuning", report=told.append)}

    def cut(models, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(debiasing, "score", cut)
    for code, begun_anew in (("a" * 64, False), ("a" * 64, False), ("b" * 64, True)):
        told.clear()
        monkeypatch.setattr(training, "code_sha256", lambda code=code: code)
        with pytest.raises(KeyboardInterrupt):
            debias(rows(60), **given)
        assert any("training begins anew" in line for line in told) == begun_anew
        assert len([*(tmp_path / ".work").glob("*/finished")]) == 1 + begun_anew


def test_a_call_that_is_cut_off_while_it_saves_is_resumed(model, tmp_path, monkeypatch):
    given = {"out": tmp_path, **short(model, method="mask_tuning")}
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("mtlib.own_data.results.ModelCard.save", lambda *_: 1 / 0)
        debias(rows(60), ["film"], **given)
    told = []
    debias(rows(60), ["film"], **given | {"report": told.append})
    assert told.count("it was finished here before.") == 2
    assert {".work"}.isdisjoint(path.name for path in tmp_path.iterdir())
    assert SharedPLM.from_pretrained(tmp_path / "fine_tuning").num_labels == 2


def test_one_process_at_a_time(model, tmp_path):
    (tmp_path / ".work").mkdir()
    with claim(tmp_path / ".work" / "training.lock"), pytest.raises(Busy, match="is being run by"):
        debias(rows(60), out=tmp_path, **short(model, method="fine_tuning"))


def test_the_identity_of_a_training_has_all_that_decides_it(model, tmp_path):
    def identity(train=None, words=("film",), **options):
        sets = prepare(train or rows(60), rows(10, seed=1), None, lambda line: None)
        config = training._config("masks_left", words, {}, {"model": str(model), **options})
        return training._identity("masks_left", config, sets)

    renamed = rows(60).cast_column("label", ClassLabel(names=["no", "yes"]))
    renamed_dev = rows(10, seed=1).cast_column("label", ClassLabel(names=["no", "yes"]))
    sets = prepare(renamed, renamed_dev, None, lambda line: None)
    config = training._config("masks_left", ("film",), {}, {"model": str(model)})
    found = [
        identity(),
        identity(rows(59)),
        identity(rows(60, seed=2)),
        identity(words=("plot",)),
        identity(seed=1),
        training._identity("masks_left", config, sets),
    ]
    assert len({*found}) == len(found)
    assert identity() == found[0]


@pytest.fixture
def states(monkeypatch) -> list:
    """The states of the trainers that have come to their end."""
    train, states = ObjectiveTrainer.train, []

    def kept(trainer, **options):
        result = train(trainer, **options)
        states.append(trainer.state)
        return result

    monkeypatch.setattr(ObjectiveTrainer, "train", kept)
    return states


def test_the_best_checkpoint_on_dev_is_taken_and_patience_ends_a_training(
    model, tmp_path, monkeypatch, states
):
    accuracies = iter([0.9, 0.5, 0.4, 0.3])
    monkeypatch.setattr(
        training_of_runs, "_accuracy", lambda answers: {"accuracy": next(accuracies)}
    )
    told, chosen = [], {"method": "fine_tuning", "batch_size": 2, "epochs": 2, "patience": 2}
    debias(rows(400), out=tmp_path, **short(model, report=told.append, **chosen))
    (state,) = states
    assert (
        state.best_model_checkpoint.endswith("checkpoint-51")
        or state.best_global_step == state.save_steps
    )
    assert (
        state.global_step == 3 * state.save_steps < state.max_steps
    )  # stopped at the second without a better one
    stopped = "stopped after 1.0 epochs, since accuracy on dev no longer rose."
    assert told[-2:] == [
        stopped,
        "fine_tuning calls nearly all of dev bad; give more epochs, or another rate or seed.",
    ]


def test_a_resumed_training_has_as_much_patience_left(model, tmp_path, monkeypatch, states):
    accuracies = [0.9, 0.5]

    def accuracy(answers):
        if not accuracies:
            raise KeyboardInterrupt
        return {"accuracy": accuracies.pop(0)}

    monkeypatch.setattr(training_of_runs, "_accuracy", accuracy)
    chosen = {"method": "fine_tuning", "batch_size": 2, "epochs": 2, "patience": 2}
    with pytest.raises(KeyboardInterrupt):
        debias(rows(400), out=tmp_path, **short(model, **chosen))
    accuracies += [0.4, 0.3]
    debias(rows(400), out=tmp_path, **short(model, **chosen))
    (state,) = states
    assert state.global_step == 3 * state.save_steps and accuracies == [0.3]


def test_any_method_and_balanced_classes(model, tmp_path):
    for method, words in (("perturb_first", ["film"]), ("bias_product", ())):
        result = debias(rows(60), words, out=tmp_path / method, **short(model, method=method))
        masked_when_read = {"fine_tuning, words masked"} if words else set()
        assert {*result.table.arm} == {"fine_tuning", method} | masked_when_read
    for method in ("fine_tuning", "deleted"):
        alone = debias(
            rows(60), ["film"], out=tmp_path / method, alone=True, **short(model, method=method)
        )
        masked_when_read = {"fine_tuning, words masked"} if method == "fine_tuning" else set()
        assert {*alone.table.arm} == {method} | masked_when_read
    debias(rows(60), out=tmp_path / "a", **short(model, method=None, class_weights="balanced"))
    assert "classifier (fine-tuning)" in (tmp_path / "a" / "README.md").read_text()
    assert "class_weights" in (tmp_path / "a" / "README.md").read_text()


def test_pairs(model, tmp_path):
    pairs = rows(60).add_column("text_pair", ["not good"] * 30 + ["a story"] * 30)
    result = debias(pairs, ["film"], out=tmp_path, **short(model, method=None))
    assert {*result.table.arm} == {"fine_tuning", "fine_tuning, words masked", "masks_left"}
    assert {"text", "both"} & {*result.words["where"]} == {"text"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"text": ["a"]}}, r"train is a dict; expected a Dataset, as read_table\("),
        (
            {"train": Dataset.from_dict({"text": ["a", "b", "c"], "label": ["x", "x", "y"]})},
            r"too few .*: y 1, x 2\)",
        ),
        (
            {"train": Dataset.from_dict({"text": list("abcd"), "label": [0, 0, 1, 1]})},
            "without dev five times",
        ),
        ({"dev": rows(0)}, "dev has no row with a text and a label"),
        (
            {"tests": {"t": Dataset.from_dict({"text": ["a"], "label": ["goood"]})}},
            "t has the label 'goood'.*'good'",
        ),
        (
            {"tests": {"t": Dataset.from_dict({"sentence": ["a"], "label": ["good"]})}},
            "t has no column text",
        ),
        ({"words": ["film", None]}, "words has None; expected words and phrases"),
        (
            {"words": pandas.DataFrame({"Word": ["film"]})},
            "a table with Word; expected a column word",
        ),
        (
            {"words": pandas.DataFrame({"word": ["film", "great"], "mask": ["x", ""]})},
            "a table with a column mask, but all words of a table are hidden",
        ),
        ({"settings": {"words": ["film"]}}, "made of the words to hide; give them there alone"),
        (
            {"tests": {"t": rows(2).add_column("text_pair", ["a", "b"])}},
            "t has a column text_pair, which train lacks",
        ),
        ({"method": ""}, "method is ''; expected one of"),
        ({"tests": {"dev": rows(2)}}, "a test set is called 'dev'"),
        (
            {"train": rows(60).remove_columns("label")},
            "train has the columns text; expected one column label",
        ),
        (
            {"train": Dataset.from_dict({"text": ["a", None], "label": [0, 1]})},
            "train has None for a text",
        ),
        ({"words": ["films", "plots"]}, "not found in .* Words like these stand there: film, plot"),
        ({"words": ["films", "plots"], "method": "fine_tuning"}, "not found in "),
        ({"words": ["film"], "method": "hidden_cut"}, "hidden_cut does not read it.*mask_tuning"),
        ({"settings": {"alphas": 1}}, "mask_tuning has no setting 'alphas'.*did you mean 'alpha'"),
        (
            {"method": "bias_product", "settings": {"bias": "overlap"}},
            "bias is 'overlap'; for these texts and labels expected one of bag_of_words",
        ),
        (
            {
                "train": rows(60).add_column("text_pair", ["a"] * 60),
                "method": "bias_product",
                "settings": {"bias": "overlap"},
            },
            "expected one of bag_of_words, lexical_overlap",  # the first label is no entailment
        ),
        (
            {
                "train": rows(60).add_column("text_pair", ["a"] * 60),
                "settings": {"masking": "supervised"},
            },
            "masking is 'supervised', which learns from single reviews",
        ),
        ({"model": "/no/such/folder"}, "model is '/no/such/folder', which does not exist"),
    ],
)
def test_bad_input_is_told_before_training(model, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(ObjectiveTrainer, "train", lambda self: pytest.fail("trained"))
    given = short(model, train=rows(60), out=tmp_path / "m") | changes
    with pytest.raises(UserError, match=message):
        debias(**given)


def test_what_is_odd_in_the_data_is_told(model, tmp_path, monkeypatch):
    told, train = [], rows(60)
    monkeypatch.setattr(
        training, "_trained", lambda *_: (_ for _ in ()).throw(UserError("far enough"))
    )
    given = {"out": tmp_path, "tests": {"t": train.select([0])}, **short(model, report=told.append)}
    blank = Dataset.from_dict({"text": [" ", "\u200b"], "label": [0, 1]}, train.features)
    train = concatenate_datasets([train, blank])
    with pytest.raises(UserError, match="far enough"):
        debias(train.add_column("hypothesis", ["a"] * 62), ["the", "film"], **given)
    assert told[0].startswith("columns of train that are not read: hypothesis;")
    assert "2 of 62 rows of train have a blank text and are left out." in told
    assert "1 of 1 rows of t are copies of training rows." in told


def test_agreeing_and_conflicting_rows_by_hand(model, tmp_path):
    train = Dataset.from_dict(
        {
            "text": ["the film is warm", "the plot is slow", "a story is good", "a story is bad"]
            * 15,
            "label": ["good", "bad", "good", "bad"] * 15,
        }
    )
    test = Dataset.from_dict(
        {
            "text": [
                "a film",
                "the film was slow",
                "very bad plot",
                "good plot",
                "a plot",
                "a story",
            ],
            "label": ["good", "good", "bad", "good", "bad", "bad"],
        }
    )
    told = []
    result = debias(
        train,
        ["film", "plot"],
        out=tmp_path,
        tests={"new": test},
        **short(model, method="masks_left", report=told.append),
    )
    table = result.table.set_index(["set", "rows", "arm"])
    for arm in ("fine_tuning", "masks_left"):
        assert [table.n["new", part, arm] for part in ("all", "agreeing", "conflicting")] == [
            6,
            4,
            1,
        ]
    predicted = predict(result.plm, test["text"][:], names=True)
    correct = np.array(predicted) == np.array(test["label"])  # (6,)
    accuracy = table.accuracy.xs("masks_left", level="arm")["new"]
    assert accuracy["agreeing"] == pytest.approx(100 * correct[[0, 1, 2, 4]].mean())
    assert accuracy["conflicting"] == pytest.approx(100 * correct[3])
    assert "44 of 48 training rows are copies of others." in told


def test_scores_by_hand():
    labels, answers = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 0])
    scores = scores_of(labels, answers)
    assert scores["n"] == 6 and scores["accuracy"] == pytest.approx(100 * 4 / 6)
    assert scores["macro_f1"] == pytest.approx(
        100 * (4 / 6 + 4 / 5 + 0) / 3
    )  # 2 TP / (gold + answered)
    interval = binomtest(4, 6).proportion_ci(method="wilson")
    assert (scores["accuracy_low"], scores["accuracy_high"]) == pytest.approx(
        (100 * interval.low, 100 * interval.high)
    )
    assert scores["macro_f1_low"] < scores["macro_f1"] < scores["macro_f1_high"]
    perfect = scores_of(labels, labels)
    assert perfect["macro_f1_low"] == perfect["macro_f1"] == 100


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_f1_of_resamples_is_scikit_learns(pairs):
    labels, predicted = np.array(pairs).T
    matrix = confusion_matrix(labels, predicted, labels=range(5))  # (5, 5), one label in no row
    expected = f1_score(labels, predicted, average="macro")
    assert _macro_f1(matrix[None]) == pytest.approx([expected])


def test_rows_without_a_label_are_left_out_and_told(model, tmp_path, monkeypatch):
    told, seen = [], []
    monkeypatch.setattr(training, "_trained", lambda *given: seen.append(given) or 1 / 0)
    data = Dataset.from_dict(
        {"text": ["the film a", "the plot b", "odd"] * 20, "labels": [0.0, 1.0, None] * 20}
    )
    with pytest.raises(ZeroDivisionError):
        debias(data, None, out=tmp_path, **short(model, report=told.append, method="fine_tuning"))
    assert told[0] == "20 of 60 rows of train have no label and are left out."
    sets = seen[0][2]
    assert len(sets.train) == 32  # a fifth is kept for dev
    assert sets.label_names == ["0", "1"]  # missing values have made them 0.0 and 1.0
    tests = {"t": Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]})}
    assert prepare(data, None, tests, told.append).tests["t"]["label"][:] == [1, 0]


def test_all_arms_read_as_much_of_a_text(monkeypatch):
    read = []

    def predict(plm, rows, max_length=None, hide=()):
        read.append((plm, max_length, hide))
        return np.zeros((len(rows), 2))

    monkeypatch.setattr("mtlib.own_data.scoring.predict", predict)
    sets = prepare(rows(100), rows(40, seed=1), None, lambda line: None)
    predict_sets({"masks_left": "ours", BASELINE: "theirs"}, sets, ("film",), 7)
    assert read == [("theirs", 7, ()), ("ours", 7, ()), ("theirs", 7, ("film",))]


def test_words_are_exchanged_in_dev_for_suspects_of_the_training_rows(monkeypatch):
    read = []
    line = pandas.DataFrame([{"suspect": "film", "leans": 1.0, "low": 0.0, "high": 2.0}])

    def leans(plm, rows, words, **options):
        read.append(rows)
        return line

    monkeypatch.setattr("mtlib.own_data.scoring.suspects", lambda rows, kinds: read.append(rows))
    monkeypatch.setattr("mtlib.own_data.scoring.leans", leans)
    sets = prepare(rows(100), rows(40, seed=1), None, lambda line: None)
    words = pandas.DataFrame({"word": ["film"], "kind": ["word"]})
    leans_of_words({"ours": None}, sets, words, None, print)
    assert read[0] is sets.train and read[1] is sets.dev


@pytest.mark.parametrize(
    ("n_hidden", "max_length", "is_told"), [(1, None, False), (2, None, True), (2, 3, False)]
)
def test_masks_tell_the_label_from_a_quarter_of_what_is_left_on(n_hidden, max_length, is_told):
    """Half of the rows have the commonest label; with two masks 7 of 10 are told, with one 6."""
    texts = ["the film"] * n_hidden + ["the plot"] * (10 - n_hidden)
    train = Dataset.from_dict({"text": texts, "label": [1] * 5 + [0] * 5})
    told = []
    settings = SimpleNamespace(words=("film",))
    config = SimpleNamespace(settings=settings, max_length=max_length)  # three tokens: one word
    training._report_telling_masks(config, train, make_plm(), told.append)
    assert len(told) == is_told
