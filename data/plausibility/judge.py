"""A proxy for a person's "does this word fit here?": tags of the two words, and a masked LM's odds between them.

`fit.py` fits its weights to the hand labels and measures how well it agrees with those that it was not fitted to. It
knows grammar better than sense: read its counts beside that agreement.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas
import torch

from mtlib.contexts import evaluating
from mtlib.errors import UserError
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span

WEIGHTS_FILE = Path(__file__).with_name("weights.json")
FEATURES = ("same_part_of_speech", "same_tag", "known_word", "log_odds", "neighbour_log_odds")
NEIGHBOURS = 2
_BATCH = 32
# tags that stand in the same places: "their" and "the", "but" and "since"
_STANDS_AS = {"PRON/PRP$": "DET", "CCONJ": "SCONJ"}
_CLIP = 10.0


class PlausibilityJudge:
    """plausible <=> bias + sum of weight x feature >= 0, over the five `features`.

    Args:
        scorer: the masked LM that gives the odds. The default is the untouched bundled model: for an arm that started
            from it, it is not an independent judge; pass another (a hub model) to have one.
        weights: by feature, and "bias"; default those fitted to the hand labels with the bundled model. Weights for
            another scorer come from `fit_weights` in fit.py.
    """

    def __init__(self, scorer: SharedPLM | None = None, weights: Mapping[str, float] | None = None):
        mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        self.scorer = mini if scorer is None else scorer
        self.probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)
        self.weights = json.loads(WEIGHTS_FILE.read_text()) if weights is None else weights

    def __call__(self, rows: pandas.DataFrame) -> np.ndarray:
        """Whether each filling is plausible, by proxy, `(n,)`.

        A filling without a readable word, or in place of none (a blank, half a character: byte-level vocabularies have
        such entries), is implausible.
        """
        verdicts = np.array([self._has_words(row) for row in rows.itertuples()], dtype=bool)
        verdicts[verdicts] = plausibility_score(self.evidence(rows[verdicts]), self.weights) >= 0
        return verdicts

    def evidence(self, rows: pandas.DataFrame) -> pandas.DataFrame:
        """What the judge knows of each row, which has `text`, `start`, `end` and `predicted`.

        Each place is judged by itself: other places of the same example are as in the original. The columns:

        `original_tag`, `filler_tag` (from `PosProbe`, each word in its own sentence); `known_word`, 1 where the
        filler's word is one entry of the scorer's vocabulary, or the probe takes it for a name, for otherwise it may
        be no word at all ("re" in place of "spell" makes "rebinding"); `log_odds`, log p(filler | context) -
        log p(original | context), in nats (see `word_scores`); `neighbour_log_odds`, the same difference for the two
        tokens on each side, which a word that does not agree with them makes unlikely ("what *is* a librarian earn").
        """
        rows = [*rows.itertuples()]
        filled = [row.text[: row.start] + row.predicted + row.text[row.end :] for row in rows]
        filled_places = [Span(row.start, row.start + len(row.predicted)) for row in rows]
        filler_tags = self.probe.tag(filled, filled_places)
        words = [_words(row) for row in rows]
        contexts = [(before, word, after) for before, *both, after in words for word in both]
        numbers = {context: number for number, context in enumerate(dict.fromkeys(contexts))}  # arms share many
        scores = word_scores(self.scorer, [*numbers])[[numbers[context] for context in contexts]]
        was, now = scores[0::2], scores[1::2]  # (n, 3)
        is_name = [tag.startswith("PROPN") for tag in filler_tags]
        return pandas.DataFrame(
            {
                "original_tag": self.probe.tag([row.text for row in rows], [Span(row.start, row.end) for row in rows]),
                "filler_tag": filler_tags,
                "known_word": ((now[:, 2] == 1) | np.array(is_name, dtype=bool)).astype(int),
                "log_odds": now[:, 0] - was[:, 0],
                "neighbour_log_odds": now[:, 1] - was[:, 1],
            }
        )

    def _has_words(self, row) -> bool:
        words = row.predicted.strip(), row.text[row.start : row.end].strip()
        return all(reader.tokenizer.tokenize(word) for reader in (self.probe, self.scorer) for word in words)


def features(evidence: pandas.DataFrame) -> np.ndarray:
    """`(n, 5)`, in the order of `FEATURES`: 0 or 1, and log-odds divided by 10 and cut off at -1 and 1.

    Tags are the same if they agree in part of speech and, where they tell, in number, tense and degree; possessives
    count as determiners and all conjunctions as one, for parts of speech also names as nouns.
    """
    tags = evidence[["original_tag", "filler_tag"]].replace(_STANDS_AS)
    kinds = tags.apply(lambda tag: tag.str.partition("/")[0]).replace("PROPN", "NOUN")
    same = [part["original_tag"] == part["filler_tag"] for part in (kinds, tags)]
    odds = evidence[["log_odds", "neighbour_log_odds"]].clip(-_CLIP, _CLIP) / _CLIP
    return np.column_stack([*same, evidence["known_word"], odds]).astype(float)


def plausibility_score(evidence: pandas.DataFrame, weights: Mapping[str, float]) -> np.ndarray:
    """bias + sum of weight x feature, `(n,)`."""
    return weights["bias"] + features(evidence) @ [weights[name] for name in FEATURES]


def word_scores(plm: SharedPLM, words: Sequence[tuple[str, str, str]]) -> np.ndarray:
    """How likely a masked LM finds each `(before, word, after)`: log p(word), log p(neighbours), pieces; `(n, 3)`.

    The first is log p(word | before, after), in nats. For a word of one piece that is the masked LM's log-probability
    at its place. For one of several pieces it is the sum over pieces j of log p(piece j | pieces before j, with pieces
    j and later masked), the chain rule, which does not reward a rare word for its pieces' giving one another away
    (PLL-word-l2r, Kauf and Ivanova 2023). The second is the sum of log p(token | all others) over the two ordinary
    tokens on each side.

    Raises:
        UserError: a word without a token, or behind the model's longest input.
    """
    asked = [(number, *query) for number, word in enumerate(words) for query in _queries(plm.tokenizer, *word)]
    asked.sort(key=lambda query: len(query[2]["input_ids"]))  # like lengths together: little padding
    scores = np.zeros((len(words), 3))
    with evaluating(plm):
        for first in range(0, len(asked), _BATCH):
            part = asked[first : first + _BATCH]
            for (number, of_neighbour, *_), log_p in zip(part, _log_p(plm, part), strict=True):
                scores[number, int(of_neighbour)] += log_p
                scores[number, 2] += not of_neighbour
    return scores


def _queries(tokenizer, before: str, word: str, after: str) -> list[tuple[bool, dict, int, int]]:
    """Passes of the masked LM: is it a neighbour's, the inputs, and the first and last token to mask.

    The log-probability of the first one is wanted.
    """
    text = before + word + after
    encoded = tokenizer(text, truncation=True, return_offsets_mapping=True, return_special_tokens_mask=True)
    offsets, special = encoded.pop("offset_mapping"), encoded.pop("special_tokens_mask")
    start, end = len(before) + len(word) - len(word.lstrip()), len(before) + len(word.rstrip())
    pieces = [i for i, (left, right) in enumerate(offsets) if left < end and start < right and not special[i]]
    if not pieces:
        raise UserError(f"{word!r} has no token in {text!r}; it is blank, or behind the model's longest input.")
    first, last = pieces[0], pieces[-1]
    near = [*range(first - NEIGHBOURS, first), *range(last + 1, last + 1 + NEIGHBOURS)]
    near = [i for i in near if 0 <= i < len(offsets) and not special[i]]
    return [(False, encoded, i, last) for i in range(first, last + 1)] + [(True, encoded, i, i) for i in near]


@torch.no_grad()
def _log_p(plm: SharedPLM, asked: list[tuple]) -> list[float]:
    # on the right: positions are those of the text alone
    batch = plm.tokenizer.pad([encoded for _, _, encoded, *_ in asked], padding_side="right", return_tensors="pt")
    batch = batch.to(plm.device)
    places = torch.arange(batch["input_ids"].shape[1], device=plm.device)  # (seq,)
    at, last = torch.tensor([query[3:] for query in asked], device=plm.device).T[..., None]  # (batch, 1) each
    masked_ids = batch["input_ids"].masked_fill((places >= at) & (places <= last), plm.tokenizer.mask_token_id)
    logits = plm.masked_lm_logits(batch, at, masked_ids)[:, 0]  # (batch, vocab)
    original_ids = batch["input_ids"].gather(1, at)  # (batch, 1)
    return logits.float().log_softmax(dim=-1).gather(1, original_ids)[:, 0].tolist()


def _words(row) -> tuple[str, str, str, str]:
    """(before, original, filled, after), the place grown until it holds whole words in both texts."""
    before, original, after = row.text[: row.start], row.text[row.start : row.end], row.text[row.end :]
    left, right = len(before), 0
    if original[:1].isalnum() or row.predicted[:1].isalnum():
        while left and before[left - 1].isalnum():
            left -= 1
    if original[-1:].isalnum() or row.predicted[-1:].isalnum():
        while right < len(after) and after[right].isalnum():
            right += 1
    head, tail = before[left:], after[:right]
    return before[:left], head + original + tail, head + row.predicted + tail, after[right:]
