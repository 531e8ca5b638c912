"""Tables made from run records alone."""

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats

from mtlib.errors import UserError
from mtlib.runs.config import METHODS

# told apart in the table's heading rather than in a column
_HEADING = ("task", "source", "model")
_NOT_A_SETTING = (*_HEADING, "method", "seed", "sets", "gradient_diagnostics_steps")
# what two rows must share for their difference to be one of methods
_BUDGET = ("train_size", "epochs", "batch_size", "max_length", "eval_max_length", "splits", "hans_rule", "precision")


@dataclass(frozen=True)
class Cell:
    """Accuracies in per cent, one per seed."""

    by_seed: dict[int, float]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.by_seed.values())

    @property
    def sd(self) -> float | None:
        """Sample standard deviation; None for a single seed."""
        return statistics.stdev(self.by_seed.values()) if self.n > 1 else None


@dataclass(frozen=True)
class Difference:
    """Mean of differences paired by seed, in points, with its interval."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Row:
    """One method with one choice of settings."""

    method: str
    settings: str
    budget: tuple
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Table:
    """All methods on one task, source and model. `columns` are evaluation sets, some with a measure of their own."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def difference(self, row: Row, column: str, level: float = 0.95) -> Difference | None:
        """To the fine-tuning row of the same budget (`epochs`, `train_size`, ...), where there is exactly one."""
        baselines = [
            other
            for other in self.rows
            if other.method == "fine_tuning" and other.budget == row.budget and column in other.cells
        ]
        if row.method == "fine_tuning" or len(baselines) != 1 or column not in row.cells:
            return None
        ours, theirs = row.cells[column].by_seed, baselines[0].cells[column].by_seed
        return paired_difference([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())], level)


def paired_difference(differences: list[float], level: float = 0.95) -> Difference | None:
    """Mean with its interval by Student's t (none for a single pair)."""
    n = len(differences)
    if n == 0:
        return None
    mean = statistics.fmean(differences)
    if n == 1:
        return Difference(mean, None, None, n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return Difference(mean, mean - half, mean + half, n)


def make_tables(records: Iterable[dict]) -> list[Table]:
    """Group records into tables; settings become part of a row's name only where they differ within the table."""
    by_heading = defaultdict(list)
    for record in records:
        by_heading[tuple(record["config"][name] for name in _HEADING)].append(record)
    if not by_heading:
        raise UserError("no run records found; make some with `python -m mtlib run --out FOLDER`.")
    return [_make_table(heading, group) for heading, group in sorted(by_heading.items())]


def markdown(table: Table, per_seed: bool = False) -> str:
    lines = [
        f"**{table.heading}**",
        "",
        f"| method | n | {' | '.join(table.columns)} |",
        f"| --- | ---: | {' | '.join('---:' for _ in table.columns)} |",
    ]
    for name, n, cells in texts(table, per_seed):
        lines.append(f"| {name} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def csv_text(tables: Iterable[Table]) -> str:
    """One line per table, row, column and seed, in per cent: for other programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "method", "settings", "column", "seed", "accuracy_percent"])
    for table in tables:
        for row in table.rows:
            for column, cell in row.cells.items():
                for seed, value in sorted(cell.by_seed.items()):
                    writer.writerow([table.heading, row.method, row.settings, column, seed, f"{value:.4f}"])
    return out.getvalue()


def texts(table: Table, per_seed: bool = False) -> list[tuple[str, str, list[str]]]:
    """`(row name, n, cells)` as text: mean ± sd in per cent, then the paired difference with its 95 % interval."""
    lines = []
    for row in table.rows:
        name = row.method + (f" ({row.settings})" if row.settings else "")
        n = max(cell.n for cell in row.cells.values())
        lines.append((name, str(n), [_cell_text(row.cells.get(column), n) for column in table.columns]))
        differences = [table.difference(row, column) for column in table.columns]
        if any(differences):
            lines.append(("· difference to fine_tuning", "", [_difference_text(d, n) for d in differences]))
        if per_seed:
            for seed in sorted({seed for cell in row.cells.values() for seed in cell.by_seed}):
                values = [_seed_text(row.cells.get(column), seed) for column in table.columns]
                lines.append((f"· seed {seed}", "", values))
    return lines


def _make_table(heading: tuple, records: list[dict]) -> Table:
    groups = defaultdict(list)
    for record in records:
        groups[record["config"]["method"], _frozen_settings(record)].append(record)
    method_order = {name: place for place, name in enumerate(METHODS)}
    rows, columns = [], {}
    in_order = sorted(groups.items(), key=lambda item: (method_order[item[0][0]], item[0][1]))
    for (method, settings), group in in_order:
        cells: dict[str, dict[int, float]] = defaultdict(dict)
        for record in group:
            for set_name, metrics in record["metrics"].items():
                for column, value in _measures(set_name, metrics):
                    seed = record["config"]["seed"]
                    if cells[column].get(seed, 100 * value) != 100 * value:
                        raise UserError(
                            f"two different runs of {method} have seed {seed} and the same settings; they "
                            f"differ on {column} (other weights or data under one name, another device?); put them "
                            "into folders of their own and make a table of each."
                        )
                    cells[column][seed] = 100 * value
                    columns.setdefault(column)
        differing = _telling_apart(settings, [dict(other) for name, other in groups if name == method])
        budget = tuple(str(group[0]["config"].get(name)) for name in _BUDGET)
        rows.append(Row(method, differing, budget, {column: Cell(by_seed) for column, by_seed in cells.items()}))
    return Table(" · ".join(map(str, heading)), tuple(columns), tuple(rows))


def _telling_apart(settings: tuple, siblings: list[dict]) -> str:
    """The settings in which rows of one method differ; learning rates only where nothing else tells the rows apart."""
    differing = {name: value for name, value in settings if len({other.get(name) for other in siblings}) > 1}
    for names in ([name for name in differing if not name.endswith("learning_rate")], list(differing)):
        if len({tuple(other.get(name) for name in names) for other in siblings}) == len(siblings):
            return ", ".join(f"{name} {differing[name]}" for name in names)
    return ""


def _frozen_settings(record: dict) -> tuple:
    settings = {name: value for name, value in record["config"].items() if name not in _NOT_A_SETTING}
    return tuple(sorted((name, str(value)) for name, value in settings.items()))


def _measures(set_name: str, metrics: dict):
    yield set_name, metrics["accuracy"]
    for name in ("original", "consistency"):
        if name in metrics:
            yield f"{set_name} {name}", metrics[name]


def _cell_text(cell: Cell | None, n: int) -> str:
    if cell is None:
        return "not run"
    text = f"{cell.mean:.2f}" if cell.sd is None else f"{cell.mean:.2f} ± {cell.sd:.2f}"
    return text + _unlike(cell.n, n)


def _difference_text(difference: Difference | None, n: int) -> str:
    if difference is None:
        return ""
    interval = "" if difference.low is None else f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    return f"{difference.mean:+.2f}{interval}" + _unlike(difference.n, n)


def _unlike(own: int, n: int) -> str:
    """The number of seeds, or of pairs of them, where it is not the one that stands in the row's column n."""
    return "" if own == n else f" (n {own})"


def _seed_text(cell: Cell | None, seed: int) -> str:
    return "not run" if cell is None or seed not in cell.by_seed else f"{cell.by_seed[seed]:.2f}"
