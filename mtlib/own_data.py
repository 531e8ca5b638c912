"""A classifier that does not lean on given words, from rows of one's own, beside one that may.

`debias` prepares the sets, trains the two, and scores them where the words mislead.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas
from datasets import ClassLabel, Dataset
from huggingface_hub import ModelCard, ModelCardData
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from mtlib.data.tables import TEXTS
from mtlib.encoding import predict, tokenise
from mtlib.errors import UserError, one_of
from mtlib.folding import fold, phrases_of
from mtlib.followed_words import leans
from mtlib.labels import check_look_alike, known_labels, label_column
from mtlib.marking import MarkWords
from mtlib.method import LearningRates, Stage
from mtlib.methods import METHODS, get_method, readers
from mtlib.objectives import FineTuning
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.policies import TESTBED_ONLY
from mtlib.runs.code import code_sha256
from mtlib.runs.config import (
    OwnTraining,
    check_masking,
    check_model,
    default_rates,
    effective_settings,
)
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.inputs import model_sha256
from mtlib.runs.training import pretrained
from mtlib.runs.training import train as train_stages
from mtlib.settings import Settings
from mtlib.suspect_words import pointed_labels, suspects

BASELINE = "fine_tuning"
DEFAULT = "masks_left"  # where words are given
HIDDEN = "fine_tuning, words masked"  # the same model, when it reads
# of Mask-tuning; where words are given, small sets have too few steps for two losses
_ALPHA = 0.6
_ALPHA_WITH_WORDS = 0.0
_BIAS = "bag_of_words"  # of methods with a bias model
_LABEL = "label"
_DEV_SHARE = 0.2
_LISTED = 20  # words, in a message
_NO_LIMIT = 1_000_000  # tokens
_RESAMPLES = 2000
_ROWS = 1000  # that are hashed at a time

code_sha256()  # of the code that has just been imported, whatever becomes of its files

Report = Callable[[str], None]  # is told a sentence


@dataclass
class Debiased:
    """What `debias` gives.

    Args:
        plm: the model that the method trained, as it is saved;
            `predict(plm, texts, names=True)`.
        table: a line for each set, part of its rows and arm: `n`, `accuracy` and `macro_f1` in per
            cent with 95 % intervals. The arm "fine_tuning, words masked" is the fine-tuned model
            with masks in the place of the words when it reads, which needs no further training.
        words: the given words that point to a label in the training rows, as `suspects` lists them.
        by_word: a line for each of these words, set and arm: in `n` rows the word points to another
            label than the row's own, and there `accuracy` is so many per cent. On dev also how much
            the model `leans` on the word, with `low` and `high` (see `mtlib.leans`).
        fine_tuning: the fine-tuned model beside it; None where there is none.
    """

    plm: SharedPLM
    table: pandas.DataFrame
    words: pandas.DataFrame
    by_word: pandas.DataFrame
    fine_tuning: SharedPLM | None = None

    @property
    def footer(self) -> str:
        """What to know when reading the table; "" where nothing is special."""
        dev = self.table[self.table["set"] == "dev"]
        if self.fine_tuning is None or "conflicting" not in {*dev["rows"]}:
            return ""
        return (
            "Accuracy on dev falls when a shortcut is taken away, and should: in most rows of dev "
            "the words point to the right label. Compare the conflicting rows."
        )


def debias(
    train: Dataset,
    words: Iterable[str] | pandas.DataFrame | None = (),
    *,
    out: str | Path,
    dev: Dataset | None = None,
    tests: Mapping[str, Dataset] | None = None,
    method: str | None = None,
    settings: Mapping[str, object] | None = None,
    alone: bool = False,
    keep: bool = True,
    report: Report = print,
    **training,
) -> Debiased:
    """Train a method that hides the given words, and fine-tuning beside it, and score both.

    Rows, rates and seed are the same.

        data = read_table("reviews.csv", text="review", label="opinion")
        result = debias(data, suspects(data).word.head(9), out="model")
        print(result.table)

    The method's model is saved in `out`, a folder that transformers reads, with the words
    (`words.csv`), the tables (`scores.csv`, `by_word.csv`) and a card (`README.md`), and the
    fine-tuned one in `out/fine_tuning`. The checkpoint with the best accuracy on `dev` is taken. A
    call that was cut off is resumed by the same call, with the same code.

    Args:
        train: rows with `text` (and `text_pair`) and `label`.
        words: words and phrases to hide, in any case, or a table of `suspects` that holds no
            others. Without any the method masks as its settings say.
        out: a new or empty folder.
        dev: rows to choose the checkpoint on; None: a fifth of `train`.
        tests: further sets to score, by name.
        method: of `METHODS`; "fine_tuning" trains that alone. Default: "masks_left" with words
            (data/README.md compares recipes), "fine_tuning" without.
        settings: of the method, such as `{"alpha": 0.3}`.
        alone: without fine-tuning beside it, in half the time or less.
        keep: keep the fine-tuned model.
        report: is told, a sentence at a time, what was found in the data.
        training: settings of `OwnTraining`.

    In a part of the rows "agreeing" are those in which the words (the largest sum of z) point to
    the row's own label, "conflicting" those in which they point to another. Intervals: Wilson's for
    accuracy, bootstrap over rows for F1.

    Raises:
        UserError: fewer than two labels, or a label with one row; sets that do not fit one another;
            words of which none stands in a text; a folder that holds something else, or cannot be
            written; a bad setting.
    """
    out = Path(out)
    words = _given_words(words)
    if method is None:
        method = _default_method(words, report)
    make_writable(out, empty=True)
    arms = _arms(method, words, settings, training, alone)
    quiet_libraries()
    sets = prepare(train, dev, tests, report)
    _check_bias(arms[method].settings, sets)
    pointing = _pointing_words(sets, words, method, report)
    models = train_arms(arms, sets, out / ".work", report)
    predictions = predict_sets(models, sets, words, arms[method].max_length)
    table = score(predictions, sets, pointing, report)
    by_word = score_words(predictions, sets, pointing)
    if len(by_word):
        leaned = _leans(models, sets, pointing, arms[method].max_length, report)
        by_word = by_word.merge(leaned, how="left")
    baseline = models[BASELINE] if method != BASELINE and BASELINE in models else None
    result = Debiased(models[method], table, pointing, by_word, baseline)
    _save(result, _card(method, arms[method], words, result), out, keep)
    return result


def _given_words(words: Iterable[str] | pandas.DataFrame | None) -> tuple[str, ...]:
    """The words to hide, sorted, each once."""
    if words is None:
        return ()
    if isinstance(words, pandas.DataFrame):
        words = _column_of_words(words)
    return tuple(sorted({*phrases_of(words)}))


def _column_of_words(table: pandas.DataFrame) -> pandas.Series:
    if "word" not in table:
        columns = ", ".join(map(str, table))
        raise UserError(f"words is a table with {columns}; expected a column word.")
    if "mask" in table:
        raise UserError(
            "words is a table with a column mask, but all words of a table are hidden; give the "
            "words that are marked, such as words.word[words['mask'] == 'x']."
        )
    return table["word"]


def _default_method(words: Sequence[str], report: Report) -> str:
    if words:
        return DEFAULT
    report("no words are given: fine-tuning alone.")
    return BASELINE


def _pointing_words(
    sets: "OwnSets",
    words: Sequence[str],
    method: str,
    report: Report,
) -> pandas.DataFrame:
    """The words that predict a label in the training rows, as `suspects` lists them."""
    if words and method == BASELINE:  # other methods look for them themselves
        MarkWords(words).check_found(sets.train)
    table = suspects(sets.train, top=None, min_count=1, words=words)
    if copies := table.attrs["copies"]:
        n_rows = table.attrs["rows"]
        report(f"{copies:,} of {n_rows:,} training rows are copies of others.")
    if everywhere := table.attrs["everywhere"]:
        report(f"in every row, where it tells nothing of labels: {', '.join(everywhere)}.")
    if words:
        listed = ", ".join(words[:_LISTED])
        if len(words) > _LISTED:
            listed += ", ..."
        pointing = f"{table.word.nunique()} of {len(words)} predict a label in the training rows"
        report(f"words to hide: {listed}; {pointing}.")
    return table


# --- preparing ---


@dataclass(frozen=True)
class OwnSets:
    """Sets with the same columns, and with labels that are numbered alike."""

    train: Dataset
    dev: Dataset
    tests: Mapping[str, Dataset]

    @property
    def label_names(self) -> list[str]:
        return self.train.features[_LABEL].names

    @property
    def scored(self) -> dict[str, Dataset]:
        """All but the training set, by name."""
        return {"dev": self.dev, **self.tests}


def prepare(
    train: Dataset,
    dev: Dataset | None,
    tests: Mapping[str, Dataset] | None,
    report: Report,
) -> OwnSets:
    """Rows of one's own as sets to train on, to choose the checkpoint on, and to score.

    Args:
        train: rows with `text` (and `text_pair`) and `label`.
        dev: the same; None: a fifth of `train` is kept for it.
        tests: the same, by name.
        report: is told what is left out, and what is odd.

    Raises:
        UserError: a set without texts or labels, or one that does not fit the training set; too few
            rows or labels.
    """
    tests = _named_tests(tests)
    train = _labelled("train", train, report)
    dev = None if dev is None else _labelled("dev", dev, report)
    tests = {name: _labelled(name, rows, report) for name, rows in tests.items()}
    train = _with_classes(train)
    _check_numbers(train, with_dev=dev is not None)
    if dev is not None:
        dev = _like("dev", dev, train)
    tests = {name: _like(name, rows, train) for name, rows in tests.items()}
    if dev is None:
        parts = train.train_test_split(_DEV_SHARE, seed=0, stratify_by_column=_LABEL)
        train, dev = parts["train"], parts["test"]
        kept = f"{len(dev):,} of the rows are kept for it"
        report(f"no dev set given: {kept}, {len(train):,} are trained on.")
    sets = OwnSets(train, dev, tests)
    _report_known_rows(sets, report)
    return sets


def _named_tests(tests: Mapping[str, Dataset] | None) -> Mapping[str, Dataset]:
    if tests is None:
        return {}
    if not isinstance(tests, Mapping):
        given = type(tests).__name__
        raise UserError(f"tests is a {given}; expected sets by name, such as {{'new': dataset}}.")
    if taken := {"train", "dev"} & {*tests}:
        raise UserError(
            f"a test set is called {min(taken)!r}, as a set of the training; give it another name."
        )
    return tests


def _labelled(name: str, rows: Dataset, report: Report) -> Dataset:
    """The rows that have a label: their texts, and a column `label`."""
    if not isinstance(rows, Dataset):
        given = type(rows).__name__
        raise UserError(
            f"{name} is a {given}; expected a Dataset, as read_table(path, text, label)."
        )
    rows = _with_known_columns(name, rows.with_format(None), report)
    _check_texts(name, rows)
    rows = _without_blank_texts(name, rows, report)
    labels = known_labels(name, rows[_LABEL][:], rows.features[_LABEL])
    known = [row for row, label in enumerate(labels) if label is not None]
    if not known:
        raise UserError(f"{name} has no row with a text and a label; leave it out, or mend it.")
    if unlabelled := len(rows) - len(known):
        report(f"{unlabelled:,} of {len(rows):,} rows of {name} have no label and are left out.")
        rows = rows.select(known)
    return rows


def _with_known_columns(name: str, rows: Dataset, report: Report) -> Dataset:
    """Texts and labels alone, with the labels in `label`."""
    columns = ", ".join(rows.column_names)
    label = label_column(rows.column_names)
    if label is None or {_LABEL, "labels"} <= {*rows.column_names}:
        raise UserError(f"{name} has the columns {columns}; expected one column label.")
    if label != _LABEL:
        rows = rows.rename_column(label, _LABEL)
    known = [column for column in (*TEXTS, _LABEL) if column in rows.column_names]
    if unread := [column for column in rows.column_names if column not in known]:
        where = "texts are in `text` (and `text_pair`)"
        report(f"columns of {name} that are not read: {', '.join(unread)}; {where}.")
    return rows.select_columns(known)


def _check_texts(name: str, rows: Dataset) -> None:
    for column in TEXTS:
        for text in rows[column] if column in rows.column_names else ():
            if not isinstance(text, str):
                advice = "drop such rows, or read them with read_table"
                raise UserError(f"{name} has {text!r} for a {column}; {advice}.")


def _without_blank_texts(name: str, rows: Dataset, report: Report) -> Dataset:
    """The rows without a blank text."""
    if not {*TEXTS} & {*rows.column_names}:
        return rows  # that there is no text is said when it is tokenised
    kept = [
        number
        for number, texts in enumerate(_texts(rows))
        if all(fold(text).strip() for text in texts)
    ]
    if blank := len(rows) - len(kept):
        report(f"{blank:,} of {len(rows):,} rows of {name} have a blank text and are left out.")
        rows = rows.select(kept)
    return rows


def _with_classes(train: Dataset) -> Dataset:
    """The training set with numbered labels that have names."""
    if isinstance(train.features[_LABEL], ClassLabel):
        return train
    check_look_alike(train.unique(_LABEL))
    return train.class_encode_column(_LABEL)


def _check_numbers(train: Dataset, with_dev: bool) -> None:
    names = train.features[_LABEL].names
    counts = Counter(names[label] for label in train[_LABEL])
    enough_to_split = len(train) >= len(counts) / _DEV_SHARE
    if len(counts) >= 2 and min(counts.values()) >= 2 and (with_dev or enough_to_split):
        return
    rarest = ", ".join(f"{name} {n:,}" for name, n in counts.most_common()[:-4:-1])
    raise UserError(
        f"there are too few training rows or labels (rows with the rarest: {rarest}); expected two "
        "labels or more with two rows each, and without dev five times as many rows as labels. "
        "Drop or merge rare labels."
    )


def _like(name: str, rows: Dataset, train: Dataset) -> Dataset:
    """A set with the training set's columns, its labels numbered as there."""
    texts = [column for column in train.column_names if column != _LABEL]
    _check_columns(name, {*rows.column_names} - {_LABEL}, texts)
    feature = train.features[_LABEL]
    labels = _label_names(rows)
    if unknown := sorted({*labels} - {*feature.names}):
        expected = one_of(unknown[0], feature.names)
        raise UserError(f"{name} has the label {unknown[0]!r}; {expected}")
    numbers = [feature.names.index(label) for label in labels]
    return rows.select_columns(texts).add_column(_LABEL, numbers, feature=feature)


