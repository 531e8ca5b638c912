"""Every plot on small hand-made records."""

import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from mtlib.analysis import figures, tables
from mtlib.analysis.figures import style
from mtlib.analysis.row_names import label
from mtlib.errors import UserError
from mtlib.methods import METHODS, Method

SETS = ("testbed_sentiment", "testbed_contrast")


def metrics(correct, n=100, **more):
    return {"accuracy": correct / n, "correct": correct, "n": n, "majority": 0.5, **more}


def record(method="fine_tuning", seed=0, correct=(90, 40), history=(), **settings):
    config = {"task": "sentiment", "method": method, "source": "testbed", "model": "mini", "seed": seed, **settings}
    return {
        "config": config,
        "metrics": dict(zip(SETS, map(metrics, correct), strict=True)),
        "history": [{"step": step, **entry} for step, entry in history],
    }


RECORDS = [
    record("fine_tuning", 0, (90, 40)),
    record("fine_tuning", 1, (92, 44)),
    record("mask_tuning", 0, (80, 50)),
    record("mask_tuning", 1, (84, 50)),
]


def texts(figure: Figure) -> list[str]:
    figure.draw_without_rendering()
    shown = [axis.get_title(loc=where) for axis in figure.axes for where in ("left", "center")]
    shown += [axis.get_xlabel() for axis in figure.axes] + [axis.get_ylabel() for axis in figure.axes]
    shown += [label.get_text() for axis in figure.axes for label in axis.get_xticklabels() + axis.get_yticklabels()]
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]
    return shown + [text.get_text() for legend in legends for text in legend.get_texts()]


