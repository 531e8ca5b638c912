"""What each masking policy does to training texts: what it masks and what is refilled; on the testbed, what it touches.

Nothing is trained with a policy here. The untouched masked LM fills, as in the first step of Mask-tuning, or that of a
trained model. Policies that count or learn do so on the whole training set, as in a run, however few of its examples
are then looked at. Policies that ask a classifier (attribution) ask one that was fine-tuned for an epoch on the whole
training set, or the trained model's.
"""

import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars

from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.checkpoints import load_config
from mtlib.contexts import evaluating
from mtlib.data.sources import is_testbed
from mtlib.data.tasks import get_task
from mtlib.diversity.masked_tokens import Marked, flat, mark_rows, overlap, what_is_masked, with_texts
from mtlib.diversity.refilled_texts import what_is_refilled
from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.method import with_column
from mtlib.methods.table3 import Refill
from mtlib.plm import SharedPLM
from mtlib.policies import ATTRIBUTION, OWN_LENGTH, TESTBED_ONLY, masking_policy
from mtlib.policies.wrapping import DrawMasks, FixedMasking
from mtlib.runs import environment
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import drawn_rows, model_sha256, read_inputs
from mtlib.runs.records import read_records
from mtlib.runs.run import KEPT, run
from mtlib.settings import ENGLISH_PIPELINE
from mtlib.testbed.grammar import Grammar, load_grammar

# `meta_learned` takes minutes to prepare, `salient_spans` needs a spaCy pipeline; `original` masks as `exact` does
DEFAULT = (
    "exact:0.05", "exact:0.15", "exact:0.3", "whole_word:0.05", "frequency_rare:0.05", "frequency_frequent:0.05",
    "part_of_speech_content:0.05", "part_of_speech_function:0.05", "attribution_most:0.05", "attribution_least:0.05",
    "supervised", "supervised_top5", "known_cause:0.05", "known_shortcut:0.05", "known_shortcut:0.1",
    "known_shortcut:0.15", "known_shortcut:1",
)  # fmt: skip
_CLASSIFIER_RATE = 2e-4  # trains the bundled model in one epoch
_TIMED_BATCHES, _BATCH = 8, 16


def describe(
    task: str = "sentiment", source: str = "testbed", model: str = "mini", policies: Sequence[str] | None = None, *,
    size: int | None = None, seed: int = 0, trained: str | Path | None = None,
    spacy_pipeline: str = ENGLISH_PIPELINE, report: Callable[[str], None] = lambda name: None,
    train_size: int | None = None,
) -> dict:  # fmt: skip
    """All that this module measures, as a mapping that JSON can hold.

    Args:
        task: What became of the label is told for the testbed's sentiment alone: whether a refilled pair still says
            what it said, no rule of the grammar can decide.
        source: of the training set: "testbed", "hub", or a folder (`RunConfig.source`). Which words carry the shortcut,
            and which decide the label, is known on the testbed alone; elsewhere nothing is said of them.
        model: whose masked LM fills the masks.
        policies: names with rates (`PolicyAtRate.parse`); None takes those of `DEFAULT` that this data allows.
        size: training examples that are looked at, drawn as a run with `train_size` draws them; None is all.
        seed: of what policies learn, and of the masks. Each policy draws its own random numbers (`drawing_seed`), so
            that two policies do not choose the same places only because they drew the same numbers.
        trained: folder with a kept model of a run (`run --keep-model`) of this task, which fills and is asked in place
            of `model`.
        spacy_pipeline: that finds the named entities of salient spans.
        report: called with the name of each policy when it is done.
        train_size: the training set is so many of its examples, as in a run with `train_size`; None is all.
    """
    disable_progress_bars()
    if trained is not None:
        _check_trained(trained, task, model)
    choices = [PolicyAtRate.parse(text) for text in (default_policies(source) if policies is None else policies)]
    config = configure(
        task, "fine_tuning", source=source, model=str(trained or model), epochs=1, seed=seed,
        learning_rate=_CLASSIFIER_RATE, sets=(get_task(task).dev_set(source),), train_size=train_size,
    ).resolved()  # fmt: skip
    plm, maskings = _checked(choices, config, trained, spacy_pipeline)
    whole, marked, rows = _training_set(config, plm, size)
    for masking in maskings.values():
        for preparer in masking.preparers():
            preparer.check_number(len(whole))
    asked, about = _asked(config, plm, choices, trained)
    texts, masks, lines = _Texts(plm, asked, whole, marked, rows, load_grammar(task), seed, source), {}, {}
    nothing = np.zeros_like(marked.ordinary)
    unmasked = what_is_refilled(plm, marked, nothing, list(marked.examples["input_ids"]), texts.grammar)
    for choice, masking in maskings.items():
        masks[str(choice)], lines[str(choice)] = texts.under(choice, masking)
        report(str(choice))
    return {
        "task": task, "source": config.public()["source"], "model": config.public()["model"],
        "model_sha256": model_sha256(config), "asked": about, "examples": len(marked.examples), "seed": seed,
        "batch_size": _BATCH, "environment": environment.describe(),
        "all_tokens": what_is_masked(marked.ordinary, marked), "unmasked": unmasked, "policies": lines,
        "overlap": {f"{a} {b}": round(overlap(masks[a], masks[b]), 4) for a, b in combinations(masks, 2)},
    }  # fmt: skip


