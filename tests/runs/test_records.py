"""Records: what identifies one, and what is read back from a file."""

import json

import pytest

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs.config import configure
from mtlib.runs.records import SCHEMA_VERSION, identity, read_records
from mtlib.runs.run import run

RESULTS = DATA_DIR / "results"
CONFIG = {"task": "sentiment", "method": "mask_tuning", "model": "mini", "alpha": 0.6, "epochs": 3.0, "fill": "argmax"}
DATA = {"train": "a", "sst2": "b"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"source": "folder", "sets": ["sst2"]}, True),  # the data's content stands for them
        ({"made_up": 3}, True),  # no method reads it
        ({"fill": None}, True),  # its default
        ({"epochs": 6.0}, False),
        ({"alpha": 0.3}, False),
        ({"method": "no_integrated_loss"}, False),
    ],
)
def test_what_decides_an_identity(change, same):
    assert (identity(CONFIG | change, "m", DATA) == identity(CONFIG, "m", DATA)) == same


def test_model_and_data_decide_an_identity():
    one = identity(CONFIG, "m", DATA)
    assert identity(CONFIG | {"model": "elsewhere/mini"}, "m", DATA) == one  # the files stand for the name
    assert (
        len({one, identity(CONFIG, None, DATA), identity(CONFIG, "n", DATA), identity(CONFIG, "m", {"train": "a"})})
        == 4
    )


def test_what_a_method_does_not_read_does_not_matter():
    config = CONFIG | {"method": "fine_tuning"}
    assert identity(config, "m", DATA) == identity(config | {"alpha": 0.3, "update": "balanced"}, "m", DATA)


def write_record(path, **changes) -> dict:
    record = {"schema_version": SCHEMA_VERSION, "identity": "a", "config": CONFIG, "metrics": {"sst2": 0.5}} | changes
    path.write_text(json.dumps(record) + "\n")
    return record


def test_two_results_of_one_run_are_never_mixed_up(tmp_path):
    one, same, other = (tmp_path / name for name in ("one.json", "same.jsonl", "other.json"))
    record = write_record(one)
    write_record(same)
    assert read_records([one, same]) == [record]
    write_record(other, metrics={"sst2": 0.9})
    with pytest.raises(UserError, match=r"one\.json and .*other\.json hold different results of the same run"):
        read_records([one, other])


def test_a_record_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1, "config": CONFIG, "metrics": {}}))
    with pytest.raises(UserError, match=r"record\.json has schema version 3; this mtlib reads 2\. .* run it again"):
        read_records([path])


@pytest.mark.parametrize("method", ["fine_tuning", "mask_tuning"])
def test_a_shipped_run_comes_out_alike_when_it_is_made_again(method, tmp_path):
    """Losses within 1 % at every logged step and accuracies within two points; on the machine of the record: equal.

    Other processors sum in another order and draw other dropout masks from the same seed, hence the tolerance.
    """
    records = {record["config"]["method"]: record for record in read_records([RESULTS / "short.jsonl"])}
    shipped = records[method]
    settings = {
        name: shipped["config"][name] for name in ("task", "method", "train_size", "epochs", "precision", "sets")
    }
    copied, was_there = run(configure(**settings), tmp_path / "copied")
    assert was_there and read_records([copied]) == [shipped]
    again, was_there = run(configure(**settings), tmp_path / "again", fresh=True)
    assert not was_there and again.name == copied.name
    made = read_records([again])[0]
    assert [entry["step"] for entry in made["history"]] == [entry["step"] for entry in shipped["history"]]
    for ours, theirs in zip(made["history"], shipped["history"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.01)
    for name, metrics in shipped["metrics"].items():
        assert made["metrics"][name]["accuracy"] == pytest.approx(metrics["accuracy"], abs=0.02)
