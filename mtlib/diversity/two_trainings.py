"""The paper's Section V as one call: plain masked-LM training beside Mask-tuning, on the same examples and masks.

description = describe([TwoTrainings("sentiment")], Path("runs"))  # a mapping that JSON can hold
as_frame(description)  # a line for each task and arm
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
from datasets import Dataset
from transformers import set_seed

from mtlib.contexts import precision
from mtlib.data.sources import is_testbed, load
from mtlib.data.tasks import get_task
from mtlib.diversity import categories
from mtlib.diversity.categories import CATEGORIES, PAPER_SHARES
from mtlib.diversity.fillings import marked_text, record_fillings
from mtlib.diversity.plausibility import PlausibilityJudge
from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM, MaskTuning
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import BUNDLED_MODEL, RunConfig, configure, default_rates
from mtlib.runs.inputs import model_sha256, record_path
from mtlib.runs.records import write_atomically
from mtlib.settings import MASK_RATE

BATCH_SIZE = 16
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
        """The training examples that both trainings see, drawn without replacement, in file order."""
        examples = load(get_task(self.task).train_set(self.source), self.source)
        if not 0 < self.n <= len(examples):
            raise UserError(f"n is {self.n}; {self.task} from {self.source!r} has {len(examples):,} training examples.")
        drawn = np.random.default_rng(self.seed).permutation(len(examples))[: self.n]
        return examples.select(sorted(drawn.tolist()))

    def arms(self, out: Path) -> dict[str, pandas.DataFrame]:
        """The rows of `record_fillings` by arm; kept in `out`, and read from there the second time.

        Both arms start from `model`, with its learning rates for Mask-tuning and the task's alpha.
        """
        file = self.file(out)
        if not file.exists():
            rows = pandas.concat([self._train(arm).assign(arm=arm) for arm in PAPER_SHARES])
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, rows.to_json(orient="records", lines=True, force_ascii=False))
        rows = pandas.read_json(file, lines=True, dtype=False)
        return {arm: rows[rows["arm"] == arm].reset_index(drop=True) for arm in PAPER_SHARES}

    def _train(self, arm: str) -> pandas.DataFrame:
        task, masking, rates = (
            get_task(self.task),
            ExactMasking(self.mask_rate),
            default_rates("mask_tuning", self.model),
        )
        objective = MaskedLM(masking) if arm == "plain_mlm" else MaskTuning(task.alpha, masking)
        set_seed(self.seed)
        folder = MINI_MODEL_DIR if self.model == BUNDLED_MODEL else self.model
        return record_fillings(
            SharedPLM.from_pretrained(folder, num_labels=len(task.labels)), objective, self.examples(), seed=self.seed,
            num_train_epochs=self.epochs, per_device_train_batch_size=BATCH_SIZE, learning_rate=rates.trunk,
            classifier_learning_rate=rates.classifier, mlm_head_learning_rate=rates.mlm_head, **precision(),
        )  # fmt: skip

    def config(self) -> RunConfig:
        """The run whose identity, together with `n`, names the file."""
        return configure(
            self.task, "mask_tuning", source=self.source, model=self.model, seed=self.seed, epochs=self.epochs,
            mask_rate=self.mask_rate, batch_size=BATCH_SIZE, sets=(get_task(self.task).dev_set(self.source),),
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
            shown = filled_differently(arms, pair.epochs)[:_SHOWN]
            tasks[pair.task]["shown"] = shown.to_dict(orient="records")
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


def filled_differently(arms: Mapping[str, pandas.DataFrame], epoch: int) -> pandas.DataFrame:
    """Places that the two arms filled differently in an epoch, as in the paper's Table II.

    Columns: `original` (the token), and for each arm the sentence with its filling between ⟦ and ⟧.
    """
    plain, tuned = arms["plain_mlm"], arms["mask_tuning"]
    places = (plain["epoch"] == epoch) & (plain["predicted_token"] != tuned["predicted_token"])
    marked = {arm: map(marked_text, rows[places].itertuples()) for arm, rows in arms.items()}
    return pandas.DataFrame({"original": plain["original_token"][places], **{arm: [*m] for arm, m in marked.items()}})


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
    lines |= {("BERT (paper)", "all three", arm): shares for arm, shares in PAPER_SHARES.items()}
    frame = 100 * pandas.DataFrame.from_dict(lines, orient="index")
    return frame.rename_axis(["masked LM", "task", "training"])


def _counts(rows: pandas.DataFrame) -> dict:
    """What one arm's rows come to."""
    of_places = categories.categorise(rows, PlausibilityJudge())

    def of_examples(over_epochs: bool) -> dict[str, int]:
        counts = categories.example_categories(rows, of_places, over_epochs).value_counts()
        return counts.reindex(CATEGORIES, fill_value=0).to_dict()

    return {
        "tokens": categories.changed_by_epoch(rows).to_dict(orient="index"),
        "examples": of_examples(over_epochs=False),
        "examples_over_epochs": of_examples(over_epochs=True),
        "distinct_fillers": rows["predicted_token"].nunique(),
        "filler_entropy": round(categories.filler_entropy(rows), 3),
    }
