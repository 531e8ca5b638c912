"""What the pages print of the records in data/results: `python -m mtlib pages`.

A page holds each part between `<!-- made: NAME -->` and `<!-- end -->`.
"""

import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path

import pandas

from mtlib.analysis import mask_tables, policies
from mtlib.analysis.comparison import ArmComparison, accuracy
from mtlib.analysis.figures.shortcuts import accuracy_by_strength
from mtlib.analysis.frame import by_row
from mtlib.analysis.tables import make_tables, markdown
from mtlib.data.tasks import TASKS
from mtlib.diversity.two_trainings import as_frame
from mtlib.errors import UserError
from mtlib.runs.records import examples_used, read_records
from mtlib.study import base_sized, changes, claims, figures, peers, readings, report, reviews, weaker
from mtlib.study.ablations import WITHOUT_REFILLING, as_printed, reading_originals, told_the_words
from mtlib.study.arms import scores_of_arms
from mtlib.study.plan import ARMS, arm_of, split

_RESULTS = ("README", "STUDY", "POLICIES", "ABLATIONS", "PEERS", "BASE_SIZED", "SIZES", "DIVERSITY", "SPEED")
PAGES = ("README.md", *(f"data/results/{name}.md" for name in _RESULTS))  # in a checkout
_PART = r"(<!-- made: {} -->\n)(?:(?!<!-- made:).)*?(<!-- end -->)"


def parts(results: Path) -> dict[str, str]:
    """Every part by name, as Markdown, from the records in `results`."""
    study = read_records([results / "study.jsonl"])
    arms = [arm.name for arm in ARMS]
    grid, rest = split(study)
    tasks = list(_by_task(rest))
    of_peers, on_real_data = read_records([results / "peers.jsonl"]), peers.on_real_data(results)
    bias_models = peers.bias_models({"testbed": of_peers, **on_real_data}).rename_axis("data")
    return {
        **_images(results, tasks),
        **_base_sized(results, tasks),
        "testbed in short": _in_short(results, of_peers),
        "study verdicts": report.markdown(claims.verdicts(study)),
        "study sets": _frames_by_task({task: claims.by_set(study, task) for task in tasks}),
        "study main": _tables([record for record in rest if arm_of(record["config"]) in arms]) + _untrained(study),
        "study labels": _frames_by_task({task: report.by_label(study, task) for task in tasks}),
        "study curves": _frames_by_task({task: report.curves(study, task) for task in tasks}),
        "study cost": report.markdown(report.cost(study)),
        "study rates": _rates(grid),
        "rates of the bundled model": _rates(read_records([results / "sst2_grid.jsonl"])),
        "study pilot": _rates(read_records([results / "study_pilot.jsonl"])),
        "testbed": _testbed(read_records([results / "testbed.jsonl"])),
        "speed": _speed(json.loads((results / "bench_cpu.json").read_text())),
        "fillings": _fillings(results),
        "prompting": report.markdown(report.prompted(results)),
        "parts of Mask-tuning": _tables(told_the_words(results)),
        "without refilling": _compared(WITHOUT_REFILLING, reading_originals(results), "the classifier reads"),
        "masking policies": _policies(read_records([results / "policies.jsonl"])),
        "policies at half the strength": _compared(
            policies.in_training_by("mask_tuning"), read_records([results / "policies_weaker.jsonl"]), "masked"
        ),
        "rates at half the strength": _compared(weaker.RATES, weaker.at_several_rates(results), "masked"),
        "policies on pairs": _each_compared(
            policies.in_training_by("no_integrated_loss"), _by_task(read_records([results / "policies_pairs.jsonl"])),
            "masked",
        ),
        "masks": _masks(results / "policies_masks.json"),
        "masks on pairs": _masks_on_pairs(results),
        "masks on reviews": _masks_on_reviews(results / "policies_masks_sst2.json"),
        "policies on reviews": _compared(reviews.REFILLING, read_records([results / "policies_sst2.jsonl"]), "masked"),
        "intermediate pre-training": _compared(
            reviews.PRETRAINING, read_records([results / "intermediate.jsonl"]), "masked in pre-training"
        ),
        "other readings": _compared(
            readings.READINGS, read_records([results / "readings.jsonl", results / "sizes.jsonl"]), "classified"
        ),
        "other methods": _compared(peers.PEERS, of_peers, "method"),
        "other methods on pairs": _each_compared(
            peers.PEERS, _by_task(read_records([results / "peers_pairs.jsonl"])), "method"
        ),
        "bias models": report.markdown(bias_models),
        "other methods on real data": _each_compared(peers.PEERS, on_real_data, "method"),
        "policies on pairs, changed": _frames_by_task(changes.on_pairs(results)),
        **{name: report.markdown(frame) for name, frame in changes.tables(results).items()},
        "other methods seed by seed": report.markdown(peers.seed_by_seed(results, of_peers)),
        "larger training set": _tables(read_records([results / "sst2.jsonl"])),
        "sizes": _tables(read_records([results / "sizes.jsonl"])),
    }  # fmt: skip


