"""`python -m mtlib ...`. Heavy modules are imported inside the commands, so that `--help` answers at once."""

import dataclasses
import inspect
import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import typer
from rich.console import Console

from mtlib.errors import UserError
from mtlib.methods import METHODS, readers, settings_of_any_method
from mtlib.runs.config import settings_with_help

app = typer.Typer(
    help="Mask-tuning (arXiv 2307.10457): runs, tables, notebooks, figures, data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Check and download data.", no_args_is_help=True)
app.add_typer(data_app, name="data")
# settings that not every method reads, with the methods that do
_READ_BY = {name: readers(name) for name in settings_of_any_method()}
# a table in a file or a pipe is as wide as it needs to be
console = Console() if sys.stdout.isatty() else Console(width=10_000)


def _print(line: str) -> None:
    """A line that may hold a path: its brackets are no markup."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "EXIT_CODE", 2))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "mtlib":  # a fault of ours: the traceback is wanted
            raise
        print(
            f"error: this command needs the package {error.name}, which is not installed; `pip install "
            "'mtlib[notebooks]'` brings all of them, `python -m mtlib doctor` lists what is there.",
            file=sys.stderr,
        )
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has gone
        sys.stderr.close()
        sys.exit(0)


def _run_options() -> list[inspect.Parameter]:
    """An option for every setting of a run and of the methods, with the help that stands beside it."""
    options = []
    for name, (hint, text, default) in settings_with_help().items():
        kind, option, value = hint, f"--{name.replace('_', '-')}", default
        if get_origin(hint) is Literal:
            kind, text = str, f"{text}: {', '.join(get_args(hint))}"
        elif name == "method":
            text = f"{text}: {', '.join(METHODS)}"
        elif name == "shared":
            kind, option, value, text = bool, "--separate", False, "two trunks instead of a shared one"
        elif name in ("sets", "splits"):
            kind, value, option = list[str] | None, None, "--sets" if name == "sets" else "--split"
        if name in _READ_BY:
            others = [method for method in METHODS if method not in _READ_BY[name]]
            rule = f"not {', '.join(others)}" if len(others) < len(_READ_BY[name]) else ", ".join(_READ_BY[name])
            text = f"{text} ({rule})"
            value = None if name != "shared" else False  # what is not given is the method's own default
            kind = kind if name == "shared" else kind | None
        if value is dataclasses.MISSING:
            value = inspect.Parameter.empty
        annotation = Annotated[kind, typer.Option(option, help=text)]
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation))
    return options


def _with_run_options(command: Callable) -> Callable:
    """The command with the options of a run before its own."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [*_run_options(), *(p.replace(kind=p.KEYWORD_ONLY) for p in parameters)]
    command.__signature__ = inspect.Signature(options)
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


@app.command()
@_with_run_options
def run(
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs"),
    restart: Annotated[bool, typer.Option("--restart", help="do not resume an interrupted run")] = False,
    keep_model: Annotated[Path | None, typer.Option(help="write the trained model here")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="train also what the project has the record of")] = False,
    **settings,
) -> None:
    """Train, evaluate and write one record. A finished run is skipped, an interrupted one resumes."""
    from mtlib.runs.config import configure
    from mtlib.runs.records import read_records
    from mtlib.runs.run import run

    settings["shared"] = False if settings["shared"] else None  # the option says --separate
    settings = {name: value for name, value in settings.items() if value is not None or name not in _READ_BY}
    settings["sets"] = tuple(settings["sets"] or ())
    settings["splits"] = _named_values(settings["splits"] or [], "--split", "imdb_contrast=test")
    path, was_there = run(configure(**settings), out, resume=not restart, keep_model=keep_model, fresh=fresh)
    if os.environ.get("RANK", "0") != "0":  # of several processes, one reports
        return
    record = read_records([path])[0]
    made = record["environment"]
    _print(f"already there, made on {made['device']} at {made['commit']}: {path}" if was_there else f"written: {path}")
    if record.get("diverged"):
        console.print("  the loss was no longer finite: the run has diverged, try a lower learning rate")
    for name, metrics in record["metrics"].items():
        console.print(f"  {name:24} {100 * metrics['accuracy']:6.2f} %  ({metrics['correct']} of {metrics['n']})")


