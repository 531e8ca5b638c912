import json

import pytest
from scipy import stats

from mtlib.analysis import tables
from mtlib.errors import UserError
from mtlib.runs.config import METHODS


def record(method, seed, accuracy, source="testbed", **settings):
    contrast = {"accuracy": accuracy - 0.1, "original": accuracy, "consistency": accuracy - 0.2}
    return {
        "config": {"task": "sentiment", "method": method, "source": source, "model": "mini", "seed": seed, **settings},
        "metrics": {"dev": {"accuracy": accuracy}, "contrast": contrast},
    }


RECORDS = [
    *(record("fine_tuning", seed, accuracy) for seed, accuracy in ((0, 0.80), (1, 0.82), (2, 0.84))),
    *(record("mask_tuning", seed, accuracy) for seed, accuracy in ((0, 0.81), (1, 0.85), (2, 0.86), (3, 0.99))),
]


def test_mean_and_deviation_by_hand():
    (table,) = tables.make_tables(RECORDS)
    assert table.heading == "sentiment · testbed · mini"
    assert table.columns == ("dev", "contrast", "contrast original", "contrast consistency")
    fine, mask = table.rows
    assert fine.cells["dev"].mean == pytest.approx(82) and fine.cells["dev"].sd == pytest.approx(2)
    assert fine.cells["contrast consistency"].mean == pytest.approx(62)
    assert (fine.cells["dev"].n, mask.cells["dev"].n) == (3, 4)
    assert fine.settings == mask.settings == ""


def test_differences_are_paired_over_common_seeds():
    (table,) = tables.make_tables(RECORDS)
    fine, mask = table.rows
    difference = table.difference(mask, "dev")
    assert difference.n == 3 and difference.mean == pytest.approx(2)
    expected = stats.ttest_rel([81, 85, 86], [80, 82, 84]).confidence_interval(0.95)
    assert (difference.low, difference.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert table.difference(fine, "dev") is None


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
    assert all(table.difference(row, "dev").mean == 0 for row in table.rows[1:])


def test_settings_that_differ_name_their_rows():
    (table,) = tables.make_tables(
        [*RECORDS[:3], record("mask_tuning", 0, 0.7, alpha=0.1), record("mask_tuning", 0, 0.8, alpha=0.6)]
    )
    assert [(row.method, row.settings) for row in table.rows] == [
        ("fine_tuning", ""),
        ("mask_tuning", "alpha 0.1"),
        ("mask_tuning", "alpha 0.6"),
    ]


def test_differences_need_the_same_budget():
    (table,) = tables.make_tables([record("fine_tuning", 0, 0.8, epochs=6), record("mask_tuning", 0, 0.9, epochs=3)])
    assert table.difference(table.rows[-1], "dev") is None


def test_a_run_of_some_sets_and_one_of_all_go_into_one_row():
    whole = record("fine_tuning", 0, 0.8)
    part = json.loads(json.dumps(whole))
    part["metrics"]["more"] = part["metrics"]["dev"]
    (table,) = tables.make_tables([whole, part])
    (row,) = table.rows
    assert {name: cell.n for name, cell in row.cells.items()}["dev"] == 1 and "more" in row.cells


def test_two_runs_in_one_cell_are_refused():
    with pytest.raises(UserError, match="two different runs of fine_tuning have seed 0 and the same settings"):
        tables.make_tables([record("fine_tuning", 0, 0.8), record("fine_tuning", 0, 0.9)])


def test_other_splits_are_another_row():
    runs = [record("fine_tuning", 0, 0.8, splits={"contrast": option}) for option in ("test", "dev+test")]
    assert len(tables.make_tables(runs)[0].rows) == 2


def test_no_difference_where_the_baseline_is_not_one():
    baselines = [record("fine_tuning", 0, 0.8, learning_rate=rate) for rate in (1e-4, 2e-4)]
    (table,) = tables.make_tables([*baselines, record("mask_tuning", 0, 0.9, learning_rate=1e-4)])
    assert table.difference(table.rows[-1], "dev") is None


def test_other_numbers_of_seeds_than_the_rows_are_printed():
    found = [record("fine_tuning", seed, 0.8 + seed / 100) for seed in (0, 1)]
    found += [record("mask_tuning", seed, 0.9 + seed / 50) for seed in range(4)]
    found[-1]["metrics"]["other"] = {"accuracy": 0.5}
    lines = {name: (n, cells) for name, n, cells in tables.texts(tables.make_tables(found)[0])}
    n, cells = lines["mask_tuning"]
    assert n == "4" and cells[-1] == "50.00 (n 1)" and "(n" not in "".join(cells[:-1])
    assert lines["· difference to fine_tuning"][1][0].endswith("] (n 2)")


def test_one_table_per_source():
    found = tables.make_tables([*RECORDS, record("fine_tuning", 0, 0.5, source="hub")])
    assert [table.heading for table in found] == ["sentiment · hub · mini", "sentiment · testbed · mini"]


def test_texts():
    (table,) = tables.make_tables(
        [*RECORDS, {**record("mask_tuning", 4, 0.9), "metrics": {"other": {"accuracy": 1.0}}}]
    )
    lines = tables.texts(table, per_seed=True)
    assert lines[0][:2] == ("fine_tuning", "3") and lines[0][2][0] == "82.00 ± 2.00" and lines[0][2][-1] == "not run"
    assert lines[1] == ("· seed 0", "", ["80.00", "70.00", "80.00", "60.00", "not run"])
    assert "· difference to fine_tuning" in [line[0] for line in lines]
    text = tables.markdown(table)
    assert "| fine_tuning | 3 | 82.00 ± 2.00 |" in text
    assert tables.csv_text([table]).splitlines()[1] == "sentiment · testbed · mini,fine_tuning,,dev,0,80.0000"


def test_single_seed_has_no_deviation():
    assert tables.Cell({0: 50.0}).sd is None
    assert tables.paired_difference([1.5]) == tables.Difference(1.5, None, None, 1)
    assert tables.paired_difference([]) is None


def test_no_records():
    with pytest.raises(UserError, match="no run records found"):
        tables.make_tables([])


def test_rows_are_told_apart_by_rates_only_where_nothing_else_does():
    joint = {"alpha": "0.6", "learning_rate": "0.0005", "update": "joint"}
    alternating = {"alpha": "0.6", "learning_rate": "0.0002", "update": "alternating"}
    assert tables._telling_apart(tuple(joint.items()), [joint, alternating]) == "update joint"
    slower = joint | {"learning_rate": "0.0001"}
    assert tables._telling_apart(tuple(slower.items()), [joint, slower]) == "learning_rate 0.0001"
    assert (
        tables._telling_apart(tuple(slower.items()), [joint, slower, alternating])
        == "learning_rate 0.0001, update joint"
    )
    assert tables._telling_apart(tuple(joint.items()), [joint]) == ""
