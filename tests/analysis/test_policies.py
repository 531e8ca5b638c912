"""The comparison of masking policies from hand-made records."""

import pytest

from mtlib.analysis import figures
from mtlib.analysis.frame import share_changed_at_the_end
from mtlib.analysis.policies import arm, label, losses_of_meta_learning, points, scores, seeds_in_words, verdicts
from mtlib.errors import UserError

SETS = ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")
MASKS = {
    "policies": {
        name: {"touches_shortcut": {"any": some, "all": whole}}
        for name, some, whole in (
            ("exact:0.05", 0.25, 0.0), ("exact:0.3", 0.9, 0.01), ("supervised", 0.05, 0.0),
            ("known_cause:0.05", 0.0, 0.0), ("known_shortcut:1", 1.0, 1.0),
        )
    }
}  # fmt: skip


def record(name: str, correct: tuple, seed: int = 0, **settings) -> dict:
    """Of an arm; `correct` of 100 on each set."""
    policy, _, rate = name.partition(":")
    masked = {"method": "mask_tuning", "masking": policy, "mask_rate": float(rate or 0.05)}
    config = {"task": "sentiment", "source": "testbed", "model": "mini", "seed": seed, "learning_rate": 1e-4}
    config |= {"method": policy, "masking": None} if policy == "fine_tuning" else masked
    counts = zip(SETS, correct, strict=False)
    return {
        "config": config | settings,
        "metrics": {of: {"accuracy": c / 100, "correct": c, "n": 100, "majority": 0.5} for of, c in counts},
    }


ONE_SEED = [
    record("fine_tuning", (90, 10, 20)),
    record("exact:0.05", (89, 20, 20)),
    record("known_shortcut:1", (95, 80, 84)),
    record("supervised", (80, 10, 10)),
]


def test_names_of_arms():
    names = ["fine_tuning", "exact:0.15", "supervised", "known_shortcut:1"]
    assert [arm(record(name, (1, 1, 1))["config"]) for name in names] == names
    assert [*map(label, names)] == [
        "fine-tuning (no masks)", "random, 15 %", "pointed span", "shortcut's words, all of them",
    ]  # fmt: skip


def test_the_gap_is_in_minus_the_mean_out_of_distribution():
    found = points(ONE_SEED, MASKS)
    assert list(found.index) == ["fine_tuning", "exact:0.05", "supervised", "known_shortcut:1"]
    assert found["gap"].tolist() == pytest.approx([75, 69, 70, 13])
    assert found["touched"].tolist() == [0, 25, 5, 100] and found["gone"].tolist() == [0, 0, 0, 100]
    assert found["trained"].tolist() == [True, True, False, True]
    assert found["n"].tolist() == [1] * 4 and found["low"].isna().all()


def test_precisions_are_named_where_they_differ():
    other = record("known_shortcut:1", (95, 80, 84), seed=1, precision="float32")
    found = points([run | {"config": {"precision": "bf16"} | run["config"]} for run in (*ONE_SEED, other)], MASKS)
    assert found.loc["known_shortcut:1", ["n", "precision"]].tolist() == [2, "bf16, float32"]
    assert found.loc["fine_tuning", "precision"] == "bf16" and "precision" not in points(ONE_SEED, MASKS)


def test_interval_over_three_seeds_and_none_over_two():
    two = [*ONE_SEED, record("fine_tuning", (92, 10, 20), seed=1)]
    assert points(two, MASKS).loc["fine_tuning", ["n", "gap", "low", "high"]].tolist() == [2, 76, None, None]
    found = points([*two, record("fine_tuning", (91, 10, 20), seed=2)], MASKS)
    # gaps 75, 77 and 76: t(0.975, 2) = 4.3027, standard error 1 / sqrt(3)
    assert found.loc["fine_tuning", ["low", "high"]].tolist() == pytest.approx([73.516, 78.484], abs=1e-3)


