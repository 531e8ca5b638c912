"""Records: what identifies one, and the conversion of those made under the first schema."""

import hashlib
import json

import pytest

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs.convert import convert, convert_file
from mtlib.runs.records import identity, read_records, record_identity

RESULTS = DATA_DIR / "results"
# sha256 of metrics, configuration and cost of every record as they stood under the first schema
FIRST_SCHEMA = {
    "sst2": (6, "fc45f64eb0223cb9940efaac59475e35f81544eb078917c16212ea0202b5f5f7"),
    "sst2_grid": (10, "4ec766ca527d6ba08c6d1ae8513038d7707bc8373adf63c23394b393f967f83b"),
    "study": (227, "7d520ef7f89d26468ef3da2ff2ee9b8decae3a9291b8565c6218d72709dc44e2"),
    "study_pilot": (15, "59bb878986b0bcfabb885b3e856b7cdf46f5b500f828bae76b5b34b6d26258e0"),
    "testbed": (6, "d50a8d741f7ac723004254c883bb05553fdbce996c4426d9ab3f82d0fb3e2686"),
}
CONFIG = {"task": "sentiment", "method": "mask_tuning", "model": "mini", "alpha": 0.6, "epochs": 3.0, "fill": "argmax"}
DATA = {"train": "a", "sst2": "b"}


@pytest.mark.parametrize("name", FIRST_SCHEMA)
def test_the_conversion_lost_no_number(name):
    n, digest = FIRST_SCHEMA[name]
    lines = [line for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]
    numbers = [[record["metrics"], record["config"], record["cost"]] for record in map(json.loads, lines)]
    assert len(numbers) == n
    assert hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest() == digest


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


def first_schema(**changes) -> dict:
    data = {name: {"content_sha256": digest} for name, digest in DATA.items()}
    record = {"schema_version": 1, "identity": "old", "config": CONFIG, "model": {"files_sha256": "m"}, "metrics": {},
              "data": data}  # fmt: skip
    return record | changes


def test_a_file_is_converted_once_and_without_loss(tmp_path):
    path = tmp_path / "records.jsonl"
    records = [first_schema(), first_schema(config=CONFIG | {"alpha": 0.3}, note="kept")]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(
        UserError, match=r"has schema version 1; this mtlib reads 2\. `python -m mtlib.runs.convert FILE`"
    ):
        read_records([path])
    assert convert_file(path) == 2
    converted = path.read_bytes()
    for old, new in zip(records, read_records([path]), strict=True):
        assert new == old | {"schema_version": 2, "identity": record_identity(old)}
    assert convert_file(path) == 2 and path.read_bytes() == converted
    single = tmp_path / "one.json"
    single.write_text(json.dumps(first_schema()))
    assert convert_file(single) == 1 and read_records([single])[0]["schema_version"] == 2


def test_what_cannot_be_converted_is_left_alone(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(first_schema(source=source)) + "\n" for source in ("a", "b")))
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"two records of .* would become one"):
        convert_file(path)
    assert path.read_bytes() == before
    with pytest.raises(UserError, match="schema version 7 is unknown"):
        convert(first_schema(schema_version=7))
