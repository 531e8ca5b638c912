import json
import subprocess
import sys

import pytest
from scipy import stats

from mtlib.analysis import tables
from mtlib.analysis.frame import by_row, telling_apart
from mtlib.analysis.row_names import label
from mtlib.errors import UserError
from mtlib.methods import METHODS

DEV, CONTRAST = "testbed_sentiment", "testbed_contrast"


def record(method, seed, accuracy, source="testbed", **settings):
    contrast = {"accuracy": accuracy - 0.1, "original": accuracy, "consistency": accuracy - 0.2}
    return {
        "config": {"task": "sentiment", "method": method, "source": source, "model": "mini", "seed": seed, **settings},
        "metrics": {DEV: {"accuracy": accuracy}, CONTRAST: contrast},
    }


RECORDS = [
    *(record("fine_tuning", seed, accuracy) for seed, accuracy in ((0, 0.80), (1, 0.82), (2, 0.84))),
    *(record("mask_tuning", seed, accuracy) for seed, accuracy in ((0, 0.81), (1, 0.85), (2, 0.86), (3, 0.99))),
]


def test_mean_and_deviation_by_hand():
    (table,) = tables.make_tables(RECORDS)
    assert table.heading == "sentiment · testbed · mini"
    assert table.columns == (DEV, CONTRAST, f"{CONTRAST} original", f"{CONTRAST} consistency")
    fine, mask = table.rows
    assert fine.scores[DEV].mean() == pytest.approx(82) and fine.scores[DEV].std() == pytest.approx(2)
    assert fine.scores[f"{CONTRAST} consistency"].mean() == pytest.approx(62)
    assert (fine.n, mask.n) == (3, 4)
    assert fine.settings == mask.settings == ""


