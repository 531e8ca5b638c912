"""`bench`, `policies`, `diversity` and `prompt`: what is measured on the spot rather than read from records."""

from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import check_json, console, print_line, rich_table, write_json
from mtlib.errors import UserError
from mtlib.settings import ENGLISH_PIPELINE


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="step, epoch, head, refill", show_default="all")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer repeats, smaller data")] = False,
    throughput: Annotated[
        str | None, typer.Option(help="instead: sequences per second of bert-base or mini on this device")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write what was measured to this new file")] = None,
) -> None:
    """Measure speed, as ratios of two things done in turn.

    Leave the machine alone meanwhile.
    """
    from mtlib import bench as measuring

    check_json(json_file)
    if throughput:
        results = measuring.throughput(throughput, **({"batch_size": 8, "steps": 6} if quick else {}))
        rows = [["unknown" if value is None else value for value in row.values()] for row in results]
        console.print(rich_table(throughput, list(results[0]), rows))
    else:

        def report(row: dict) -> None:
            told = f"{row['name']:8} {row['ratio']:6.2f} x the time ({row['low']:.2f} to {row['high']:.2f})"
            print_line(f"{told}: {row['what']} against {row['against']}")

        results = measuring.run(names or [], quick, report)
    if json_file is not None:
        write_json(json_file, results)


def policies(
    names: Annotated[
        list[str] | None, typer.Argument(help="policies with their rates, such as exact:0.15", show_default="a dozen")
    ] = None,
    task: Annotated[str, typer.Option(help="sentiment, nli or paraphrase")] = "sentiment",
    source: Annotated[
        str, typer.Option(help="testbed, hub, or a folder of original releases or of `mtlib testbed`")
    ] = "testbed",
    model: Annotated[str, typer.Option(help="whose masked LM fills: mini, a hub id or a folder")] = "mini",
    trained: Annotated[
        Path | None, typer.Option(help="a model that `run --keep-model` kept, to fill and to be asked instead")
    ] = None,
    train_size: Annotated[
        int | None, typer.Option(help="training examples that policies count in and learn from", show_default="all")
    ] = None,
    examples: Annotated[int | None, typer.Option(help="of these, how many are looked at", show_default="all")] = None,
    seed: Annotated[int, typer.Option(help="of what policies learn, and of the masks")] = 0,
    spacy_pipeline: Annotated[str, typer.Option(help="that finds named entities for salient_spans")] = ENGLISH_PIPELINE,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write all that was measured to this new file")
    ] = None,
) -> None:
    """What each masking policy does to training texts: what it masks and refills; on the testbed, what it touches."""
    from mtlib.analysis import mask_tables
    from mtlib.analysis.policy_names import PolicyAtRate
    from mtlib.diversity import masks_of_policies

    check_json(json_file)
    description = masks_of_policies.describe(
        task, source, model, names or None, size=examples, seed=seed, trained=trained, spacy_pipeline=spacy_pipeline,
        report=lambda name: print_line(f"  {name}"), train_size=train_size,
    )  # fmt: skip
    frame = mask_tables.as_frame(description)
    labels = [PolicyAtRate.parse(name).label for name in frame.index]
    rows = [[label, *("" if value != value else f"{value:.1f}" for value in line)]
            for label, line in zip(labels, frame.values.tolist(), strict=True)]  # fmt: skip
    title = f"per cent of {description['examples']:,} training examples; cost relative to {labels[0]}"
    console.print(rich_table(title, ["masked", *frame.columns], rows))
    for kind, words in (("part_of_speech", "parts of speech"), ("frequency", "occurrences in the training set")):
        by_policy = mask_tables.kinds(description, kind)
        rows = [[label, *("" if share is None else f"{100 * share:.0f}" for share in shares.values())]
                for label, shares in by_policy.items()]  # fmt: skip
        title = f"per cent of the masked tokens, by {words}"
        console.print(rich_table(title, ["masked", *by_policy["all tokens"]], rows))
    if alike := mask_tables.most_alike(description):
        rows = [[name, other, f"{100 * share:.0f}"] for name, (other, share) in alike.items()]
        title = "places that two policies both mask, in per cent of those that either does"
        console.print(rich_table(title, ["masked", "most like", "in common"], rows))
    for line in description["policies"].values():
        if hits := line.get("pointer"):
            print_line(
                f"  The best span ({hits['length']:.1f} tokens) touches what it is to find in {hits['touched']:.0%} of "
                f"{hits['texts']:,} texts that are new to its pointer, a random one as long in {hits['by_chance']:.0%}."
            )
    if json_file is not None:
        write_json(json_file, description)


