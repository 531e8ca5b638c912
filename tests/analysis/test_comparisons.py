"""Comparisons: which runs belong to which arm, which of them count, differences, verdicts."""

import itertools
import json
from io import StringIO

import numpy as np
import pandas
import pytest

from data import examples
from data.examples import of_examples
from mtlib.analysis import comparisons, intervals
from mtlib.analysis.claims import claims
from mtlib.analysis.comparisons import Comparison
from mtlib.cli.records import _print_comparison
from mtlib.data.scoring import score_rows
from mtlib.data.sources import load_described
from mtlib.errors import UserError
from mtlib.runs.config import configure
from tests.conftest import call

INSIDE, OUTSIDE = "testbed_sentiment", ("testbed_contrast", "testbed_counterfactual")


def make_record(method: str, seed: int, *accuracies: float, **settings) -> dict:
    """A run on the sentiment testbed with these accuracies on its sets (in per cent)."""
    config = configure("sentiment", method=method, seed=seed, **settings).resolved().public()
    metrics = {
        name: {
            "n": 1000,
            "correct": round(10 * accuracy),
            "accuracy": accuracy / 100,
            "majority": 0.5,
        }
        for name, accuracy in zip((INSIDE, *OUTSIDE), accuracies, strict=False)
    }
    identity = f"{method}-{seed}-{sorted(settings.items())}-{len(metrics)}"
    return {
        "schema_version": 2,
        "identity": identity,
        "config": config,
        "metrics": metrics,
        "history": [],
    }


ARMS = {"plain": {"method": "fine_tuning"}, "masked": {"method": "mask_tuning"}}


def of_two_arms(*points: float, inside: float = 0.0) -> list[dict]:
    """Fine-tuning, and Mask-tuning so many points above it out of distribution, a seed for each."""
    plain = [make_record("fine_tuning", seed, 90, 50 + seed, 60) for seed in range(len(points))]
    masked = [
        make_record("mask_tuning", seed, 90 + inside, 50 + seed + point, 60 + point)
        for seed, point in enumerate(points)
    ]
    return [*plain, *masked]


def test_the_recipe_that_the_plan_chooses():
    """What data/README.md quotes: means in and out of distribution, at both strengths."""
    scores = comparisons.load("recipe").frame()
    scores = scores[scores["source"].isin(["testbed", "testbed (strength 0.5, seed 0)"])]
    scores = scores[scores["set"].isin([INSIDE, "testbed_contrast"])]
    means = (
        scores.pivot_table("accuracy", "seed", ["arm", "source", "set"]).T.groupby("arm").mean().T
    )
    best, default = means["Mask-tuning, alpha 0.1, rates 1e-4"], means["masks left in, rates 1e-4"]
    assert (round(best.mean(), 1), round(default.mean(), 1)) == (94.0, 93.4)
    assert intervals.difference(default, best, paired=False).text() == "-0.6 [-1.3, +0.2]"
    assert round(means["words deleted, rates 1e-4"].mean(), 1) == 92.0


