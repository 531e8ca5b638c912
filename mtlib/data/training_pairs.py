"""IMDB-CAD's training pairs, reviews and their counterfactuals, from which the supervised policy learns on real data.

Its dev and test pairs are evaluation sets, and are never read here.
"""

from datasets import Dataset

from mtlib.data.sources import load_described
from mtlib.errors import UserError

CAD_TRAIN = "imdb_cad_train"


def described_pairs(source: str) -> tuple[Dataset, dict]:
    """The pairs and their description (`sources.load_described`).

    Raises:
        UserError: the source does not have them.
    """
    try:
        return load_described(CAD_TRAIN, source)
    except UserError as error:
        raise UserError(
            f"the policies supervised and supervised_top5 learn from IMDB-CAD's training pairs (the set {CAD_TRAIN}), "
            f"which cannot be read: {str(error).rstrip('.')}. Give a source that has them, or take another policy."
        ) from error
