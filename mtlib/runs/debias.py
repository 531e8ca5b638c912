"""From own rows and a list of words to a classifier that does not lean on them, beside one that may."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas
from datasets import ClassLabel, Dataset
from scipy.stats import binomtest

from mtlib.data.tables import TEXTS
from mtlib.encoding import predict, tokenise
from mtlib.errors import UserError, one_of
from mtlib.folding import phrases_of
from mtlib.labels import check_look_alike, known_labels, label_column
from mtlib.marking import MarkWords
from mtlib.masking import GivenWords
from mtlib.method import LearningRates, Stage
from mtlib.methods import METHODS, get_method, readers
from mtlib.methods.settings import MaskingSettings
from mtlib.objectives import FineTuning
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.runs.config import OwnTraining, default_rates, read_by
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.training import pretrained
from mtlib.runs.training import train as train_stages
from mtlib.suspect_words import pointed_labels, suspects

BASELINE = "fine_tuning"
DEFAULT = "masks_left"  # where words are given
_OWN_ALPHA = 0.0  # where words are given: small sets have too few steps for two losses
_RESAMPLES = 2000
_UNCUT = 1_000_000  # tokens
_LABEL = "label"


@dataclass
class Debiased:
    """What `debias` gives.

    Args:
        plm: the model that the method trained, as it is saved; `predict(plm, texts, names=True)`.
        table: a line for each set, part of its rows and arm: `n`, `accuracy` and `macro_f1` with 95 % intervals.
        words: the given words that point to a label in the training rows, as `suspects` lists them.
    """

    plm: SharedPLM
    table: pandas.DataFrame
    words: pandas.DataFrame


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
    report: Callable[[str], None] = print,
    **training,
) -> Debiased:
    """Fine-tuning, and a method that hides the given words, with the same rows, rates and seed; both are scored.

        data = read_table("reviews.csv", text="review", label="opinion")
        result = debias(data, suspects(data).word.head(9), out="model")
        print(result.table)

    The method's model is saved in `out`, a folder that transformers reads, with the words (`words.csv`), the table
    (`scores.csv`) and a card (`README.md`). The checkpoint with the best accuracy on `dev` is taken. A call that was
    cut off is resumed by the same call.

    Args:
        train: rows with `text` (and `text_pair`) and `label`.
        words: words and phrases to hide, in any case, or a table of `suspects` that holds no others. Without any the
            method masks as its settings say.
        out: a new or empty folder.
        dev: rows to choose the checkpoint on; None: a fifth of `train`.
        tests: further sets to score, by name.
        method: of `METHODS`; "fine_tuning" trains that alone. Default: "masks_left" with words (data/README.md compares
            recipes), "fine_tuning" without.
        settings: of the method, such as `{"alpha": 0.3}`.
        alone: without fine-tuning beside it, in half the time or less.
        report: is told, a sentence at a time, what was found in the data.
        training: settings of `OwnTraining`.

    In a part of the rows "agreeing" are those in which the words (the largest sum of z) point to the row's own label,
    "conflicting" those in which they point to another. Intervals: Wilson's for accuracy, bootstrap over rows for F1.

    Raises:
        UserError: fewer than two labels, or a label with one row; sets that do not fit one another; words of which none
            stands in a text; a folder that holds something else, or cannot be written; a bad setting.
    """
    out = Path(out)
    words = _given_words(words)
    if method is None and not words:
        report("no words are given: fine-tuning alone.")
    method = method or (DEFAULT if words else BASELINE)
    make_writable(out, empty=True)
    arms = {method: _config(method, words, settings, training)}
    arms |= (
        {} if alone or method == BASELINE else {BASELINE: _config(BASELINE, words, None, training)}
    )
    quiet_libraries()
    train, dev, tests = _checked(train, dev, tests or {}, report)
    if words and method == BASELINE:  # other methods look for them themselves
        MarkWords(words).check_found(train)
    sets, names = {"dev": dev} | tests, train.features[_LABEL].names
    table = suspects(train, None, 1, words=words)
    if everywhere := table.attrs["everywhere"]:
        report(f"in every row, where it tells nothing of labels: {', '.join(everywhere)}.")
    if words:
        told = ", ".join(words[:20]) + (", ..." if words[20:] else "")
        report(
            f"words to hide: {told}; {table.word.nunique()} of {len(words)} predict a label in the training rows."
        )
    models = {}
    for name, config in arms.items():  # first the one that reads the words, which may be wrong
        report(f"training: {METHODS[name].label}")
        models[name] = _trained(name, config, words, train, dev, out / ".work", report)
    scores = _compared(models, sets, table, names, arms[method].max_length, report)
    models[method].save_pretrained(out)
    table.to_csv(out / "words.csv", index=False)
    scores.to_csv(out / "scores.csv", index=False)
    (out / "README.md").write_text(_card(method, arms[method], words, scores), encoding="utf-8")
    shutil.rmtree(out / ".work", ignore_errors=True)
    return Debiased(models[method], scores, table)


# --- data ---


def _checked(
    train: Dataset, dev: Dataset | None, tests: Mapping[str, Dataset], report
) -> tuple[Dataset, Dataset, dict[str, Dataset]]:
    """The three, with the same columns and numbers of labels."""
    if not isinstance(tests, Mapping):
        raise UserError(
            f"tests is a {type(tests).__name__}; expected sets by name, such as {{'new': dataset}}."
        )
    if taken := {"train", "dev"} & {*tests}:
        raise UserError(
            f"a test set is called {min(taken)!r}, as a set of the training; give it another name."
        )
    train = _labelled("train", train, report)
    dev = None if dev is None else _labelled("dev", dev, report)
    tests = {name: _labelled(name, rows, report) for name, rows in tests.items()}
    check_look_alike(
        train.unique(_LABEL) if not isinstance(train.features[_LABEL], ClassLabel) else ()
    )
    if unread := [name for name in train.column_names if name not in (*TEXTS, _LABEL)]:
        report(
            f"columns that are not read: {', '.join(unread)}; texts are in `text` (and `text_pair`)."
        )
    train = train.select_columns([name for name in (*TEXTS, _LABEL) if name in train.column_names])
    if not isinstance(train.features.get(_LABEL), ClassLabel):
        train = train.class_encode_column(_LABEL)
    counts = Counter(map(train.features[_LABEL].int2str, train[_LABEL]))
    too_few = min(counts.values(), default=0) < 2 or (dev is None and len(train) < 5 * len(counts))
    if len(counts) < 2 or too_few:
        told = ", ".join(f"{name} {n:,}" for name, n in counts.most_common()[:-4:-1])
        raise UserError(
            f"there are too few training rows or labels (rows with the rarest: {told or 0}); expected two labels or "
            "more with two rows each, and without dev five times as many rows as labels. Drop or merge rare labels."
        )
    dev = None if dev is None else _like("dev", dev, train)
    tests = {name: _like(name, rows, train) for name, rows in tests.items()}
    if dev is None:
        both = train.train_test_split(0.2, seed=0, stratify_by_column=_LABEL)
        train, dev = both["train"], both["test"]
        report(
            f"no dev set given: {len(dev):,} of the rows are kept for it, {len(train):,} are trained on."
        )
    columns = [name for name in TEXTS if name in train.column_names]
    known = set(zip(*(train[name][:] for name in columns), strict=True))
    for name, rows in {"dev": dev, **tests}.items():
        if n := sum(row in known for row in zip(*(rows[name][:] for name in columns), strict=True)):
            report(f"{n:,} of {len(rows):,} rows of {name} stand in the training rows too.")
    return train, dev, tests


def _given_words(words: Iterable[str] | pandas.DataFrame | None) -> list[str]:
    """The words to hide, in order, each once."""
    if words is None:
        return []
    if isinstance(words, pandas.DataFrame):
        if "word" not in words:
            raise UserError(
                f"words is a table with {', '.join(map(str, words))}; expected a column word."
            )
        words = words["word"]
    return sorted({*phrases_of(words)})


def _labelled(name: str, rows: Dataset, report) -> Dataset:
    """The rows that have a label, in a column `label`."""
    if not isinstance(rows, Dataset):
        raise UserError(
            f"{name} is a {type(rows).__name__}; expected a Dataset, as read_table(path, text, label)."
        )
    column = label_column(rows.column_names)
    if column is None or {_LABEL, "labels"} <= {*rows.column_names}:
        raise UserError(
            f"{name} has the columns {', '.join(rows.column_names)}; expected one column label."
        )
    rows = rows.with_format(None)
    if column != _LABEL:
        rows = rows.rename_column(column, _LABEL)
    for text in TEXTS:
        for value in rows[text] if text in rows.column_names else ():
            if not isinstance(value, str):
                raise UserError(
                    f"{name} has {value!r} for a {text}; drop such rows, or read them with read_table."
                )
    labels = known_labels(name, rows[_LABEL][:], rows.features[_LABEL])
    if without := labels.count(None):
        report(f"{without:,} of {len(rows):,} rows of {name} have no label and are left out.")
        rows = rows.select([row for row, label in enumerate(labels) if label is not None])
    if not len(rows):
        raise UserError(f"{name} has no row with a text and a label; leave it out, or mend it.")
    return rows


def _like(name: str, rows: Dataset, train: Dataset) -> Dataset:
    """A set with the training set's columns, its labels numbered as there."""
    if missing := [column for column in train.column_names if column not in rows.column_names]:
        raise UserError(
            f"{name} has no column {missing[0]}; expected {', '.join(train.column_names)}."
        )
    feature, names = rows.features[_LABEL], train.features[_LABEL].names
    labels = rows[_LABEL][:]
    labels = [
        feature.int2str(label) if isinstance(feature, ClassLabel) else str(label)
        for label in labels
    ]
    if unknown := sorted({*labels} - {*names}):
        raise UserError(f"{name} has the label {unknown[0]!r}; {one_of(unknown[0], names)}")
    rows = rows.select_columns([column for column in train.column_names if column != _LABEL])
    return rows.add_column(_LABEL, list(map(names.index, labels)), feature=train.features[_LABEL])