def test_differences_are_paired_over_common_seeds():
    (table,) = tables.make_tables(RECORDS)
    fine, mask = table.rows
    difference = table.difference(mask, DEV)
    assert difference.n == 3 and difference.mean == pytest.approx(2)
    expected = stats.ttest_rel([81, 85, 86], [80, 82, 84]).confidence_interval(0.95)
    assert (difference.low, difference.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert table.difference(fine, DEV) is None


def test_methods_stand_in_the_order_of_the_paper_each_against_fine_tuning():
    """What a method does not read is None in its record, and no difference between rows."""
    runs = [
        record(method, 0, 0.8, **{"epochs": 3.0, "alpha": None, "mask_rate": None} | read)
        for method, read in (
            ("perturb_first", {"mask_rate": 0.05}),
            ("sequential", {"mask_rate": 0.05}),
            ("no_integrated_loss", {"mask_rate": 0.05, "alpha": 0.0}),
            ("augmented", {"mask_rate": 0.05}),
            ("mask_tuning", {"mask_rate": 0.05, "alpha": 0.6}),
            ("fine_tuning", {}),
        )
    ]
    (table,) = tables.make_tables(runs)
    made = {run["config"]["method"] for run in runs}
    assert [(row.method, row.settings) for row in table.rows] == [(method, "") for method in METHODS if method in made]
    assert all(table.difference(row, DEV).mean == 0 for row in table.rows[1:])


def test_settings_that_differ_name_their_rows():
    (table,) = tables.make_tables(
        [*RECORDS[:3], record("mask_tuning", 0, 0.7, alpha=0.1), record("mask_tuning", 0, 0.8, alpha=0.6)]
    )
    assert [(row.method, row.settings) for row in table.rows] == [
        ("fine_tuning", ""),
        ("mask_tuning", "alpha 0.1"),
        ("mask_tuning", "alpha 0.6"),
    ]


def test_figures_name_a_policy_with_its_rate():
    """Where the policy tells rows apart its rate is said, also if that is the same in all of them; a span has none."""
    policies = [
        ("exact", 0.15),
        ("frequency_rare", 0.15),
        ("salient_spans", 0.05),
        ("salient_spans", 0.15),
        ("supervised", 0.05),
    ]
    records = [record("mask_tuning", 0, 0.8, masking=policy, mask_rate=rate) for policy, rate in policies]
    assert list(by_row(records)) == [
        "mask_tuning (exact:0.15)",
        "mask_tuning (frequency_rare:0.15)",
        "mask_tuning (salient_spans:0.05)",
        "mask_tuning (salient_spans:0.15)",
        "mask_tuning (supervised)",
    ]


def test_figures_name_the_control_without_refilling():
    records = [record("mask_tuning", 0, 0.8, classifier_reads=reads) for reads in ("refilled", "original", None)]
    del records[-1]["config"]["classifier_reads"]  # made before there was this setting
    assert list(by_row(records)) == ["mask_tuning", "mask_tuning (no refilling)"]
    assert label("mask_tuning (no refilling)") == "Mask-tuning (no refilling)"


def test_rows_stand_in_the_order_of_their_numbers():
    sizes = [record("fine_tuning", 0, 0.8, train_size=size) for size in (16000, None, 1000, 4000)]
    (table,) = tables.make_tables(sizes)
    assert [row.settings for row in table.rows] == [f"train_size {size}" for size in (1000, 4000, 16000, "all")]


def test_differences_need_the_same_budget():
    (table,) = tables.make_tables([record("fine_tuning", 0, 0.8, epochs=6), record("mask_tuning", 0, 0.9, epochs=3)])
    assert table.difference(table.rows[-1], DEV) is None


def test_a_run_of_some_sets_and_one_of_all_go_into_one_row():
    whole = record("fine_tuning", 0, 0.8)
    part = json.loads(json.dumps(whole))
    part["metrics"]["testbed_counterfactual"] = part["metrics"][DEV]
    (table,) = tables.make_tables([whole, part])
    (row,) = table.rows
    assert row.n == 1 and "testbed_counterfactual" in row.scores


def test_two_runs_in_one_cell_are_refused():
    with pytest.raises(UserError, match="two different runs of fine_tuning have seed 0 and the same settings"):
        tables.make_tables([record("fine_tuning", 0, 0.8), record("fine_tuning", 0, 0.9)])


def test_other_splits_are_another_row():
    runs = [record("fine_tuning", 0, 0.8, splits={CONTRAST: option}) for option in ("test", "dev+test")]
    assert len(tables.make_tables(runs)[0].rows) == 2


def test_no_difference_where_the_baseline_is_not_one():
    baselines = [record("fine_tuning", 0, 0.8, learning_rate=rate) for rate in (1e-4, 2e-4)]
    (table,) = tables.make_tables([*baselines, record("mask_tuning", 0, 0.9, learning_rate=1e-4)])
    assert table.difference(table.rows[-1], DEV) is None


def test_other_numbers_of_seeds_than_the_rows_are_printed():
    runs = [record("fine_tuning", seed, 0.8 + seed / 100) for seed in (0, 1)]
    runs += [record("mask_tuning", seed, 0.9 + seed / 50) for seed in range(4)]
    runs[-1]["metrics"]["testbed_counterfactual"] = {"accuracy": 0.5}
    lines = {name: (n, cells) for name, n, cells in tables.texts(tables.make_tables(runs)[0])}
    n, cells = lines["mask_tuning"]
    assert n == "4" and cells[-1] == "50.00 (n 1)" and "(n" not in "".join(cells[:-1])
    assert lines["· difference to fine_tuning"][1][0].endswith("] (n 2)")


def test_one_table_per_source():
    made = tables.make_tables([*RECORDS, record("fine_tuning", 0, 0.5, source="hub")])
    assert [table.heading for table in made] == ["sentiment · hub · mini", "sentiment · testbed · mini"]


def test_texts():
    (table,) = tables.make_tables(
        [*RECORDS, {**record("mask_tuning", 4, 0.9), "metrics": {"testbed_counterfactual": {"accuracy": 1.0}}}]
    )
    lines = tables.texts(table, per_seed=True)
    assert lines[0][:2] == ("fine_tuning", "3") and lines[0][2][0] == "82.00 ± 2.00" and lines[0][2][-1] == "not run"
    assert lines[1] == ("· seed 0", "", ["80.00", "70.00", "80.00", "60.00", "not run"])
    assert "· difference to fine_tuning" in [line[0] for line in lines]
    text = tables.markdown(table)
    assert "| fine_tuning | 3 | 82.00 ± 2.00 |" in text
    assert tables.csv_text([table]).splitlines()[1] == f"sentiment · testbed · mini,fine_tuning,,{DEV},0,80.0000"


def test_diverged_runs_are_left_out_and_named():
    lost = record("mask_tuning", 4, 0.0, learning_rate=0.1) | {"metrics": {}, "diverged": True}
    (table,) = tables.make_tables([*RECORDS, lost])
    assert [row.n for row in table.rows] == [3, 4]
    note = "Left out, because training diverged: mask_tuning (learning rate 0.1, seed 4)."
    assert tables.markdown(table).endswith(f"\n\n{note}")
    assert note in tables.markdown(tables.make_tables([lost])[0])


def test_importing_tables_loads_no_torch():
    code = "import sys, mtlib.analysis.tables; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def in_precisions(method: str, *precisions: str) -> list[dict]:
    return [record(method, i, 0.8 + i / 100, precision=precision) for i, precision in enumerate(precisions)]


def test_seeds_in_two_precisions_are_one_row_with_a_note():
    runs = in_precisions("fine_tuning", "bf16", "bf16", "bf16") + in_precisions("mask_tuning", "bf16", *["float32"] * 2)
    (table,) = tables.make_tables(runs)
    assert [(row.method, row.settings, row.n) for row in table.rows] == [("fine_tuning", "", 3), ("mask_tuning", "", 3)]
    assert table.difference(table.rows[1], DEV).n == 3
    assert tables.markdown(table).endswith("\n\nAll runs are in bf16, except: mask_tuning, seeds 1, 2, in float32.")
    assert list(by_row(runs)) == ["fine_tuning", "mask_tuning"]
    (alike,) = tables.make_tables(in_precisions("fine_tuning", "float32", "float32"))
    assert alike.note == ""


def test_one_seed_in_two_precisions_compares_them():
    older, younger = (in_precisions(method, "float32") for method in ("fine_tuning", "mask_tuning"))
    younger[0]["config"]["bias_folds"] = 5
    runs = [*older, *younger, *in_precisions("fine_tuning", "bf16"), *in_precisions("mask_tuning", "bf16")]
    (table,) = tables.make_tables(runs)
    assert [(row.method, row.settings) for row in table.rows] == [
        (method, f"precision {precision}")
        for method in ("fine_tuning", "mask_tuning")
        for precision in ("bf16", "float32")
    ]
    assert table.difference(table.rows[2], DEV).n == 1 and table.note == ""


def test_no_records():
    with pytest.raises(UserError, match="no run records found"):
        tables.make_tables([])


def test_rows_are_told_apart_by_rates_only_where_nothing_else_does():
    joint = {"alpha": "0.6", "learning_rate": "0.0005", "update": "joint"}
    alternating = {"alpha": "0.6", "learning_rate": "0.0002", "update": "alternating"}
    slower = joint | {"learning_rate": "0.0001"}
    assert telling_apart(joint, [joint, alternating]) == {"update": "joint"}
    assert telling_apart(slower, [joint, slower]) == {"learning_rate": "0.0001"}
    assert telling_apart(slower, [joint, slower, alternating]) == {"learning_rate": "0.0001", "update": "joint"}
    assert telling_apart(joint, [joint]) == {}


def test_a_combination_is_told_apart_by_what_it_combines_not_by_the_bias_model_that_comes_with_it():
    plain = {"classification": "fine_tuning", "bias": "by_task", "learning_rate": "0.0001"}
    combined = {"classification": "product_of_experts", "bias": "shortcut", "learning_rate": "0.0002"}
    assert telling_apart(combined, [plain, combined]) == {"classification": "product_of_experts"}
    other = combined | {"bias": "overlap"}
    assert telling_apart(other, [plain, combined, other]) == {"classification": "product_of_experts", "bias": "overlap"}


def test_a_setting_that_a_record_is_older_than_has_its_default():
    older, younger = record("mask_tuning", 0, 0.8, alpha=0.6), record("mask_tuning", 1, 0.9, alpha=0.6)
    younger["config"] |= {"bias_learning_rate": None, "bias_folds": 5}
    (table,) = tables.make_tables([older, younger])
    assert [row.n for row in table.rows] == [2]
    older["config"]["faithful_to_code"] = None  # as of a setting that only other methods read
    (table,) = tables.make_tables([older, younger])
    assert [row.n for row in table.rows] == [2]
