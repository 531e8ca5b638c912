"""Measures of diversity that need no judge. Rows are those of `fillings.record_fillings`."""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from datasets import Dataset
from torch.nn.functional import cosine_similarity

from mtlib.contexts import evaluating
from mtlib.diversity.categories import Share, share
from mtlib.encoding import Collator, batches_by_length, tokenise
from mtlib.errors import UserError
from mtlib.plm import SharedPLM


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
        perturbed: from `fillings.perturbed_examples`.
    """
    of_original = dict(zip(examples["uid"], _means(plm, list(examples)), strict=True))
    means = _means(plm, perturbed)
    return [
        max(0.0, 1 - cosine_similarity(of_original[row["uid"]], mean, dim=0).item())
        for row, mean in zip(perturbed, means, strict=True)
    ]


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


@torch.no_grad()
def _means(plm: SharedPLM, rows: Sequence[dict]) -> list[torch.Tensor]:
    if not rows:
        return []
    texts = Dataset.from_list([{name: row[name] for name in ("text", "text_pair") if name in row} for row in rows])
    examples = tokenise(texts, plm.tokenizer, plm.longest)
    means = torch.empty(len(rows), plm.config.hidden_size)
    with evaluating(plm):
        for numbers, batch in batches_by_length(examples, Collator(plm.tokenizer), plm.device):
            states = plm.final_states(batch).float()  # (batch, seq, hidden)
            weights = batch["attention_mask"].unsqueeze(-1)  # (batch, seq, 1)
            means[numbers] = ((states * weights).sum(dim=1) / weights.sum(dim=1)).cpu()  # (batch, hidden)
    return list(means)
