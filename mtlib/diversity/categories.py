"""How diverse the filled texts are: the categories of the paper's Section V, and measures that need no judge.

Rows are those of `fills.record_fills`; whether a filling is plausible is the verdict of a judge, `PlausibilityJudge`
(a proxy) or persons (`mtlib.annotation`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from datasets import Dataset
from torch.nn.functional import cosine_similarity

from mtlib.analysis.statistics import wilson
from mtlib.errors import UserError
from mtlib.plm import SharedPLM

Category = Literal["same", "plausible_different", "implausible", "unk"]
CATEGORIES: tuple[Category, ...] = ("same", "plausible_different", "implausible", "unk")
# the paper's shares of examples: BERT, 200 training examples per task, three epochs, judged by two persons
PAPER_SHARES: dict[str, dict[Category, float]] = {
    "plain_mlm": {"same": 0.76, "plausible_different": 0.18, "implausible": 0.05, "unk": 0.01},
    "mask_tuning": {"same": 0.37, "plausible_different": 0.60, "implausible": 0.02, "unk": 0.01},
}
# the gravest of an example's places decides
_GRAVITY = ("unk", "implausible", "plausible_different", "same")
_BATCH = 64


class Share(NamedTuple):
    """`count` of `n`, and the 95 % Wilson interval of the share (nan where n is 0)."""

    count: int
    n: int
    share: float
    low: float
    high: float


def share(count: int, n: int) -> Share:
    """A share with its 95 % Wilson score interval."""
    if n == 0:
        return Share(0, 0, math.nan, math.nan, math.nan)
    low, high = wilson(count, n)
    return Share(count, n, count / n, float(low), float(high))


# ---------------------------------------------------------------------------------------------------------- categories


def categorise(rows: Sequence[dict], plausible: Callable[[list[dict]], Sequence[bool]]) -> list[Category]:
    """The category of each row.

    "unk" where the unknown token was predicted, "same" where the original token was; of the others, `plausible` is
    asked, which gets their rows and returns a verdict for each.
    """
    differing = [row for row in rows if not row["unk"] and row["predicted_token"] != row["original_token"]]
    verdicts = list(plausible(differing)) if differing else []
    if len(verdicts) != len(differing):
        raise UserError(f"the judge gave {len(verdicts)} verdicts on {len(differing)} rows; expected one for each.")
    verdict = iter(verdicts)
    categories: list[Category] = []
    for row in rows:
        if row["unk"]:
            categories.append("unk")
        elif row["predicted_token"] == row["original_token"]:
            categories.append("same")
        else:
            categories.append("plausible_different" if next(verdict) else "implausible")
    return categories


def example_categories(
    rows: Sequence[dict], categories: Sequence[Category], over_epochs: bool = False
) -> dict[tuple[int, str], Category] | dict[str, Category]:
    """The category of each `(epoch, uid)`; with `over_epochs`, of each `uid`.

    An example with several masked places is "unk" if any place is, else "implausible" if any is, else
    "plausible_different" if any differs, else "same". An example without a masked place is not counted. The paper
    counts examples over three epochs ("at least in one of the three epochs") and does not say how it ranks the four.

    Raises:
        UserError: rows of several arms, which would be counted as one example.
    """
    if len({row.get("arm") for row in rows}) > 1:
        raise UserError("the rows are of several arms; categorise one arm at a time.")
    found: dict = {}
    for row, category in zip(rows, categories, strict=True):
        key = row["uid"] if over_epochs else (row["epoch"], row["uid"])
        found[key] = min(category, found.get(key, "same"), key=_GRAVITY.index)
    return found


def category_shares(categories: Iterable[Category]) -> dict[Category, Share]:
    """The share of each category, in the order of `CATEGORIES`."""
    counts = Counter(categories)
    return {name: share(counts[name], counts.total()) for name in CATEGORIES}


# -------------------------------------------------------------------------------------------------- without a judge


def distinct_fillers(rows: Sequence[dict]) -> int:
    """How many different tokens the masked places were filled with."""
    return len({row["predicted_token"] for row in rows})


def filler_entropy(rows: Sequence[dict]) -> float:
    """-sum p log2 p over the filled-in tokens, in bits: 0 if all are one token, log2 n if all n differ."""
    counts = Counter(row["predicted_token"] for row in rows)
    return sum(count / len(rows) * math.log2(len(rows) / count) for count in counts.values())


def changed_by_epoch(rows: Sequence[dict]) -> dict[int, Share]:
    """Per epoch the share of masked places that were filled with another token than the original."""
    changed: dict[int, list[bool]] = {}
    for row in rows:
        changed.setdefault(row["epoch"], []).append(row["predicted_token"] != row["original_token"])
    return {epoch: share(sum(flags), len(flags)) for epoch, flags in sorted(changed.items())}


def embedding_distances(plm: SharedPLM, examples: Dataset, perturbed: Sequence[dict]) -> list[float]:
    """1 - cos(m(x), m(x_hat)) of each perturbed example and its original, in [0, 2].

    m is the mean of the trunk's final states over an example's tokens, special ones included.

    Args:
        plm: give an untouched one, so that the measure is the same for every arm.
        examples: the originals, with `uid`, `text` (`text_pair`).
        perturbed: from `fills.perturbed_examples`.
    """
    of_original = dict(zip(examples["uid"], _means(plm, list(examples)), strict=True))
    means = _means(plm, perturbed)
    return [
        max(0.0, 1 - cosine_similarity(of_original[row["uid"]], mean, dim=0).item())
        for row, mean in zip(perturbed, means, strict=True)
    ]


def label_consistency(plm: SharedPLM, examples: Dataset, perturbed: Sequence[dict]) -> Share:
    """The share of perturbed examples that `plm`'s classifier gives the same label as their originals."""
    logits = (torch.cat(list(_batches(plm, list(rows), plm.classify))) if len(rows) else torch.zeros(0, 1)
              for rows in (examples, perturbed))  # fmt: skip
    original, now = (part.argmax(dim=-1).tolist() for part in logits)
    of_original = dict(zip(examples["uid"], original, strict=True))
    same = [of_original[row["uid"]] == label for row, label in zip(perturbed, now, strict=True)]
    return share(sum(same), len(same))