def _check_columns(name: str, columns: Collection[str], expected: Sequence[str]) -> None:
    for column in expected:
        if column not in columns:
            raise UserError(f"{name} has no column {column}; expected {', '.join(expected)}.")
    for column in columns:
        if column not in expected:
            raise UserError(f"{name} has a column {column}, which train lacks; leave it out.")


def _label_names(rows: Dataset) -> list[str]:
    feature = rows.features[_LABEL]
    if isinstance(feature, ClassLabel):
        return [feature.names[label] for label in rows[_LABEL]]
    return [str(label) for label in rows[_LABEL]]


def _report_known_rows(sets: OwnSets, report: Report) -> None:
    """Say how many rows that are scored are trained on too."""
    trained_on = {*_texts(sets.train)}
    for name, rows in sets.scored.items():
        if known := sum(texts in trained_on for texts in _texts(rows)):
            report(f"{known:,} of {len(rows):,} rows of {name} stand in the training rows too.")


def _texts(rows: Dataset) -> Iterator[tuple[str, ...]]:
    columns = [rows[name] for name in TEXTS if name in rows.column_names]
    return zip(*columns, strict=True)


# --- training ---


def _arms(
    method: str,
    words: Sequence[str],
    settings: Mapping[str, object] | None,
    training: Mapping[str, object],
    alone: bool,
) -> dict[str, OwnTraining]:
    """What each arm is trained with.

    The method stands before fine-tuning, so that settings or words that it does not read are
    refused first and it is trained first; `predict_sets` and `_leans` go through the arms from the
    last to the first.
    """
    if settings is not None and not isinstance(settings, Mapping):
        expected = "settings of the method by name, such as {'alpha': 0.3}"
        raise UserError(f"settings is {settings!r}; expected {expected}.")
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
    """The settings of an arm: those that are given, else our defaults for own data.

    Our defaults are dropped where the method does not read them; given settings never are.
    """
    _check_settings(method, words, given)
    defaults = {"alpha": _ALPHA_WITH_WORDS if words else _ALPHA, "bias": _BIAS, "words": words}
    settings = defaults | given
    read = effective_settings({"method": method} | settings)
    settings = {name: value for name, value in settings.items() if name in given or name in read}
    training = {name: value for name, value in training.items() if value is not None}
    model = get_method(method).settings
    config = OwnTraining(settings=model(**settings), **training).resolved()
    check_model(config.model)
    check_masking(method, config.settings)
    _check_testbed_only(config.settings)
    return config