class Form(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"


@app.command()
def tables(
    folders: Annotated[list[Path] | None, typer.Argument(help="folders with records [default: runs]")] = None,
    form: Annotated[Form, typer.Option("--format", help="how to print them")] = Form.terminal,
    per_seed: Annotated[bool, typer.Option("--per-seed", help="every seed's value below its row")] = False,
) -> None:
    """Method x evaluation set: mean ± sd in per cent, and the paired difference to fine-tuning (95 % interval)."""
    from mtlib.analysis import tables as made
    from mtlib.runs.records import read_records

    every = made.make_tables(read_records(folders or [Path("runs")]))
    if form is Form.csv:
        print(made.csv_text(every), end="")
        return
    for table in every:
        if form is Form.markdown:
            print(made.markdown(table, per_seed), end="\n\n")
        else:
            console.print(_rich_table(table.heading, ["method", "n", *table.columns], [
                [name, n, *cells] for name, n, cells in made.texts(table, per_seed)]))  # fmt: skip
            if table.note:
                _print(table.note)


@app.command()
def bundle(
    folders: Annotated[list[Path], typer.Argument(help="folders with records")],
    to: Annotated[Path, typer.Option(help="a .jsonl file; records it already has are kept")],
    history: Annotated[int | None, typer.Option(help="log entries kept of each run [default: all]")] = None,
) -> None:
    """Put the records of many runs into one file, a line each."""
    from mtlib.runs.records import json_line, make_writable, read_records, write_atomically

    if to.suffix != ".jsonl":
        raise UserError(f"--to is {to}; expected a file name that ends in .jsonl.")
    if history is not None and history < 1:
        raise UserError(f"--history is {history}; expected 1 or more.")
    make_writable(to.parent)
    records = read_records([*([to] if to.exists() else []), *folders])
    write_atomically(to, "".join(json_line(record, history) for record in records))
    _print(f"{len(records)} records: {to}")


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="YAML: lists of tasks, models, methods, seeds and any setting of `run`")],
    out: Annotated[str, typer.Option(help="for records: a folder, or an address such as s3://bucket/folder")] = "runs",
    engine: Annotated[EngineName, typer.Option(help="processes of this machine, or a Ray cluster")] = EngineName.local,
    processes: Annotated[int | None, typer.Option(help="runs at once, for the local engine [default: 1]")] = None,
    address: Annotated[
        str | None, typer.Option(help="of the Ray cluster; local: a new one on this machine [default: auto]")
    ] = None,
    cpus_per_run: Annotated[float | None, typer.Option(help="for Ray [default: 1]")] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(help="for Ray, 0 to 1 [default: 1 where the cluster has GPUs]")
    ] = None,
    retries: Annotated[int, typer.Option(help="how often a run is taken up again whose process was killed")] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the runs, with estimated costs")] = False,
) -> None:
    """Run every configuration of a grid that has no record yet. Exit code 1 if one fails; the others go on."""
    from mtlib.sweeps import engines, grid, progress
    from mtlib.sweeps.store import Store

    _check_engine_options(engine, processes, address, cpus_per_run, gpus_per_run, retries)
    configs, store = grid.expand(file), Store(out)
    grid_runs, trouble = grid.identify(configs)
    if dry_run:
        progress.dry_run(console, grid_runs, trouble, store)
        return
    if trouble is not None:
        raise UserError(f"{file}: {trouble}")
    if engine is EngineName.local:
        _carry_out(grid_runs, store, lambda: engines.LocalEngine(store, processes or 1, retries))
        return
    from mtlib.sweeps.ray_engine import RayEngine

    if any(config.precision == "auto" for config in configs):
        raise UserError(
            f"{file}: precision is 'auto', which each machine of a cluster may take for something else; give "
            "`precision: bf16` or `precision: float32`."
        )
    _carry_out(grid_runs, store, lambda: RayEngine(store, address or "auto", cpus_per_run or 1, gpus_per_run, retries))