def self_bleu(texts: Sequence[str]) -> float:
    """Mean BLEU of each text with all others as references, 0 to 100: the lower, the more diverse (Zhu et al. 2018).

    Sentence BLEU of sacrebleu, lower-cased. Time grows with the square of the number of texts: 200 take seconds. For
    the versions that one example took in its epochs, call it with these alone.

    Raises:
        UserError: fewer than two texts; sacrebleu is not installed.
    """
    if len(texts) < 2:
        raise UserError(f"self-BLEU compares texts with one another; expected at least 2, found {len(texts)}.")
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise UserError("self-BLEU needs sacrebleu; install it with `pip install mtlib[notebooks]`.") from error
    bleu = BLEU(lowercase=True, effective_order=True)
    scores = [bleu.sentence_score(text, [*texts[:i], *texts[i + 1 :]]).score for i, text in enumerate(texts)]
    return sum(scores) / len(scores)


def _means(plm: SharedPLM, rows: Sequence[dict]) -> list[torch.Tensor]:
    def mean(batch) -> torch.Tensor:
        states = plm.final_states(batch).float()  # (batch, seq, hidden)
        weights = batch["attention_mask"].unsqueeze(-1)  # (batch, seq, 1)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)  # (batch, hidden)

    return [row for part in _batches(plm, rows, mean) for row in part]


@torch.no_grad()
def _batches(plm: SharedPLM, rows: Sequence[dict], apply: Callable) -> Iterable[torch.Tensor]:
    plm.eval()
    for first in range(0, len(rows), _BATCH):
        part = rows[first : first + _BATCH]
        pairs = [row["text_pair"] for row in part] if "text_pair" in part[0] else None
        batch = plm.tokenizer([row["text"] for row in part], pairs, padding=True, truncation=True, return_tensors="pt")
        yield apply(batch.to(plm.device))