# --- training ---


def _config(
    method: str, words: Sequence[str], settings: Mapping | None, training: Mapping
) -> OwnTraining:
    reads, own = get_method(method).settings, dict(settings or {})
    if words and method != BASELINE and not hasattr(reads, "policy"):
        able = ", ".join(
            name for name, other in METHODS.items() if hasattr(other.settings, "policy")
        )
        raise UserError(f"{method} masks nothing; leave the words out, or take one of {able}.")
    if unknown := sorted(own.keys() - reads.model_fields):
        others = readers(unknown[0])
        told = (
            f"methods that have it: {', '.join(others)}."
            if others
            else one_of(unknown[0], reads.model_fields)
        )
        raise UserError(f"{method} has no setting {unknown[0]!r}; {told}")
    if words and (unread := sorted(own.keys() & MaskingSettings.model_fields)):
        raise UserError(
            f"{unread[0]} is not read where words are given, for all of them are hidden; leave it out."
        )
    ours = {"alpha": _OWN_ALPHA if words else 0.6, "bias": "bag_of_words"}
    ours = {name: value for name, value in read_by(method, ours | own).items() if name in ours}
    training = {name: value for name, value in training.items() if value is not None}
    return OwnTraining(settings=reads(**ours | own), **training).resolved()


def _stages(method: str, config: OwnTraining, words: Sequence[str], tokenizer) -> tuple[Stage, ...]:
    settings = config.settings
    if words and hasattr(settings, "policy"):

        class Given(type(settings)):
            def policy(self, tokenizer):
                return GivenWords(words)

        settings = Given(**dict(settings))
    rates = default_rates(
        BASELINE, config.model
    )  # the same for both arms, so that the words are all that differs
    rates = rates if config.learning_rate is None else LearningRates.alike(config.learning_rate)
    stages = get_method(method).stages(settings, rates, tokenizer)
    stages = (
        stages if len(stages) > 1 else (replace(stages[0], name=method),)
    )  # which the progress names
    losses = [module for module in stages[-1].objective.modules() if isinstance(module, FineTuning)]
    if config.class_weights and not losses:
        raise UserError(
            f"class_weights is {config.class_weights!r}, which {method} does not read; leave it out."
        )
    for loss in losses:
        loss.class_weights = config.class_weights
    return stages