def test_what_came_back_at_the_end_of_training():
    history = [{"share_changed": share, "epoch": epoch} for share, epoch in ((0.9, 1.0), (0.5, 1.5), (0.3, 1.99))]
    records = [ONE_SEED[0], ONE_SEED[1] | {"history": history}, ONE_SEED[2] | {"history": [{"step": 2}]}]
    found = points(records, MASKS)["came_back"]
    assert found["exact:0.05"] == pytest.approx(60) and found.isna().tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("keys", "share"),
    [
        (("epoch",), 0.65),  # of 0.6 and 0.7
        ((), 0.5),  # of 0.3 to 0.7
        (("epoch", "stage"), 0.7),
    ],
)
def test_the_end_of_training_is_its_last_epoch_or_the_last_five_entries(keys, share):
    history = [
        {"share_changed": number / 10, "epoch": epoch, "stage": "second" if epoch == 3 else "first"}
        for number, epoch in enumerate((1, 1, 2, 2, 2, 2.5, 3), 1)
    ]
    history = [{key: entry[key] for key in ("share_changed", *keys)} for entry in history]
    record = {"history": [*history, {"loss": 0.5, "epoch": 3}, {"share_changed": None, "epoch": 3}]}
    assert share_changed_at_the_end([record, {"history": []}]) == pytest.approx(share)
    assert share_changed_at_the_end([{"history": []}]) is None


def test_a_grid_beside_the_comparison_is_left_out():
    grid = [record("exact:0.05", (50,), learning_rate=2e-4), record("exact:0.05", (60, 1, 1), learning_rate=2e-4)]
    assert scores([*grid, *ONE_SEED]).equals(scores(ONE_SEED))
    assert scores([record("exact:0.05", (50, 1, 1)) | {"diverged": True}]).empty and scores([]).empty


def test_fine_tuning_for_another_time_is_left_out():
    short = [record("fine_tuning", (50, 1, 1), epochs=3), record("known_shortcut:1", (50, 1, 1), epochs=3)]
    long = [record(name, (90, 10, 10), epochs=8) for name in ("fine_tuning", "exact:0.05", "exact:0.3")]
    assert scores([*short, *long]).equals(scores(long)) and len(scores(long)) == 3
    grid = [record("known_shortcut:1", (50, 1, 1), epochs=3, learning_rate=rate) for rate in (1e-5, 1e-3)]
    assert scores([*long[:2], *short, *grid]).equals(scores(long[:2])), "one arm each: the longer runs"
    assert scores(short[:1]).empty, "fine-tuning alone is no comparison"


def test_each_method_is_a_comparison_of_its_own():
    other = [record(name, (80, 70, 70), method="no_integrated_loss", epochs=3) for name in ("known_shortcut:1",)]
    other.append(record("fine_tuning", (88, 12, 12), epochs=3))
    both = [*other, *ONE_SEED]
    assert scores(both).equals(scores(ONE_SEED))
    assert points(both, MASKS, "no_integrated_loss")["gap"].tolist() == pytest.approx([76, 10])
    figure, _ = figures.gap_by_touch(both, MASKS, method="no_integrated_loss")
    assert len(figure.axes[1].lines) == 2
    assert verdicts(both, "no_integrated_loss")["seeds"].tolist()[:2] == [1, 1]


def test_without_fine_tuning_nobody_knows_what_is_trained():
    assert points(ONE_SEED[1:], MASKS)["trained"].tolist() == [None] * 3


def of_three_seeds(name: str, *correct: tuple) -> list[dict]:
    return [record(name, scores, seed) for seed, scores in enumerate(correct)]


def test_verdicts():
    records = [
        *of_three_seeds("fine_tuning", (90, 10, 20), (90, 11, 20), (90, 12, 20)),
        *of_three_seeds("known_shortcut:1", (90, 80, 10), (90, 82, 11), (90, 81, 10)),
        *of_three_seeds("exact:0.05", (90, 10, 20), (90, 20, 30)),
        *of_three_seeds("exact:0.3", (90, 15, 20), (90, 25, 31)),
        *of_three_seeds("supervised", (70, 10, 1), (70, 10, 1), (70, 10, 1)),
    ]
    found = verdicts(records).set_index(["expected to be better", "than", "set"]).sort_index()
    control, fine_tuning = "shortcut's words, all of them", "fine-tuning (no masks)"
    assert found.loc[(control, fine_tuning), "verdict"].tolist() == ["holds here", "does not hold here"]
    assert found.loc[(control, fine_tuning), "difference"].tolist() == pytest.approx([70, -29 / 3])
    # 70, 71, 69: t(0.9875, 2) = 6.2053, standard error 1 / sqrt(3)
    assert found.loc[(control, fine_tuning), "high"].iloc[0] == pytest.approx(70 + 6.2053 / 3**0.5, abs=1e-3)
    assert found.loc[("random, 30 %", "random, 5 %"), "verdict"].tolist() == ["too few seeds (2 of 3)"] * 2
    assert found.loc[("random, 30 %", "random, 5 %"), "seeds"].tolist() == [2, 2]
    assert found.loc[(control, "pointed span"), "verdict"].tolist() == ["no verdict (behind in distribution)"] * 2
    assert found.loc[(control, "deciding words, 5 %"), "seeds"].tolist() == [0, 0]