class TestPlots:
    def test_gap(self):
        figure, alt = figures.gap(RECORDS, "a title")
        assert alt == (
            "Accuracy by evaluation set with 95 % intervals: "
            "fine_tuning: testbed_sentiment 91.0 %, testbed_contrast 42.0 %; "
            "mask_tuning: testbed_sentiment 82.0 %, testbed_contrast 50.0 %."
        )
        shown = texts(figure)
        assert {"a title", "accuracy, %", "testbed_sentiment (id)", "testbed_contrast (ood)", "best constant answer",
                "fine-tuning (n = 2)", "Mask-tuning (n = 2)"} <= set(shown)  # fmt: skip
        (axis,) = figure.axes
        assert len(axis.containers) == 4, "an error bar for each method and set"

    @pytest.mark.parametrize("settings", [{"update": "alternating"}, {"update": "balanced"}, {"epochs": 6.0}])
    def test_gap_names_a_variant_beside_the_plain_method(self, settings):
        plain = [run | {"config": run["config"] | {"update": "joint", "epochs": 3.0}} for run in RECORDS]
        (name,) = ["6 epochs" if value == 6 else value for value in settings.values()]
        variant = record("mask_tuning", 0, (70, 60), **{"update": "joint", "epochs": 3.0} | settings)
        figure, alt = figures.gap([*plain, variant])
        assert "mask_tuning: testbed_sentiment 82.0 %" in alt
        assert f"mask_tuning ({name}): testbed_sentiment 70.0 %" in alt
        assert {"Mask-tuning (n = 2)", f"Mask-tuning ({name}) (n = 1)"} <= set(texts(figure))

    def test_gap_names_a_combination(self):
        plain = record("mask_tuning", 0, (80, 50), classification="fine_tuning", bias="by_task")
        combined = record("mask_tuning", 0, (70, 60), classification="reweight", bias="shortcut")
        _, alt = figures.gap([plain, combined])
        assert "mask_tuning: testbed_sentiment 80.0 %" in alt
        assert "mask_tuning (with reweight): testbed_sentiment 70.0 %" in alt

    def test_gap_does_not_pool_runs_of_other_settings(self):
        """Alpha 0.1 and 0.6 have no common mean, nor have two runs of the same settings and seed."""
        runs = [record("mask_tuning", 0, (70 + place, 60), alpha=alpha) for place, alpha in enumerate((0.1, 0.6))]
        _, alt = figures.gap(runs)
        assert "mask_tuning (alpha 0.1): testbed_sentiment 70.0 %" in alt
        assert "mask_tuning (alpha 0.6): testbed_sentiment 71.0 %" in alt
        with pytest.raises(UserError, match="two different runs of mask_tuning have seed 0"):
            figures.gap([runs[0], record("mask_tuning", 0, (75, 60), alpha=0.1)])
        other = record(source="testbed (strength 0, seed 0)")
        assert "fine_tuning (testbed (strength 0, seed 0)): " in figures.gap([record(), other])[1]

    def test_gap_of_many_rows_has_a_panel_for_each_set(self):
        many = [record(arm, 0, (60 + place, 50)) for place, arm in enumerate(list(METHODS)[:6])]
        figure, alt = figures.gap(many, "a title")
        figure.draw_without_rendering()
        inside, outside = figure.axes
        assert (inside.get_title(loc="left"), outside.get_title(loc="left")) == (
            "testbed_sentiment\n(id)",
            "testbed_contrast\n(ood)",
        )
        assert [text.get_text() for text in inside.get_yticklabels()] == [
            f"{METHODS[arm].label} (n = 1)" for arm in list(METHODS)[:6]
        ]
        drawn = [container.lines[0].get_xydata()[0].tolist() for container in inside.containers]
        assert drawn == [[60 + place, place] for place in range(6)]
        assert alt == figures.gap(many)[1] and figure.get_suptitle() == "a title"

    def test_gap_starts_at_40_where_nothing_lies_below(self):
        for lowest, start in ((60, 40), (30, -2)):
            figure, _ = figures.gap([record("fine_tuning", 0, (80, lowest))])
            assert figure.axes[0].get_xlim()[0] == start

    def test_gap_leaves_diverged_runs_out(self):
        lost = record("mask_tuning", 2) | {"metrics": {}, "diverged": True}
        assert figures.gap([*RECORDS, lost])[1] == figures.gap(RECORDS)[1]

    @pytest.mark.parametrize("arms", [("fine_tuning",), ("fine_tuning", "no_integrated_loss")])
    def test_a_legend_stays_inside_the_figure(self, arms):
        longest = record("mask_tuning", 0, (70, 60), update="alternating")
        others = [record(arm, seed, (80, 50)) for arm in arms for seed in range(2)]
        figure, _ = figures.gap([*others, record("mask_tuning", 0), longest])
        figure.draw_without_rendering()
        (box,) = (legend.get_window_extent() for legend in figure.legends)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width

    def test_gap_puts_in_distribution_first_whatever_the_order(self):
        turned = [run | {"metrics": dict(reversed(run["metrics"].items()))} for run in RECORDS]
        assert figures.gap(turned)[1] == figures.gap(RECORDS)[1]

    def test_gap_has_the_sets_that_all_records_have(self):
        lacking = record("mask_tuning", 0, (80, 50))
        del lacking["metrics"][SETS[1]]
        (axis,) = figures.gap([record(), lacking])[0].axes
        assert [label.get_text() for label in axis.get_yticklabels()] == [f"{SETS[0]} (id)"]

    def test_differences(self):
        """Paired by seed: 80 - 90 and 84 - 92, 50 - 40 and 50 - 44."""
        (table,) = tables.make_tables(RECORDS)
        figure, alt = figures.differences(table, "a title")
        assert alt == (
            "Paired differences to fine-tuning in points: mask_tuning: testbed_sentiment -9.0, testbed_contrast +8.0."
        )
        lines = {"testbed_sentiment (id)", "testbed_contrast (ood)"}
        assert {"a title", "Mask-tuning (n = 2)", *lines} <= set(texts(figure))
        (axis,) = figure.axes
        assert [bar.lines[0].get_xdata()[0] for bar in axis.containers] == pytest.approx([-9, 8])

    def test_no_difference_is_an_error(self):
        (table,) = tables.make_tables(RECORDS[:2])
        with pytest.raises(UserError, match="no difference to show"):
            figures.differences(table)

    def test_curve_has_even_steps_and_true_labels(self):
        points = {value: [record("mask_tuning", 0, (round(100 * value), 50))] for value in (0.9, 0.0, 0.01)}
        figure, alt = figures.curve(points, "alpha", "a title")
        (axis,) = figure.axes
        assert list(axis.get_xticks()) == [0, 1, 2]
        assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "0.01", "0.9"]
        assert list(axis.lines[0].get_ydata()) == pytest.approx([0, 1, 90])
        assert "testbed_sentiment: 0 % at 0, 1 % at 0.01, 90 % at 0.9" in alt
        assert {"alpha (not to scale)", "accuracy, %", "testbed_contrast (ood)"} <= set(texts(figure))

    def test_curve_has_balanced_accuracy_where_one_label_is_common(self):
        def point(right, majority):
            run = record("mask_tuning", 0, (sum(right), 50))
            labels = {
                "negative": {"n": 80, "accuracy": right[0] / 80},
                "positive": {"n": 20, "accuracy": right[1] / 20},
            }
            run["metrics"]["testbed_sentiment"] |= {"majority": majority, "per_label": labels}
            return [run]

        settings = {0.0: point((80, 0), 0.8), 0.5: point((60, 10), 0.8)}
        figure, alt = figures.curve(settings, "alpha")
        lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
        assert lines["testbed_sentiment, balanced accuracy"] == pytest.approx([50, 62.5])
        assert "testbed_sentiment, balanced: 50 % at 0, 62 % at 0.5" in alt
        _, alt = figures.curve(settings | {0.5: point((60, 10), 0.55)}, "alpha")
        assert "balanced" not in alt

    def test_against_size(self):
        """Rates, which are chosen for each arm, make no rows of their own; the update does. None is the whole set."""
        runs = [
            record(method, seed, correct, train_size=part.get("used_rows"), update=update, learning_rate=rate)
            | {"cost": {"steps": steps}, "data": {"train": {"rows": 4000, **part}}}
            for part, steps, shift in (({"used_rows": 1000}, 188, 0), ({}, 750, 8))
            for method, update, rate, correct in (
                ("fine_tuning", None, 1e-4, (70 + shift, 60)), ("mask_tuning", "joint", 5e-4, (50 + shift, 50)),
                ("mask_tuning", "balanced", 1e-4, (66 + shift, 58)),
            )
            for seed in range(2)
        ]  # fmt: skip
        figure, alt = figures.against_size(runs)
        assert "mask_tuning on testbed_sentiment: 50 % at 1,000, 58 % at 4,000" in alt
        assert {"Mask-tuning", "Mask-tuning (balanced)", "1,000\n(188)", "4,000\n(750)"} <= set(texts(figure))
        inside, outside = figure.axes
        drawn = [container.lines[0].get_xydata() for container in inside.containers]
        assert np.array([line[:, 1] for line in drawn]) == pytest.approx(np.array([[70, 78], [50, 58], [66, 74]]))
        assert [list(line[:, 0].round()) for line in drawn] == [[0, 1]] * 3
        assert len(outside.containers) == 3
        hollow = [line for line in inside.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
        assert len(hollow) == 3, "two seeds at either size"
        figure, _ = figures.against_size([run for run in runs if run["config"]["seed"] == 0])
        assert not any(line.get_markerfacecolor() == "white" and len(line.get_xdata()) for line in figure.axes[0].lines)

    def test_probes(self):
        counts = {"majority": {"testbed_contrast": (50, 100), "testbed_sentiment": (52, 100)},
                  "shortcut only": {"testbed_contrast": (10, 100), "testbed_sentiment": (90, 100)}}  # fmt: skip
        figure, alt = figures.probes(counts)
        assert alt == (
            "Accuracy of simple rules: majority: testbed_sentiment 52 %, testbed_contrast 50 %; "
            "shortcut only: testbed_sentiment 90 %, testbed_contrast 10 %."
        )
        (axis,) = figure.axes
        assert sorted(patch.get_width() for patch in axis.patches) == pytest.approx([10, 50, 52, 90])
        assert len({patch.get_hatch() for patch in axis.patches}) == 2, "a second cue besides colour"

    def test_split(self):
        figure, alt = figures.split({"agrees": (9, 10), "disagrees": (1, 4)}, measure="share")
        (axis,) = figure.axes
        assert [bar.get_width() for bar in axis.patches] == [90, 25]
        assert [label.get_text() for label in axis.get_yticklabels()] == ["agrees\n(10 rows)", "disagrees\n(4 rows)"]
        assert alt == "Share: agrees 90.0 % of 10, disagrees 25.0 % of 4." and "share, %" in axis.get_xlabel()

    def test_dial(self):
        counts = {0.9: {SETS[0]: (91, 100)}, 0.0: {SETS[0]: (1, 4)}}
        figure, alt = figures.dial(counts)
        assert alt == (
            "Share of rows where the shortcut is right, by its strength: testbed_sentiment: 25 % at 0, 91 % at 0.9."
        )
        (axis,) = figure.axes
        assert list(axis.lines[0].get_xdata()) == [0, 0.9] and list(axis.lines[0].get_ydata()) == [25, 91]

    def test_equal_values_do_not_hide_each_other(self):
        counts = {strength: dict.fromkeys(SETS, (1, 2)) for strength in (0.0, 0.9)}
        points = {value: [record("mask_tuning", 0, (50, 50))] for value in (0.0, 0.9)}
        for figure, _ in (figures.dial(counts), figures.curve(points, "alpha")):
            figure.draw_without_rendering()
            (axis,) = figure.axes
            lines = [container.lines[0] for container in axis.containers] or axis.lines
            first, second = (line.get_transform().transform(line.get_xydata()) for line in lines[:2])
            assert (abs(first[:, 0] - second[:, 0]) >= 4).all() and first[:, 1] == pytest.approx(second[:, 1])
            for place in (*first, *second):
                assert axis.bbox.contains(*place), "no marker is cut off at the edge"

    def test_planted(self):
        """A line per run, by task and from the strongest shortcut to none; the worst set out of distribution counts."""
        sets = ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")
        runs = []
        for source, correct in (("testbed (strength 0, seed 0)", (80, 70, 75)), ("testbed", (95, 20, 10))):
            runs.append(record(source=source))
            runs[-1]["config"]["source"] = source
            runs[-1]["metrics"] = dict(zip(sets, map(metrics, correct), strict=True))
        figure, alt = figures.planted(runs)
        assert alt == (
            "Fine-tuned bundled model on the testbed: "
            "sentiment, shortcut 0.9: 95 % in, 10 % worst out of distribution; "
            "sentiment, no shortcut: 80 % in, 70 % worst out of distribution."
        )
        with pytest.raises(UserError, match="a record's source is 'folder'; expected the testbed"):
            figures.planted([record(source="folder")])
        (axis,) = figure.axes
        assert [list(line.get_xdata()) for line in axis.lines[:3]] == [[10, 95], [95], [20, 10]]
        assert len(set(axis.lines[2].get_ydata())) == 2, "two sets with equal accuracies stay visible"
        assert {"in distribution", "out of distribution", "sentiment, no shortcut"} <= set(texts(figure))

    def test_shares_over(self):
        def share(value):
            return SimpleNamespace(share=value, low=value - 0.1, high=value + 0.2, n=40)

        series = {"one": {1: share(0.5), 2: share(0.25)}, "two": {1: share(0.3), 2: share(0.4)}}
        figure, alt = figures.shares_over(series, "masks", "kept, %")
        assert alt == "kept, %: one: 50 % at masks 1, 25 % at masks 2; two: 30 % at masks 1, 40 % at masks 2."
        (axis,) = figure.axes
        first = axis.containers[0]
        assert list(first.lines[0].get_ydata()) == [50, 25]
        (bars,) = first.lines[2]
        assert [[y for _, y in ends] for ends in bars.get_segments()] == [
            pytest.approx([40, 70]),
            pytest.approx([15, 45]),
        ]
        assert {"masks", "kept, %", "one (n = 40)", "two (n = 40)"} <= set(texts(figure))

    def test_stacked(self):
        figure, alt = figures.stacked({"a": {"kept": 0.5, "lost": 0.48, "new": 0.02}}, "What becomes of it")
        assert alt == "What becomes of it: a: kept 50 %, lost 48 %, new 2 %."
        (axis,) = figure.axes
        assert [patch.get_x() for patch in axis.patches] == pytest.approx([0, 50, 98])
        assert [patch.get_width() for patch in axis.patches] == pytest.approx([50, 48, 2])
        assert [text.get_text() for text in axis.texts] == ["50", "48"], "no number in a sliver"

    def test_learning_curves(self):
        """The mean of two runs at the three steps that both have; so short a log is not smoothed."""
        first = record(history=[(1, {"ft_loss": 3.0}), (2, {"ft_loss": 2.0}), (3, {"ft_loss": 1.0})])
        second = record(seed=1, history=[(step, {"ft_loss": 1.0 if step < 4 else 9.0}) for step in (1, 2, 3, 4)])
        figure, alt = figures.learning_curves([first, second], ("ft_loss", "mlm_loss"))
        losses, empty = figure.axes
        *_, mean = losses.lines
        assert list(mean.get_xdata()) == [1, 2, 3]
        assert list(mean.get_ydata()) == pytest.approx([(3 + 1) / 2, (2 + 1) / 2, (1 + 1) / 2])
        assert "ft_loss of fine_tuning from 2.00 to 1.00" in alt and "mlm_loss" not in alt
        assert not empty.lines and {"ft_loss, nats\n(running mean)", "optimiser step", "fine-tuning (n = 2)"} <= set(
            texts(figure)
        )

    def test_a_figure_grows_with_its_legend(self):
        heights = []
        for n in (2, 6, 9):
            figure, (axis,) = style.new(7.0, 2.0)
            style.legend_below(figure, {"x" * 30 + str(i): axis.plot([0], [0])[0] for i in range(n)})
            heights.append(figure.get_figheight())
        assert heights == pytest.approx([2.0, 2.2, 2.6])  # of 1, 3 and 5 lines in two columns

    def test_learning_curves_of_many_rows_have_a_panel_each(self):
        many = [record(arm, history=[(1, {"ft_loss": 1.0}), (2, {"ft_loss": 4.0})]) for arm in list(METHODS)[:5]]
        figure, alt = figures.learning_curves(many)
        figure.draw_without_rendering()
        titles = [axis.get_title(loc="left") for axis in figure.axes]
        assert [title.replace("\u00a0", " ") for title in titles] == [
            f"{METHODS[arm].label} (n = 1)" for arm in list(METHODS)[:5]
        ]
        assert not figure.legends and alt.count("from 1.00 to 4.00") == 5
        assert all(axis.get_ylim()[0] == 0 and axis.get_ylim()[1] >= 4 for axis in figure.axes)

    def test_a_plateau_keeps_its_end(self):
        """Forty entries at ln 2, then zero: a mean over the last eight has none of what comes later."""
        record_of_plateau = record(history=[(step, {"ft_loss": 0.69 if step <= 40 else 0.0}) for step in range(1, 49)])
        figure, _ = figures.learning_curves([record_of_plateau])
        *_, mean = figure.axes[0].lines
        assert list(mean.get_ydata()[:40]) == pytest.approx([0.69] * 40) and mean.get_ydata()[-1] == pytest.approx(0)

    def test_a_single_run_beside_several_seeds_has_no_interval(self):
        """A Wilson interval of one run beside t intervals over seeds would make it look the most certain."""
        single, pair = record("mask_tuning"), [record(seed=seed) for seed in (0, 1)]
        drawn, _ = figures.gap([single, *pair])
        bars = [bar for container in drawn.axes[0].containers for bar in container.lines[2]]
        widths = [np.ptp(bar.get_segments()[0][:, 0]) for bar in bars]
        assert sum(width > 0 for width in widths) <= len(widths) / 2
        alone, _ = figures.gap([single])
        assert all(np.ptp(c.lines[2][0].get_segments()[0][:, 0]) > 0 for c in alone.axes[0].containers)

    def test_gradients(self):
        history = [(1, {"mlm_grad_norm": 20.0, "ft_grad_norm": 1.0, "grad_cosine": 0.25}), (2, {"loss": 1.0}),
                   (3, {"mlm_grad_norm": 10.0, "ft_grad_norm": 0.5, "grad_cosine": -0.25})]  # fmt: skip
        figure, alt = figures.gradients([record("mask_tuning", history=history)])
        assert alt == (
            "Gradients on the shared trunk: norm of L_MLM (mask_tuning) 10.00 to 20.00; norm of L_FT (mask_tuning) "
            "0.50 to 1.00; cosine (mask_tuning) -0.25 to +0.25."
        )
        assert figure.axes[0].get_yscale() == "log"

    def test_gradients_that_were_not_logged(self):
        with pytest.raises(UserError, match=r"mask_tuning have no mlm_grad_norm .*--gradient-diagnostics"):
            figures.gradients([record("mask_tuning", history=[(1, {"loss": 1.0})])])

    def test_loss_scatter(self):
        """One example in each of the paper's four fields; ln 2 itself counts as right."""
        low, high = np.log(2), 2.0
        figure, alt = figures.loss_scatter({"start": (np.array([low, low, high, high]), np.array([low, high] * 2))})
        assert "start: I.1 25 %, I.2 25 %, II, label right 25 %, II, label wrong 25 %" in alt
        assert {"start", "mlm_loss, nats", "ft_loss, nats"} <= set(texts(figure))
        _, alt = figures.loss_scatter({"a": (np.zeros(3), np.zeros(3)), "b": (np.ones(2), np.zeros(2))})
        assert "a: I.1 100 %" in alt and "b: I.1 0 %, I.2 0 %, II, label right 100 %" in alt

    @pytest.mark.filterwarnings("error")
    def test_loss_scatter_of_examples_that_are_only_guessed(self):
        """Nothing stands outside the panels, or these would shrink to nothing."""
        guessed = np.array([0.69, 0.7])
        figure, _ = figures.loss_scatter({"a": (np.array([20.0, 3.0]), guessed), "b": (np.array([0.1, 3.0]), guessed)})
        figure.draw_without_rendering()
        assert all(axis.get_position().height > 0.3 for axis in figure.axes)


def test_a_set_without_groups():
    with pytest.raises(UserError, match="testbed_contrast has no groups"):
        figures.group_means(RECORDS, "testbed_contrast")


def test_groups_by_method_are_means_over_seeds():
    def hans(method, seed, *correct):
        halves = dict(zip(("entailment", "non-entailment"), map(metrics, correct), strict=True))
        groups = {"subsequence": {**metrics(50), **halves}}
        return record(method, seed) | {"metrics": {"hans": metrics(50, per_group=groups)}}

    records = [hans("fine_tuning", 0, 98, 2), hans("fine_tuning", 1, 100, 4), hans("mask_tuning", 0, 80, 20)]
    figure, alt = figures.group_means(records, "hans")
    assert "subsequence, gold non-entailment (n = 100)" in texts(figure) and "fine-tuning (n = 2)" in texts(figure)
    assert "fine_tuning: subsequence, gold non-entailment 3 %, subsequence, gold entailment 99 %" in alt


def test_readers_settings_stay_what_they_are(tmp_path):
    before = dict(matplotlib.rcParams)
    figure, alt = figures.gap(RECORDS)
    figures.save(figure, tmp_path, "gap", alt)
    figures.probes({"majority": {SETS[0]: (1, 2)}})
    assert dict(matplotlib.rcParams) == before


def test_every_row_has_a_look_of_its_own():
    variants = [f"mask_tuning ({name})" for name in ("alternating", "balanced", "alpha 0.1", "alpha 0.3")]
    looks = style.looks([*METHODS, "fine_tuning (6 epochs)", *variants])
    assert len({look.colour for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks), "the second cue"
    assert looks["mask_tuning (balanced)"] == ("Mask-tuning (balanced)", "#882255", (4, 1, 0))


def test_an_arm_looks_the_same_whatever_it_is_compared_with():
    balanced, at_random, told = (
        f"mask_tuning ({words}balanced)" for words in ("", "exact:0.05, ", "known_shortcut:1, ")
    )
    looks = style.looks(["fine_tuning", at_random, told])
    assert looks[at_random] == ("Mask-tuning (random, 5 %, balanced)", *style.looks([balanced])[balanced][1:])
    assert looks[told].label == "Mask-tuning (shortcut's words, all of them, balanced)"
    often = style.looks([at_random, *(at_random.replace("0.05", f"0.{rate}") for rate in range(1, 30))])
    assert len({look[1:] for look in often.values()}) == len(often), "many rates of one policy in one figure"


def test_a_seventh_method_recolours_no_other(monkeypatch):
    rows = [*METHODS, "mask_tuning (alternating)", "mask_tuning (alpha 0.1)"]
    before = style.looks(rows)
    seventh = Method("made_up", "Made Up", "made up", colour="#123456", marker="*")
    monkeypatch.setitem(METHODS, "made_up", seventh)
    assert {row: look for row, look in style.looks(["made_up", *rows]).items() if row in rows} == before
    figure, alt = figures.gap([*RECORDS, record("made_up", 0, (60, 60))])
    assert "made_up: testbed_sentiment 60.0 %" in alt and "Made Up (n = 1)" in texts(figure)
    (marker,) = [bar.lines[0] for bar in figure.axes[0].containers[-2:-1]]
    assert (marker.get_color(), marker.get_marker()) == ("#123456", "*")


def test_nothing_stays_open():
    import matplotlib.pyplot as plt

    figures.gap(RECORDS)
    assert plt.get_fignums() == []


def description(svg) -> str:
    """What the file says of itself (Dublin Core, as matplotlib writes it)."""
    return ElementTree.parse(svg).find(".//{http://purl.org/dc/elements/1.1/}description").text


def test_saved_files_are_the_same_bytes_twice_and_say_what_they_show(tmp_path):
    for folder in ("a", "b"):
        figure, alt = figures.gap(RECORDS)
        paths = figures.save(figure, tmp_path / folder, "gap", alt)
        assert [path.name for path in paths] == ["gap.png", "gap.svg"]
    for name in ("gap.png", "gap.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert description(tmp_path / "a" / "gap.svg") == alt
    assert alt.encode() in (tmp_path / "a" / "gap.png").read_bytes()
    assert (tmp_path / "a" / "gap.png").read_bytes().startswith(b"\x89PNG")


def test_shown_figures_carry_their_sentence(monkeypatch):
    from IPython import display

    seen = []
    monkeypatch.setattr(display, "display", lambda *args, **kwargs: seen.append((args, kwargs)))
    figures.show(*figures.gap(RECORDS), "Fine-tuning falls.")
    (((data,), options), ((caption,), _)) = seen
    alt = data["text/plain"]
    assert options["metadata"]["image/png"]["alt"] == alt and caption.data == "*Fine-tuning falls.*"
    figures.show(*figures.method())
    assert len(seen) == 3, "no sentence, no caption"
    assert data["image/png"].startswith(b"\x89PNG")


class TestHowAShortcutIsRemoved:
    def test_reweighting(self):
        figure, alt = figures.reweighting(0.9)
        assert alt == (
            "Reweighting: share of the examples: the bias is right 90 %, the bias is wrong 10 %; "
            "share of the loss: the bias is right 50 %, the bias is wrong 50 %."
        )
        (axis,) = figure.axes
        np.testing.assert_allclose([bar.get_width() for bar in axis.patches], [90, 10, 50, 50])

    def test_ensembling(self):
        figure, alt = figures.ensembling(0.9)
        assert alt.endswith("alone 0.50, product, the bias is right 0.10, product, the bias is wrong 0.90.")
        alone, right, wrong = (line.get_ydata() for line in figure.axes[0].lines)
        assert (right < alone).all() and (alone < wrong).all()
        np.testing.assert_allclose(right[79], 1 - 0.8 * 0.9 / (0.8 * 0.9 + 0.2 * 0.1))

    def test_the_drawn_product_is_that_of_the_loss(self):
        import torch

        from mtlib.methods.product_of_experts import product_of_experts_loss

        logits = torch.tensor([[0.7, 0.3]]).log().requires_grad_()
        loss, _ = product_of_experts_loss(logits, torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
        loss.backward()
        drawn = figures.ensembling(0.9)[0].axes[0].lines[1].get_ydata()
        assert -logits.grad[0, 0].item() == pytest.approx(drawn[69])

    def test_softening(self):
        figure, alt = figures.softening(0.9, 0.5)
        target = 0.9**0.5 / (0.9**0.5 + 0.1**0.5)  # 0.75
        assert alt == (
            "Target for the gold label where the teacher says 90 %: the bias is right: 75 %; the bias is wrong: 75 %."
        )
        assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([100 * target] * 2)

    def test_token_rows(self):
        figure, alt = figures.token_rows([("one", ["a", "b"]), ("two", ["a", "c"])], [(), (1,)], "Refilling")
        assert alt == "Refilling: one: a, b; two: a, c (marked)."
        assert [bar.get_hatch() for bar in figure.axes[0].patches] == [None, None, None, "///"]


def test_what_is_combined_with_mask_tuning_stands_in_words():
    assert label("mask_tuning (with product_of_experts, balanced)") == (
        "Mask-tuning (with product of experts, balanced)"
    )
