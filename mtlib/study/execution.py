"""The study carried out: the grid of learning rates first, then the chosen blocks at the rates that it chose."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from mtlib.runs.config import RunConfig
from mtlib.runs.records import read_records
from mtlib.study.plan import Study, best_rates
from mtlib.sweeps import engines, grid, progress
from mtlib.sweeps.grid import GridRun
from mtlib.sweeps.store import Store


def dry_run(console: Console, study: Study, blocks: Sequence[str], store: Store) -> None:
    """List the study's runs with their estimated costs; at default learning rates where the grid has not been run."""
    cache = {}
    of_grid, _ = grid.identify(study.grid(), cache)
    rest = _after_grid(study, blocks, of_grid, store)
    progress.dry_run(console, *grid.identify([*study.grid(), *rest], cache), store)
    if lacking := len(of_grid) - len(_records_there(of_grid, store)):
        console.print(
            f"the grid of learning rates lacks {lacking} runs: the runs after it are listed at the rates that it would "
            "choose now, or the default ones"
        )


def carry_out(console: Console, study: Study, blocks: Sequence[str], store: Store, processes: int) -> bool:
    """Run what has no record yet. Whether none failed; if one of the grid fails, nothing after it is started.

    Raises:
        UserError: the data or the model of a run, of the blocks too, cannot be read. Nothing was started.
    """
    cache = {}

    def identify(configs: list[RunConfig]) -> list[GridRun]:
        grid_runs, trouble = grid.identify(configs, cache)
        if trouble is not None:
            raise trouble
        return grid_runs

    def run(grid_runs: list[GridRun]) -> bool:
        return progress.carry_out(console, grid_runs, store, partial(engines.LocalEngine, store, processes))

    identify(_after_grid(study, blocks, [], store))  # what cannot be read later is said before the first run
    of_grid = identify(study.grid())
    if not run(of_grid):
        console.print("the grid of learning rates is not whole: nothing after it was started")
        return False
    return run(identify(_after_grid(study, blocks, of_grid, store)))


def _after_grid(study: Study, blocks: Sequence[str], of_grid: list[GridRun], store: Store) -> list[RunConfig]:
    """The configurations of these blocks, at the rates that the grid's records choose as far as they are there."""
    by_block = study.runs(best_rates(read_records(_records_there(of_grid, store))))
    return [config for name, configs in by_block.items() if name in blocks for config in configs]


def _records_there(grid_runs: list[GridRun], store: Store) -> list[Path]:
    return [store.folder / run.file for run in grid_runs if run.file is not None and store.has(run.file)]