def _base_sized(results: Path, tasks: list[str]) -> dict[str, str]:
    """The parts about the base-sized model's trainings."""
    pairs = read_records([results / "base_pairs.jsonl"])
    return {
        "base-sized": _tables(read_records([results / "base.jsonl"])),
        "base-sized rates": report.markdown(base_sized.rates(results)),
        "base-sized policies": _compared(reviews.REFILLING, base_sized.with_policies(results), "masked"),
        "base-sized pairs": _tables(pairs),
        "base-sized pairs, by label": _frames_by_task({task: report.by_label(pairs, task) for task in tasks}),
        "other methods, base-sized": _each_compared(peers.PEERS, peers.with_a_base_sized_model(results), "method"),
    }


def _images(results: Path, tasks: list[str]) -> dict[str, str]:
    """The parts that are figures, each with its alt text; `tasks` are those of the study."""
    drawn = figures.standard(results)
    curves = [name for name in drawn if name.startswith(("study_alpha", "study_mask_rate"))]

    def image(name: str) -> str:
        return f"![{drawn[name][1]}](../../figures/{name}.png)"

    return {
        "study figure": image("study_claims"),
        "study gaps": "\n\n".join(image(f"study_gap_{task}") for task in tasks),
        "study hans": image("study_hans"),
        "study curve figures": "\n\n".join(map(image, curves)),
        "masks figures": "\n\n".join(map(image, ("policies_part_of_speech", "policies_frequency", "policies_overlap"))),
        "policies figure": "\n\n".join(map(image, ("policies_gap", "policies_gap_short"))),
        "parts of Mask-tuning figure": image("ablations"),
        "other methods figure": image("peers"),
        "base-sized figure": image("base_differences"),
        "sizes figure": image("sizes"),
        "larger training set figures": "\n\n".join(map(image, ("sst2_gap", "sst2_losses"))),
        "testbed figure": image("testbed_shortcut"),
    }


def fill(page: Path, texts: dict[str, str]) -> list[str]:
    """Put the parts in `texts` that `page` has places for into it, and return their names."""
    text, names = page.read_text(encoding="utf-8"), []
    for name in re.findall(r"<!-- made: (.*?) -->", text):
        if name not in texts:
            continue  # made by another command
        text, count = re.subn(
            _PART.format(re.escape(name)), lambda match, name=name: f"{match[1]}\n{texts[name]}\n\n{match[2]}", text,
            flags=re.S,
        )  # fmt: skip
        if count != 1:
            raise UserError(f"{page} has {count} places `<!-- made: {name} --> ... <!-- end -->`; expected one.")
        names.append(name)
    page.write_text(text, encoding="utf-8")
    return names


def _by_task(records: list[dict]) -> dict[str, list[dict]]:
    """The records of each task that has any."""
    of_task = {task: [record for record in records if record["config"]["task"] == task] for task in TASKS}
    return {task: runs for task, runs in of_task.items() if runs}


def _frames_by_task(frames: dict[str, pandas.DataFrame]) -> str:
    return "\n\n".join(f"**{task}**\n\n{report.markdown(frame)}" for task, frame in frames.items() if len(frame))


def _untrained(records: list[dict]) -> str:
    arms = [f"{arm} on {task}" for task, arm in claims.untrained(scores_of_arms(records))]
    text = f"Did not train, so that what they score out of distribution means nothing: {', '.join(arms)}."
    return f"\n\n{text}" if arms else ""


def _rates(records: list[dict]) -> str:
    """Dev accuracy by learning rate; every record was scored on one set."""
    tasks, arms, rows = list(TASKS), [arm.name for arm in ARMS], []
    for record in records:
        config, train = record["config"], record["data"]["train"]
        ((_, scores),) = record["metrics"].items()
        place = tasks.index(config["task"]), arms.index(arm_of(config))
        examples = examples_used(train)
        rows.append((*place, examples, config["batch_size"], config["learning_rate"], scores["accuracy"]))
    names = ("task", "arm", "examples", "batch", "learning rate", "dev accuracy, %")
    texts = [
        (tasks[task], arms[arm], f"{examples:,}", batch, f"{rate:.0e}", f"{100 * accuracy:.2f}")
        for task, arm, examples, batch, rate, accuracy in sorted(rows)
    ]
    return report.markdown(pandas.DataFrame(texts, columns=names).set_index("task"))


