"""The figures of the reproduction study, and all those of `python -m mtlib figures`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mtlib.analysis.figures import (
    against_size,
    curve,
    differences,
    gap,
    gap_by_touch,
    group_means,
    learning_curves,
    masks_overlap,
    method,
    planted,
    stacked,
    style,
)
from mtlib.analysis.mask_tables import kinds
from mtlib.analysis.row_names import label
from mtlib.analysis.statistics import FAILS, HOLDS, verdict
from mtlib.analysis.tables import make_tables
from mtlib.data.tasks import TASKS, kind
from mtlib.errors import UserError
from mtlib.runs.records import read_records
from mtlib.study import peers, plan
from mtlib.study.ablations import told_the_words
from mtlib.study.arms import by_arm
from mtlib.study.claims import CLAIMS, Cell, panels

# without other rates, and other ways of drawing at random
_UNLIKE = (
    "exact:0.05", "salient_spans:0.05", "supervised", "meta_learned:0.05", "frequency_rare:0.05",
    "frequency_frequent:0.05", "part_of_speech_content:0.05", "part_of_speech_function:0.05", "attribution_most:0.05",
    "attribution_least:0.05", "known_cause:0.05", "known_shortcut:1",
)  # fmt: skip


def standard(results: Path) -> dict[str, tuple[Figure, str]]:
    """The figures of `python -m mtlib figures`, by name, from the records in `results`."""
    names = ("study", "sst2", "testbed", "policies", "peers", "base", "sizes")
    records = {name: read_records([results / f"{name}.jsonl"]) for name in names}
    masks = json.loads((results / "policies_masks.json").read_text())
    unlike = of_unlike_policies(masks)
    return {
        "method": method(),
        **{f"study_{name}": drawn for name, drawn in of_study(records["study"]).items()},
        "testbed_shortcut": planted(records["testbed"], "What a planted shortcut does to a fine-tuned model"),
        "policies_gap": gap_by_touch(records["policies"], masks, "Mask-tuning (balanced): gap against what is masked"),
        "policies_gap_short": gap_by_touch(
            records["policies"], masks, "Without the masked-LM loss", "no_integrated_loss"
        ),
        "policies_overlap": masks_overlap(unlike, "Places that two policies both mask, % of those that either does"),
        **{
            f"policies_{kind}": stacked(kinds(unlike, kind), f"What is masked, by {words}")
            for kind, words in {
                "part_of_speech": "part of speech", "frequency": "occurrences in the training set",
            }.items()
        },
        "ablations": gap(told_the_words(results), "Parts of Mask-tuning, all words of the shortcut masked"),
        "peers": gap(peers.PEERS.chosen(records["peers"]), "The other methods on the testbed", peers.PEERS.name),
        "base_differences": differences(
            make_tables(records["base"])[0], "Base-sized model: difference to fine-tuning, SST-2"
        ),
        "sizes": against_size(
            records["sizes"], "Bundled model on SST-2: accuracy with more phrases, and so more steps"
        ),
        "sst2_gap": gap(records["sst2"], "SST-2 and its out-of-distribution sets, bundled model"),
        "sst2_differences": differences(make_tables(records["sst2"])[0], "Mask-tuning against fine-tuning, SST-2"),
        "sst2_losses": learning_curves(records["sst2"], ("mlm_loss", "ft_loss"), "Training on SST-2"),
    }  # fmt: skip


def of_unlike_policies(masks: Mapping) -> dict:
    """A description of policies without those that mask the same kinds of words as another one of it."""
    policies = {name: line for name, line in masks["policies"].items() if name in _UNLIKE}
    overlap = {pair: share for pair, share in masks["overlap"].items() if {*pair.split()} <= {*policies}}
    return {**masks, "policies": policies, "overlap": overlap}


def of_study(records: Sequence[dict]) -> dict[str, tuple[Figure, str]]:
    """The figures of the reproduction study by name; those for which `records` lack the runs are left out."""
    arms, drawn = by_arm(records), {}
    runs = {task: [run for arm in plan.ARMS for run in arms.get((task, arm.name), [])] for task in TASKS}
    if shown := panels(records):
        drawn["claims"] = claims(shown, "The study: differences in accuracy, with the intervals that decide")
    for task in filter(runs.get, TASKS):
        drawn[f"gap_{task}"] = gap(runs[task], f"The study: {task}")
    if runs["nli"]:
        drawn["hans"] = group_means(runs["nli"], "hans", "HANS by heuristic and gold label")
    for setting, words in (("mask_rate", "masking rate asked for"), ("alpha", "alpha, weight of the masked-LM loss")):
        for task in TASKS:
            points = plan.points_of_curve(records, task, setting)
            if len(points) >= 3:
                seeds = len(next(iter(points.values())))
                drawn[f"{setting}_{task}"] = curve(points, words, f"{task}: accuracy (seeds a point: {seeds})")
    return drawn


@style.styled
def claims(by_panel: Mapping[tuple[str, str, str], Sequence[Cell]], title: str = "") -> tuple[Figure, str]:
    """Differences of two arms, a panel per claim and a row per evaluation set, with the intervals that decide.

    Those are t intervals over seeds, 95 % corrected for the number of the claim's sets. `by_panel` maps a panel's
    claims and its two arms to the cells. Colours are those of the tasks. Hollow: both arms only guess, or one did not
    train. Sets that were not run are left out. Where the paper says which is better, its side is shaded.
    """
    run = {panel: [cell for cell in cells if cell.difference is not None] for panel, cells in by_panel.items()}
    sets = style.id_first(dict.fromkeys(cell.set_name for cells in run.values() for cell in cells))
    if not sets:
        raise UserError("no difference to show; expected two arms of a claim with three seeds in common.")
    columns = min(3, len(run))
    lines = -(-len(run) // columns)
    height = lines * (1.0 + 0.22 * len(sets)) + 0.4
    figure, axes = style.new(9.0, height, columns, lines, sharey=True, sharex=True)
    words = {}
    for axis, ((questions, arm, base), cells) in zip(axes, run.items(), strict=False):
        for cell in cells:
            _draw(axis, cell, sets.index(cell.set_name))
        words[f"{questions}: {arm} - {base}"] = _sides(cells)
        axis.tick_params(labelbottom=True)
        axis.axvline(0, color="0.3", lw=0.8)
        if sign := next((claim.sign for claim in CLAIMS if (claim.arm, claim.base) == (arm, base)), 0):
            axis.axvspan(0, sign * 100, color=style.PALETTE[2], alpha=0.1, lw=0)
        style.rows_down(axis, map(style.with_kind, sets))
        axis.tick_params(axis="y", labelsize=8)
        axis.set_title(f"{questions}: {label(arm)}\nminus {label(base)}", fontsize=9)
    for axis in axes[len(run) :]:
        axis.set_visible(False)
    for axis in axes[: len(run)]:
        axis.set_xlabel("difference, points", fontsize=9)
    ends = [end for cells in run.values() for cell in cells for end in (cell.decisive.low, cell.decisive.high)]
    axes[0].set_xlim(min(*ends, 0) - 2, max(*ends, 0) + 2)  # the shading would widen it
    tasks = {cell.task for cells in run.values() for cell in cells}
    handles = [Line2D([], [], **_look(task), label=task) for task in TASKS if task in tasks]
    handles += [Line2D([], [], color="0.3", marker="o", ls="", mfc="white", label="hollow: untrained, or both guess"),
                Patch(color=style.PALETTE[2], alpha=0.1, label="the paper's side")]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    lead = "Evaluation sets whose interval of the difference (95 %, corrected) lies above or below 0"
    return figure, style.sentence(lead, words)


def _draw(axis, cell: Cell, line: int) -> None:
    shift, look = cell.decisive, _look(cell.task)
    axis.errorbar(
        shift.mean, line, xerr=[[shift.mean - shift.low], [shift.high - shift.mean]], capsize=2, ms=5, **look,
        markerfacecolor="white" if cell.obstacle else look["color"],
    )  # fmt: skip


def _look(task: str) -> dict[str, str]:
    return style.series(list(TASKS).index(task)) | {"linestyle": ""}


def _sides(cells: Sequence[Cell]) -> list[str]:
    """How many intervals lie on which side of 0, for the alt text; hollow ones count by themselves."""
    parts = []
    for of, words in (("id", "in distribution"), ("ood", "out of it")):
        solid = [verdict(cell.decisive) for cell in cells if kind(cell.set_name) == of and not cell.obstacle]
        if solid:
            parts.append(f"{words} {solid.count(HOLDS)} above and {solid.count(FAILS)} below of {len(solid)}")
    hollow = sum(bool(cell.obstacle) for cell in cells)
    return parts + ([f"{hollow} hollow"] if hollow else [])