@app.command()
def study(
    source: Annotated[str, typer.Argument(help="folder of original releases, or hub")],
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder")] = "mini",
    size: Annotated[str, typer.Option(help="training examples: smoke (16), cpu, full (all)")] = "cpu",
    task: Annotated[list[str] | None, typer.Option(help="repeatable [default: all three]")] = None,
    block: Annotated[list[str] | None, typer.Option(help="what after the grid, repeatable [default: all]")] = None,
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs/study"),
    processes: Annotated[int, typer.Option(help="runs at once")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the runs, with estimated costs")] = False,
) -> None:
    """The study of data/results/PLAN.md: a grid of learning rates, then every arm at its best one. Resumable."""
    from mtlib.study import plan as plan_of
    from mtlib.sweeps.store import Store

    if processes < 1:
        raise UserError(f"--processes is {processes}; expected 1 or more.")
    chosen, store = plan_of.Study(source, model, size, tuple(task or plan_of.TASKS)), Store(str(out))
    blocks = list(chosen.runs({}))
    for name in block or []:
        if name not in blocks:
            raise UserError(f"--block is {name!r}; expected one of {', '.join(blocks)}.")
    if dry_run:
        _list_study(chosen, block or blocks, store)
    else:
        _carry_out_study(chosen, block or blocks, store, processes)


def _list_study(chosen, blocks: list[str], store) -> None:
    """The study's runs with their estimated costs; at default learning rates where the grid has not been run."""
    from mtlib.sweeps import grid, progress

    cache = {}
    of_grid, _ = grid.identify(chosen.grid(), cache)
    rest = _after_grid(chosen, blocks, of_grid, store)
    progress.dry_run(console, *grid.identify([*chosen.grid(), *rest], cache), store)
    if lacking := len(of_grid) - len(_records_there(of_grid, store)):
        console.print(
            f"the grid of learning rates lacks {lacking} runs: the runs after it are listed at the rates that it would "
            "choose now, or the default ones"
        )


def _carry_out_study(chosen, blocks: list[str], store, processes: int) -> None:
    """The grid of learning rates, then the blocks at the rates that it chose."""
    from mtlib.sweeps import engines, grid

    cache = {}

    def identify(configs: list) -> list[grid.GridRun]:
        grid_runs, trouble = grid.identify(configs, cache)
        if trouble is not None:
            raise trouble
        return grid_runs

    def carry_out(grid_runs: list[grid.GridRun]) -> None:
        _carry_out(grid_runs, store, lambda: engines.LocalEngine(store, processes))

    identify(_after_grid(chosen, blocks, [], store))  # what cannot be read later is said before the first run
    of_grid = identify(chosen.grid())
    try:
        carry_out(of_grid)
    except typer.Exit:
        console.print("the grid of learning rates is not whole: nothing after it was started")
        raise
    carry_out(identify(_after_grid(chosen, blocks, of_grid, store)))


def _after_grid(chosen, blocks: list[str], of_grid: list, store) -> list:
    """The configurations of these blocks, at the rates that the grid's records choose as far as they are there."""
    from mtlib.runs.records import read_records
    from mtlib.study.plan import best_rates

    by_block = chosen.runs(best_rates(read_records(_records_there(of_grid, store))))
    return [config for name, configs in by_block.items() if name in blocks for config in configs]


def _records_there(grid_runs: list, store) -> list[Path]:
    return [store.folder / run.file for run in grid_runs if run.file is not None and store.has(run.file)]


def _carry_out(grid_runs: list, store, make_engine: Callable) -> None:
    """Have the record of every run in the store, with progress and a summary. Exit code 1 if one fails."""
    from mtlib.sweeps.engines import execute
    from mtlib.sweeps.progress import Progress, summary

    store.check_writable()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a job scheduler's stop ends the runs too
    with Progress(console, len(grid_runs)) as progress:
        outcomes = execute(grid_runs, make_engine(), store, progress)
    if not summary(console, outcomes, store):
        raise typer.Exit(1)


@app.command()
def testbed(
    out: Annotated[Path, typer.Option(help="a new folder, then a --source of `run`")],
    strength: Annotated[float, typer.Option(help="of the planted shortcut, 0 (none) to 1 (always right)")] = 0.9,
    seed: Annotated[int, typer.Option(help="same strength and seed, same bytes")] = 0,
) -> None:
    """Generate the testbed with its shortcut at another strength."""
    from mtlib.runs.records import make_writable
    from mtlib.testbed import write

    make_writable(out)
    if any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder with --out.")
    write(out, strength, seed)
    _print(f"written: {out}")


@data_app.command()
def verify(source: Annotated[str, typer.Option(help="a folder of original releases")]) -> None:
    """Check every file of the releases: rows, labels, checksums. Exit code 1 if one fails."""
    from mtlib.data import verification

    rows = verification.verify(source)
    width = max(len(row.file) for row in rows)
    for row in rows:
        of = f"of {row.expected:,}" if row.expected != row.rows and row.expected else ""
        counted = f"{_number(row.rows):>7} {of:>10}  {row.labels}"
        print(f"{row.status:9} {row.file:{width}} {counted}; checksum {row.checksum}")
    print("\nNotes")
    for row in rows:
        if row.note:
            print(f"  {row.file}: {row.note}")
    print()
    counts = {status: sum(row.status == status for row in rows) for status in ("ok", "deviation", "missing", "FAIL")}
    print(", ".join(f"{n} {status}" for status, n in counts.items()))
    if counts["missing"] == len(rows):
        raise UserError(f"{source} holds none of the files; expected for example {rows[0].file} below it.")
    if counts["FAIL"]:
        raise typer.Exit(1)


@data_app.command()
def fetch(
    sets: Annotated[list[str] | None, typer.Argument(help="sets [default: all that can be downloaded]")] = None,
    cache: Annotated[Path | None, typer.Option(help="folder for raw files [default: in the hub's cache]")] = None,
) -> None:
    """Download sets into the cache; a cut download resumes, a checksum is verified."""
    from rich.progress import Progress

    from mtlib.data import downloads
    from mtlib.data.registry import SETS

    wanted = sets or [name for name, data_set in SETS.items() if data_set.remote is not None]
    downloads.check(wanted)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bars = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=total)
            progress.update(bars[file], completed=done, total=total)

        for name in wanted:
            paths = downloads.fetch([name], cache or downloads.CACHE_DIR, show)
            console.print(f"{name}: {len(paths)} file(s)")