def _in_short(results: Path, of_peers: list[dict]) -> str:
    """Mean accuracy on the sentiment testbed of what a reader of the front page asks for."""
    arms, told = peers.PEERS.by_arm(of_peers), by_row(told_the_words(results))
    shown = {
        "fine-tuning": told["fine_tuning"],
        "Mask-tuning": as_printed(results),
        "Mask-tuning*": arms["mask_tuning"],
        "Mask-tuning, all words of the shortcut masked": told["mask_tuning"],
        "Bias Product": arms["bias_product"],
        "Mask-tuning* with Bias Product": arms["mask_tuning + bias_product"],
    }
    rows = [
        {"trained by": name, "seeds": len(runs)}
        | {
            of.removeprefix("testbed_"): f"{statistics.fmean(accuracy(run, of) for run in runs):.1f}"
            for of in ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")
        }
        for name, runs in shown.items()
    ]
    frame = pandas.DataFrame(rows).set_index("trained by").rename(columns={"sentiment": "in distribution"})
    return report.markdown(frame)


def _testbed(records: list[dict]) -> str:
    """In distribution against the worst set out of it, by task, with the planted shortcut and without."""
    table = pandas.DataFrame(index=pandas.Index(TASKS, name="task"))
    for (task, strength), accuracies in accuracy_by_strength(records).items():
        name = f"shortcut in {100 * strength:.0f} % of training" if strength else "no shortcut"
        table.loc[task, name] = f"{accuracies['id'][0]:.1f} against {min(accuracies['ood']):.1f}"
    return report.markdown(table)


def _fillings(results: Path) -> str:
    """The categories of filled examples, by masked LM, task and training, and beside them the paper's."""
    files = {"base-sized": "fillings_base.json", "bundled": "fillings_mini.json"}
    frame = as_frame({name: json.loads((results / file).read_text()) for name, file in files.items()})
    texts = frame.map(_number).reset_index()
    return report.markdown(texts.set_index("masked LM"))


def _policies(records: list[dict]) -> str:
    """The policies in training, in words: with the masked-LM loss, then the shorter comparison without it."""
    texts = []
    for method, name in (("mask_tuning", "Mask-tuning (balanced)"), ("no_integrated_loss", "No masked-LM loss")):
        comparison = policies.in_training_by(method)
        title = f"**{name}, {comparison.chosen(records)[0]['config']['epochs']:g} epochs**"
        texts.append(f"{title}\n\n{_compared(comparison, records, 'masked')}")
    return "\n\n".join(texts)


def _masks(file: Path) -> str:
    """What each policy does to training texts."""
    frame = mask_tables.as_frame(json.loads(file.read_text())).rename(index=policies.label).rename_axis("masked")
    digits = {"tokens masked": 1, "cost of masking a batch": 1}
    texts = frame.apply(lambda column: column.map(lambda value: _number(value, digits.get(column.name, 0))))
    return report.markdown(texts)


def _number(value: float, digits: int = 0) -> str:
    return "" if value != value else f"{value:.{digits}f}"


def _masks_on_pairs(results: Path) -> str:
    """Whether the shortcut of a pair can be told once the masks are filled, and from how much was masked, by task."""
    columns = ["tokens masked", "shortcut gone", "masked share tells the side", "probe finds the side"]
    frames = {}
    for task in ("nli", "paraphrase"):
        description = json.loads((results / f"policies_masks_{task}.json").read_text())
        frame = mask_tables.as_frame(description)[columns].rename(index=policies.label).rename_axis("masked")
        frame.loc["nothing", "probe finds the side"] = 100 * description["unmasked"]["shortcut_probe"]
        frames[task] = frame.map(_number)
    return _frames_by_task(frames)


def _masks_on_reviews(file: Path) -> str:
    """What kinds of words each policy masks in real reviews, and how many tokens."""
    description = json.loads(file.read_text())
    frame = mask_tables.as_frame(description).rename(index=policies.label)
    amounts = frame[["tokens masked", "masked tokens changed"]]
    kinds = mask_tables.kinds_in_short(description).rename_axis("masked")
    amounts = amounts.reindex(kinds.index).map(lambda share: _number(share, 1))
    return report.markdown(amounts.join(kinds.map(_number)))


def _compared(comparison: ArmComparison, records: list[dict], arms: str) -> str:
    """The table of a comparison; `arms` heads the names of its arms, and learning rates are shown where they differ."""
    table = comparison.table(comparison.by_arm(records))
    if table["rates"].nunique() == 1:
        table = table.drop(columns="rates")
    return report.markdown(table.rename(columns={"method": arms}).set_index(arms))


def _each_compared(comparison: ArmComparison, runs: Mapping[str, list[dict]], arms: str) -> str:
    """A table for each title of `runs`."""
    return "\n\n".join(f"**{title}**\n\n{_compared(comparison, records, arms)}" for title, records in runs.items())


def _tables(records: list[dict]) -> str:
    return "\n\n".join(markdown(table) for table in make_tables(records))


def _speed(results: dict) -> str:
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
