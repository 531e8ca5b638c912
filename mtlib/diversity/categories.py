"""The four categories of fillings of the paper's Section V, and what can be counted without a judge.

Rows are those of `fillings.record_fillings`. Persons say whether a filling is plausible (`annotation.as_judge`).
"""

from collections.abc import Callable, Sequence

import pandas

CATEGORIES = ("same", "changed", "plausible_different", "implausible", "unk")  # by gravity
# the paper's shares of examples: BERT, 200 training examples per task, three epochs, judged by two persons
PAPER_SHARES = {
    "plain_mlm": {"same": 0.76, "plausible_different": 0.18, "implausible": 0.05, "unk": 0.01},
    "mask_tuning": {"same": 0.37, "plausible_different": 0.60, "implausible": 0.02, "unk": 0.01},
}


def changed(rows: pandas.DataFrame) -> pandas.Series:
    """Whether another token than the original was filled in."""
    return rows["predicted_token"] != rows["original_token"]


def changed_by_epoch(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Per epoch the masked places `n`, those `changed`, and those filled with the unknown token, `unk`."""
    counted = pandas.DataFrame({"n": 1, "changed": changed(rows), "unk": rows["unk"]}).astype(int)
    return counted.groupby(rows["epoch"]).sum()


def open_questions(rows: pandas.DataFrame) -> pandas.DataFrame:
    """The rows that need a judge: neither the original token nor the unknown one was filled in."""
    return rows[changed(rows) & ~rows["unk"]]


def categorise(
    rows: pandas.DataFrame, plausible: Callable[[pandas.DataFrame], Sequence[bool]] | None = None
) -> pandas.Series:
    """The category of each row.

    "unk" where the unknown token was predicted, "same" where the original token was, else "changed"; with a judge
    "plausible_different" or "implausible" in its place. `plausible` gets the rows in question and returns a verdict for
    each.
    """
    category = pandas.Series("changed", index=rows.index).where(changed(rows), "same").mask(rows["unk"], "unk")
    differing = open_questions(rows)
    if plausible and len(differing):
        verdicts = pandas.Series(list(plausible(differing)), index=differing.index, dtype=bool)
        category[differing.index] = verdicts.map({True: "plausible_different", False: "implausible"})
    return category


def example_categories(rows: pandas.DataFrame, categories: pandas.Series, over_epochs: bool = False) -> pandas.Series:
    """The category of each `(epoch, uid)` of one arm; with `over_epochs`, of each `uid`.

    That of its gravest place, in the order of `CATEGORIES`. An example without a masked place is not counted. The paper
    counts examples over three epochs ("at least in one of the three epochs") and does not say how it ranks the four.
    """
    gravity = categories.map(CATEGORIES.index)
    gravest = gravity.groupby([rows[key] for key in (["uid"] if over_epochs else ["epoch", "uid"])]).max()
    return gravest.map(dict(enumerate(CATEGORIES)))