class TestArms:
    def test_a_run_that_differs_in_a_setting_that_the_arm_does_not_name_is_none_of_it(
        self, compare
    ):
        others = [
            make_record("mask_tuning", 0, 90, 50, 60, update="balanced"),
            make_record("mask_tuning", 0, 90, 50, 60, mask_rate=0.3),
        ]
        comparison = compare(
            [*others, make_record("mask_tuning", 0, 80, 50, 60, learning_rate=1e-3)], ARMS
        )
        assert [(arm, record["config"]["learning_rate"]) for arm, record in comparison.runs] == [
            ("masked", 1e-3)
        ]

    def test_where_holds_for_all_arms_but_those_that_say_otherwise(self, compare):
        records = [
            make_record("fine_tuning", seed, 90, 50, 60, epochs=epochs)
            for seed in (0, 1)
            for epochs in (3, 6)
        ]
        arms = {"short": {"method": "fine_tuning"}, "long": {"method": "fine_tuning", "epochs": 6}}
        comparison = compare(records, arms, where={"epochs": 3, "seed": [0]})
        assert [
            (arm, r["config"]["epochs"], r["config"]["seed"]) for arm, r in comparison.runs
        ] == [("short", 3, 0), ("long", 6, 0)]

    def test_two_runs_of_one_arm_and_seed_are_an_error_that_says_how_they_differ(self, compare):
        records = [
            make_record("fine_tuning", 0, 90, 50, 60, learning_rate=rate) for rate in (1e-4, 2e-4)
        ]
        with pytest.raises(
            UserError, match=r"two runs of plain have seed 0; they differ in learning_rate"
        ):
            assert compare(records, ARMS).runs

    @pytest.mark.parametrize(
        ("others", "message"),
        [
            ({"epochs": 24}, r"epochs is 3\.0 with seed 0 and 24\.0 with seed 3"),
            ({"batch_size": 64}, r"batch_size is 16 with seed 0 and 64 with seed 3"),
            ({"learning_rate": 1e-5}, r"learning_rate is .* with seed 0 and 1e-05 with seed 3"),
            ({"model": "roberta-base"}, "model is .* and roberta-base with seed 3"),
            (
                {"source": "hub", "precision": "bf16"},
                "source is testbed .* and hub with seed 3|precision is",
            ),
        ],
    )
    def test_runs_that_differ_in_a_setting_are_no_arm(self, compare, others, message):
        records = [make_record("fine_tuning", seed, 90, 50, 60) for seed in range(3)]
        records += [make_record("fine_tuning", seed, 90, 50, 60, **others) for seed in range(3, 6)]
        comparison = compare(records, ARMS)
        for ask in (comparison.table, comparison.frame, comparison.differences):
            with pytest.raises(
                UserError, match=f"made_up: the runs of plain are not alike: ({message})"
            ):
                ask()
        by_name = compare(records, ARMS, by=[*others])
        assert len(by_name.runs) == 6

    @pytest.mark.parametrize(
        ("part", "name"),
        [
            ({"model": {"files_sha256": "b"}}, "the hash of the model's files"),
            ({"data": {"train": {"content_sha256": "b"}}}, "the hash of train"),
        ],
    )
    def test_runs_of_other_models_or_data_are_no_arm(self, compare, part, name):
        same = {"model": {"files_sha256": "a"}, "data": {"train": {"content_sha256": "a"}}}
        records = [make_record("fine_tuning", seed, 90, 50, 60) | same for seed in range(2)]
        assert len(compare(records, ARMS).runs) == 2
        with pytest.raises(UserError, match=f"{name} is a with seed 0 and b with seed 2"):
            assert compare(
                [*records, make_record("fine_tuning", 2, 90, 50, 60) | same | part], ARMS
            ).runs

    def test_one_run_may_be_scored_on_a_set_that_others_lack(self, compare):
        """As after a set was added to the task, and one of two models scored on it."""
        records = [
            make_record("fine_tuning", 0, 90, 50, sets=(INSIDE, OUTSIDE[0])),
            make_record("fine_tuning", 1, 90, 50, 60),
        ]
        data = {name: {"content_sha256": name} for name in ("train", INSIDE, OUTSIDE[0])}
        records = [record | {"data": data} for record in records]
        assert compare(records, ARMS).frame()["set"].value_counts().to_list() == [2, 2, 1]
        records[1]["data"] = data | {OUTSIDE[0]: {"content_sha256": "other rows"}}
        with pytest.raises(UserError, match=f"the hash of {OUTSIDE[0]} is"):
            assert compare(records, ARMS).runs

    def test_a_setting_that_an_old_record_lacks_has_its_default(self, compare):
        old, new = (make_record("mask_tuning", seed, 90, 50, 60) for seed in range(2))
        for name in ("barred", "splits"):
            del old["config"][name]
        assert len(compare([old, new], ARMS).runs) == 2

    def test_tuned_settings_are_chosen_by_mean_dev_accuracy_of_those_with_most_seeds(self, compare):
        dev_accuracies = {5e-5: (99,), 1e-4: (93, 91), 2e-4: (90, 96), 5e-4: (96, 90)}
        records = [
            make_record("fine_tuning", seed, dev, 100 * (rate == 1e-4), 60, learning_rate=rate)
            for rate, accuracies in dev_accuracies.items()
            for seed, dev in enumerate(accuracies)
        ]
        comparison = compare(records, ARMS, tuned=["learning_rate"])
        assert [
            (r["config"]["seed"], r["config"]["learning_rate"]) for _, r in comparison.runs
        ] == [(0, 2e-4), (1, 2e-4)]

    def test_settings_may_be_tuned_on_a_testbed_that_was_made_anew(self, compare):
        records = of_two_arms(2, 3, 4)
        for record in records:
            record["config"]["source"] = "testbed (strength 0.5, seed 0)"
        assert len(compare(records, ARMS, tuned=["learning_rate"]).runs) == 6

    def test_a_run_on_dev_data_alone_gives_way_to_the_whole_one(self, compare):
        records = [make_record("fine_tuning", 0, 90), make_record("fine_tuning", 0, 90, 50, 60)]
        for order in (records, records[::-1]):
            ((_, record),) = compare(order, ARMS).runs
            assert len(record["metrics"]) == 3

    def test_every_value_of_by_has_a_row_and_a_base_of_its_own(self, compare):
        records = [
            make_record(
                method,
                seed,
                90,
                50 + seed + size / 1000 * (method == "mask_tuning"),
                60,
                train_size=size,
            )
            for method in ("fine_tuning", "mask_tuning")
            for size in (2000, 1000)
            for seed in range(3)
        ]
        comparison = compare(records, ARMS, base="plain", by=["train_size"])
        assert comparison.table()[["arm", "train_size"]].values.tolist() == [
            ["plain", "1000"],
            ["plain", "2000"],
            ["masked", "1000"],
            ["masked", "2000"],
        ]
        shifts = comparison.differences().query("set == 'testbed_contrast'")
        assert dict(zip(shifts["train_size"], shifts["mean"], strict=True)) == pytest.approx(
            {1000: 1, 2000: 2}
        )

    def test_by_a_setting_that_is_called_like_a_set(self, compare):
        records = [make_record("fine_tuning", 0, 90, 50, 60, held_out=size) for size in (200, 100)]
        for record in records:
            record["metrics"]["held_out"] = record["metrics"][INSIDE]
        table = compare(records, ARMS, by=["held_out"]).table()
        assert table["held_out"].tolist() == ["100", "200"]
        assert table["held_out accuracy"].tolist() == [90, 90]

    def test_arms_that_differ_in_what_neither_names_are_refused(self, compare):
        plain = [make_record("fine_tuning", seed, 90, 50, 60) for seed in range(3)]
        masked = [
            make_record("mask_tuning", seed, 90, 50, 60) | {"model": {"files_sha256": "other"}}
            for seed in range(3)
        ]
        plain = [record | {"model": {"files_sha256": "one"}} for record in plain]
        with pytest.raises(
            UserError, match=r"plain and masked cannot be compared: .*model's files"
        ):
            compare([*plain, *masked], ARMS, base="plain").table()
        with pytest.raises(UserError, match="cannot be compared"):
            compare([*plain, *masked], ARMS, changes={"refilled": ("masked", "plain")}).table()
        assert len(compare([*plain, *masked], ARMS).table()) == 2  # where none is judged

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"where": {"trainsize": 9}}, "no setting 'trainsize'.* mean 'train_size'"),
            ({"by": ["learnrate"]}, "no setting 'learnrate'"),
            ({"measures": ["accuracy", "auroc"]}, "auroc: no measure"),
            ({"where": {"task": ["nly"]}}, "task is 'nly'"),
            ({"base": "nobody"}, "nobody: no such arm"),
        ],
    )
    def test_misspelt_names_are_refused(self, compare, fields, message):
        with pytest.raises(ValueError, match=message):
            compare([], ARMS, **fields)

    def test_no_arm_is_lost_where_the_base_stands_last(self, compare, capsys):
        arms = dict(reversed(ARMS.items()))
        _print_comparison(compare(of_two_arms(2, 3, 4), arms, base="plain"), "terminal")
        differences = capsys.readouterr().out.partition("differences to plain")[2]
        assert "masked" in differences and "│ plain" not in differences

    def test_a_base_without_the_settings_of_by_is_the_base_of_all_their_values(self, compare):
        plain, masked = (of_two_arms(2, 3, 4)[place] for place in (slice(3), slice(3, None)))
        masked = [
            run | {"config": run["config"] | {"alpha": alpha}, "identity": f"{alpha}-{number}"}
            for number, run in enumerate(masked)
            for alpha in (0.1, 0.3)
        ]
        comparison = compare([*plain, *masked], ARMS, base="plain", by=("alpha",))
        lines = comparison.differences().query("set == @OUTSIDE[0]")
        assert lines[["alpha", "arm", "mean"]].values.tolist() == [
            [0.1, "masked", pytest.approx(3)],
            [0.3, "masked", pytest.approx(3)],
        ]
        assert list(comparison.table()["alpha"]) == ["all", "0.1", "0.3"]

    def test_arms_of_several_codes(self, compare):
        records = of_two_arms(2, 3)
        for record, code in zip(records, "aabc", strict=True):
            record["environment"] = {"code_sha256": code}
        assert compare(records, ARMS).of_several_codes == ["masked"]

    def test_arms_without_a_run_are_named(self, compare, capsys):
        comparison = compare(of_two_arms(2)[:1], ARMS, base="plain")
        _print_comparison(comparison, "terminal")
        assert "no record belongs to 'masked'" in capsys.readouterr().out
        with pytest.raises(UserError, match="no record belongs to one of its arms"):
            compare([make_record("perturb_first", 0, 90)], ARMS).table()

    def test_a_diverged_run_does_not_count(self, compare):
        lost = make_record("fine_tuning", 0) | {"diverged": True}
        assert len(compare([lost, make_record("fine_tuning", 1, 90, 50, 60)], ARMS).frame()) == 3