@dataclass
class _Texts:
    """The training texts under one policy after the other; columns that one has computed stay for the next.

    Args:
        plm: fills.
        asked: its classifier is asked by attribution.
        whole: the training set, from which policies learn.
        marked: what is known of the tokens of the examples that are looked at.
        rows: of `whole` these are.
        grammar: of the testbed's task, that decides what became of a label.
        seed: of what policies learn, and of the masks (`drawing_seed`).
        source: of the training set.
        seconds: of the processor to compute columns, by their names.
    """

    plm: SharedPLM
    asked: SharedPLM
    whole: Dataset
    marked: Marked
    rows: list[int]
    grammar: Grammar
    seed: int
    source: str
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)

    def under(self, choice: PolicyAtRate, masking: MaskingPolicy) -> tuple[np.ndarray, dict]:
        """Where a policy masks the examples, and what is measured of it."""
        started = time.process_time()
        self.whole = prepare(self.plm, self.whole, masking, self.seed, self.source)
        # policies that read the same columns share the cost of computing them
        prepared = self.seconds.setdefault(tuple(masking.columns), time.process_time() - started)
        examples = _with_columns(self.marked.examples, self.whole.select(self.rows), masking.columns)
        self.marked = self.marked._replace(examples=examples)
        drawn = DrawMasks(masking)(self.asked, examples, drawing_seed(choice, self.seed)).examples
        mask = flat(drawn["mask"])
        refilled = Refill(FixedMasking(masking))(self.plm, drawn, self.seed).examples["input_ids"]
        return mask, {
            "policy": choice.policy, "rate": choice.rate, **what_is_masked(mask, self.marked),
            **what_is_refilled(self.plm, self.marked, mask, refilled, self.grammar),
            "seconds_to_prepare": round(prepared, 1),
            "seconds_per_batch": seconds_per_batch(self.plm, self.asked, masking, examples),
        }  # fmt: skip


def _checked(
    choices: Sequence[PolicyAtRate], config: RunConfig, trained: str | Path | None, spacy_pipeline: str
) -> tuple[SharedPLM, dict[PolicyAtRate, MaskingPolicy]]:
    """The model that fills, and the policies, each checked to be for this data and to find what it needs."""
    for choice in choices:
        configure(config.task, "mask_tuning", source=config.source, masking=choice.policy).resolved()
    plm = _filling(config, trained)
    maskings = {choice: masking_policy(*choice, plm.tokenizer, spacy_pipeline) for choice in choices}
    for masking in maskings.values():
        for preparer in masking.preparers():
            preparer.reading_from(config.source).check(plm)
    return plm, maskings


def drawing_seed(choice: PolicyAtRate, seed: int) -> int:
    """The seed of a policy's masks: its own, whichever policies are measured beside it."""
    return seed + zlib.crc32(str(choice).encode())


def default_policies(source: str) -> tuple[str, ...]:
    """All of `DEFAULT` on the testbed; elsewhere those that need to know nothing but the training set."""
    if is_testbed(source):
        return DEFAULT
    not_here = (*TESTBED_ONLY, *OWN_LENGTH)
    return tuple(text for text in DEFAULT if PolicyAtRate.parse(text).policy not in not_here)