def _check_testbed_only(settings: Settings) -> None:
    """Refuse a policy that knows the testbed's grammar."""
    masking = getattr(settings, "masking", None)
    if masking in TESTBED_ONLY:
        raise UserError(
            f"masking is {masking!r}, which knows the testbed's grammar and no other rows; give "
            "the words to hide, or take another policy."
        )


def _check_bias(settings: Settings, sets: OwnSets) -> None:
    """Refuse a bias model that cannot read these rows."""
    bias = getattr(settings, "bias", None)
    if bias is None or "bias" in settings.ignored():
        return
    fitting = [_BIAS]
    if "text_pair" in sets.train.column_names:
        fitting.append("lexical_overlap")
        if sets.label_names[0] == "entailment":  # the label that they tell from the others
            fitting += ["overlap", "token_overlap"]
    if bias not in fitting:
        raise UserError(f"bias is {bias!r}; for these texts and labels {one_of(bias, fitting)}")


def _check_settings(method: str, words: Sequence[str], given: Mapping[str, object]) -> None:
    """Raise `UserError` for words or settings that the method does not read."""
    known = get_method(method).reads
    able = readers("words")
    if words and method not in (BASELINE, *able):
        names = ", ".join(able)
        raise UserError(f"{method} masks nothing; leave the words out, or take one of {names}.")
    if "words" in given:
        raise UserError("the setting words is made of the words to hide; give them there alone.")
    for name in sorted(given.keys() - {*known}):
        others = readers(name)
        hint = f"methods that have it: {', '.join(others)}." if others else one_of(name, known)
        raise UserError(f"{method} has no setting {name!r}; {hint}")


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
            models[method] = SharedPLM.from_pretrained(finished)
            continue
        plm = _trained(method, config, sets, folder, report)
        plm.save_pretrained(folder / "part")
        (folder / "part").replace(finished)
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
    _report_cut_texts(config.max_length, sets.train, plm, report)
    stages = _stages(method, config, plm.tokenizer)
    trained = train_stages(config, stages, plm, sets.train, folder, dev=sets.dev)
    if trained.diverged:
        raise UserError(f"the loss of {method} was no longer finite; give a lower learning rate.")
    if config.patience and (epochs := trained.history[-1]["epoch"]) < config.epochs - 0.01:
        report(f"stopped after {epochs:.1f} epochs, since accuracy on dev no longer rose.")
    return trained.plm


