"""The study's runs and the choice of learning rates."""

import itertools

import pytest

from mtlib.errors import UserError
from mtlib.runs.config import configure
from mtlib.study import plan as study
from mtlib.study.plan import ARMS, VARIANTS, Study, arm_of, best_rates, curve_point, split


def record(task="sentiment", accuracy=0.5, sets=("sst2",), **settings) -> dict:
    config = configure(task=task, **settings).resolved()
    return {"config": config.public(), "metrics": {name: {"accuracy": accuracy} for name in sets}}


def test_grid_has_every_arm_with_a_rate_of_its_own_and_no_test_set():
    grid = Study("hub").grid()
    arms = [arm for arm in ARMS if not arm.rate_of]
    assert len(grid) == 3 * len(arms) * 3
    assert {(one.task, one.sets) for one in grid} == {
        ("sentiment", ("sst2",)), ("nli", ("mnli_m",)), ("paraphrase", ("qqp",))
    }  # fmt: skip
    assert {one.seed for one in grid} == {0} and {one.learning_rate for one in grid} == {1e-4, 2e-4, 5e-4}
    assert {one.learning_rate for one in Study("hub", "bert-base-uncased").grid()} == {2e-5, 3e-5, 4e-5, 5e-5}


def test_runs_take_the_rates_that_were_chosen_and_are_balanced_wherever_cut():
    blocks = Study("hub", size="full").runs({("sentiment", "mask_tuning"): 5e-4, ("sentiment", "fine_tuning"): 1e-4})
    assert list(blocks) == ["main", "alpha", "mask_rate", "variants"]
    main = blocks["main"]
    assert len(main) == 3 * 5 * len(ARMS) and [one.seed for one in main] == sorted(one.seed for one in main)
    rate = {(one.task, arm_of(one.resolved().public())): one.learning_rate for one in main if one.task == "sentiment"}
    assert rate["sentiment", "mask_tuning"] == 5e-4
    assert rate["sentiment", "fine_tuning"] == rate["sentiment", "fine_tuning (6 epochs)"] == 1e-4
    sentiment = [one for one in blocks["variants"] if one.task == "sentiment"]
    assert {one.learning_rate for one in sentiment} == {5e-4}
    assert {one.train_size for configs in blocks.values() for one in configs} == {None}


def test_every_run_is_told_from_its_configuration_alone():
    blocks = Study("hub").runs({})
    names = [arm.name for arm in ARMS]
    configs = [one.resolved().public() for one in blocks["main"]]
    assert [arm_of(one) for one in configs[: len(ARMS)]] == names
    assert {arm_of(one.resolved().public()) for one in blocks["variants"]} == {arm.name for arm in VARIANTS}
    for name in ("alpha", "mask_rate"):
        on_curve = [curve_point(one.resolved().public(), name) for one in blocks[name]]
        assert set(on_curve) == set({"alpha": study.ALPHAS, "mask_rate": study.MASK_RATES}[name])
        other = {"alpha": "mask_rate", "mask_rate": "alpha"}[name]
        assert all(curve_point(one.resolved().public(), other) is None for one in blocks[name])
    paper = next(one for one in configs if arm_of(one) == "mask_tuning" and one["task"] == "nli")
    assert (curve_point(paper, "alpha"), curve_point(paper, "mask_rate")) == (0.7, 0.05)
    every = [*configs, *(one.resolved().public() for name in blocks if name != "main" for one in blocks[name])]
    same = [a for a, b in itertools.combinations(every, 2) if a == b]
    assert not same


def test_best_rate_is_the_most_accurate_on_dev_and_the_lowest_of_equals():
    rates = {1e-4: 0.8, 2e-4: 0.9, 5e-4: 0.9}
    records = [record(method="fine_tuning", learning_rate=rate, accuracy=value) for rate, value in rates.items()]
    records += [record(method="mask_tuning", update="alternating", learning_rate=5e-4, accuracy=0.1)]
    assert best_rates(records) == {("sentiment", "fine_tuning"): 2e-4, ("sentiment", "mask_tuning (alternating)"): 5e-4}


