"""Word vectors in the text format of fastText and GloVe."""

from collections.abc import Set
from pathlib import Path

import numpy as np

from mtlib.errors import UserError


def read_word_vectors(path: str | Path, words: Set[str]) -> dict[str, np.ndarray]:
    """The vectors of those `words` that the file has, each `(size,)`.

    A line is a word and its numbers, with blanks between; fastText's first line, which holds the two sizes, is passed
    over. Numbers are read for the wanted words only, since such files have millions of lines.

    Raises:
        UserError: a wanted word's line that is not as above, or not as long as the others; no vector for
            any of the words.
    """
    vectors, size = {}, None
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            word, *numbers = line.rstrip().split(" ")
            if word not in words or (number == 1 and len(numbers) == 1):
                continue
            try:
                vector = np.array(numbers, dtype=np.float32)
            except ValueError:
                raise UserError(f"{path}, line {number}: {word!r} is not followed by numbers alone.") from None
            size = size or len(vector)
            if len(vector) != size:
                raise UserError(f"{path}, line {number}: {word!r} has {len(vector)} numbers, other words have {size}.")
            vectors.setdefault(word, vector)
    if words and not vectors:
        raise UserError(
            f"{path} has a vector for none of the {len(words)} words of the texts; expected a line for each word, in "
            "lower case, the word first and then its numbers."
        )
    return vectors
