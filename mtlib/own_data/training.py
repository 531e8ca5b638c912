"""The training of each arm: a method that hides the words, and fine-tuning beside it."""

import hashlib
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from datasets import Dataset

from mtlib.data.tables import TEXTS
from mtlib.encoding import tokenise
from mtlib.errors import UserError, one_of
from mtlib.method import LearningRates, Stage
from mtlib.methods import METHODS, get_method, readers
from mtlib.objectives import FineTuning
from mtlib.own_data.preparing import LABEL, OwnSets, Report
from mtlib.paths import written_whole
from mtlib.plm import SharedPLM
from mtlib.policies import check_for_pairs
from mtlib.runs.code import code_sha256
from mtlib.runs.config import (
    OwnTraining,
    check_masking,
    check_model,
    check_not_given,
    default_rates,
    effective_settings,
)
from mtlib.runs.inputs import model_sha256
from mtlib.runs.training import pretrained
from mtlib.runs.training import train as train_stages
from mtlib.settings import Settings
from mtlib.spans import WordSpans

BASELINE = "fine_tuning"
MASKS_LEFT = "masks_left"
# of Mask-tuning; where words are given, small sets have too few steps for two losses
_ALPHA = 0.6
_ALPHA_WITH_WORDS = 0.0
_BIAS = "bag_of_words"  # of methods with a bias model
_ROWS = 1000  # that are hashed at a time
_TELLING = 0.25  # of the rows that the commonest label misses: then the masks tell the label

code_sha256()  # of the code that has just been imported, whatever becomes of its files


def arms_of(
    method: str,
    words: Sequence[str],
    settings: Mapping[str, object] | None,
    training: Mapping[str, object],
    alone: bool,
) -> dict[str, OwnTraining]:
    """What each arm is trained with.

    The method stands before fine-tuning, so that settings or words that it does not read are
    refused first and it is trained first; `predict_sets` and `leans_of_words` go through the arms
    from the last to the first.
    """
    arms = {method: _config(method, words, dict(settings or {}), training)}
    if method != BASELINE and not alone:
        arms[BASELINE] = _config(BASELINE, words, {}, training)
    return arms


def _config(
    method: str,
    words: Sequence[str],
    given: Mapping[str, object],
    training: Mapping[str, object],
) -> OwnTraining:
    """What an arm is trained with, checked."""
    _check_settings(method, words, given)
    settings = get_method(method).settings(**_with_defaults(method, words, given))
    training = {name: value for name, value in training.items() if value is not None}
    config = OwnTraining(settings=settings, **training).resolved()
    check_model(config.model)
    check_masking(method, config.settings)
    return config


def _with_defaults(
    method: str,
    words: Sequence[str],
    given: Mapping[str, object],
) -> dict[str, object]:
    """The settings that are given, and our defaults for own data.

    Our defaults are dropped where the method does not read them; given settings never are.
    """
    alpha = _ALPHA_WITH_WORDS if words else _ALPHA
    settings = {"alpha": alpha, "bias": _BIAS, "words": words} | given
    read = effective_settings({"method": method} | settings)
    return {name: value for name, value in settings.items() if name in given or name in read}


def check_pairs(settings: Settings, sets: OwnSets) -> None:
    """Refuse a policy that cannot learn what to mask in pairs, where the rows are pairs."""
    if "text_pair" in sets.train.column_names:
        check_for_pairs(getattr(settings, "masking", None))


def check_bias(settings: Settings, sets: OwnSets) -> None:
    """Refuse a bias model that cannot read these rows."""
    if not settings.reads("bias"):
        return
    bias = settings.bias
    fitting = [_BIAS]
    if "text_pair" in sets.train.column_names:
        fitting.append("lexical_overlap")
        if sets.label_names[0] == "entailment":  # the label that they tell from the others
            fitting += ["overlap", "token_overlap"]
    if bias not in fitting:
        raise UserError(f"bias is {bias!r}; for these texts and labels {one_of(bias, fitting)}")


def _check_settings(method: str, words: Sequence[str], given: Mapping[str, object]) -> None:
    """Raise `UserError` for words or settings that the method does not read."""
    if "words" in given:
        raise UserError("the setting words is made of the words to hide; give them there alone.")
    known = get_method(method).reads
    to_read = {**given, "words": words} if words and method != BASELINE else given
    for name in to_read.keys() - {*known}:
        if not readers(name):
            raise UserError(f"{method} has no setting {name!r}; {one_of(name, known)}")
        check_not_given(method, name, to_read[name])


