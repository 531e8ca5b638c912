"""Word vectors in the text format of fastText and GloVe."""

from collections.abc import Set
from pathlib import Path

import numpy as np

from mtlib.errors import UserError

EXPECTED = "expected one of word vectors as text, such as fastText's or GloVe's: a word and its numbers in each line."


def read_word_vectors(path: str | Path, words: Set[str]) -> dict[str, np.ndarray]:
    """The vectors of those `words` that the file has, each `(size,)`.

    A line is a word and its numbers, with blanks between; fastText's first line, which holds the two sizes, is passed
    over. The first line of a word says how many numbers there are, and the last so many parts of a line are its
    numbers, for some of GloVe's words have blanks in them. Only those of the wanted words are read, since such files
    have millions of lines.

    Raises:
        UserError: no such file; a wanted word's line without so many finite numbers; no vector for any of the words.
    """
    if not Path(path).is_file():
        raise UserError(f"{path} is no file; {EXPECTED}")
    vectors, size = {}, 0
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(map(str.rstrip, lines), start=1):
            if number == 1 and line.count(" ") == 1:
                continue
            size = size or line.count(" ")
            word, *numbers = line.rsplit(" ", size) if size else [line]
            if word in words:
                vectors.setdefault(word, _vector(numbers, size, f"{path}, line {number}: {word!r}"))
    if words and not vectors:
        raise UserError(
            f"{path} has a vector for none of the {len(words)} words of the texts; expected a line for each word, in "
            "lower case, the word first and then its numbers."
        )
    return vectors


def _vector(numbers: list[str], size: int, place: str) -> np.ndarray:
    try:
        vector = np.array(numbers, dtype=np.float32)  # (size,)
    except ValueError:
        vector = np.array([])
    if not len(vector) or len(vector) != size or not np.isfinite(vector).all():
        raise UserError(f"{place} is not followed by {size or 'any'} finite numbers.")
    return vector