@app.command()
def notebooks(
    names: Annotated[list[str] | None, typer.Argument(help="such as 03 or 03_mask_tuning [default: all]")] = None,
    profile: Annotated[str, typer.Option(help="smoke, cpu, gpu or paper: how much is run")] = "cpu",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", help="NAME=VALUE, of the parameters cells; repeatable")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for executed copies, HTML, summary and run records")] = Path(
        "build/notebooks"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="keep what an earlier call in --out finished")] = False,
    list_parameters: Annotated[bool, typer.Option("--list", help="only list the parameters")] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="for maintainers: store the outputs in notebooks/ (cpu profile only)")
    ] = False,
    student: Annotated[
        Path | None, typer.Option(help="instead: grade the notebooks in this folder, a subfolder for each student")
    ] = None,
) -> None:
    """Run the notebooks in order with papermill. An unknown parameter stops it before anything runs."""
    from mtlib.tutorial import runner

    if student is not None:
        if names or parameter or resume or list_parameters or publish:
            raise UserError("--student grades the notebooks of a folder; give only --profile and --out beside it.")
        _grade(student, profile, out)
        return
    paths = runner.find(names or [])
    if list_parameters:
        _print_parameters(paths)
        return
    texts = _named_values(parameter or [], "-p", "alpha=0.7")
    if "profile" in texts:
        raise UserError("give the profile with --profile, not with -p.")
    results = _run_notebooks(paths, profile, texts, out, resume, publish)
    _print_results(results, out)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


