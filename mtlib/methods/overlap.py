"""The bias models for entailment, and that of Clark et al.: how the words of the hypothesis stand in the premise."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mtlib.methods.bias import BiasModel, words
from mtlib.methods.word_vectors import read_word_vectors
from mtlib.plm import SharedPLM


class EntailmentBias(BiasModel):
    """Logistic regression on features of a pair: it tells entailment from the rest, with balanced classes.

    Neutral and contradiction get half of the rest each, as in the code of Clark et al.
    """

    pair = True

    def classifier(self):
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=100.0, class_weight="balanced", solver="liblinear")

    def labels(self, labels: np.ndarray) -> np.ndarray:
        return (labels != 0).astype(int)  # entailment is 0, in GLUE's order

    def probabilities(self, classifier, features: np.ndarray, n_labels: int) -> np.ndarray:
        two = super().probabilities(classifier, features, 2)  # entailment, or not
        return np.hstack([two[:, :1], np.repeat(two[:, 1:] / (n_labels - 1), n_labels - 1, axis=1)])


class Overlap(EntailmentBias):
    """Clark et al. 2019, for entailment: seven features of how the hypothesis's words stand in the premise.

    They are: the hypothesis is a contiguous part of the premise; all its words are in the premise; the share of them
    that are; log max(|P| - |H|, 1), in words; and over the words of the hypothesis the mean, the smallest and the
    second smallest of the best cosine with a word of the premise.

    A word without a vector has cosine 0 in the mean, and is passed over by the two smallest, as in the code of Clark et
    al. Unlike there, a word that stands in the premise has cosine 1 without a vector too, and words are looked up in
    lower case.

    Args:
        vectors: file of word vectors (`read_word_vectors`), for example `crawl-300d-2M.vec`, which Clark et al. take.
            Without it the trunk's own input embeddings are taken, a word's being the mean of its pieces'.
        faithful_to_code: a hypothesis counts as part of the premise where its letters are, as in the code of Karimi
            Mahabadi et al.: there "cat sat" is part of "the tomcat sat".
    """

    def __init__(self, vectors: str | Path | None = None, faithful_to_code: bool = False):
        self.vectors, self.faithful_to_code = vectors, faithful_to_code

    def features(self, plm: SharedPLM, texts, pairs) -> np.ndarray:
        rows = [(words(a), words(b)) for a, b in zip(texts, pairs, strict=True)]
        vectors = None
        if self.vectors is not None:
            vectors = read_word_vectors(self.vectors, {word for row in rows for text in row for word in text})
        unit_vectors = _UnitVectors(vectors, plm)
        return np.array([self._row(premise, hypothesis, unit_vectors) for premise, hypothesis in rows])

    def _row(self, premise: list[str], hypothesis: list[str], vectors: "_UnitVectors") -> list[float]:
        inside = [word in premise for word in hypothesis]
        part = is_part(hypothesis, premise, by_letters=self.faithful_to_code)
        cosines = vectors.best_cosines(hypothesis, premise)
        best = sorted(cosine for cosine in cosines if cosine is not None) or [0.0]
        return [
            float(part),
            float(all(inside)),
            sum(inside) / max(len(inside), 1),
            np.log(max(len(premise) - len(hypothesis), 1)),
            sum(cosine or 0.0 for cosine in cosines) / max(len(cosines), 1),
            best[0],
            best[min(1, len(best) - 1)],
        ]


def is_part(inner: list[str], outer: list[str], by_letters: bool = False) -> bool:
    """Whether the words of `inner` stand in `outer` one after the other; `by_letters`: also within longer words."""
    if by_letters:
        return " ".join(inner) in " ".join(outer)
    return any(outer[start : start + len(inner)] == inner for start in range(len(outer) - len(inner) + 1))


class _UnitVectors:
    """Vectors of length 1, each looked up once; 0 for a word that has none."""

    def __init__(self, vectors: Mapping[str, np.ndarray] | None, plm: SharedPLM):
        self.vectors, self.tokenizer, self.known = vectors, plm.tokenizer, {}
        self.pieces = plm.trunk.get_input_embeddings().weight.detach().float().cpu().numpy()  # (vocab, hidden)
        self.size = self.pieces.shape[1] if vectors is None else len(next(iter(vectors.values()), ()))

    def best_cosines(self, inner: list[str], outer: list[str]) -> list[float | None]:
        """For each word of `inner`, the largest cosine with a word of `outer`.

        1 where it is one of them; else None where it, or all of `outer`, has no vector.
        """
        if not inner or not outer:
            return [None] * len(inner)
        of_inner, of_outer = self._stacked(inner), self._stacked(outer)  # (words, size)
        with_vector = of_outer.any(axis=1)
        best = (of_inner @ of_outer[with_vector].T).max(axis=1, initial=-1.0)
        return [
            1.0 if word in outer else float(cosine) if vector.any() and with_vector.any() else None
            for word, cosine, vector in zip(inner, best, of_inner, strict=True)
        ]

    def _stacked(self, of: list[str]) -> np.ndarray:
        for word in set(of) - self.known.keys():
            vector = self._vector(word)
            self.known[word] = vector / max(np.linalg.norm(vector), 1e-12)
        return np.stack([self.known[word] for word in of])

    def _vector(self, word: str) -> np.ndarray:
        if self.vectors is not None:
            return self.vectors.get(word, np.zeros(self.size))
        ids = self.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        return self.pieces[ids].mean(axis=0) if ids else np.zeros(self.size)
