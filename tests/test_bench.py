"""The benchmarks' arithmetic and form; no test asserts on a time."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from mtlib import bench, cli
from mtlib.bench import benchmarks, workloads
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR


def made_up(ours, theirs, most: bool, wanted: float) -> bench.Benchmark:
    def make(quick):
        mine, other = itertools.cycle(ours), itertools.cycle(theirs)
        return lambda: next(mine), lambda: next(other)

    return bench.Benchmark("made_up", "this", "that", wanted, most, make, repeats=len(ours) - 1)


def test_ratio_of_medians_after_one_round_that_does_not_count():
    result = bench.measure(made_up([100.0, 2.0, 4.0, 3.0], [100.0, 1.0, 2.0, 2.0], most=True, wanted=2.0), quick=False)
    assert (result.ours, result.theirs, result.ratio) == (3.0, 2.0, 1.5)
    assert result.met and result.wanted == "2 or less" and result.repeats == 3
    assert result.low == 1.5 and result.high == 2.0  # quartiles of 2.0, 2.0, 1.5


def test_times_faster_is_told_the_other_way_round():
    result = bench.measure(made_up([9.0, 1.0, 1.0, 1.0], [9.0, 3.0, 3.0, 3.0], most=False, wanted=4.0), quick=False)
    assert result.ratio == 3.0 and not result.met and result.wanted == "4 or more"


def test_unknown_benchmark():
    with pytest.raises(UserError, match="no benchmark 'speed'; expected one of step, epoch"):
        bench.run(["speed"])


def test_masked_places_give_the_loss_of_the_full_vocabulary():
    benchmarks.head(quick=True)  # raises if they differ by more than 1e-5


def call(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *map(str, arguments)])


def test_command_writes_what_it_measured_and_keeps_other_results(tmp_path):
    path = tmp_path / "bench.json"
    result = call("start", "--quick", "--json", path)
    assert result.exit_code == 0, result.output
    before = json.loads(path.read_text())
    (entry,) = before["measured"]
    assert entry["name"] == "start" and entry["ours"] > 0 and before["environment"]["torch"] and before["quick"]
    assert entry["what"] in result.output
    before["measured"].insert(0, entry | {"name": "step", "ratio": 1.23})
    path.write_text(json.dumps(before))
    assert call("start", "--quick", "--json", path).exit_code == 0
    assert [entry["name"] for entry in json.loads(path.read_text())["measured"]] == ["step", "start"]
    path.write_text(json.dumps(before | {"environment": before["environment"] | {"device": "another"}}))
    result = call("start", "--quick", "--json", path)
    assert isinstance(result.exception, UserError) and "another machine" in str(result.exception)
    assert json.loads(path.read_text())["measured"] == before["measured"]


@pytest.mark.parametrize(
    "arguments", [("step", "--profile"), ("step", "--throughput", "mini"), ("--throughput", "mini", "--json", "x.json")]
)
def test_profile_and_throughput_stand_alone(arguments):
    result = call(*arguments)
    assert isinstance(result.exception, UserError) and "neither benchmarks" in str(result.exception)


def test_throughput_counts_sequences_and_flops(monkeypatch):
    monkeypatch.setitem(bench.SHAPES, "tiny", (1, 64, 10_000))
    rows = bench.throughput("tiny", batch_size=2, steps=3)
    assert [(row["method"], row["length"]) for row in rows] == [
        (method, length) for length in ("32", "128", "mixed") for method in ("fine_tuning", "mask_tuning")
    ]
    assert all(row["sequences_per_second"] > 0 for row in rows)
    # TFLOP per sequence: 128 tokens x (72 x layers x hidden^2 + 12 x layers x hidden x length)
    expected = 128 * (72 * 64**2 + 12 * 64 * 128) / 1e12
    row = next(row for row in rows if (row["method"], row["length"]) == ("fine_tuning", "128"))
    assert row["tflops"] == pytest.approx(expected * row["sequences_per_second"], abs=6e-4)  # it is rounded
    with pytest.raises(UserError, match="no shape 'big'; expected one of bert-base, mini"):
        bench.throughput("big")


def test_model_flops_by_hand():
    # 12 layers x 12 x 768^2 weights, 6 operations each; attention 12 x 12 x 768 x length; per token
    one_pass = (6 * 12 * 12 * 768**2 + 12 * 12 * 768 * 100) * 100
    assert bench.model_flops("fine_tuning", "bert-base", 100) == one_pass
    assert bench.model_flops("mask_tuning", "bert-base", 100) == 2 * one_pass + 6 * 30_522 * 768 * 5


def test_recorded_results_are_whole():
    results = json.loads((DATA_DIR / "results" / "bench_cpu.json").read_text())
    assert [entry["name"] for entry in results["measured"]] == [benchmark.name for benchmark in bench.BENCHMARKS]
    assert not results["quick"] and not any("+changes" in entry["commit"] for entry in results["measured"])


def test_phrases_have_the_lengths_of_sst2():
    rows = workloads.phrase_rows(22)
    assert [len(text.split()) for text in rows["text"]][:8] == list(workloads.SST2_WORDS[:8])
    assert len(rows) == 22 and set(rows["label"]) <= {0, 1}


def test_profile_shares_add_up():
    for shares in bench.profile(quick=True).values():
        assert sum(shares.values()) == pytest.approx(100)
        assert all(share > 0 for share in shares.values())  # a renamed operation would leave its kind empty
