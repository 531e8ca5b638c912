"""What each masking policy masks in training texts.

Which kinds of words and, on the testbed, how much of the shortcut. Policies that count or learn do
so on the whole training set, as in a run, however few of its examples are looked at.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
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
from mtlib.policies.known import CausalSpans, ShortcutSpans
from mtlib.policies.part_of_speech import PARTS_OF_SPEECH, PartOfSpeechSpans
from mtlib.policies.wrapping import DrawMasks
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.inputs import drawn_rows, read_inputs
from mtlib.testbed.known_words import is_of_testbed
from mtlib.tokens import special_tokens

# Left out: `meta_learned` takes minutes to prepare, `salient_spans` needs a spaCy pipeline, and
# attribution a trained classifier.
DEFAULT = (
    "exact:0.05",
    "exact:0.3",
    "whole_word:0.05",
    "frequency_rare:0.05",
    "frequency_frequent:0.05",
    "part_of_speech_content:0.05",
    "part_of_speech_function:0.05",
    "supervised",
    "supervised_top5",
    "known_cause:0.05",
    "known_shortcut:0.05",
    "known_shortcut:1",
)
# columns of the table, and their parts of speech
_CONTENT_WORDS = {
    "nouns": ("NOUN", "PROPN"),
    "verbs": ("VERB",),
    "adjectives": ("ADJ",),
    "adverbs": ("ADV",),
}


def describe(
    task: str = "sentiment",
    source: str = "testbed",
    model: str = "mini",
    policies: Sequence[str] | None = None,
    *,
    train_size: int | None = None,
    size: int | None = None,
    seed: int = 0,
    report: Callable[[str], None] = lambda name: None,
) -> pandas.DataFrame:
    """What policies mask: a row for each policy and a last one for all tokens, in per cent.

    Columns: how much is masked, how much of the shortcut, and which kinds of words. `shortcut gone`
    is the share of the examples in which all of the shortcut's tokens are masked. Away from the
    testbed there is no shortcut to tell of.

    Args:
        task, source, train_size: of the training set, as in a run.
        model: whose tokens are masked. Policies that ask a classifier (attribution) need the folder
            of a trained one.
        policies: names with rates, such as "exact:0.05". By default those of `DEFAULT` that this
            data allows.
        size: the number of training examples that are looked at, drawn as a run with `train_size`
            draws them. By default all.
        seed: of what policies learn, and of the masks. Each policy draws random numbers of its
            own: two policies should not mask the same tokens only because of the same numbers.
        report: called with the name of each policy when it is done.

    Raises:
        UserError: a policy that this data or model does not allow, before any work starts.
    """
    disable_progress_bars()
    names = default_policies(source) if policies is None else policies
    config = configure(
        task,
        "fine_tuning",
        source=source,
        model=model,
        train_size=train_size,
        sets=(get_task(task).dev_set(source),),
    )
    plm, maskings = _model_and_policies(config, names)
    examples = _training_examples(config, plm)
    looked_at = drawn_rows(len(examples), size)
    tokens = mark(plm, examples.select(looked_at))
    rows = {}
    for name, masking in maskings.items():
        if masking.columns.keys() - {*examples.column_names}:
            examples = _prepared(masking, plm, examples, source, seed)
        draw = DrawMasks(masking)
        drawn = draw(plm, examples.select(looked_at), seed + zlib.crc32(name.encode())).examples
        rows[name] = what_is_masked(tokens, _flat(drawn["mask"]) > 0)
        report(name)
    rows["all tokens"] = what_is_masked(tokens, tokens["ordinary"])
    return 100 * pandas.DataFrame.from_dict(rows, orient="index")


def _training_examples(config: RunConfig, plm: SharedPLM) -> Dataset:
    """The training set, tokenised, with how often it has each token."""
    train = read_inputs(config).datasets["train"]
    keep = [name for name in ("text", "text_pair", "uid", "group") if name in train.column_names]
    examples = tokenise(train, plm.tokenizer, config.max_length, keep=keep)
    return CountTokens()(plm, examples).examples


def default_policies(source: str) -> tuple[str, ...]:
    """All of `DEFAULT` on the testbed, elsewhere those that need nothing but the training set."""
    if is_testbed(source):
        return DEFAULT
    excluded = (*TESTBED_ONLY, *OWN_LENGTH)
    return tuple(text for text in DEFAULT if parse_policy(text)[0] not in excluded)


def mark(plm: SharedPLM, examples: Dataset) -> pandas.DataFrame:
    """What is known about the tokens of tokenised examples: a row for each token.

    Columns: `row` of its example; its `part_of_speech`, or "punctuation"; `found`, how often the
    training set has it; `ordinary`, whether it is no special token. On the testbed also whether it
    carries the `shortcut`, and whether it is a `cause`, a token that decides the label.

    Args:
        examples: whose tokens `CountTokens` has counted in the whole training set.
    """
    examples = PartOfSpeechSpans()(plm, examples).examples
    ids = _flat(examples["input_ids"])
    parts = np.array(["punctuation", *PARTS_OF_SPEECH])
    tokens = pandas.DataFrame(
        {
            "row": np.repeat(np.arange(len(examples)), list(map(len, examples["input_ids"]))),
            "part_of_speech": parts[_flat(examples["part_of_speech"])],
            "found": _flat(examples["token_counts"]),
            "ordinary": ~np.isin(ids, special_tokens(plm.tokenizer)),
        }
    )
    if "uid" in examples.column_names and all(map(is_of_testbed, examples["uid"])):
        for name, transform in (("shortcut", ShortcutSpans()), ("cause", CausalSpans())):
            marked = transform(plm, examples).examples
            tokens[name] = _flat(marked[f"known_{name}"]) > 0
    return tokens


def what_is_masked(tokens: pandas.DataFrame, mask: Sequence[bool]) -> dict[str, float]:
    """A row of `describe`, as shares, for a mask `(n_tokens,)` of the tokens of `mark`.

    A share of nothing is NaN.
    """
    tokens = tokens.assign(mask=np.asarray(mask))
    masked = tokens[tokens["mask"]]
    shares = {"tokens masked": tokens["mask"][tokens["ordinary"]].mean()}
    if "shortcut" in tokens:
        shortcut = tokens[tokens["shortcut"]].groupby("row")["mask"]
        cause = tokens[tokens["cause"]].groupby("row")["mask"]
        shares["shortcut touched"] = shortcut.any().mean()
        shares["shortcut gone"] = shortcut.all().mean()
        shares["deciding words touched"] = cause.any().mean()
    kinds = {
        kind: masked["part_of_speech"].isin(parts).mean() for kind, parts in _CONTENT_WORDS.items()
    }
    shares |= kinds
    shares["other words"] = 1 - sum(kinds.values())
    shares["found fewer than 10 times"] = (masked["found"] < 10).mean()
    return shares


def _flat(rows: Iterable[Sequence]) -> np.ndarray:
    """The numbers of all tokens, one example after the other: `(n_tokens,)`."""
    return np.array([*chain.from_iterable(rows)])


def _prepared(
    masking: MaskingPolicy,
    plm: SharedPLM,
    examples: Dataset,
    source: str,
    seed: int,
) -> Dataset:
    """The examples with the columns that a policy reads."""
    for transform in masking.transforms():
        examples = transform.reading_from(source)(plm, examples, seed).examples
    return examples


def _model_and_policies(
    config: RunConfig,
    names: Iterable[str],
) -> tuple[SharedPLM, dict[str, MaskingPolicy]]:
    """The model, and the policies by name, each checked to fit the data and the model."""
    trained = (Path(config.model_path) / HEAD_FILE).exists()
    for policy, _ in map(parse_policy, names):
        configure(config.task, "mask_tuning", source=config.source, masking=policy)
        if policy in ATTRIBUTION and not trained:
            raise UserError(
                f"{policy} asks a classifier, and that of {config.model} is not trained; give the "
                "folder of a model that was, as `run --keep-model` writes it."
            )
    num_labels = len(get_task(config.task).labels)
    plm = SharedPLM.from_pretrained(config.model_path, num_labels=num_labels).eval()
    maskings = {}
    for name in names:
        policy, rate = parse_policy(name)
        maskings[name] = masking_policy(policy, rate, plm.tokenizer)
    for masking in maskings.values():
        for transform in masking.transforms():
            transform.reading_from(config.source).check(plm)
    return plm, maskings
