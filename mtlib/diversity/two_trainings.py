"""The paper's Section V as one call: plain masked-LM training beside Mask-tuning, on the same examples and masks.

description = describe(["sentiment"], Path("runs"))  # a mapping that JSON can hold
as_frame({"mini": description})  # a line for each task and arm
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas
from transformers import set_seed

from mtlib.contexts import precision
from mtlib.data.sources import is_testbed
from mtlib.data.tasks import get_task
from mtlib.diversity.fillings import record_fillings
from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import BUNDLED_MODEL, configure
from mtlib.runs.inputs import Inputs, read_inputs
from mtlib.runs.records import write_atomically

# the paper's shares of examples: BERT, 200 of each task, three epochs; two persons called 5 and 2 % implausible
PAPER_SHARES = {
    "plain_mlm": {"same": 0.76, "changed": 0.23, "unk": 0.01},
    "mask_tuning": {"same": 0.37, "changed": 0.62, "unk": 0.01},
}
ARMS = tuple(PAPER_SHARES)
BATCH_SIZE = 16
_SHOWN = 10  # places per task, from the testbed alone: other sources' texts are not ours to publish


def describe(
    tasks: Iterable[str], out: Path, source: str = "testbed", model: str = BUNDLED_MODEL, examples: int = 200,
    epochs: int = 3, seed: int = 0, report: Callable[[str], None] = lambda task: None,
) -> dict[str, object]:  # fmt: skip
    """Train both arms on each task, and count what the masked tokens were filled with.

    Both start from `model`, with its learning rates for Mask-tuning and the task's alpha.

    Args:
        out: keeps the rows; a task whose rows are there is not trained again.
        examples: of the training set, as a run with this `train_size` draws them (the paper: 200).
        seed: of the masks and the order.
        report: called with each task before it starts.

    Returns:
        The settings, and per task and arm: `tokens`, by epoch the masked places (`n`), those that were `changed` and
        those filled with [UNK] (`unk`); `examples` and `examples_over_epochs`, how many came back "same", "changed" or
        "unk": an example is what its gravest place is, in this order. (The paper counts "at least in one of the three
        epochs", and does not say how it ranks.) On the testbed also `shown`: places that the two arms filled
        differently in the last epoch.
    """
    studied = []  # what is wrong with data and model is said before any training
    for task in tasks:
        studied.append(read_inputs(configure(
            task, "mask_tuning", source=source, model=model, seed=seed, epochs=epochs, batch_size=BATCH_SIZE,
            train_size=examples, sets=(get_task(task).dev_set(source),),
        )))  # fmt: skip
    counted = {}
    for inputs in studied:
        task = inputs.config.task
        report(task)
        arms = fillings(inputs, out)
        counted[task] = {"arms": {arm: _counts(rows) for arm, rows in arms.items()}}
        if is_testbed(source):
            counted[task]["shown"] = filled_differently(arms, epochs)[:_SHOWN].to_dict(orient="records")
    config, public = studied[0].config, studied[0].config.public()
    return {
        "model": {"name": public["model"], "files_sha256": studied[0].model_sha256},
        "source": public["source"],
        "settings": {
            "examples": examples, "seed": seed, "epochs": epochs, "mask_rate": public["mask_rate"],
            "learning_rate": config.rates.trunk, "mlm_head_learning_rate": config.rates.mlm_head,
            "classifier_learning_rate": config.rates.classifier,
        },
        "tasks": counted,
        "environment": environment.describe(),
    }  # fmt: skip


def fillings(inputs: Inputs, out: Path) -> dict[str, pandas.DataFrame]:
    """The rows of `record_fillings` by arm; kept in `out`, and read from there the second time."""
    file = out / "fills" / f"{inputs.record_path(out).stem}.jsonl"
    if not file.exists():
        rows = pandas.concat([_train(arm, inputs).assign(arm=arm) for arm in ARMS])
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, rows.to_json(orient="records", lines=True, force_ascii=False))
    rows = pandas.read_json(file, lines=True, dtype=False)
    return {arm: rows[rows["arm"] == arm].reset_index(drop=True) for arm in ARMS}


def filled_differently(arms: Mapping[str, pandas.DataFrame], epoch: int) -> pandas.DataFrame:
    """Places that the two arms filled differently in an epoch, as in the paper's Table II.

    Columns: `original` (the token), and for each arm the sentence with its filling between ⟦ and ⟧.
    """
    plain, tuned = arms["plain_mlm"], arms["mask_tuning"]
    places = (plain["epoch"] == epoch) & (plain["predicted_token"] != tuned["predicted_token"])

    def marked(rows: pandas.DataFrame) -> list[str]:
        return [f"{row.text[: row.start]}⟦{row.predicted}⟧{row.text[row.end :]}" for row in rows[places].itertuples()]

    return pandas.DataFrame({"original": plain["original_token"][places], **{arm: marked(arms[arm]) for arm in ARMS}})


def as_frame(descriptions: Mapping[str, Mapping]) -> pandas.DataFrame:
    """A line for each masked LM, task and arm, in per cent: examples the same, changed, unknown; tokens changed last.

    Below ours stand the paper's shares of examples.

    Args:
        descriptions: by the masked LM's name, each as `describe` gives it.
    """
    lines = {}
    for model, description in descriptions.items():
        for task, studied in description["tasks"].items():
            for arm, counts in studied["arms"].items():
                last = list(counts["tokens"].values())[-1]
                lines[model, task, arm] = _shares(counts["examples"]) | {"tokens changed": last["changed"] / last["n"]}
    lines |= {("BERT (paper)", "all three", arm): _shares(shares) for arm, shares in PAPER_SHARES.items()}
    frame = 100 * pandas.DataFrame.from_dict(lines, orient="index")
    return frame.rename_axis(["masked LM", "task", "training"])


def _train(arm: str, inputs: Inputs) -> pandas.DataFrame:
    config, settings = inputs.config, inputs.config.settings
    masking = ExactMasking(settings.mask_rate)
    set_seed(config.seed)
    return record_fillings(
        SharedPLM.from_pretrained(config.model_path, num_labels=len(get_task(config.task).labels)),
        MaskedLM(masking) if arm == "plain_mlm" else MaskTuning(settings.alpha, masking),
        inputs.datasets["train"], config.max_length, seed=config.seed, num_train_epochs=config.epochs,
        per_device_train_batch_size=BATCH_SIZE, learning_rate=config.rates.trunk,
        classifier_learning_rate=config.rates.classifier, mlm_head_learning_rate=config.rates.mlm_head, **precision(),
    )  # fmt: skip


def _counts(rows: pandas.DataFrame) -> dict:
    """What one arm's rows come to."""
    changed = (rows["predicted_token"] != rows["original_token"]).astype(int)
    tokens = pandas.DataFrame({"n": 1, "changed": changed, "unk": rows["unk"].astype(int)}).groupby(rows["epoch"])
    gravity = changed.mask(rows["unk"], 2)

    def of_examples(*keys: str) -> dict[str, int]:
        counts = gravity.groupby([rows[key] for key in keys]).max().value_counts()
        return counts.reindex(range(3), fill_value=0).set_axis(["same", "changed", "unk"]).to_dict()

    return {
        "tokens": tokens.sum().to_dict(orient="index"),
        "examples": of_examples("epoch", "uid"),
        "examples_over_epochs": of_examples("uid"),
    }


def _shares(examples: Mapping[str, float]) -> dict[str, float]:
    """Of counts (or shares) by category; the shipped ones call what is changed plausible or implausible."""
    same, unk = (examples[name] / sum(examples.values()) for name in ("same", "unk"))
    return {"same": same, "changed": 1 - same - unk, "unk": unk}
