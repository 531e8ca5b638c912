"""The paper's Section V as one call: plain masked-LM training beside Mask-tuning, on the same examples and masks.

description = describe([TwoTrainings("sentiment")], Path("runs"))  # a mapping that JSON can hold
as_frame(description)  # a line for each task and arm
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas
from datasets import Dataset

from mtlib.data.sources import is_testbed
from mtlib.data.tasks import get_task
from mtlib.diversity import fillings, measures
from mtlib.diversity.categories import CATEGORIES, PAPER_SHARES, categorise, category_shares, example_categories
from mtlib.diversity.plausibility import PlausibilityJudge
from mtlib.runs import environment
from mtlib.runs.config import BUNDLED_MODEL, RunConfig, configure, default_rates
from mtlib.runs.inputs import model_sha256, record_path
from mtlib.settings import MASK_RATE

_SHOWN = 10  # places per task, from the testbed alone: other sources' texts are not ours to publish


@dataclass(frozen=True)
class TwoTrainings:
    """What is trained, in both arms.

    Args:
        task: "sentiment", "nli" or "paraphrase".
        source: "testbed", "hub" or a folder of original releases.
        model: "mini" (bundled), a hub id or a folder with a masked LM.
        n: training examples (the paper: 200).
        seed: of the examples, the masks and the order.
        epochs: passes over them (the paper: 3).
        mask_rate: share of the tokens masked.
    """

    task: str
    source: str = "testbed"
    model: str = BUNDLED_MODEL
    n: int = 200
    seed: int = 0
    epochs: int = 3
    mask_rate: float = MASK_RATE

    def file(self, out: Path) -> Path:
        """Where `arms` keeps its rows; data and model are read to tell."""
        return out / "fills" / f"{record_path(self.config(), out).stem}-{self.n}.jsonl"

    def examples(self) -> Dataset:
        """The training examples that both trainings see."""
        return fillings.draw_examples(self.task, self.source, self.n, self.seed)

    def arms(self, out: Path) -> dict[str, list[dict]]:
        """The rows of `fillings.record_arms` by arm; kept in `out`, and read from there the second time."""
        file = self.file(out)
        if file.exists():
            rows = fillings.read_rows(file)
        else:
            rows, _ = fillings.record_arms(
                self.task, self.examples(), self.model, self.seed, self.epochs, mask_rate=self.mask_rate
            )
            fillings.write_rows(file, rows)
        return {arm: [row for row in rows if row["arm"] == arm] for arm in fillings.ARMS}

    def config(self) -> RunConfig:
        """The run whose identity, together with `n`, names the file."""
        return configure(
            self.task, "mask_tuning", source=self.source, model=self.model, seed=self.seed, epochs=self.epochs,
            mask_rate=self.mask_rate, batch_size=fillings.BATCH_SIZE, sets=(get_task(self.task).dev_set(self.source),),
        ).resolved()  # fmt: skip


def describe(
    studied: Sequence[TwoTrainings], out: Path, report: Callable[[str], None] = lambda task: None
) -> dict[str, object]:
    """Train both arms on each task, and count what the masked tokens were filled with.

    Args:
        studied: one for each task, alike but for that.
        out: keeps the rows; a task whose rows are there is not trained again.
        report: called with each task before it starts.

    Returns:
        The settings, and per task and arm: `tokens`, by epoch the masked places (`n`), those that were `changed` and
        those filled with [UNK] (`unk`); `examples` and `examples_over_epochs`, how many fall into each category
        (`categories.example_categories`; plausible by the proxy); `distinct_fillers` and `filler_entropy` (bits).
        On the testbed also `shown`: places that the two arms filled differently in the last epoch.
    """
    for pair in studied:
        pair.file(out), pair.examples()  # what is wrong with data and model is said before any training
    tasks = {}
    for pair in studied:
        report(pair.task)
        arms = pair.arms(out)
        tasks[pair.task] = {"arms": {arm: _counts(rows) for arm, rows in arms.items()}}
        if is_testbed(pair.source):
            tasks[pair.task]["shown"] = filled_differently(arms, pair.epochs)[:_SHOWN]
    first, config = studied[0], studied[0].config()
    rates = default_rates("mask_tuning", first.model)
    return {
        "model": {"name": config.public()["model"], "files_sha256": model_sha256(config)},
        "source": config.public()["source"],
        "settings": {
            "examples": first.n, "seed": first.seed, "epochs": first.epochs, "mask_rate": first.mask_rate,
            "learning_rate": rates.trunk, "mlm_head_learning_rate": rates.mlm_head,
            "classifier_learning_rate": rates.classifier,
        },
        "tasks": tasks,
        "environment": environment.describe(),
    }  # fmt: skip


def filled_differently(arms: Mapping[str, Sequence[dict]], epoch: int) -> list[dict[str, str]]:
    """Places that the two arms filled differently in an epoch, as in the paper's Table II.

    Each is a dict with `original` (the token), and for each arm the sentence with its filling between ⟦ and ⟧.
    """
    return [
        {
            "original": plain["original_token"],
            "plain_mlm": fillings.marked_text(plain),
            "mask_tuning": fillings.marked_text(tuned),
        }
        for plain, tuned in zip(arms["plain_mlm"], arms["mask_tuning"], strict=True)
        if plain["epoch"] == epoch and plain["predicted_token"] != tuned["predicted_token"]
    ]


def as_frame(descriptions: Mapping[str, Mapping]) -> pandas.DataFrame:
    """A line for each masked LM, task and arm, in per cent: the examples' categories, the tokens changed at the end.

    Below ours stand the paper's shares of examples, judged by people.

    Args:
        descriptions: by the masked LM's name, each as `describe` gives it.
    """
    lines = {}
    for model, description in descriptions.items():
        for task, studied in description["tasks"].items():
            for arm, counts in studied["arms"].items():
                shares = {name: counts["examples"][name] / sum(counts["examples"].values()) for name in CATEGORIES}
                last = list(counts["tokens"].values())[-1]
                lines[model, task, arm] = {**shares, "tokens changed": last["changed"] / last["n"]}
    for arm, shares in PAPER_SHARES.items():
        lines["BERT (paper)", "all three", arm] = shares
    frame = 100 * pandas.DataFrame.from_dict(lines, orient="index")
    return frame.rename_axis(["masked LM", "task", "training"])


def _counts(rows: Sequence[dict]) -> dict:
    """What one arm's rows come to."""
    categories = categorise(rows, PlausibilityJudge())
    tokens = {
        epoch: {"n": share.n, "changed": share.count, "unk": sum(row["unk"] for row in rows if row["epoch"] == epoch)}
        for epoch, share in measures.changed_by_epoch(rows).items()
    }
    of_examples = {
        name: category_shares(example_categories(rows, categories, over_epochs).values())
        for name, over_epochs in (("examples", False), ("examples_over_epochs", True))
    }
    return {
        "tokens": tokens,
        **{name: {category: part.count for category, part in shares.items()} for name, shares in of_examples.items()},
        "distinct_fillers": measures.distinct_fillers(rows),
        "filler_entropy": round(measures.filler_entropy(rows), 3),
    }
