"""What the tests of comparisons and figures share."""

import json

import pytest

from mtlib.analysis.comparisons import Comparison


@pytest.fixture
def compare(tmp_path):
    """Makes a comparison of records."""

    def make(records: list[dict], arms: dict, **fields) -> Comparison:
        file = tmp_path / "runs.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        return Comparison(name="made_up", about="", records=[str(file)], arms=arms, **fields)

    return make