def _report_cut_texts(
    max_length: int | None,
    train: Dataset,
    plm: SharedPLM,
    report: Report,
) -> None:
    if max_length is None:
        return  # then `tokenise` says how many are cut
    lengths = tokenise(train, plm.tokenizer, _NO_LIMIT)["length"]
    if cut := sum(length > max_length for length in lengths):
        report(f"{cut:,} of {len(train):,} texts are cut to {max_length} tokens.")


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
        _weigh_classes(method, stages[-1], config.class_weights)
    return stages


def _weigh_classes(method: str, stage: Stage, class_weights: str) -> None:
    """Give the stage's losses these weights, before the trainer builds them with `build`."""
    losses = [module for module in stage.objective.modules() if isinstance(module, FineTuning)]
    if not losses:
        raise UserError(
            f"class_weights is {class_weights!r}, which {method} does not read; leave it out."
        )
    for loss in losses:
        loss.class_weights = class_weights


# --- scoring ---


Predictions = Mapping[str, Mapping[str, np.ndarray]]  # set, arm -> class numbers (n,)


def predict_sets(
    models: Mapping[str, SharedPLM],
    sets: OwnSets,
    words: Sequence[str],
    max_length: int | None,
) -> Predictions:
    """What each arm answers on each set but the training set.

    Args:
        models: by arm, in the order of `_arms`; fine-tuning, which it puts last, comes first here.
        sets: what is scored.
        words: hidden from the fine-tuned model when it reads, as a further arm.
        max_length: texts are cut to so many tokens, see `predict`.
    """
    predictions: dict[str, dict[str, np.ndarray]] = {}
    for name, rows in sets.scored.items():
        predictions[name] = {
            arm: predict(models[arm], rows, max_length).argmax(1) for arm in reversed(models)
        }
        if words and BASELINE in models:
            logits = predict(models[BASELINE], rows, max_length, hide=words)
            predictions[name][HIDDEN] = logits.argmax(1)
    return predictions


