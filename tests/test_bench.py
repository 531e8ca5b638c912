"""The benchmarks' arithmetic and form; no test asserts on a time."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from mtlib import bench, cli
from mtlib.errors import UserError


def made_up(ours: list[float], theirs: list[float]) -> bench.Benchmark:
    mine, other = itertools.cycle(ours), itertools.cycle(theirs)
    return bench.Benchmark("this", "that", lambda quick: (lambda: next(mine), lambda: next(other)))


def test_ratio_of_medians_after_one_round_that_does_not_count():
    result = bench.measure(made_up([100.0, 2.0, 4.0, 3.0], [100.0, 1.0, 2.0, 2.0]), quick=True)
    assert (result["seconds"], result["seconds_against"], result["ratio"]) == (3.0, 2.0, 1.5)
    assert (result["low"], result["high"]) == (1.5, 2.0)  # quartiles of 2.0, 2.0, 1.5


def test_the_head_at_the_masked_places_gives_the_loss_of_the_whole_one():
    bench.BENCHMARKS["head"].make(True)  # raises if they differ by more than 1e-5


def test_phrases_have_the_lengths_of_sst2():
    rows = bench.phrases(22)
    assert [len(text.split()) for text in rows["text"]][:8] == list(bench.SST2_WORDS[:8])
    assert len(rows) == 22 and set(rows["label"]) <= {0, 1}


def test_throughput_counts_sequences_and_flops(monkeypatch):
    monkeypatch.setitem(bench.SHAPES, "tiny", (1, 64, 10_000))
    rows = bench.throughput("tiny", batch_size=2, steps=3)
    assert [(row["method"], row["length"]) for row in rows] == [
        (method, length) for length in ("32", "128", "mixed") for method in ("fine_tuning", "mask_tuning")
    ]
    # TFLOP per sequence: 128 tokens x (72 x layers x hidden^2 + 12 x layers x hidden x length)
    expected = 128 * (72 * 64**2 + 12 * 64 * 128) / 1e12
    row = next(row for row in rows if (row["method"], row["length"]) == ("fine_tuning", "128"))
    assert row["tflops"] == pytest.approx(expected * row["sequences_per_second"], abs=6e-4)  # it is rounded
    assert row["tokens_per_second"] == pytest.approx(128 * row["sequences_per_second"], rel=0.01)


def test_model_flops_by_hand():
    # 12 layers x 12 x 768^2 weights, 6 operations each; attention 12 x 12 x 768 x length; per token
    one_pass = (6 * 12 * 12 * 768**2 + 12 * 12 * 768 * 100) * 100
    assert bench.model_flops("fine_tuning", "bert-base", 100) == one_pass
    assert bench.model_flops("mask_tuning", "bert-base", 100) == 2 * one_pass + 6 * 30_522 * 768 * 5


def call(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *map(str, arguments)])


def test_command_measures_and_writes_a_new_file(tmp_path, monkeypatch):
    monkeypatch.setitem(bench.BENCHMARKS, "made_up", made_up([3.0], [2.0]))
    path = tmp_path / "bench.json"
    result = call("made_up", "--quick", "--json", path)
    assert result.exit_code == 0 and "1.50 x the time (1.50 to 1.50): this against that" in result.output
    written = json.loads(path.read_text())
    assert written["environment"]["torch"] and written["quick"] and written["measured"][0]["name"] == "made_up"
    assert "is there already" in str(call("made_up", "--json", path).exception)
    assert json.loads(path.read_text()) == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["speed"], "no benchmark 'speed'; expected one of step"), (["--throughput", "big"], "no shape 'big'; expected")],
)
def test_unknown_names(arguments, message):
    result = call(*arguments)
    assert isinstance(result.exception, UserError) and message in str(result.exception)
