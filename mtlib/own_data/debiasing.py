"""A classifier that does not lean on given words, from rows of one's own, beside one that may.

`debias` prepares the sets, trains the two, and scores them where the words mislead.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas
from datasets import Dataset

from mtlib.errors import UserError
from mtlib.own_data.preparing import OwnSets, Report, prepare
from mtlib.own_data.reading import Words, listed_words
from mtlib.own_data.results import Debiased, model_card, save
from mtlib.own_data.scoring import leans_of_words, predict_sets, score, score_words
from mtlib.own_data.suspects import suspects
from mtlib.own_data.training import (
    BASELINE,
    MASKS_LEFT,
    arms_of,
    check_bias,
    check_pairs,
    train_arms,
)
from mtlib.paths import make_writable
from mtlib.runs.environment import quiet_libraries
from mtlib.runs.locks import claim
from mtlib.spans import WordSpans

DEFAULT = MASKS_LEFT  # where words are given
_LISTED = 20  # words, in a message


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
        alone: without fine-tuning beside it.
        report: called with a sentence on what was found in the data.
        training: settings of `OwnTraining`.

    In the column `rows` "agreeing" are those whose words (the largest sum of z) point to the row's
    own label, "conflicting" those whose words point to another. Intervals: Wilson's for
    accuracy, bootstrap over rows for F1.

    Raises:
        UserError: fewer than two labels, or a label with one row; sets that do not fit one another;
            words of which none stands in a text; a folder that holds something else, or cannot be
            written; a bad setting.
        Busy: another process trains in this folder.
    """
    out = Path(out)
    words = _given_words(words)
    if method is None:
        method = _default_method(words, report)
    make_writable(out, empty=not (out / ".work").exists())
    arms = arms_of(method, words, settings, training, alone)
    quiet_libraries()
    sets = prepare(train, dev, tests, report)
    check_pairs(arms[method].settings, sets)
    check_bias(arms[method].settings, sets)
    if method == BASELINE:  # other methods look for the words themselves
        _check_words_stand_there(words, sets)
    pointing = suspects(sets.train, top=None, min_count=1, words=words)
    _report_words(words, pointing, report)
    work = out / ".work"
    work.mkdir(exist_ok=True)
    with claim(work / "training.lock"):
        models = train_arms(arms, sets, work, report)
        predictions = predict_sets(models, sets, words, arms[method].max_length)
        table = score(predictions, sets, pointing, report)
        by_word = score_words(predictions, sets, pointing)
        if len(by_word):
            leaned = leans_of_words(models, sets, pointing, arms[method].max_length, report)
            by_word = by_word.merge(leaned, how="left")
        baseline = models[BASELINE] if method != BASELINE and BASELINE in models else None
        result = Debiased(models[method], table, pointing, by_word, baseline)
        save(result, model_card(method, arms[method], words, result), out)
    return result


def _given_words(words: Words | None) -> tuple[str, ...]:
    """The words to hide, sorted, each once."""
    if words is None:
        return ()
    if isinstance(words, pandas.DataFrame) and "mask" in words:
        raise UserError(
            "words is a table with a column mask, but all words of a table are hidden; give the "
            "words that are marked, such as words.word[words['mask'] == 'x']."
        )
    return tuple(sorted({*listed_words(words)}))


def _default_method(words: Sequence[str], report: Report) -> str:
    if words:
        return DEFAULT
    report("no words are given: fine-tuning alone.")
    return BASELINE


def _check_words_stand_there(words: Sequence[str], sets: OwnSets) -> None:
    """Warn of words that stand in no training text, or raise `UserError` if none stands in one."""
    if words:
        WordSpans(words).rows_with_words(sets.train)


def _report_words(words: Sequence[str], pointing: pandas.DataFrame, report: Report) -> None:
    """Say which words are hidden, and what a table of `suspects` knows of the training rows."""
    if copies := pointing.attrs["copies"]:
        n_rows = pointing.attrs["rows"]
        report(f"{copies:,} of {n_rows:,} training rows are copies of others.")
    if words:
        listed = ", ".join(words[:_LISTED])
        if len(words) > _LISTED:
            listed += ", ..."
        n_pointing = pointing["word"].nunique()
        of_them = f"{n_pointing} of {len(words)} predict a label in the training rows"
        report(f"words to hide: {listed}; {of_them}.")