class TestDifferences:
    def test_paired_by_seed_by_hand(self, compare):
        shifts = compare(of_two_arms(2, 3, 4), ARMS, base="plain", correction="none").differences()
        line = shifts.set_index("set").loc["testbed_contrast"]
        # mean 3, standard deviation 1, t of two degrees of freedom 4.3027
        assert (line["n"], line["mean"]) == (3, pytest.approx(3))
        assert line["high"] - line["mean"] == pytest.approx(4.3027 / 3**0.5, abs=1e-3)
        assert line["verdict"] == "significantly better"

    def test_unpaired_intervals_have_the_spread_of_both_arms(self, compare):
        records = of_two_arms(3, 3, 3)
        paired = (
            compare(records, ARMS, base="plain")
            .differences()
            .set_index("set")
            .loc["testbed_contrast"]
        )
        welch = (
            compare(records, ARMS, base="plain", paired=False, correction="none")
            .differences()
            .set_index("set")
        )
        line = welch.loc["testbed_contrast"]
        assert paired["low"] == pytest.approx(paired["high"])
        assert paired["verdict"] == "not significantly different"
        # both arms have variance 1, so the standard error is (1/3 + 1/3) ** 0.5 and there are four
        # degrees of freedom
        assert line["high"] - line["mean"] == pytest.approx(2.7764 * (2 / 3) ** 0.5, abs=1e-3)

    def test_intervals_out_of_distribution_are_corrected_for_their_number(self, compare):
        shifts = compare(of_two_arms(2, 3, 4), ARMS, base="plain").differences().set_index("set")
        assert shifts["level"].to_dict() == {INSIDE: 0.95, **dict.fromkeys(OUTSIDE, 0.975)}

    def test_holms_correction_is_of_the_verdict(self, compare):
        """p is 0.035 on both sets, so that the smaller one counts twice: 0.07."""
        records = of_two_arms(2, 3, 4, inside=1)
        shifts = compare(records, ARMS, base="plain", correction="holm").differences()
        shifts = shifts.set_index("set")
        assert (shifts["level"] == 0.95).all() and (shifts.loc[[*OUTSIDE], "low"] > 0).all()
        assert {*shifts.loc[[*OUTSIDE], "verdict"]} == {intervals.OPEN}
        pair = {"changes": {"mask": ("masked", "plain")}, "correction": "holm"}
        shifts = compare(records, ARMS, **pair).differences().set_index("set")
        assert {*shifts.loc[[*OUTSIDE], "verdict"]} == {intervals.BETTER}  # one pair by itself

    def test_an_arm_may_be_level_with_the_base(self, compare):
        """Points of mean 0.2, 90 % interval from 0.03 to 0.37."""
        for margin, verdict in ((1, "level (within 1)"), (0.3, intervals.OPEN)):
            shifts = compare(
                of_two_arms(0.1, 0.2, 0.3), ARMS, base="plain", level_within=margin
            ).differences()
            assert {*shifts.loc[shifts["kind"] == "ood", "verdict"]} == {verdict}

    def test_other_pairs_are_not_corrected_and_need_no_base(self, compare):
        comparison = compare(of_two_arms(2, 3, 4), ARMS, changes={"unmask": ("plain", "masked")})
        (level,) = comparison.differences()["level"].unique()
        assert level == 0.95
        (row,) = comparison.table_of_changes().to_dict("records")
        assert row == {
            "change": "unmask",
            "seeds": 3,
            INSIDE: "+0.0 [+0.0, +0.0]",
            OUTSIDE[0]: "-3.0 [-5.5, -0.5]",
            OUTSIDE[1]: "-3.0 [-5.5, -0.5]",
        }

    def test_a_pair_without_a_common_seed_has_no_difference(self, compare):
        records = [make_record("fine_tuning", 0, 90), make_record("mask_tuning", 1, 91)]
        table = compare(records, ARMS, changes={"mask": ("masked", "plain")}).table_of_changes()
        assert table[["seeds", INSIDE]].values.tolist() == [[0, ""]]

    def test_other_pairs_have_a_row_for_each_value_of_by(self, compare):
        records = [
            make_record(method, 0, accuracy, 50, 60, epochs=epochs)
            for method, epochs, accuracy in (
                ("fine_tuning", 3, 90),
                ("fine_tuning", 6, 80),
                ("mask_tuning", 3, 91),
                ("mask_tuning", 6, 84),
            )
        ]
        table = compare(
            records, ARMS, by=("epochs",), changes={"mask": ("masked", "plain")}
        ).table_of_changes()
        assert table[["change", "epochs", INSIDE]].values.tolist() == [
            ["mask", 3, "+1.0"],
            ["mask", 6, "+4.0"],
        ]

    @pytest.mark.parametrize(
        ("points", "inside", "word"),
        [
            ((2, 3), 0, "too few seeds (2 of 3)"),
            ((30, 31, 32), -3, "no verdict (behind in distribution)"),
            ((-30, -31, -32), -1.9, "significantly worse"),
            ((-9, 0, 9), 0, "not significantly different"),
        ],
    )
    def test_verdicts(self, compare, points, inside, word):
        shifts = compare(of_two_arms(*points, inside=inside), ARMS, base="plain").differences()
        assert set(shifts.query("kind == 'ood'")["verdict"]) == {word}