def _grade(students: Path, profile: str, out: Path) -> None:
    from mtlib.runs import profiles
    from mtlib.tutorial import grading

    profiles.load(profile)  # an unknown one is told before the first notebook runs
    grading.grade_folder(students, profile, out / "students", _print)


def _print_parameters(notebook_paths: list[Path]) -> None:
    from mtlib.tutorial import runner

    console.print(_rich_table("parameters", ["notebook", "name", "type", "default", "meaning"], [
        [path.stem, name, about["inferred_type_name"], about["default"], about["help"]]
        for path in notebook_paths for name, about in runner.parameters_of(path).items()]))  # fmt: skip


def _run_notebooks(
    paths: list[Path], profile: str, texts: dict[str, str], out: Path, resume: bool, publish: bool
) -> list:
    """Everything that can be checked is checked before the first notebook runs."""
    from mtlib.runs import profiles
    from mtlib.tutorial import runner

    silent_minutes = profiles.silent_minutes(profile)
    values = runner.check_parameters(paths, texts if profile == "cpu" else {**texts, "profile": profile})
    if publish and (profile != "cpu" or texts or resume):
        raise UserError("--publish stores a fresh run of the cpu profile; leave out --resume, -p and other profiles.")
    if publish and (out / "runs").exists():
        raise UserError(f"--publish stores a fresh run, but {out / 'runs'} has earlier ones; delete it, or give --out.")

    def report(result: runner.Result) -> None:
        console.print(f"{result.name:24} {result.status:8} {result.seconds / 60:6.1f} min", highlight=False)
        if result.error:
            print(result.error, file=sys.stderr)
        elif publish:
            runner.publish(out / f"{result.name}.ipynb", runner.NOTEBOOK_DIR / f"{result.name}.ipynb", result.seconds)

    results = runner.run_notebooks(values, out, silent_minutes, resume, report)
    if publish:
        runner.update_readme()
    return results


def _print_results(results: list, out: Path) -> None:
    total = sum(result.seconds for result in results if result.status != "kept")
    console.print(_rich_table(f"{total / 60:.1f} minutes, {out}", ["notebook", "status", "minutes", "slowest cells"], [
        [result.name, result.status, f"{result.seconds / 60:.1f}",
         "\n".join(f"{seconds:5.0f} s  {where}" for seconds, where in result.slowest)]
        for result in results]))  # fmt: skip


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="benchmarks [default: all]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer repeats, smaller data")] = False,
    throughput: Annotated[
        str | None, typer.Option(help="instead: sequences per second of bert-base or mini on this device")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="instead: where a step's processor time goes")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write what was measured here; results of other benchmarks are kept")
    ] = None,
) -> None:
    """Measure speed and memory as ratios, both sides in turn in one process. Leave the machine alone meanwhile."""
    import json

    from mtlib import bench as measuring
    from mtlib.runs.records import make_writable

    if profile and (names or throughput or json_file):
        raise UserError("--profile prints one table; give neither benchmarks, nor --throughput, nor --json.")
    if throughput and (names or json_file):
        raise UserError("--throughput prints one table; give neither benchmarks nor --json.")
    if profile:
        shares = measuring.profile(quick)
        rows = [[kind, *(f"{by_kind[kind]:.1f} %" for by_kind in shares.values())] for kind in shares["fine_tuning"]]
        console.print(_rich_table("share of a step's time", ["", *shares], rows))
        return
    if throughput:
        speeds = measuring.throughput(throughput, **({"batch_size": 8, "steps": 6} if quick else {}))
        rows = [["unknown" if value is None else value for value in row.values()] for row in speeds]
        console.print(_rich_table(throughput, list(speeds[0]), rows))
        return
    before = None
    if json_file is not None:
        make_writable(json_file.parent)
        before = json.loads(json_file.read_text()) if json_file.exists() else None

    def report(result: measuring.Measured) -> None:
        console.print(
            f"{result.name:11} {result.ratio:6.2f} ({result.low:.2f} to {result.high:.2f}), wanted {result.wanted}: "
            f"{'met' if result.met else 'not met'}. {result.what} against {result.against}", highlight=False,
        )  # fmt: skip

    results = measuring.run(names or [], quick, report, before)
    if json_file is not None:
        _write_json(json_file, results)


