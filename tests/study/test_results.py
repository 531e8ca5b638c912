"""What the pages print is what the records say."""

from dataclasses import replace
from pathlib import Path

import pytest

from mtlib.data.tasks import TASKS, get_task
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.runs.records import identity, read_records
from mtlib.settings import LearningRates
from mtlib.study.plan import Study, best_rates, split
from mtlib.tutorial import page_tables as pages

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data" / "results"


def test_pages_print_what_the_records_say(tmp_path):
    """`python -m mtlib pages` would change nothing."""
    found, printed = pages.parts(RESULTS), []
    for page in map(ROOT.joinpath, pages.PAGES):
        (tmp_path / page.name).write_text(page.read_text())
        printed += pages.fill(tmp_path / page.name, found)
        assert (tmp_path / page.name).read_text() == page.read_text(), f"{page.name}: run `python -m mtlib pages`"
    assert sorted(printed) == sorted(found)


def test_a_place_that_is_not_closed(tmp_path):
    (tmp_path / "page.md").write_text("<!-- made: a -->\nold\n")
    with pytest.raises(UserError, match=r"0 places .*made: a"):
        pages.fill(tmp_path / "page.md", {"a": "new"})
    assert (tmp_path / "page.md").read_text() == "<!-- made: a -->\nold\n"


def test_a_place_that_is_not_closed_before_the_next(tmp_path):
    text = "<!-- made: a -->\nold\n<!-- made: b -->\nkept\n<!-- end -->\n"
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(UserError, match=r"0 places .*made: a"):
        pages.fill(tmp_path / "page.md", {"a": "new"})
    assert (tmp_path / "page.md").read_text() == text


def test_learning_rates_are_the_best_of_the_grid():
    best = {}
    for record in read_records([RESULTS / "sst2_grid.jsonl"]):
        config, metrics = record["config"], record["metrics"]
        assert list(metrics) == ["sst2"], "nothing is chosen on a test set"
        accuracy, rate = metrics["sst2"]["accuracy"], config["learning_rate"]
        best[config["method"]] = max(best.get(config["method"], (0, 0)), (accuracy, rate))
    for method, (_, rate) in best.items():
        assert METHODS[method].rates == LearningRates(rate, rate, rate)
    assert best.keys() == {"fine_tuning", "mask_tuning"}, "methods.py says which methods have a recorded grid"


def test_the_study_was_done_as_planned():
    grid, rest = split(read_records([RESULTS / "study.jsonl"]))
    rates = best_rates(grid)
    tasks = {record["config"]["task"] for record in grid}

    def tried(configs) -> dict:
        """Learning rates and seeds of each task's arm, one for each run."""
        runs = {}
        for config in configs:
            arm = config["task"], config["method"], config["update"] or "joint"
            runs.setdefault(arm, []).append((config["learning_rate"], config["seed"]))
        return runs

    def settings(config: dict) -> str:
        """What decides the run, on the same data and model."""
        return identity(config, None, {name: name for name in config["sets"]})

    wanted = tried(config.resolved().public() for config in Study("hub").grid())
    done = tried(record["config"] for record in grid)
    assert all(set(pairs) <= set(wanted[arm]) and len(pairs) == len(set(pairs)) for arm, pairs in done.items())
    for arm in tried(record["config"] for record in rest):  # chosen from the whole grid of this arm
        assert sorted(done[arm]) == sorted(wanted[arm]), arm
    planned = {
        settings(replace(config, precision="bf16").resolved().public())
        for task in tasks
        for configs in Study("hub", tasks=(task,)).runs(rates).values()
        for config in configs
    }
    for record in rest:
        assert settings(record["config"]) in planned, record["identity"]
        assert "+changes" not in record["environment"]["commit"]


def test_records_are_small():
    assert sum(path.stat().st_size for path in RESULTS.glob("*.json*")) < 12_000_000


def test_records_name_no_machine():
    for path in RESULTS.glob("*.jsonl"):
        for record in read_records([path]):
            assert record["config"]["source"] in ("hub", "folder") or record["config"]["source"].startswith("testbed")
            assert "/" not in record["config"]["model"]
            assert record["environment"]["commit"] and "+changes" not in record["environment"]["commit"]


def test_the_testbed_does_what_it_is_for():
    """A model learns it in distribution, falls off it, and falls less where nothing is planted."""
    gaps = {}
    for record in read_records([RESULTS / "testbed.jsonl"]):
        task = get_task(record["config"]["task"])
        accuracy = {name: metrics["accuracy"] for name, metrics in record["metrics"].items()}
        dev, worst = accuracy[task.dev_set("testbed")], min(accuracy[name] for name in task.ood_sets("testbed"))
        gaps[task.name, record["config"]["source"]] = dev - worst
        assert dev >= 0.85
    for task in TASKS:
        assert gaps[task, "testbed"] >= 0.15
        assert gaps[task, "testbed (strength 0, seed 0)"] < gaps[task, "testbed"] - 0.1
