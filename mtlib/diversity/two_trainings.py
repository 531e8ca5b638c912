"""The paper's Section V: plain masked-LM training beside Mask-tuning, on the same masks.

`describe` makes a mapping that JSON can hold, `as_frame` a table with a row for each task and arm.
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
from mtlib.paths import write_atomically
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import BUNDLED_MODEL, configure
from mtlib.runs.inputs import Inputs, read_inputs

# The paper's shares of examples: BERT, 200 of each task, three epochs. What it calls plausible and
# implausible (5 and 2 %, judged by two people) is "changed" here.
PAPER_SHARES = {
    "plain_mlm": {"same": 0.76, "changed": 0.23, "unk": 0.01},
    "mask_tuning": {"same": 0.37, "changed": 0.62, "unk": 0.01},
}
ARMS = tuple(PAPER_SHARES)
BATCH_SIZE = 16
# Fillings that are shown of each task. From the testbed alone: other texts are not ours to publish.
_SHOWN = 10


def describe(
    tasks: Iterable[str],
    out: Path,
    source: str = "testbed",
    model: str = BUNDLED_MODEL,
    n_examples: int = 200,
    epochs: int = 3,
    seed: int = 0,
    report: Callable[[str], None] = lambda task: None,
) -> dict[str, object]:
    """Train both arms on each task, and count what the masked tokens were filled with.

    Both start from `model`, with its learning rates for Mask-tuning and the task's alpha.

    Args:
        out: keeps the fillings; a task whose fillings are there is not trained again.
        n_examples: of the training set, drawn as a run with this `train_size` draws them. The paper
            has 200.
        seed: of the masks and of the order of the data.
        report: called with each task before it starts.

    Returns:
        The settings, and for each task and arm:

        - `tokens`, by epoch: the masked tokens (`n`), those that were `changed` and those that were
          filled with [UNK] (`unk`);
        - `examples` and `examples_over_epochs`: how many came back "same", "changed" or "unk". The
          last of these that holds for one of its tokens is what counts for an example. (The paper
          counts "at least in one of the three epochs", and does not say how it ranks.)

        On the testbed also `shown`: tokens that the two arms filled differently in the last epoch.
    """
    settings = {
        "source": source,
        "model": model,
        "seed": seed,
        "epochs": epochs,
        "batch_size": BATCH_SIZE,
        "train_size": n_examples,
    }
    # all inputs first, so that bad data or a bad model is reported before any training
    studied = [_inputs(task, settings) for task in tasks]
    counted = {}
    for inputs in studied:
        task = inputs.config.task
        report(task)
        arms = fillings(inputs, out)
        counted[task] = {"arms": {arm: _counts(rows) for arm, rows in arms.items()}}
        if is_testbed(source):
            shown = filled_differently(arms, epochs)[:_SHOWN]
            counted[task]["shown"] = shown.to_dict(orient="records")
    return _settings_of(studied[0]) | {"tasks": counted, "environment": environment.describe()}


def _inputs(task: str, settings: Mapping[str, object]) -> Inputs:
    dev_set = get_task(task).dev_set(settings["source"])
    return read_inputs(configure(task, "mask_tuning", sets=(dev_set,), **settings))


def _settings_of(inputs: Inputs) -> dict[str, object]:
    """What all tasks have in common."""
    config = inputs.config
    public = config.public()
    return {
        "model": {"name": public["model"], "files_sha256": inputs.model_sha256},
        "source": public["source"],
        "settings": {
            "examples": config.train_size,
            "seed": config.seed,
            "epochs": int(config.epochs),
            "mask_rate": public["mask_rate"],
            "learning_rate": config.rates.trunk,
            "mlm_head_learning_rate": config.rates.mlm_head,
            "classifier_learning_rate": config.rates.classifier,
        },
    }


def fillings(inputs: Inputs, out: Path) -> dict[str, pandas.DataFrame]:
    """What `record_fillings` returns, by arm: kept in `out`, and read from there the next time."""
    file = out / "fills" / f"{inputs.record_path(out).stem}.jsonl"
    if not file.exists():
        rows = pandas.concat([_train(arm, inputs).assign(arm=arm) for arm in ARMS])
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, rows.to_json(orient="records", lines=True, force_ascii=False))
    rows = pandas.read_json(file, lines=True, dtype=False)
    return {arm: rows[rows["arm"] == arm].reset_index(drop=True) for arm in ARMS}


def filled_differently(arms: Mapping[str, pandas.DataFrame], epoch: int) -> pandas.DataFrame:
    """Tokens that the two arms filled differently in an epoch, as in the paper's Table II.

    Columns: `original` (the token), and for each arm the sentence with its filling between ⟦ and ⟧.
    """
    plain = arms["plain_mlm"]
    tuned = arms["mask_tuning"]
    differing = (plain["epoch"] == epoch) & (plain["predicted_token"] != tuned["predicted_token"])
    columns = {"original": plain["original_token"][differing]}
    for arm in ARMS:
        rows = arms[arm][differing]
        columns[arm] = [_with_filling(row) for row in rows.itertuples()]
    return pandas.DataFrame(columns)


def as_frame(descriptions: Mapping[str, Mapping]) -> pandas.DataFrame:
    """A row for each masked LM, task and arm, then the paper's shares of examples; in per cent.

    Columns: `same`, `changed` and `unk`, of the examples; `tokens changed` in the last epoch.

    Args:
        descriptions: by the masked LM's name, each as `describe` returns it.
    """
    rows = {}
    for model, description in descriptions.items():
        for task, studied in description["tasks"].items():
            for arm, counts in studied["arms"].items():
                last_epoch = list(counts["tokens"].values())[-1]
                changed = last_epoch["changed"] / last_epoch["n"]
                rows[model, task, arm] = _shares(counts["examples"]) | {"tokens changed": changed}
    for arm, shares in PAPER_SHARES.items():
        rows["BERT (paper)", "all three", arm] = _shares(shares)
    frame = 100 * pandas.DataFrame.from_dict(rows, orient="index")
    return frame.rename_axis(["masked LM", "task", "training"])


def _train(arm: str, inputs: Inputs) -> pandas.DataFrame:
    config = inputs.config
    masking = ExactMasking(config.settings.mask_rate)
    objectives = {
        "plain_mlm": MaskedLM(masking),
        "mask_tuning": MaskTuning(config.settings.alpha, masking),
    }
    set_seed(config.seed)
    num_labels = len(get_task(config.task).labels)
    return record_fillings(
        SharedPLM.from_pretrained(config.model_path, num_labels=num_labels),
        objectives[arm],
        inputs.datasets["train"],
        config.max_length,
        seed=config.seed,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=config.rates.trunk,
        classifier_learning_rate=config.rates.classifier,
        mlm_head_learning_rate=config.rates.mlm_head,
        **precision(),
    )


def _with_filling(row) -> str:
    return f"{row.text[: row.start]}⟦{row.predicted}⟧{row.text[row.end :]}"


def _counts(rows: pandas.DataFrame) -> dict:
    """The counts of `describe` for the fillings of one arm."""
    changed = (rows["predicted_token"] != rows["original_token"]).astype(int)
    unknown = rows["unk"].astype(int)
    tokens = pandas.DataFrame({"n": 1, "changed": changed, "unk": unknown})
    outcome = changed.mask(rows["unk"], 2)  # 0: the same, 1: changed, 2: unknown

    def count_examples(*keys: str) -> dict[str, int]:
        counts = outcome.groupby([rows[key] for key in keys]).max().value_counts()
        return counts.reindex(range(3), fill_value=0).set_axis(["same", "changed", "unk"]).to_dict()

    return {
        "tokens": tokens.groupby(rows["epoch"]).sum().to_dict(orient="index"),
        "examples": count_examples("epoch", "uid"),
        "examples_over_epochs": count_examples("uid"),
    }


def _shares(examples: Mapping[str, float]) -> dict[str, float]:
    """Shares of the outcomes, from their counts or shares.

    All that is neither "same" nor "unk" is changed; shipped files divide it into plausible and
    implausible changes.
    """
    total = sum(examples.values())
    same = examples["same"] / total
    unk = examples["unk"] / total
    return {"same": same, "changed": 1 - same - unk, "unk": unk}