def score(
    predictions: Predictions,
    sets: OwnSets,
    words: pandas.DataFrame,
    report: Report,
) -> pandas.DataFrame:
    """A line for each set but the training set, part of its rows and arm.

    Args:
        predictions: of `predict_sets`.
        sets: their labels are gold.
        words: a table of `suspects`: which labels the words point to.
        report: is told of an arm that gives nearly all rows one label.
    """
    lines = []
    for set_name, rows in sets.scored.items():
        labels = np.array(rows[_LABEL])  # (n,)
        for arm, predicted in predictions[set_name].items():
            if label := _overused(labels, predicted, sets.label_names):
                advice = "give more epochs, or another rate or seed"
                report(f"{arm} calls nearly all of {set_name} {label}; {advice}.")
        for part, chosen in parts_of(rows, words).items():
            for arm, predicted in predictions[set_name].items():
                measured = scores_of(labels[chosen], predicted[chosen])
                lines.append({"set": set_name, "rows": part, "arm": arm, **measured})
    return pandas.DataFrame(lines)


def score_words(
    predictions: Predictions, sets: OwnSets, words: pandas.DataFrame
) -> pandas.DataFrame:
    """A line for each word, set and arm: the rows in which the word points elsewhere.

    Args:
        predictions: of `predict_sets`.
        sets: their labels are gold.
        words: a table of `suspects`: which labels the words point to.
    """
    lines = []
    for word, word_lines in words.groupby("word", sort=False):
        for set_name, rows in sets.scored.items():
            conflicting = parts_of(rows, word_lines).get("conflicting")
            n = 0 if conflicting is None else int(conflicting.sum())
            for arm, predicted in predictions[set_name].items():
                accuracy = np.nan
                if n:
                    labels = np.array(rows[_LABEL])[conflicting]
                    accuracy = 100 * float((labels == predicted[conflicting]).mean())
                label = ", ".join(word_lines["label"])
                lines.append((word, label, set_name, arm, n, accuracy))
    return pandas.DataFrame(lines, columns=["word", "label", "set", "arm", "n", "accuracy"])