def _trained(
    method: str,
    config: OwnTraining,
    words: Sequence[str],
    train: Dataset,
    dev: Dataset,
    work: Path,
    report,
) -> SharedPLM:
    """The model of one arm; what is finished in the folder `work` is read from there, and what was begun resumed."""
    content = json.dumps([method, config.model_dump_json(), words, train.to_list(), dev.to_list()])
    folder = work / f"{method}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
    finished = folder / "finished"
    if finished.exists():
        return SharedPLM.from_pretrained(finished)
    plm = pretrained(config, train.features[_LABEL].names)
    if config.max_length is not None:  # without it `tokenise` says how many are cut
        lengths = tokenise(train, plm.tokenizer, _UNCUT)["length"]
        if n := sum(length > config.max_length for length in lengths):
            report(f"{n:,} of {len(train):,} texts are cut to {config.max_length} tokens.")
    trained = train_stages(
        config, _stages(method, config, words, plm.tokenizer), plm, train, folder, dev=dev
    )
    if trained.diverged:
        raise UserError(f"the loss of {method} was no longer finite; give a lower learning rate.")
    if config.patience and (epochs := trained.history[-1]["epoch"]) < config.epochs - 0.01:
        report(f"stopped after {epochs:.1f} epochs, since accuracy on dev no longer rose.")
    trained.plm.save_pretrained(folder / "part")
    (folder / "part").replace(finished)
    return trained.plm


# --- scores ---


