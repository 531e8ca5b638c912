"""How fast things are, as ratios measured side by side in one process: `python -m mtlib bench`.

Absolute times belong to a machine; a ratio of two things measured in turn, on the same data, says something about the
code.
"""

# ruff: noqa: F401
from mtlib.bench.benchmarks import BENCHMARKS
from mtlib.bench.profile import profile
from mtlib.bench.ratios import Benchmark, Measured, measure
from mtlib.bench.results import markdown, run
from mtlib.bench.throughput import SHAPES, model_flops, throughput