def _leans(
    models: Mapping[str, SharedPLM],
    sets: OwnSets,
    words: pandas.DataFrame,
    max_length: int | None,
    report: Report,
) -> pandas.DataFrame:
    """How much each model leans on each word on dev, with its interval, in per cent."""
    options = {
        "partners": suspects(sets.train, kinds={*words["kind"], "word"}),
        "max_length": max_length,
    }
    tables = []
    say = report
    for arm in reversed(models):
        found = leans(models[arm], sets.dev, words, report=say, **options)
        found = found.rename(columns={"suspect": "word"}).assign(set="dev", arm=arm)
        tables.append(found[["word", "set", "arm", "leans", "low", "high"]])
        say = _silent  # both models have the same words and texts
    return pandas.concat(tables)


def _silent(sentence: str) -> None:
    pass


def _overused(labels: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> str | None:
    """The label that nearly all rows are given, and that far fewer have."""
    label = np.bincount(predicted).argmax()
    if (predicted == label).mean() > 0.95 and (labels == label).mean() < 0.8:
        return names[label]
    return None


def parts_of(rows: Dataset, words: pandas.DataFrame) -> dict[str, np.ndarray]:
    """Which rows are in each part of a set, bool `(n,)`; parts without rows are left out.

    Args:
        rows: with numbered labels that have names.
        words: a table of `suspects`.
    """
    parts = {"all": np.ones(len(rows), dtype=bool)}
    pointed = np.array(pointed_labels(rows, words), dtype=object)  # (n,), None: no word
    has_word = np.array([label is not None for label in pointed], dtype=bool)
    agrees = np.array(pointed == np.array(_label_names(rows), dtype=object), dtype=bool)
    for name, chosen in (("agreeing", agrees), ("conflicting", has_word & ~agrees)):
        if chosen.any():
            parts[name] = chosen
    return parts


def scores_of(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """`n`, and accuracy and macro F1 in per cent with 95 % intervals.

    Macro F1 is the mean over the labels that are gold or predicted.

    Args:
        labels: gold class numbers, `(n,)`.
        predicted: class numbers, `(n,)`.
    """
    n = len(labels)
    n_correct = int((labels == predicted).sum())
    wilson = binomtest(n_correct, n).proportion_ci(method="wilson")
    low, high = _macro_f1_interval(labels, predicted)
    shares = {
        "accuracy": n_correct / n,
        "accuracy_low": wilson.low,
        "accuracy_high": wilson.high,
        "macro_f1": f1_score(labels, predicted, average="macro"),
        "macro_f1_low": low,
        "macro_f1_high": high,
    }
    return {"n": n} | {name: 100 * float(share) for name, share in shares.items()}


def _macro_f1_interval(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Low and high of the 95 % bootstrap interval.

    To draw n rows with replacement is to draw the counts of the confusion matrix, so that all
    resamples are scored in one go. (scikit-learn would read n rows two thousand times.)
    """
    k = 1 + max(labels.max(), predicted.max())
    confusion = np.bincount(labels * k + predicted, minlength=k * k)  # (k * k,), gold by predicted
    generator = np.random.default_rng(0)
    resamples = generator.multinomial(len(labels), confusion / len(labels), _RESAMPLES)
    macro_f1 = _macro_f1(resamples.reshape(-1, k, k))  # (resamples,)
    return np.percentile(macro_f1, [2.5, 97.5])


def _macro_f1(matrices: np.ndarray) -> np.ndarray:
    """Of confusion matrices `(resamples, k, k)`, gold by predicted: `(resamples,)`."""
    gold_and_predicted = matrices.sum(1) + matrices.sum(2)  # (resamples, k)
    correct = np.diagonal(matrices, axis1=1, axis2=2)  # (resamples, k)
    f1 = 2 * correct / np.maximum(gold_and_predicted, 1)
    return f1.sum(1) / (gold_and_predicted > 0).sum(1)


# --- what is kept ---


def _save(result: Debiased, card: ModelCard, out: Path, keep: bool) -> None:
    """Models, tables and card; then what could be resumed is no longer needed."""
    result.plm.save_pretrained(out)
    if keep and result.fine_tuning is not None:
        result.fine_tuning.save_pretrained(out / BASELINE)
    result.words.to_csv(out / "words.csv", index=False)
    result.table.to_csv(out / "scores.csv", index=False)
    result.by_word.to_csv(out / "by_word.csv", index=False)
    card.save(out / "README.md")
    shutil.rmtree(out / ".work", ignore_errors=True)


_CARD = """---
{metadata}
---

# A text classifier ({label})

Base model: {model}. {hidden}
`words.csv` has those that predict a label in the training rows; in agreeing rows they point to the
row's own label, in conflicting ones to another.

| set | rows | n | arm | accuracy, % | macro F1, % |
| --- | --- | ---: | --- | --- | --- |
{table}
{footer}
{by_word}
Settings that are not the defaults:

```json
{settings}
```

```python
from transformers import pipeline

answer = pipeline("text-classification", "FOLDER", truncation=True)  # this folder
```
"""
_BY_WORD = """
Each word in the rows where it points to another label than the row's own, and how much the model
leans on it on dev (in per cent of the rows the answer follows when the word is exchanged for one of
another label, beyond what an exchange for one of its own label changes):

{table}
"""


def _card(
    method: str,
    config: OwnTraining,
    words: Sequence[str],
    result: Debiased,
) -> ModelCard:
    metadata = ModelCardData(library_name="transformers", pipeline_tag="text-classification")
    by_word = ""
    if len(result.by_word):
        columns, lines = words_shown(result.by_word)
        lines = [columns, ["---"] * len(columns), *lines]
        table = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
        by_word = _BY_WORD.format(table=table)
    return ModelCard(
        _CARD.format(
            metadata=metadata.to_yaml(),
            label=METHODS[method].label,
            model=Path(config.model).name,
            hidden=_hidden_words(method, words),
            table="\n".join(map(_card_line, result.table.itertuples())),
            footer=f"\n{result.footer}\n" if result.footer else "",
            by_word=by_word,
            settings=json.dumps(_changed_settings(config), indent=1),
        )
    )


def words_shown(by_word: pandas.DataFrame) -> tuple[list[str], list[list]]:
    """The columns of a table with a line for each word and set, and its lines; as text.

    A set without a row in which the word conflicts has no line, but for dev.
    """
    arms = [*dict.fromkeys(by_word["arm"])]
    leaning = [*dict.fromkeys(by_word.dropna(subset="leans")["arm"])]
    columns = ["word", "points to", "set", "n", *arms, *(f"leans: {arm}" for arm in leaning)]
    lines = []
    for (word, set_name), of_arms in by_word.groupby(["word", "set"], sort=False):
        first = of_arms.iloc[0]
        if not first["n"] and set_name != "dev":
            continue
        measured = {line.arm: line for line in of_arms.itertuples()}
        accuracies = [f"{measured[arm].accuracy:.1f}" if first["n"] else "" for arm in arms]
        shown = [_leans_shown(measured[arm]) for arm in leaning]
        lines.append([word, first["label"], set_name, first["n"], *accuracies, *shown])
    return columns, lines


def _leans_shown(line) -> str:
    """How much a model leans on a word, with the interval; "" where that was not measured."""
    return "" if np.isnan(line.leans) else f"{line.leans:.0f} [{line.low:.0f}, {line.high:.0f}]"


def _hidden_words(method: str, words: Sequence[str]) -> str:
    if not words:
        return "No words were given."
    hidden = "not hidden" if method == BASELINE else "hidden"
    return f"These words were {hidden}, in training texts alone: {', '.join(words)}."


def _card_line(line) -> str:
    accuracy = f"{line.accuracy:.1f} [{line.accuracy_low:.1f}, {line.accuracy_high:.1f}]"
    macro_f1 = f"{line.macro_f1:.1f} [{line.macro_f1_low:.1f}, {line.macro_f1_high:.1f}]"
    return f"| {line.set} | {line.rows} | {line.n} | {line.arm} | {accuracy} | {macro_f1} |"


def _changed_settings(config: OwnTraining) -> dict[str, object]:
    """Those that differ from their defaults; the words stand in the card's text."""
    left_out = {"precision": True, "settings": {"words"}}
    changed = config.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
    return {name: value for name, value in changed.items() if value != {}}