class TestTables:
    def test_means_differences_and_both_verdicts(self, compare, monkeypatch):
        monkeypatch.setattr(comparisons.paper, "difference", lambda *_: 20.0)
        comparison = compare(
            of_two_arms(2, 3, 4),
            ARMS,
            base="plain",
            paper={"model": "m", "plain": "a", "masked": "b"},
        )
        plain, masked = comparison.table().to_dict("records")
        assert plain["testbed_contrast"] == 51.0 and plain["better on testbed_contrast?"] == ""
        assert masked["testbed_contrast"] == 54.0
        assert (
            masked["better on testbed_contrast?"]
            == "+3.0 [-0.6, +6.6]: not significantly different"
        )
        assert masked["the paper's effect on testbed_contrast?"] == "+20.0: excluded"

    def test_every_comparison_of_the_project_has_runs_and_all_runs_of_an_arm_are_alike(self):
        for name in comparisons.names():
            comparison = comparisons.load(name)
            if all(path.exists() for path in comparison.paths):
                assert comparison.runs, name
                assert not comparison.table().empty
                if comparison.base:
                    assert comparison.base in set(comparison.frame()["arm"])

    def test_unknown_names_are_told_what_there_is(self):
        with pytest.raises(UserError, match=r"'no_such'; expected one of .*peers_testbed"):
            comparisons.load("no_such")


