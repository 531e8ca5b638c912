"""What each masking policy masks in training texts: which kinds of words and, on the testbed, how much of the shortcut.

Policies that count or learn do so on the whole training set, as in a run, however few of its examples are looked at.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pandas
from datasets import Dataset, disable_progress_bars

from mtlib.checkpoints import HEAD_FILE
from mtlib.data.sources import is_testbed
from mtlib.data.tasks import get_task
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy
from mtlib.plm import SharedPLM
from mtlib.policies import ATTRIBUTION, OWN_LENGTH, TESTBED_ONLY, masking_policy, parse_policy
from mtlib.policies.frequency import CountTokens
from mtlib.policies.known import MarkCause, MarkShortcut
from mtlib.policies.part_of_speech import PARTS_OF_SPEECH, MarkPartsOfSpeech
from mtlib.policies.wrapping import DrawMasks
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import drawn_rows, read_inputs
from mtlib.settings import ENGLISH_PIPELINE
from mtlib.testbed.known_words import of_testbed
from mtlib.tokens import special_tokens

# `meta_learned` takes minutes to prepare, `salient_spans` needs a spaCy pipeline, attribution a trained classifier
DEFAULT = (
    "exact:0.05", "exact:0.3", "whole_word:0.05", "frequency_rare:0.05", "frequency_frequent:0.05",
    "part_of_speech_content:0.05", "part_of_speech_function:0.05", "supervised", "supervised_top5", "known_cause:0.05",
    "known_shortcut:0.05", "known_shortcut:1",
)  # fmt: skip
BANDS = {"below 10": 0, "10 to 99": 10, "100 to 999": 100, "1,000 and more": 1000}  # occurrences in the training set


def describe(
    task: str = "sentiment", source: str = "testbed", model: str = "mini", policies: Sequence[str] | None = None, *,
    train_size: int | None = None, size: int | None = None, seed: int = 0, spacy_pipeline: str = ENGLISH_PIPELINE,
    report: Callable[[str], None] = lambda name: None,
) -> dict:  # fmt: skip
    """What policies mask, as a mapping that JSON can hold; `table` shows it.

    Args:
        task, source, train_size: of the training set, as in a run.
        model: whose tokens are masked; policies that ask a classifier (attribution) need a folder with a trained one.
        policies: names with rates, as "exact:0.05"; None takes those of `DEFAULT` that this data allows.
        size: training examples that are looked at, drawn as a run with `train_size` draws them; None is all.
        seed: of what policies learn, and of the masks. Each policy draws its own random numbers, so that two policies
            do not choose the same places only because they drew the same numbers.
        spacy_pipeline: that finds the named entities of salient spans.
        report: called with the name of each policy when it is done.

    Raises:
        UserError: a policy that this data or model does not allow, before any work starts.
    """
    disable_progress_bars()
    names = default_policies(source) if policies is None else policies
    sets = (get_task(task).dev_set(source),)
    config = configure(task, "fine_tuning", source=source, model=model, train_size=train_size, sets=sets)
    plm, maskings = _checked(config, names, spacy_pipeline)
    train = read_inputs(config).datasets["train"]
    keep = [name for name in ("text", "text_pair", "uid", "group") if name in train.column_names]
    whole = CountTokens()(plm, tokenise(train, plm.tokenizer, config.max_length, keep=keep)).examples
    tokens, lines = mark(plm, whole.select(rows := drawn_rows(len(train), size))), {}
    for name, masking in maskings.items():
        for preparer in masking.preparers() if masking.columns.keys() - {*whole.column_names} else ():
            whole = preparer.reading_from(source)(plm, whole, seed).examples
        drawn = DrawMasks(masking)(plm, whole.select(rows), seed + zlib.crc32(name.encode())).examples
        lines[name] = what_is_masked(tokens, _flat(drawn["mask"]) > 0)
        report(name)
    return {
        "task": task, "source": config.public()["source"], "model": config.public()["model"], "examples": len(rows),
        "seed": seed, "all_tokens": what_is_masked(tokens, tokens["ordinary"]), "policies": lines,
    }  # fmt: skip


def default_policies(source: str) -> tuple[str, ...]:
    """All of `DEFAULT` on the testbed; elsewhere those that need to know nothing but the training set."""
    not_here = () if is_testbed(source) else (*TESTBED_ONLY, *OWN_LENGTH)
    return tuple(text for text in DEFAULT if parse_policy(text)[0] not in not_here)


def table(description: Mapping) -> pandas.DataFrame:
    """A line for each policy, in per cent: how much it masks, how much of the shortcut, and which kinds of words.

    The last line is all tokens. Columns that are not known for this data are left out. `shortcut gone`: the share of
    the examples in which all of the shortcut's tokens are masked.
    """
    lines = {}
    for name, line in {**description["policies"], "all tokens": description["all_tokens"]}.items():
        touched, parts = line.get("touches_shortcut", {}), line["part_of_speech"]
        content = {"nouns": ("NOUN", "PROPN"), "verbs": ("VERB",), "adjectives": ("ADJ",), "adverbs": ("ADV",)}
        shares = (
            {kind: sum(parts[part] for part in of) for kind, of in content.items()} if parts["NOUN"] is not None else {}
        )
        lines[name] = {
            "tokens masked": line["tokens_masked"], "shortcut touched": touched.get("any"),
            "shortcut gone": touched.get("all"),
            "deciding words touched": line.get("touches_cause", {}).get("any"), **shares,
            "other words": 1 - sum(shares.values()) if shares else None,
            "found fewer than 10 times": line["frequency"]["below 10"],
        }  # fmt: skip
    return 100 * pandas.DataFrame.from_dict(lines, orient="index").astype(float).dropna(axis="columns", how="all")


def mark(plm: SharedPLM, examples: Dataset) -> pandas.DataFrame:
    """What is known about the tokens of tokenised examples, counted by `CountTokens` in the whole training set.

    A line for each token: `row`, its example; `part_of_speech`, its number in PARTS_OF_SPEECH (from 1; 0: punctuation);
    `frequency`, its place in BANDS; `ordinary`, whether it is no special token. On the testbed also whether it carries
    the `shortcut`, and whether it decides the label, as a `cause`.
    """
    known = "uid" in examples.column_names and all(map(of_testbed, examples["uid"]))
    for preparer in (MarkPartsOfSpeech(), *((MarkShortcut(), MarkCause()) if known else ())):
        examples = preparer(plm, examples).examples
    ids = _flat(examples["input_ids"])
    return pandas.DataFrame({
        "row": np.repeat(np.arange(len(examples)), list(map(len, examples["input_ids"]))),
        "part_of_speech": _flat(examples["part_of_speech"]),
        "frequency": np.searchsorted(list(BANDS.values()), _flat(examples["token_counts"]), side="right") - 1,
        "ordinary": ~np.isin(ids, special_tokens(plm.tokenizer)),
        **({name: _flat(examples[f"known_{name}"]) > 0 for name in ("shortcut", "cause")} if known else {}),
    })  # fmt: skip


def what_is_masked(tokens: pandas.DataFrame, mask: Sequence[bool]) -> dict:
    """How much a mask `(n_tokens,)` covers of `mark`'s tokens, of which kinds, and how often it touches what.

    Of the tokens that carry the shortcut, and of those that decide: `examples`, how many have one; the shares of these
    in which `any` and in which `all` of them are masked; and the share of these `tokens`. None: of nothing.
    """
    tokens = tokens.assign(mask=np.asarray(mask))
    masked, touched = tokens[tokens["mask"]], {}
    for name in (name for name in ("shortcut", "cause") if name in tokens):
        marked = tokens[tokens[name]].groupby("row")["mask"]
        shares = {"any": marked.any(), "all": marked.all(), "tokens": tokens["mask"][tokens[name]]}
        touched[f"touches_{name}"] = {"examples": len(marked)} | {of: _share(flags) for of, flags in shares.items()}
    parts = ("punctuation", *PARTS_OF_SPEECH)
    return {
        "tokens_masked": _share(tokens["mask"][tokens["ordinary"]]),
        **touched,
        "part_of_speech": {part: _share(masked["part_of_speech"] == number) for number, part in enumerate(parts)},
        "frequency": {band: _share(masked["frequency"] == number) for number, band in enumerate(BANDS)},
    }


def _flat(rows: Iterable[Sequence]) -> np.ndarray:
    """The tokens' numbers of all examples, one after the other: `(n_tokens,)`."""
    return np.array([*chain.from_iterable(rows)])


def _share(flags: pandas.Series) -> float | None:
    """The share of True to four digits; None of nothing."""
    return round(float(flags.mean()), 4) if len(flags) else None


def _checked(
    config: RunConfig, names: Iterable[str], spacy_pipeline: str
) -> tuple[SharedPLM, dict[str, MaskingPolicy]]:
    """The model, and the policies by name, each checked to be for this data and to find what it needs."""
    trained = (Path(config.model_path) / HEAD_FILE).exists()
    for policy, _ in map(parse_policy, names):
        configure(config.task, "mask_tuning", source=config.source, masking=policy)
        if policy in ATTRIBUTION and not trained:
            raise UserError(
                f"{policy} asks a classifier, and that of {config.model} is not trained; give the folder of a model "
                "that was, as `mtlib run --keep-model` writes it."
            )
    n_labels = len(get_task(config.task).labels)
    plm = SharedPLM.from_pretrained(config.model_path, num_labels=n_labels).eval()
    maskings = {name: masking_policy(*parse_policy(name), plm.tokenizer, spacy_pipeline) for name in names}
    for masking in maskings.values():
        for preparer in masking.preparers():
            preparer.reading_from(config.source).check(plm)
    return plm, maskings