def diversity(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="sentiment, nli, paraphrase", show_default="all three")
    ] = None,
    source: Annotated[str, typer.Option(help="testbed, hub or a folder of original releases")] = "testbed",
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder with a masked LM")] = "mini",
    examples: Annotated[int, typer.Option(help="training examples of each task")] = 200,
    epochs: Annotated[int, typer.Option(help="passes over them")] = 3,
    seed: Annotated[int, typer.Option(help="of the examples, the masks and the order")] = 0,
    out: Annotated[Path, typer.Option(help="folder for the fillings; a task that is there is not trained again")] = (
        Path("runs")
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write all that was counted to this new file")
    ] = None,
) -> None:
    """What masked words turn into (Section V): plain masked-LM training beside Mask-tuning, on the same masks."""
    from mtlib.data.tasks import TASKS
    from mtlib.diversity import two_trainings
    from mtlib.paths import make_writable

    make_writable(out)
    check_json(json_file)
    studied = [two_trainings.TwoTrainings(task, source, model, examples, seed, epochs) for task in tasks or TASKS]
    description = two_trainings.describe(studied, out, lambda task: print_line(f"  {task}"))
    frame = two_trainings.as_frame({model: description})
    rows = [[*place, *("" if value != value else f"{value:.0f}" for value in line)]
            for place, line in zip(frame.index, frame.values.tolist(), strict=True)]  # fmt: skip
    console.print(rich_table("per cent of the examples, and of the tokens", [*frame.index.names, *frame.columns], rows))
    if json_file is not None:
        write_json(json_file, description)


def prompt(
    task: Annotated[str, typer.Option(help="sentiment, nli or paraphrase")] = "sentiment",
    source: Annotated[str, typer.Option(help="testbed, hub, or a folder of original releases")] = "testbed",
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder with a masked LM")] = "mini",
    causal: Annotated[bool, typer.Option("--causal", help="the model continues a text, such as gpt2")] = False,
    per_label: Annotated[
        int | None, typer.Option(help="with --causal: examples of each label that are shown first", show_default="16")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option(help="evaluation set, repeatable", show_default="all")] = None,
    max_length: Annotated[int, typer.Option(help="tokens of an example; the rest of it is cut off")] = 128,
    seed: Annotated[int, typer.Option(help="of the examples that are shown")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all metrics to this new file")] = None,
) -> None:
    """Ask a language model for the labels, without training (the GPT-3 column of Table I)."""
    from mtlib.analysis.statistics import balanced_accuracy
    from mtlib.runs import prompted

    check_json(json_file)
    if not causal and (per_label is not None or seed):
        raise UserError("--per-label and --seed are about examples that are shown; a masked LM is shown none.")
    shown = 16 if per_label is None else per_label
    asked = prompted.Prompting(task, source, model, causal, shown, tuple(sets or ()), max_length, seed)
    description = prompted.evaluate(asked, lambda name: print_line(f"  {name}"))
    rows = [
        [name, scoring, str(of_set["n"]), f"{100 * of_set['accuracy']:.1f}", f"{balanced_accuracy(of_set):.1f}",
         f"{100 * of_set['majority']:.1f}"]
        for name, scorings in description["metrics"].items() for scoring, of_set in scorings.items()
    ]  # fmt: skip
    title = "accuracy in per cent, by how an answer is scored"
    columns = ["set", "scoring", "examples", "accuracy", "balanced accuracy", "majority class"]
    console.print(rich_table(title, columns, rows))
    if json_file is not None:
        write_json(json_file, description)