class TestCommand:
    def test_a_comparison_in_markdown_and_in_csv(self):
        lines = call("tables", "readings", "--format", "markdown").splitlines()
        assert "| refilled text (balanced) | 2 | 83.9 | 63.3 | 66.8 |" in "\n".join(lines)
        assert call("tables", "readings", "--format", "csv").count("\n") == 1 + 4 * 2 * 3
        assert call("tables", "claims", "--format", "csv").count("\n") == 1 + len(claims())
        both = pandas.read_csv(StringIO(call("tables", "readings", "sizes", "--format", "csv")))
        n_rows = both.groupby("comparison", sort=False).size()
        assert n_rows["readings"] == 4 * 2 * 3 and n_rows["sizes"] > 0

    def test_records_of_any_runs(self, tmp_path):
        file = tmp_path / "runs.jsonl"
        records = [*of_two_arms(2, 4), make_record("mask_tuning", 0, 70, update="balanced")]
        # the first training's record of before it was scored on all sets counts no second time
        records.append(make_record("fine_tuning", 0, 90, 50))
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        output = call("tables", "--records", file, "--format", "markdown")
        assert "| fine_tuning | 2 | 90.00 ± 0.00 | 50.50 ± 0.71 | 60.00 ± 0.00 |" in output
        assert "| mask_tuning (update balanced) | 1 | 70.00 | not run | not run |" in output

    def test_splits_of_a_set_stand_apart(self, tmp_path):
        records = [make_record("fine_tuning", seed, 90) for seed in range(3)]
        for record, split in zip(records, ("test", "test", "dev"), strict=True):
            record["config"]["splits"] = {INSIDE: split}
        (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, records)))
        output = call("tables", "--records", tmp_path / "runs.jsonl", "--format", "markdown")
        assert f"{INSIDE} (test) | {INSIDE} (dev)" in output
        assert "| fine_tuning | 3 | 90.00 ± 0.00 | 90.00 |" in output

    def test_records_of_ones_own_in_a_comparison(self, tmp_path):
        records = [
            make_record("fine_tuning", seed, 80 + seed, 50, 60, source="testbed", epochs=3)
            for seed in (0, 1)
        ]
        (tmp_path / "runs.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records[:1])
        )
        output = call(
            "tables", "testbed", "--records", tmp_path / "runs.jsonl", "--format", "markdown"
        )
        assert "| shortcut in 90 % of training | 1 | 80.0 | 50.0 | 60.0 |" in output


