"""Training phrases that are kept out, and the probabilities that a record keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlib.errors import UserError
from mtlib.runs.inputs import HELD_OUT, hold_out, read_inputs
from mtlib.runs.records import read_records
from mtlib.runs.run import run
from tests.runs.test_runs import config, model, testbed  # noqa: F401  (fixtures)

WORDS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5).map(" ".join)


def test_parts_of_a_held_out_sentence_are_not_trained_on():
    texts = ["a b c", "b c", "d e", "b", "e", "b d"]  # sentences: the first, the third and the last
    train, held_out = hold_out(texts, 1)
    assert len(held_out) == 1
    drawn = [text for text in ("a b c", "d e", "b d") if f" {texts[held_out[0]]} " in f" {text} "]
    assert not any(f" {texts[row]} " in f" {drawn[0]} " for row in train)


@given(st.lists(WORDS, min_size=2, max_size=12))
def test_no_training_text_shares_a_held_out_sentence(texts):
    train, held_out = hold_out(texts, 1)
    assert not {*train} & {*held_out} and len(held_out) == 1
    kept = texts[held_out[0]]
    assert all(f" {kept} " not in f" {texts[row]} " for row in train)  # no longer text has it whole
    assert hold_out(texts, 1) == (train, held_out)


def test_more_than_there_are():
    with pytest.raises(UserError, match="held_out is 3"):
        hold_out(["a b", "a"], 3)


def test_a_run_keeps_probabilities(model, testbed, tmp_path):  # noqa: F811
    path, _ = run(config(model, held_out=8, epochs=1, method="fine_tuning"), tmp_path / "out")
    (record,) = read_records([path])
    assert record["metrics"][HELD_OUT]["n"] == 8
    # a sweep knows the run by the same name
    assert read_inputs(config(model, held_out=8, epochs=1, method="fine_tuning")).record_path(tmp_path / "out") == path
    with np.load(path.with_suffix(".npz")) as probabilities:
        assert {*probabilities} == {*record["metrics"]}
        for name, metrics in record["metrics"].items():
            assert probabilities[name].dtype == np.float16 and probabilities[name].shape[1] == 2
            assert np.allclose(probabilities[name].astype(float).sum(axis=1), 1, atol=1e-2)
            if "pairs" not in metrics:
                assert len(probabilities[name]) == metrics["n"]