def prepare(
    plm: SharedPLM, examples: Dataset, masking: MaskingPolicy, seed: int = 0, source: str = "testbed"
) -> Dataset:
    """The examples, of `source`, with the columns that a policy reads, where they lack them."""
    if masking.columns.keys() <= {*examples.column_names}:
        return examples
    for preparer in masking.preparers():
        examples = preparer.reading_from(source)(plm, examples, seed).examples
    return examples


def _training_set(config: RunConfig, plm: SharedPLM, size: int | None) -> tuple[Dataset, Marked, list[int]]:
    """All of it, from which policies learn; what is known of the tokens of `size` examples; which these are."""
    train = read_inputs(config).datasets["train"]
    if size is not None and not 0 < size <= len(train):
        raise UserError(f"{size} examples cannot be drawn; expected 1 to {len(train)}, the size of the training set.")
    rows = drawn_rows(len(train), size)
    whole = with_texts(plm, train, config.max_length)
    return whole, mark_rows(plm, whole, rows), rows


def _with_columns(examples: Dataset, others: Dataset, names: Iterable[str]) -> Dataset:
    """The examples with those of the columns that they lack, from the same examples with more columns."""
    for name in names:
        if name not in examples.column_names:
            examples = with_column(examples, name, others[name])
    return examples


@torch.no_grad()
def seconds_per_batch(plm: SharedPLM, asked: SharedPLM, masking: MaskingPolicy, examples: Dataset) -> float:
    """Median seconds of the processor, on which other work does not count, to draw and fill the masks of a batch."""
    collate, seconds, generator = Collator(plm.tokenizer, masking.columns), [], torch.Generator().manual_seed(0)
    with evaluating(plm):
        for first in range(0, min(len(examples), _TIMED_BATCHES * _BATCH), _BATCH):
            batch = collate([examples[i] for i in range(first, min(first + _BATCH, len(examples)))])
            started = time.process_time()
            batch = draw_mask(asked, batch, masking, generator)
            plm.fill_masks(batch, batch["mask"])
            seconds.append(time.process_time() - started)
    return round(float(np.median(seconds)), 4)


def _check_trained(trained: str | Path, task: str, model: str) -> None:
    """Is it a kept model of a run, of this task, and given alone?"""
    if model != "mini":
        raise UserError(f"model is {model!r}, but {trained}, a trained model, takes its place; leave one of them out.")
    if not (Path(trained) / KEPT).is_file():
        raise UserError(f"{trained} has no {KEPT}; expected a folder that `mtlib run --keep-model` wrote.")
    labels = load_config(str(trained), {}, {}).id2label
    names = tuple(labels[number] for number in sorted(labels))
    if names != get_task(task).labels:
        raise UserError(
            f"{trained} tells {', '.join(names)} apart, but the labels of {task} are "
            f"{', '.join(get_task(task).labels)}; give the task that the model was trained on, or another model."
        )


def _filling(config: RunConfig, trained: str | Path | None) -> SharedPLM:
    """The model whose masked LM fills, and whose tokenizer is used throughout."""
    if trained is not None:
        return SharedPLM.from_pretrained(trained).eval()
    return SharedPLM.from_pretrained(config.model_path, num_labels=len(get_task(config.task).labels)).eval()


def _asked(
    config: RunConfig, plm: SharedPLM, choices: Sequence[PolicyAtRate], trained: str | Path | None
) -> tuple[SharedPLM, dict | None]:
    """The model whose classifier policies ask, and what it is; `plm` itself where none asks."""
    if trained is not None:
        return plm, {"run": json.loads((Path(trained) / KEPT).read_text())["identity"]}
    if not any(choice.policy in ATTRIBUTION for choice in choices):
        return plm, None
    with tempfile.TemporaryDirectory() as out:
        path, _ = run(config, Path(out) / "runs", keep_model=Path(out) / "model")
        record = read_records([path])[0]
        if record.get("diverged"):
            raise UserError(
                "the classifier that attribution asks has diverged in its epoch of fine-tuning; give a trained model "
                "with --trained FOLDER."
            )
        (metrics,) = record["metrics"].values()
        about = {"method": "fine_tuning", "epochs": config.epochs, "learning_rate": config.rates.trunk,
                 "dev_accuracy": metrics["accuracy"]}  # fmt: skip
        return SharedPLM.from_pretrained(Path(out) / "model").eval(), about
