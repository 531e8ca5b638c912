"""The benchmarks' arithmetic and form; no test asserts on a time."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from mtlib import bench, cli
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR


def made_up(ours, theirs, most: bool, wanted: float) -> bench.Benchmark:
    def make(quick):
        mine, other = itertools.cycle(ours), itertools.cycle(theirs)
        return lambda: next(mine), lambda: next(other)

    return bench.Benchmark("made_up", "this", "that", wanted, most, make, repeats=len(ours) - 1)


def test_ratio_of_medians_after_one_round_that_does_not_count():
    found = bench.measure(made_up([100.0, 2.0, 4.0, 3.0], [100.0, 1.0, 2.0, 2.0], most=True, wanted=2.0), quick=False)
    assert (found.ours, found.theirs, found.ratio) == (3.0, 2.0, 1.5)
    assert found.met and found.wanted == "2 or less" and found.repeats == 3
    assert found.low == 1.5 and found.high == 2.0  # quartiles of 2.0, 2.0, 1.5


def test_times_faster_is_told_the_other_way_round():
    found = bench.measure(made_up([9.0, 1.0, 1.0, 1.0], [9.0, 3.0, 3.0, 3.0], most=False, wanted=4.0), quick=False)
    assert found.ratio == 3.0 and not found.met and found.wanted == "4 or more"


def test_unknown_benchmark():
    with pytest.raises(UserError, match="no benchmark 'speed'; expected one of step, epoch"):
        bench.run(["speed"])


def test_masked_places_give_the_loss_of_the_full_vocabulary():
    ours, theirs = bench._head(quick=True)  # raises if they differ by more than 1e-5
    assert ours() > 0 and theirs() > 0


def test_command_writes_what_it_measured(tmp_path):
    result = CliRunner().invoke(cli.app, ["bench", "start", "--quick", "--json", str(tmp_path / "bench.json")])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "bench.json").read_text())
    (entry,) = found["measured"]
    assert entry["name"] == "start" and entry["ours"] > 0 and found["environment"]["torch"] and found["quick"]
    assert entry["what"] in result.output


def test_results_of_other_benchmarks_are_kept(tmp_path):
    path = tmp_path / "bench.json"
    command = ["bench", "start", "--quick", "--json", str(path)]
    CliRunner().invoke(cli.app, command)
    before = json.loads(path.read_text())
    before["measured"].insert(0, before["measured"][0] | {"name": "step", "ratio": 1.23})
    path.write_text(json.dumps(before))
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    assert [entry["name"] for entry in json.loads(path.read_text())["measured"]] == ["step", "start"]
    path.write_text(json.dumps(before | {"environment": before["environment"] | {"device": "another"}}))
    result = CliRunner().invoke(cli.app, command)
    assert isinstance(result.exception, UserError) and "another machine" in str(result.exception)
    assert json.loads(path.read_text())["measured"] == before["measured"]
    result = CliRunner().invoke(cli.app, ["bench", "--throughput", "mini", "--json", str(path)])
    assert isinstance(result.exception, UserError) and "another kind (no 'throughput')" in str(result.exception)


def test_throughput_of_other_shapes_is_kept(tmp_path, monkeypatch):
    row = bench.Throughput("fine_tuning", "32", 1.0, 1.0, 1.0, None, None)
    monkeypatch.setattr(bench, "throughput", lambda shape, **settings: [row])
    path = tmp_path / "throughput.json"
    for shape in ("mini", "bert-base"):
        done = CliRunner().invoke(cli.app, ["bench", "--throughput", shape, "--json", str(path)])
        assert done.exit_code == 0, done.output
    assert list(json.loads(path.read_text())["throughput"]) == ["mini", "bert-base"]


def test_throughput_counts_sequences_and_flops():
    rows = bench.throughput("mini", batch_size=2, steps=3)
    assert [(row.method, row.length) for row in rows] == [
        (method, length) for length in ("32", "128", "mixed") for method in ("fine_tuning", "mask_tuning")
    ]
    by_length = {row.length: row for row in rows if row.method == "fine_tuning"}
    # TFLOP per sequence: 32 tokens x (72 x layers x hidden^2 + 12 x layers x hidden x length)
    expected = 32 * (72 * 4 * 384**2 + 12 * 4 * 384 * 32) / 1e12
    row = by_length["32"]
    assert row.tflops / row.sequences_per_second == pytest.approx(expected, rel=0.2)  # both are rounded
    assert all(row.sequences_per_second > 0 and row.tflops > 0 for row in rows)
    with pytest.raises(UserError, match="no shape 'big'; expected one of bert-base, mini"):
        bench.throughput("big")


def test_model_flops_by_hand():
    # 12 layers x 12 x 768^2 weights, 6 operations each; attention 12 x 12 x 768 x length; per token
    one = (6 * 12 * 12 * 768**2 + 12 * 12 * 768 * 100) * 100
    assert bench.model_flops("fine_tuning", "bert-base", 100) == one
    assert bench.model_flops("mask_tuning", "bert-base", 100) == 2 * one + 6 * 30_522 * 768 * 5


def test_readme_table_is_made_from_the_results():
    found = json.loads((DATA_DIR / "results" / "bench_cpu.json").read_text())
    assert [entry["name"] for entry in found["measured"]] == [benchmark.name for benchmark in bench.BENCHMARKS]
    assert not found["quick"] and not any("+changes" in entry["commit"] for entry in found["measured"])
    assert bench.markdown(found) in (DATA_DIR.parent / "README.md").read_text()


def test_phrases_have_the_lengths_of_sst2():
    rows = bench._phrase_rows(22)
    assert [len(text.split()) for text in rows["text"]][:8] == list(bench._SST2_WORDS[:8])
    assert len(rows) == 22 and set(rows["label"]) <= {0, 1}


def test_profile_shares_add_up():
    for shares in bench.profile(quick=True).values():
        assert sum(shares.values()) == pytest.approx(100)
        assert all(share > 0 for share in shares.values())  # a renamed operation would leave its kind empty


def test_profile_stands_alone():
    result = CliRunner().invoke(cli.app, ["bench", "step", "--profile"])
    assert isinstance(result.exception, UserError) and "neither benchmarks" in str(result.exception)