def test_a_diverged_run_is_the_worst_of_the_grid_and_no_point_of_a_curve():
    worst = record(method="fine_tuning", learning_rate=5e-4, sets=("sst2",)) | {"metrics": {}, "diverged": True}
    worst["config"] = worst["config"] | {"sets": ["sst2"]}
    grid = [worst, record(method="fine_tuning", learning_rate=1e-4, accuracy=0.1)]
    assert split(grid) == (grid, []) and best_rates(grid) == {("sentiment", "fine_tuning"): 1e-4}
    point = record(method="mask_tuning", alpha=0.1, sets=("sst2", "imdb_cad"))
    other = record(method="mask_tuning", alpha=0.3) | {"metrics": {}, "diverged": True}
    assert study.points_of_curve([point, other], "sentiment", "alpha") == {0.1: [point]}


def test_the_balanced_update_is_an_arm_of_its_own():
    config = record(method="mask_tuning", update="balanced")["config"]
    assert arm_of(config) == "mask_tuning (balanced)" and curve_point(config, "alpha") is None


def test_nothing_is_chosen_on_a_test_set():
    with pytest.raises(UserError, match="scored on sst2, imdb_cad; expected in-distribution dev data alone"):
        best_rates([record(method="fine_tuning", sets=("sst2", "imdb_cad"))])


def test_split():
    grid = record(method="fine_tuning")
    rest = [
        record(method="fine_tuning", sets=("sst2", "imdb_cad")),
        record("nli", sets=("hans",), method="fine_tuning"),
    ]
    assert split([grid, *rest]) == ([grid], rest)


def test_curve_has_the_seeds_that_all_its_points_have():
    sets = ("sst2", "imdb_cad")
    records = [record(method="mask_tuning", seed=seed, sets=sets) for seed in (0, 1, 2)]
    records += [record(method="mask_tuning", alpha=0.1, seed=seed, sets=sets) for seed in (0, 2)]
    records += [record(method="mask_tuning", mask_rate=0.3, sets=sets), record(method="fine_tuning", sets=sets)]
    points = study.points_of_curve(records, "sentiment", "alpha")
    assert {value: [run["config"]["seed"] for run in group] for value, group in points.items()} == {
        0.1: [0, 2],
        0.6: [0, 2],
    }
    assert study.points_of_curve(records, "nli", "alpha") == {}


@pytest.mark.parametrize("change", [{"model": "roberta-base"}, {"train_size": 6000}, {"max_length": 64}])
def test_records_of_two_studies_are_refused(change):
    records = [record(method="fine_tuning"), record(method="mask_tuning", **change)]
    with pytest.raises(UserError, match=f"with {next(iter(change))} .* are no one study"):
        split(records)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"source": "testbed"}, "source is 'testbed'; expected hub or a folder of original releases"),
        ({"source": "hub", "size": "huge"}, "size is 'huge'; expected one of smoke, cpu, full"),
        ({"source": "hub", "tasks": ("poetry",)}, "task is 'poetry'"),
    ],
)
def test_bad_input(arguments, text):
    with pytest.raises(UserError, match=text):
        Study(**arguments)


@pytest.mark.parametrize(
    "reading",
    [
        {"fill_mode": "eval"},
        {"mlm_reduction": "examples"},
        {"fixed_masks": True},
        {"side": "second"},
        {"classifier_reads": "original"},
    ],
)
def test_another_reading_of_mask_tuning_is_no_arm_of_the_study(reading):
    config = configure(task="nli", method="mask_tuning", **reading).resolved().public()
    assert arm_of(config) is None and curve_point(config, "alpha") is None
    assert arm_of({name: value for name, value in config.items() if name not in reading}) == "mask_tuning"
