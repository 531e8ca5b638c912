"""How much a notebook runs: profiles, resolved."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch

from mtlib.data.tasks import TASKS
from mtlib.errors import UserError
from mtlib.runs import profiles
from mtlib.runs.config import configure
from mtlib.runs.profiles import PROFILES, ResolvedProfile, cell_minutes, load, resolve
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from tests.conftest import make_batch
from tests.runs.test_runs import model, testbed  # noqa: F401  (fixtures)


def test_names_in_order_of_size():
    assert PROFILES == ("smoke", "cpu", "gpu", "paper")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_resolves_for_every_task(profile, task, monkeypatch):
    monkeypatch.setattr("socket.socket", None)  # no network is asked
    settings, written = resolve(profile, task), load(profile)
    assert (settings.profile, settings.task, settings.alpha) == (profile, task, TASKS[task].alpha)
    assert settings.seeds == tuple(range(written["seeds"])) and settings.out == Path("runs")
    for name in ("source", "model", "mask_rate", "train_size", "epochs"):
        assert getattr(settings, name) == written[name], name
    assert settings.alphas == tuple(written["alphas"]) and settings.strengths == tuple(written["strengths"])
    assert cell_minutes(profile) > 0
    for method in ("fine_tuning", "mask_tuning"):
        assert settings.config(method).resolved().method == method


def test_what_the_profiles_promise():
    """The README: cpu needs no network; paper is the paper's five seeds and grid of alpha."""
    assert {(resolve(name).source, resolve(name).model) for name in ("smoke", "cpu")} == {("testbed", "mini")}
    paper = resolve("paper")
    assert len(paper.seeds) == 5 and paper.train_size is None and paper.model == "bert-base-uncased"
    assert paper.alphas == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert resolve() == resolve("cpu", "sentiment")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profile": "huge"}, "profile is 'huge'; expected one of smoke, cpu, gpu, paper"),
        ({"profile": "../cpu"}, "profile is '../cpu'"),
        ({"task": "sentimnt"}, "task is 'sentimnt'"),
        ({"seed": 1}, "unknown setting 'seed'; expected one of alpha, alphas"),
        ({"cell_minutes": 1}, "unknown setting 'cell_minutes'"),
        ({"seeds": 0}, "seeds is 0; expected 1 or more"),
        ({"seeds": -1}, "seeds is -1; expected 1 or more"),
        ({"seeds": ()}, "seeds is (); expected 1 or more"),
        ({"seeds": (0, -1)}, "seed is -1"),
        ({"seeds": (1, 1)}, "seeds is (1, 1); expected each seed once"),
        ({"learning_rates": {"fine_tuning": 0}}, "learning_rate is 0"),
        ({"strengths": (0.5, 2.0)}, "strengths is 2.0"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"alphas": (0.5, 2.0)}, "alphas is 2.0"),
        ({"mask_rate": -0.1}, "mask_rate is -0.1"),
        ({"train_size": 0}, "train_size is 0"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_bad_settings_are_errors(settings, message):
    with pytest.raises(UserError) as error:
        resolve(**settings)
    assert message in str(error.value)


def test_none_leaves_the_profiles_value():
    nothing = dict.fromkeys(("source", "model", "alpha", "mask_rate", "seeds", "train_size"))
    assert resolve("cpu", **nothing) == resolve("cpu")


def test_given_values_take_the_profiles_place():
    settings = resolve("cpu", "nli", "elsewhere", alpha=0.0, seeds=2, mask_rate=0.2, train_size=7, epochs=1.5)
    assert (settings.alpha, settings.seeds, settings.out) == (0.0, (0, 1), Path("elsewhere"))
    assert (settings.mask_rate, settings.train_size, settings.epochs) == (0.2, 7, 1.5)
    assert resolve("cpu", seeds=[3, 5]).seeds == (3, 5)


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        resolve().alpha = 0.1
    assert hash(resolve()) == hash(resolve())


def test_text():
    assert str(resolve("gpu", train_size=2000, mask_rate=0.15)) == (
        "profile gpu: task sentiment, source hub, model bert-base-uncased, 2,000 training examples, 3 epochs, "
        "alpha 0.6, 15 % masked"
    )
    assert " all training examples" in str(resolve("paper"))


def test_learning_rates_are_for_the_profiles_model():
    assert resolve("cpu").config("fine_tuning").learning_rate == 2e-4
    assert resolve("cpu", model="bert-base-uncased").config("fine_tuning").learning_rate is None
    assert resolve("cpu").config("mask_tuning", update="alternating").learning_rate == 2e-4
    with pytest.raises(UserError, match="learning_rates names 'tuning'; expected one of fine_tuning"):
        resolve("cpu", learning_rates={"tuning": 1e-4})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alphas": 0.5}, r"alphas is 0\.5; expected a list of numbers"),
        ({"strengths": "0.5"}, "strengths is '0.5'; expected a list of numbers"),
        ({"seeds": 2.5}, r"seeds is 2\.5; expected a list of numbers"),
        ({"learning_rates": 1e-4}, "learning_rates is 0.0001; expected METHOD: RATE pairs"),
    ],
)
def test_settings_of_the_wrong_kind(settings, message):
    with pytest.raises(UserError, match=message):
        resolve("cpu", **settings)