def _compared(
    models: Mapping[str, SharedPLM],
    sets: Mapping[str, Dataset],
    words: pandas.DataFrame,
    names: Sequence[str],
    length: int | None,
    report,
) -> pandas.DataFrame:
    """A line for each set, part of its rows and arm, the last arm first."""
    lines = []
    for of, rows in sets.items():
        gold = np.array(rows[_LABEL])  # (n,)
        answers = {
            name: predict(plm, rows, length).argmax(1) for name, plm in models.items()
        }  # (n,) each
        for name, answered in answers.items():
            one = np.bincount(answered).argmax()
            if (answered == one).mean() > 0.95 and (gold == one).mean() < 0.8:
                report(
                    f"{name} calls nearly all of {of} {names[one]}; give more epochs, or another rate or seed."
                )
        for part, chosen in _parts(rows, words, names).items():
            for name in reversed(models):
                lines.append(
                    {
                        "set": of,
                        "rows": part,
                        "arm": name,
                        **_scores(gold[chosen], answers[name][chosen]),
                    }
                )
    return pandas.DataFrame(lines)


def _parts(rows: Dataset, words: pandas.DataFrame, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Which rows are in each part of a set, bool `(n,)`; parts without rows are left out."""
    pointed = pointed_labels(rows, words)
    own = [names[label] for label in rows[_LABEL]]
    agree = np.array(
        [word_label == label for word_label, label in zip(pointed, own, strict=True)], dtype=bool
    )
    none = np.array([word_label is None for word_label in pointed], dtype=bool)
    parts = {
        "all": np.ones(len(rows), dtype=bool),
        "agreeing": agree,
        "conflicting": ~agree & ~none,
    }
    return {
        name: chosen
        for name, chosen in parts.items()
        if chosen.any() and (name == "all" or len(words))
    }


def _scores(labels: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Accuracy and macro F1 in per cent with their intervals, from class numbers `(n,)` each."""
    k = 1 + max(labels.max(), answers.max())
    confusion = np.bincount(labels * k + answers, minlength=k * k)  # (k * k,), gold by answer
    n, correct = len(labels), int((labels == answers).sum())
    accuracy = binomtest(correct, n).proportion_ci(method="wilson")
    # rows drawn anew with replacement: that is a draw of counts of the confusion matrix
    drawn = np.random.default_rng(0).multinomial(n, confusion / n, _RESAMPLES).reshape(-1, k, k)
    low, high = np.percentile(_macro_f1(drawn), [2.5, 97.5])
    shares = {
        "accuracy": correct / n, "accuracy_low": accuracy.low, "accuracy_high": accuracy.high,
        "macro_f1": _macro_f1(confusion.reshape(1, k, k))[0], "macro_f1_low": low, "macro_f1_high": high,
    }  # fmt: skip
    return {"n": n} | {name: 100 * float(share) for name, share in shares.items()}


def _macro_f1(confusion: np.ndarray) -> np.ndarray:
    """Mean over the labels that are gold or answered of 2 TP / (gold + answered): `(m, k, k)` -> `(m,)`."""
    both = confusion.sum(1) + confusion.sum(2)  # (m, k)
    f1 = 2 * np.diagonal(confusion, axis1=1, axis2=2) / np.maximum(both, 1)
    return f1.sum(1) / (both > 0).sum(1)


# --- card ---

_CARD = """---
library_name: transformers
pipeline_tag: text-classification
---

# A text classifier ({label})

Base model: {model}. {hidden} `words.csv` has those that predict a label in the training rows; in agreeing rows they
point to the row's own label, in conflicting ones to another.

| set | rows | n | arm | accuracy, % | macro F1, % |
| --- | --- | ---: | --- | --- | --- |
{table}

Settings that are not the defaults:

```json
{settings}
```

```python
from transformers import pipeline

answer = pipeline("text-classification", "FOLDER", truncation=True)  # this folder
```
"""


def _card(method: str, config: OwnTraining, words: Sequence[str], scores: pandas.DataFrame) -> str:
    lines = [
        f"| {line.set} | {line.rows} | {line.n} | {line.arm} | {line.accuracy:.1f} [{line.accuracy_low:.1f}, "
        f"{line.accuracy_high:.1f}] | {line.macro_f1:.1f} [{line.macro_f1_low:.1f}, {line.macro_f1_high:.1f}] |"
        for line in scores.itertuples()
    ]
    hidden = f"These words were {'not ' * (method == BASELINE)}hidden, in training texts alone: {', '.join(words)}."
    changed = config.model_dump(mode="json", exclude_defaults=True, exclude={"precision"})
    return _CARD.format(
        label=METHODS[method].label,
        model=Path(config.model).name,
        hidden=hidden if words else "No words were given.",
        table="\n".join(lines),
        settings=json.dumps(
            {name: value for name, value in changed.items() if value != {}}, indent=1
        ),
    )