@app.command()
def policies(
    names: Annotated[
        list[str] | None, typer.Argument(help="policies with their rates, such as exact:0.15 [default: a dozen]")
    ] = None,
    task: Annotated[str, typer.Option(help="sentiment, nli or paraphrase")] = "sentiment",
    source: Annotated[str, typer.Option(help="testbed, or a folder that `testbed` wrote")] = "testbed",
    model: Annotated[str, typer.Option(help="whose masked LM fills: mini, a hub id or a folder")] = "mini",
    trained: Annotated[
        Path | None, typer.Option(help="a model that `run --keep-model` kept, to fill and to be asked instead")
    ] = None,
    examples: Annotated[int | None, typer.Option(help="training examples [default: all]")] = None,
    seed: Annotated[int, typer.Option(help="of the masks, the same for all policies")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all that was measured here")] = None,
) -> None:
    """What each masking policy does to the testbed's training texts: what it masks, touches and refills."""

    from mtlib.diversity import policies as measuring
    from mtlib.runs.records import make_writable

    if json_file is not None:
        make_writable(json_file.parent)
    chosen = names or measuring.DEFAULT
    description = measuring.describe(
        task, source, model, chosen, examples, seed, trained, lambda name: _print(f"  {name}")
    )
    frame = measuring.as_frame(description)
    rows = [[name, *("" if value != value else f"{value:.1f}" for value in line)]
            for name, line in zip(frame.index, frame.values.tolist(), strict=True)]  # fmt: skip
    title = f"per cent of {description['examples']:,} training examples; cost relative to {frame.index[0]}"
    console.print(_rich_table(title, ["policy:rate", *frame.columns], rows))
    if json_file is not None:
        _write_json(json_file, description)


@app.command()
def diversity(
    tasks: Annotated[list[str] | None, typer.Argument(help="sentiment, nli, paraphrase [default: all three]")] = None,
    source: Annotated[str, typer.Option(help="testbed, hub or a folder of original releases")] = "testbed",
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder with a masked LM")] = "mini",
    examples: Annotated[int, typer.Option(help="training examples of each task")] = 200,
    epochs: Annotated[int, typer.Option(help="passes over them")] = 3,
    seed: Annotated[int, typer.Option(help="of the examples, the masks and the order")] = 0,
    out: Annotated[Path, typer.Option(help="folder for the fillings; a task that is there is not trained again")] = (
        Path("runs")
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="write all that was counted here")] = None,
) -> None:
    """What masked words turn into (Section V): plain masked-LM training beside Mask-tuning, on the same masks."""

    from mtlib.data.tasks import TASKS
    from mtlib.diversity import two_trainings
    from mtlib.runs.records import make_writable

    for folder in {out, json_file.parent if json_file else out}:
        make_writable(folder)
    studied = [two_trainings.TwoTrainings(task, source, model, examples, seed, epochs) for task in tasks or TASKS]
    description = two_trainings.describe(studied, out, lambda task: _print(f"  {task}"))
    frame = two_trainings.as_frame({model: description})
    rows = [[*place, *("" if value != value else f"{value:.0f}" for value in line)]
            for place, line in zip(frame.index, frame.values.tolist(), strict=True)]  # fmt: skip
    console.print(
        _rich_table("per cent of the examples, and of the tokens", [*frame.index.names, *frame.columns], rows)
    )
    if json_file is not None:
        _write_json(json_file, description)


