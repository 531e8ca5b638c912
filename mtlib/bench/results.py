"""The results of several benchmarks: measured, kept beside earlier ones, and as a table."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from mtlib.bench.benchmarks import BENCHMARKS, QUICK
from mtlib.bench.ratios import Measured, measure
from mtlib.bench.workloads import be_quiet
from mtlib.errors import UserError
from mtlib.runs import environment


def run(
    names: Sequence[str] = (),
    quick: bool = False,
    report: Callable[[Measured], None] = print,
    before: dict | None = None,
) -> dict:
    """Measure, one benchmark after the other, and return what `data/results/bench_cpu.json` holds.

    Args:
        names: which ones; all by default.
        quick: fewer repeats and smaller data, for a first look.
        report: called with each result.
        before: what an earlier call returned; its results are kept for benchmarks that are not measured now.
    """
    by_name = {benchmark.name: benchmark for benchmark in (QUICK if quick else BENCHMARKS)}
    for name in names:
        if name not in by_name:
            raise UserError(f"no benchmark {name!r}; expected one of {', '.join(by_name)}.")
    here = environment.describe()
    commit = here.pop("commit")
    if before is not None and (before.get("environment"), before.get("quick")) != (here, quick):
        raise UserError(
            "these results come from another machine, other versions or another --quick; give another file."
        )
    be_quiet()
    measured = {entry["name"]: entry for entry in (before or {}).get("measured", ())}
    for name in names or by_name:
        result = measure(by_name[name], quick, commit)
        measured[name] = asdict(result)
        report(result)
    return {"environment": here, "quick": quick, "measured": [measured[name] for name in by_name if name in measured]}


def markdown(results: dict) -> str:
    """What `run` returned as a table: the results page prints it."""
    lines = ["| what | against | ratio (quartiles) | wanted | met |", "| --- | --- | ---: | ---: | --- |"]
    for entry in results["measured"]:
        sense = "x the time" if entry["wanted"].endswith("less") else "x faster"
        if entry["unit"] == "MB":
            sense = "x the memory"
        lines.append(
            f"| {entry['what']} | {entry['against']} | {entry['ratio']:.2f} {sense} ({entry['low']:.2f} to "
            f"{entry['high']:.2f}) | {entry['wanted']} | {'yes' if entry['met'] else 'no'} |"
        )
    return "\n".join(lines)