def test_configurations():
    settings = resolve("cpu", "nli", alpha=0.3)
    config = settings.config("mask_tuning", 2, update="alternating")
    assert config == configure(
        task="nli", method="mask_tuning", seed=2, alpha=0.3, mask_rate=0.05, train_size=settings.train_size, epochs=2,
        update="alternating", learning_rate=dict(settings.learning_rates)["alternating"],
    )  # fmt: skip
    assert settings.config("mask_tuning", alpha=0.9).settings.alpha == 0.9
    with pytest.raises(UserError, match="method is 'magic'"):
        settings.config("magic")


@pytest.fixture
def settings(testbed, model, tmp_path) -> ResolvedProfile:  # noqa: F811
    return resolve("smoke", model=str(model), out=tmp_path / "runs", train_size=32, seeds=(4, 2))


def test_records_run_once_and_keep_the_first_seeds_model(settings, monkeypatch):
    records = settings.records("mask_tuning", max_length=64)
    assert [record["config"]["seed"] for record in records] == [4, 2]
    assert len(list((settings.out / "models").iterdir())) == 1

    monkeypatch.setattr("mtlib.runs.training._Training.train", None)  # from here on nothing can be trained
    assert settings.records("mask_tuning", max_length=64) == records
    assert settings.records("mask_tuning", seeds=(2,), max_length=64) == records[1:]
    plm = settings.model_of("mask_tuning", max_length=64)
    assert plm.config.id2label == {0: "negative", 1: "positive"}
    batch = make_batch(plm)
    with torch.no_grad():
        assert torch.equal(
            plm.eval().classify(batch), settings.model_of("mask_tuning", max_length=64).eval().classify(batch)
        )


def test_model_of_trains_where_nothing_is_there_and_tells_configurations_apart(settings):
    first = settings.model_of("fine_tuning", max_length=64)
    (record,) = read_records([settings.out])
    assert record["config"]["seed"] == 4
    second = settings.model_of("fine_tuning", max_length=64, learning_rate=3e-3)
    assert len(list((settings.out / "models").iterdir())) == len(read_records([settings.out])) == 2
    head, other = first.classifier.classifier.weight, second.classifier.classifier.weight
    assert not torch.equal(head, other)


def test_runs_of_another_caller_are_read_and_their_model_is_trained_when_needed(settings):
    run(settings.config("fine_tuning", 4, max_length=64), settings.out)  # by `sweep`, which keeps no model
    (record,) = settings.records("fine_tuning", seeds=(4,), max_length=64)
    assert not (settings.out / "models").exists()
    plm = settings.model_of("fine_tuning", max_length=64)
    assert plm.config.num_labels == 2 and len(list(settings.out.glob("*.json"))) == 1
    assert settings.records("fine_tuning", seeds=(4,), max_length=64) == [record]


def test_what_lies_in_the_folder_of_profiles():
    assert {path.name for path in profiles.FOLDER.glob("*.yaml")} == {f"{name}.yaml" for name in PROFILES}