@app.command()
def pages() -> None:
    """For maintainers: fill what the pages print of data/results and notebooks, and the notebooks' install cells."""
    from mtlib.paths import DATA_DIR, NOTEBOOK_DIR
    from mtlib.tutorial import page_tables, runner

    if not NOTEBOOK_DIR.is_dir():
        raise UserError("no pages to fill: they come with a checkout of the repository, not with pip.")
    parts = page_tables.parts(DATA_DIR / "results")
    for page in page_tables.PAGES:
        console.print(f"{page}: {', '.join(page_tables.fill(DATA_DIR.parent / page, parts))}")
    runner.update_readme()
    console.print("README.md: notebooks")
    console.print(f"install cells: {', '.join(runner.update_install_cells()) or 'as they were'}")


@app.command()
def figures(
    out: Annotated[Path | None, typer.Option(help="folder [default: figures/ of the checkout]")] = None,
) -> None:
    """Draw the repository's figures, PNG and SVG, from data/results."""
    from mtlib.analysis.figures import save
    from mtlib.paths import DATA_DIR, FIGURE_DIR
    from mtlib.runs.records import make_writable
    from mtlib.study.figures import standard

    if out is None and not FIGURE_DIR.is_dir():
        raise UserError("there is no checkout whose figures/ to write to; give a folder with --out.")
    make_writable(out or FIGURE_DIR)
    for name, (figure, alt) in standard(DATA_DIR / "results").items():
        for path in save(figure, out or FIGURE_DIR, name, alt):
            _print(f"written: {path}")


@app.command()
def doctor() -> None:
    """One line per requirement, then the device and whether the hub answers. Exit code 1 if a requirement fails."""
    from mtlib.runs import environment

    checks = environment.checks()
    marks = {True: "[green]OK  [/]", False: "[red]FAIL[/]", None: "    "}
    for check in checks:
        console.print(f"{marks[check.ok]} {check.name:16} {check.detail}", highlight=False)
    if any(check.ok is False for check in checks):
        raise typer.Exit(1)


def _check_engine_options(
    engine: EngineName,
    processes: int | None,
    address: str | None,
    cpus_per_run: float | None,
    gpus_per_run: float | None,
    retries: int,
) -> None:
    for_ray = {"--address": address, "--cpus-per-run": cpus_per_run, "--gpus-per-run": gpus_per_run}
    for option, value in ({"--processes": processes} if engine is EngineName.ray else for_ray).items():
        if value is not None:
            raise UserError(f"{option} is {value!r}, but --engine {engine} does not read it; leave it out.")
    for option, value in (("--processes", processes), ("--cpus-per-run", cpus_per_run)):
        if value is not None and not value > 0:
            raise UserError(f"{option} is {value!r}; expected a number above 0.")
    if retries < 0:
        raise UserError(f"--retries is {retries}; expected 0 or more.")
    if gpus_per_run is not None and not 0 <= gpus_per_run <= 1:
        raise UserError(
            f"--gpus-per-run is {gpus_per_run:g}; expected 0 to 1, for a run drives one GPU. Several GPUs in one run: "
            "`accelerate launch -m mtlib run ...`."
        )


def _named_values(texts: list[str], option: str, example: str) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{option} is {text!r}; expected NAME=VALUE, for example {example}.")
        values[name] = value
    return values


def _write_json(file: Path, content: object) -> None:
    import json

    from mtlib.runs.records import write_atomically

    write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _print(f"written: {file}")


def _rich_table(title: str, columns: list[str], rows: list[list[str]]):
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=Text(title), title_justify="left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # not markup: `Optional[int]` is what it says
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
