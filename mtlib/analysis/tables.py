"""Tables made from run records alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas

from mtlib.analysis.frame import HEADING, diverged, frame, is_precision_compared
from mtlib.analysis.statistics import Difference, paired_difference
from mtlib.errors import UserError


@dataclass(frozen=True, eq=False)
class Row:
    """One method with one choice of settings.

    Args:
        method, settings: the row's name in the table.
        name: in figures.
        budget: what another row must share for their difference to be one of methods.
        scores: in per cent, a line per seed and a column per evaluation set and measure; NaN where it was not run.
    """

    method: str
    settings: str
    name: str
    budget: tuple
    scores: pandas.DataFrame

    @property
    def n(self) -> int:
        return int(self.scores.count().max())


@dataclass(frozen=True)
class Table:
    """All methods on one task, source and model. `columns` are evaluation sets, some with a measure of their own."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def difference(self, row: Row, column: str, level: float = 0.95) -> Difference | None:
        """To the fine-tuning row of the same budget (`epochs`, `train_size`, ...), where there is exactly one."""
        baselines = [
            other.scores[column]
            for other in self.rows
            if other.method == "fine_tuning" and other.budget == row.budget and other.scores[column].notna().any()
        ]
        if row.method == "fine_tuning" or len(baselines) != 1:
            return None
        return paired_difference(list((row.scores[column] - baselines[0]).dropna()), level)


def make_tables(records: Iterable[dict]) -> list[Table]:
    """Group records into tables; settings become part of a row's name only where they differ within the table."""
    by_heading = defaultdict(list)
    for record in records:
        by_heading[tuple(record["config"][name] for name in HEADING)].append(record)
    if not by_heading:
        raise UserError("no run records found; make some with `python -m mtlib run --out FOLDER`.")
    return [_make_table(heading, group) for heading, group in sorted(by_heading.items())]


def markdown(table: Table, per_seed: bool = False) -> str:
    rows = [(name, n, *cells) for name, n, cells in texts(table, per_seed)]
    lines = pipe_table(("method", "n", *table.columns), rows, words=1)
    return f"**{table.heading}**\n\n{lines}" + (f"\n\n{table.note}" if table.note else "")


def pipe_table(header: Sequence, rows: Iterable[Sequence], words: int) -> str:
    """Markdown; the first `words` columns stand to the left, the others, which are numbers, to the right."""
    lines = [header, [*["---"] * words, *["---:"] * (len(header) - words)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def csv_text(tables: Iterable[Table]) -> str:
    """One line per table, row, column and seed, in per cent: for other programs."""
    lines = [
        (table.heading, row.method, row.settings, column, seed, value)
        for table in tables
        for row in table.rows
        for column in table.columns
        for seed, value in row.scores[column].dropna().items()
    ]
    header = ["table", "method", "settings", "column", "seed", "accuracy_percent"]
    return pandas.DataFrame(lines, columns=header).to_csv(index=False, float_format="%.4f", lineterminator="\n")


def texts(table: Table, per_seed: bool = False) -> list[tuple[str, str, list[str]]]:
    """`(row name, n, cells)` as text: mean ± sd in per cent, then the paired difference with its 95 % interval."""
    lines = []
    for row in table.rows:
        name = _row_name(row.method, row.settings)
        lines.append((name, str(row.n), [_score_text(row.scores[column], row.n) for column in table.columns]))
        differences = [table.difference(row, column) for column in table.columns]
        if any(differences):
            lines.append(("· difference to fine_tuning", "", [_difference_text(d, row.n) for d in differences]))
        if per_seed:
            for seed, scores in row.scores.iterrows():
                lines.append((f"· seed {seed}", "", ["not run" if s != s else f"{s:.2f}" for s in scores]))
    return lines


def _make_table(heading: tuple, records: list[dict]) -> Table:
    scores = frame(records)
    columns = {
        name if measure == "accuracy" else f"{name} {measure}": (name, measure)
        for name in scores["set"].unique()
        for measure in ("accuracy", "original", "consistency")
        if scores.loc[scores["set"] == name, measure].notna().any()
    }
    rows = []
    for (method, settings), group in scores.groupby(["method", "settings"], sort=False):
        by_seed = {of: group[group["set"] == of].set_index("seed") for of, _ in columns.values()}
        wide = pandas.DataFrame({column: by_seed[of][measure] for column, (of, measure) in columns.items()})
        rows.append(Row(method, settings, group["row"].iloc[0], group["budget"].iloc[0], wide.sort_index()))
    notes = [_note_on_diverged(records), "" if is_precision_compared(records) else _note_on_precision(scores)]
    return Table(" · ".join(map(str, heading)), tuple(columns), tuple(rows), "\n\n".join(filter(None, notes)))


def _note_on_diverged(records: Iterable[dict]) -> str:
    lost = [record["config"] for record in records if diverged(record)]
    names = [
        f"{config['method']} (learning rate {config['learning_rate']:g}, seed {config['seed']})" for config in lost
    ]
    return f"Left out, because training diverged: {', '.join(names)}." if names else ""


def _note_on_precision(scores: pandas.DataFrame) -> str:
    """Which runs have another precision than most, where rows and their differences put several together."""
    runs = scores.drop_duplicates(["method", "settings", "seed"])
    if runs["precision"].nunique() < 2:
        return ""
    usual, texts = runs["precision"].mode()[0], []
    for (method, settings, precision), group in runs.groupby(["method", "settings", "precision"], sort=False):
        if precision != usual:
            of_seeds = f"seed{'s' * (len(group) > 1)} {', '.join(map(str, sorted(group['seed'])))}"
            texts.append(f"{_row_name(method, settings)}, {of_seeds}, in {precision}")
    return f"All runs are in {usual}, except: {'; '.join(texts)}."


def _row_name(method: str, settings: str) -> str:
    return method + (f" ({settings})" if settings else "")


def _score_text(scores: pandas.Series, n: int) -> str:
    scores = scores.dropna()
    if scores.empty:
        return "not run"
    text = f"{scores.mean():.2f}" + (f" ± {scores.std():.2f}" if len(scores) > 1 else "")
    return text + _other_number(len(scores), n)


def _difference_text(difference: Difference | None, n: int) -> str:
    return "" if difference is None else difference.text(2) + _other_number(difference.n, n)


def _other_number(seeds: int, n: int) -> str:
    """The number of seeds, or of pairs of them, where it is not the one that stands in the row's column n."""
    return "" if seeds == n else f" (n {seeds})"
