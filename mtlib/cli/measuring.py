"""`bench`, `policies` and `prompt`: measured at once, not read from records."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from mtlib.cli.terminal import JsonFile, Model, Source, Task, print_line, print_table, write_json
from mtlib.errors import UserError


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="fewer steps and repeats")] = False,
    throughput: Annotated[
        str | None,
        typer.Option(help="instead: sequences per second of bert-base or mini on this device"),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure speed: a step of Mask-tuning beside one of fine-tuning.

    Leave the machine alone meanwhile.

    Examples:
        python -m mtlib bench --quick
        python -m mtlib bench --throughput bert-base
    """
    from mtlib.runs import environment

    measured = []
    for row in _measurements(quick, throughput):
        measured.append(row)
        print_line("  ".join(f"{name} {value}" for name, value in row.items()))
    description = {"environment": environment.describe(), "quick": quick, "measured": measured}
    write_json(json_file, description)


def _measurements(quick: bool, throughput: str | None) -> Iterator[dict]:
    from mtlib import bench

    if throughput is None:
        return iter([bench.step(quick)])
    if quick:
        return bench.throughput(throughput, sizes=((16, 16),), steps=6)
    return bench.throughput(throughput)


def policies(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="policies and rates, such as exact:0.15", show_default="a dozen"),
    ] = None,
    task: Task = "sentiment",
    source: Source = "testbed",
    model: Model = "mini",
    train_size: Annotated[
        int | None,
        typer.Option(
            help="training examples that policies count in and learn from",
            show_default="all",
        ),
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(min=1, help="of these, how many are looked at", show_default="all"),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """What each masking policy masks in training texts.

    On the testbed, also how much of the shortcut it masks. The attribution policies need a trained
    classifier: give the folder of a model that `run --keep-model` wrote.

    Examples:
        python -m mtlib policies exact:0.15 whole_word known_shortcut
        python -m mtlib policies --task nli --examples 200
    """
    from mtlib.diversity.masks_of_policies import describe

    masked = describe(
        task,
        source,
        model,
        names or None,
        train_size=train_size,
        size=examples,
        report=_print_indented,
    )
    settings = {"task": task, "source": source, "model": model, "train_size": train_size}
    write_json(json_file, settings | {"examples": examples, "per cent": masked.to_dict("index")})
    masked = masked.round(1)
    masked.insert(0, "masked", masked.index)
    print_table("per cent of the training examples", masked.columns, masked.values.tolist())


def _print_indented(message: str) -> None:
    print_line(f"  {message}")


def prompt(
    task: Task = "sentiment",
    source: Source = "testbed",
    model: Model = "mini",
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="a model that continues a text, such as gpt2; else a masked LM",
        ),
    ] = False,
    shots: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="with --causal: training examples shown, as many of each label",
            show_default="16",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="with --causal: of the examples shown", show_default="0"),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(help="evaluation set, repeatable", show_default="all"),
    ] = None,
    max_length: Annotated[
        int,
        typer.Option(help="tokens of an example; the rest of it is cut off"),
    ] = 128,
    json_file: JsonFile = None,
) -> None:
    """Ask a language model for the labels, untrained (Table I).

    Examples:
        python -m mtlib prompt --task nli
        python -m mtlib prompt --causal --model gpt2 --shots 16
    """
    from mtlib.runs import prompting
    from mtlib.runs.config import configure

    if causal:
        shots = 16 if shots is None else shots
    elif shots is not None or seed is not None:
        raise UserError("--shots and --seed are about examples shown to a model with --causal.")
    config = configure(
        task,
        "fine_tuning",
        source=source,
        model=model,
        sets=tuple(sets or ()),
        max_length=max_length,
        seed=seed or 0,
    )
    description = prompting.evaluate(config, shots, _print_indented)
    _print_scorings(description["metrics"])
    write_json(json_file, description)


def _print_scorings(metrics_of_sets: Mapping[str, Mapping[str, Mapping]]) -> None:
    """A line for each set and way of scoring an answer."""
    from mtlib.analysis.frame import measures

    rows = []
    for name, scorings in metrics_of_sets.items():
        for scoring, metrics in scorings.items():
            accuracy = 100 * metrics["accuracy"]
            balanced = measures(metrics)["balanced"]
            majority = 100 * metrics["majority"]
            numbers = [f"{number:.1f}" for number in (accuracy, balanced, majority)]
            rows.append([name, scoring, metrics["n"], *numbers])
    columns = ["set", "scoring", "examples", "accuracy", "balanced accuracy", "majority class"]
    print_table("accuracy in per cent, by how an answer is scored", columns, rows)