def train_arms(
    arms: Mapping[str, OwnTraining],
    sets: OwnSets,
    work: Path,
    report: Report,
) -> dict[str, SharedPLM]:
    """The trained models, by the names of their methods.

    What is finished in the folder `work` is read from there, and what was begun is resumed, if
    settings, model, rows and code are the same.
    """
    models = {}
    for method, config in arms.items():
        report(f"training: {METHODS[method].label}")
        folder = work / f"{method}-{_identity(method, config, sets)[:10]}"
        if any(work.glob(f"{method}-*")) and not folder.exists():
            report("what was begun here had other settings, rows or code: training begins anew.")
        finished = folder / "finished"
        if finished.exists():
            report("it was finished here before.")
            models[method] = SharedPLM.from_pretrained(finished)
            continue
        if any(folder.rglob("trainer_state.json")):
            report("what was begun here is resumed.")
        plm = _trained(method, config, sets, folder, report)
        with written_whole(finished) as part:
            plm.save_pretrained(part)
        models[method] = plm
    return models


def _identity(method: str, config: OwnTraining, sets: OwnSets) -> str:
    """A hash of all that decides a training: code, settings, the model's files, rows."""
    model = model_sha256(Path(config.model_path))
    settings = config.model_dump(mode="json")
    digest = hashlib.sha256()
    _update(digest, [code_sha256(), method, settings, model, sets.label_names])
    for rows in (sets.train, sets.dev):
        _update(digest, len(rows))
        for batch in rows.iter(_ROWS):
            _update(digest, batch)
    return digest.hexdigest()


def _update(digest, content: object) -> None:
    digest.update(json.dumps(content).encode())


def _trained(
    method: str,
    config: OwnTraining,
    sets: OwnSets,
    folder: Path,
    report: Report,
) -> SharedPLM:
    """The model of one arm."""
    plm = pretrained(config, sets.label_names)
    if method == MASKS_LEFT:
        _report_telling_masks(config, sets.train, plm, report)
    stages = _stages(method, config, plm.tokenizer)
    trained = train_stages(config, stages, plm, sets.train, folder, dev=sets.dev)
    if trained.diverged:
        raise UserError(f"the loss of {method} was no longer finite; give a lower learning rate.")
    if config.patience and (epochs := trained.history[-1]["epoch"]) < config.epochs - 0.01:
        report(f"stopped after {epochs:.1f} epochs, since accuracy on dev no longer rose.")
    return trained.plm


def _report_telling_masks(
    config: OwnTraining,
    train: Dataset,
    plm: SharedPLM,
    report: Report,
) -> None:
    """Say where the number of masks in a text tells its label, as the words did before."""
    columns = [column for column in TEXTS if column in train.column_names]
    with warnings.catch_warnings(action="ignore"):  # the training says what is cut
        examples = tokenise(train, plm.tokenizer, config.max_length, keep=columns)
    spans = WordSpans(config.settings.words)
    numbers = spans.numbered(plm, examples).examples[spans.column]
    n_masks = [sum(map(bool, row)) for row in numbers]
    told, commonest = told_by(n_masks, train[LABEL])
    if told - commonest > _TELLING * (1 - commonest):
        report(
            f"the number of masks in a text tells the label of {told:.0%} of the training rows "
            f"(always the commonest label: {commonest:.0%}), so that masks may mislead as the "
            "words do; hide words of every label."
        )


def told_by(values: Sequence[int], labels: Sequence[int]) -> tuple[float, float]:
    """The share of rows that have the commonest label of their value, and of all rows."""
    by_value: dict[int, Counter] = defaultdict(Counter)
    for value, label in zip(values, labels, strict=True):
        by_value[value][label] += 1
    told = sum(max(counts.values()) for counts in by_value.values())
    return told / len(labels), max(Counter(labels).values()) / len(labels)


def _stages(method: str, config: OwnTraining, tokenizer) -> tuple[Stage, ...]:
    """The stages of the method, at rates that are the same for both arms.

    A single stage is called after the method: the progress bar shows the name, and a person knows
    the method's, not the objective's.
    """
    rates = default_rates(BASELINE, config.model)
    if config.learning_rate is not None:
        rates = LearningRates.alike(config.learning_rate)
    stages = get_method(method).stages(config.settings, rates, tokenizer)
    if len(stages) == 1:
        stages = (replace(stages[0], name=method),)
    if config.class_weights is not None:
        _balance_classes(method, stages[-1])
    return stages


def _balance_classes(method: str, stage: Stage) -> None:
    """Let the stage's losses weigh the labels, before the trainer builds them with `build`."""
    losses = [module for module in stage.objective.modules() if isinstance(module, FineTuning)]
    if not losses:
        raise UserError(f"class_weights is 'balanced', which {method} does not read; leave it out.")
    for loss in losses:
        loss.balance()
