"""What the rebuilding of the package may not change; a gate changes only in a commit that does
nothing else.

`kept.json` was written at the commit before the rebuilding: for each file of records how many runs
it holds and a hash of what identifies and scores them, and a hash of each bundled set's content.
`masks.json` has the positions that each policy masks which learns nothing beforehand. Training is
held by `tests/test_trajectory.py` and by the tests of resumption in `tests/test_methods.py`.
"""

import hashlib
import json
from pathlib import Path

import pytest

from mtlib.data.sources import load, load_described
from mtlib.encoding import Collator, tokenise
from mtlib.masking import GivenWords
from mtlib.paths import DATA_DIR, MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.policies import masking_policy
from mtlib.runs.records import decisive_data, identity, read_records

KEPT = json.loads((Path(__file__).parent / "kept.json").read_text())
MASKS = json.loads((Path(__file__).parent / "masks.json").read_text())
RESULTS = DATA_DIR / "results"


def scores(records: list[dict]) -> str:
    """A hash of the identities and metrics of some runs, in whatever order they stand."""
    lines = sorted(
        json.dumps([record["identity"], record["metrics"]], sort_keys=True) for record in records
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", KEPT["records"])
def test_no_record_is_lost_or_changed_and_every_identity_follows_from_its_record(name):
    records = read_records([RESULTS / f"{name}.gz"])
    assert [len(records), scores(records)] == KEPT["records"][name]
    for record in records:
        if "model" in record:
            model = record["model"]["files_sha256"]
            data = decisive_data(record["data"])
            assert identity(record["config"], model, data) == record["identity"]


@pytest.mark.parametrize("name", KEPT["content_sha256"])
def test_sets_keep_their_content(name):
    assert load_described(name)[1]["content_sha256"] == KEPT["content_sha256"][name]


@pytest.fixture(scope="module")
def plm():
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)


@pytest.fixture(scope="module")
def sentences(plm):
    rows = load("testbed_sentiment_train").select(range(24))
    return tokenise(rows, plm.tokenizer, 64, keep=rows.column_names)


@pytest.mark.parametrize("name", MASKS)
def test_masks_stay_where_they_were(name, plm, sentences):
    """For the training examples 0, 1, ... of seed 5 in epoch 1: integers, alike everywhere."""
    given = name == "given words"
    policy = GivenWords(["was", "story"]) if given else masking_policy(name, 0.15, plm.tokenizer)
    examples = sentences
    for transform in policy.transforms():
        examples = transform(plm, examples).examples
    collate = Collator(plm.tokenizer, policy.columns, policy, seed=5)
    collate.epoch.fill_(1)
    batch = collate([row | {"example": number} for number, row in enumerate(examples.to_list())])
    positions = [" ".join(map(str, mask.nonzero().flatten().tolist())) for mask in batch["mask"]]
    assert positions[: len(MASKS[name])] == MASKS[name]
