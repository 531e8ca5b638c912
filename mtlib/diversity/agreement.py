"""How far two annotators, or a person and a machine, agree."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mtlib.errors import UserError

_RESAMPLES = 2000


class Agreement(NamedTuple):
    """Agreement of two lists of labels for the same items.

    `percent` of the `n` items have equal labels; `kappa` is Cohen's, and `low` to `high` is its 95 % interval.
    """

    n: int
    percent: float
    kappa: float
    low: float
    high: float


def agreement(a: Sequence, b: Sequence) -> Agreement:
    """Percentage agreement and Cohen's kappa, (p_o - p_e) / (1 - p_e).

    p_o is the share of equal labels, p_e what two annotators with these label frequencies would share by chance
    (Cohen 1960). The interval is the percentile bootstrap over items (2,000 resamples). Where both
    use the same single label throughout, p_e is 1, and kappa and its interval are nan.

    Raises:
        UserError: lists of different lengths, or empty.
    """
    if len(a) != len(b) or not len(a):
        raise UserError(f"expected two lists of labels for the same items, found {len(a)} and {len(b)} labels.")
    names = sorted({*a, *b}, key=str)
    rows, columns = ([names.index(label) for label in labels] for labels in (a, b))
    table = np.zeros((len(names), len(names)), dtype=int)
    np.add.at(table, (rows, columns), 1)
    # tables of the resampled items: scipy's bootstrap of scikit-learn's kappa takes seconds and other draws
    resampled = np.random.default_rng(0).multinomial(len(a), table.ravel() / len(a), size=_RESAMPLES)
    kappas = _kappa(resampled.reshape(-1, *table.shape))
    kappas = kappas[~np.isnan(kappas)]
    low, high = np.percentile(kappas, [2.5, 97.5]).tolist() if len(kappas) else (float("nan"), float("nan"))
    return Agreement(len(a), 100 * float(np.trace(table)) / len(a), float(_kappa(table[None])[0]), low, high)


def _kappa(tables: np.ndarray) -> np.ndarray:
    """`(n, labels, labels)` counts -> `(n,)`."""
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    observed = np.trace(shares, axis1=1, axis2=2)
    by_chance = (shares.sum(axis=2) * shares.sum(axis=1)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(by_chance < 1, (observed - by_chance) / (1 - by_chance), np.nan)