def test_losses_of_meta_learning_have_a_line_for_each_training():
    def run(source: str, seed: int, **losses) -> dict:
        stage = {f"meta_learned_{name}": value for name, value in losses.items()}
        data = {"train": {"set": "sst2_train"}}
        return {"config": {"source": source, "seed": seed}, "data": data, "cost": {"stages": [{"name": "", **stage}]}}

    learned = {"steps": 200, "first_loss": 0.7, "last_loss": 0.6}
    again = learned | {"last_loss": 0.61}  # the same scores on another processor, in another run
    old = {"steps": 200}  # a record of before the losses were noted
    runs = [
        run("testbed", 0, **learned),
        run("testbed", 0, **again),
        run("folder", 3, **learned),
        run("testbed", 1, **old),
    ]
    table = losses_of_meta_learning([*runs, run("testbed", 1, **old)])
    assert table.index.tolist() == ["sst2_train", "testbed"]
    assert table.loc["testbed"].tolist() == [0, 200, 0.7, 0.6]


def test_no_records_no_verdict():
    assert verdicts([])["verdict"].unique().tolist() == ["not run"]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([1, 1], "one seed a point, so no verdict"),
        ([2, 2], "2 seeds a point; no verdict under 3"),
        ([1, 3], "1 to 3 seeds a point; no verdict under 3"),
        ([5, 5], "5 seeds a point"),
    ],
)
def test_how_many_seeds_stand_behind_a_point(numbers, words):
    assert seeds_in_words(numbers) == words


class TestFigures:
    def test_gap_by_touch(self):
        unknown = record("whole_word:0.05", (90, 10, 20))  # not among the masks
        figure, alt = figures.gap_by_touch([*ONE_SEED, unknown], MASKS, "a title")
        figure.draw_without_rendering()
        touch, gap = figure.axes
        assert "one seed a point, so no verdict" in figure.get_suptitle()
        assert [text.get_text() for text in touch.get_yticklabels()] == [
            "fine-tuning (no masks)", "pointed span", "random, 5 %", "shortcut's words, all of them",
        ], "the more often a row touches the shortcut, the further down"  # fmt: skip
        some, whole = ([bar.get_width() for bar in bars] for bars in touch.containers)
        assert some == [0, 5, 25, 100] and whole == [0, 0, 0, 100]
        assert [line.get_xydata()[0].tolist() for line in gap.lines] == [[75, 0], [70, 1], [69, 2], [13, 3]]
        assert gap.lines[1].get_markerfacecolor() == "white" != gap.lines[0].get_markerfacecolor()
        legend = {text.get_text() for text in figure.legends[0].get_texts()}
        assert legend == {"some of the shortcut masked", "all of it masked", "gap", "gap; behind in distribution"}
        assert "pointed span: gap 70, shortcut touched in 5 %, gone in 0 %, n = 1, behind in distribution" in alt

    def test_seeds_stand_below_their_mean(self):
        runs = [record(name, scores, seed) for seed in (0, 1) for name, scores in
                (("fine_tuning", (90, 10 + seed, 20)), ("known_shortcut:1", (90, 80, 80 - 2 * seed)))]  # fmt: skip
        figure, _ = figures.gap_by_touch(runs, MASKS)
        below = [line.get_xydata() for line in figure.axes[1].lines if line.get_label() == "one seed"]
        assert [line[:, 0].tolist() for line in below] == [[75, 74.5], [10, 11]]
        assert all(0 < line[0, 1] - row < 0.5 for row, line in enumerate(below)), "nearer to their row than to the next"

    def test_no_records(self):
        with pytest.raises(UserError, match="no run yet"):
            figures.gap_by_touch([], MASKS)

    def test_one_sentence(self):
        tokens, roles = ["the", "jazz", "gig", "was", "dull"], ["", "shortcut", "", "", "cause"]
        rows = {"a": [None, "new", None, None, None], "b": [None] * 5}
        figure, alt = figures.sentence(tokens, roles, rows, "a title")
        (axis,) = figure.axes
        assert alt == "What each policy masks in: the jazz gig was dull: a: jazz became new; b: nothing masked."
        assert [text.get_text() for text in axis.texts] == [*tokens, "the", "new", *tokens[2:], *tokens]
        assert [label.get_text() for label in axis.get_yticklabels()] == ["original", "a", "b"]
        boxed = [text.get_text() for text in axis.texts if text.get_bbox_patch() is not None]
        assert boxed == ["new"]