def test_probabilities_give_auroc_and_intervals_over_items_and_seeds(tmp_path, monkeypatch):
    rows, description = load_described("testbed_contrast", "testbed")
    gold, generator = np.array(rows["label"]), np.random.default_rng(0)
    for (method, rate), seed in itertools.product(
        {"fine_tuning": 0.6, "mask_tuning": 0.9}.items(), range(3)
    ):
        hit = generator.random(len(gold)) < rate
        chances = np.stack([1 - (hit == gold), hit == gold], axis=1) * 0.5 + 0.25
        record = make_record(method, seed) | {"identity": f"{seed}{method}".ljust(64, "0")}
        record["metrics"] = {"testbed_contrast": score_rows("testbed_contrast", chances, rows)}
        record["data"] = {"testbed_contrast": description}
        name = f"run-{record['identity'][:10]}"
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
        np.savez_compressed(tmp_path / f"{name}.npz", testbed_contrast=chances.astype(np.float16))
    comparison = Comparison(
        name="n", about="", records=[str(tmp_path)], arms=ARMS, base="plain", paired=False
    )
    monkeypatch.setattr(comparisons, "_RESULTS", tmp_path)
    (tmp_path / "kept.json").write_text(json.dumps(of_examples(comparison, "testbed", draws=500)))
    comparison = comparison.model_copy(update={"examples": "kept.json"})
    scores = comparison.frame()
    # of predictions with two values the area is the mean of the accuracies on both labels
    assert scores["auroc"].to_numpy() == pytest.approx(scores["balanced"].to_numpy(), abs=1e-3)
    for measure in ("accuracy", "both"):
        (line,) = (
            line for line in comparison.example_results["bootstrap"] if line["measure"] == measure
        )
        means = scores.groupby("arm")[measure].mean()
        assert line["mean"] == pytest.approx(means["masked"] - means["plain"], abs=1e-3)
        assert (line["n"], line["items"]) == (3, 500)
        assert 20 < line["low"] < line["mean"] < line["high"] < 40
    halves = scores[["accuracy", "original"]].mean(axis="columns")
    assert scores["both"].to_numpy() == pytest.approx(halves.to_numpy())
    by_alpha = of_examples(comparison.model_copy(update={"by": ("alpha",)}), "testbed")
    assert by_alpha["bootstrap"] == [] and len(by_alpha["auroc"]) == 6
    monkeypatch.setitem(description, "content_sha256", "of other rows")
    for path in tmp_path.glob("run-*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"data": {"testbed_contrast": description}}))
    other = Comparison(**comparison.model_dump())
    with pytest.raises(UserError, match="testbed_contrast of testbed has other rows than the run"):
        of_examples(other, "testbed")


def test_auroc_of_a_set_with_two_of_three_labels():
    """HANS: what is no entailment is contradiction or neutral."""
    predicted = np.array([[0.6, 0.3, 0.1], [0.4, 0.1, 0.5], [0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    labels = pandas.Series([0, 0, 1, 1])
    of_two = examples._of_its_labels("hans", predicted)
    assert of_two[:, 1] == pytest.approx(1 - predicted[:, 0])
    # of four pairs of an entailment and another one is in the wrong order
    assert examples._aurocs(of_two, pandas.DataFrame({"label": labels})) == {"auroc": 75.0}
    assert examples._of_its_labels("testbed_contrast", predicted) is predicted


def test_auroc_tells_answers_apart_whose_probability_rounds_to_one():
    chances = np.array([[2e-6, 1], [1e-6, 1], [3e-6, 1], [0.5, 0.5]], dtype=np.float16)
    labels = pandas.DataFrame({"label": [1, 1, 0, 0]})
    assert examples._aurocs(chances, labels) == {"auroc": 100.0}
