"""Two plain alternatives to refilling a word before fine-tuning: leave a mask, or delete it."""

from datasets import Dataset

from mtlib.methods.table3 import Refill, fine_tuning_on_changed
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform


class DeleteMasked(Transform):
    """The training texts without the tokens of `mask`."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        return Prepared(examples.map(_without_masked, keep_in_memory=True))


def _without_masked(row: dict) -> dict:
    """The columns of a row that change: lists as long as the text in tokens, and the length."""
    mask = row["mask"]
    kept = [position for position, masked in enumerate(mask) if not masked]
    changed = {}
    for name, values in row.items():
        if isinstance(values, list) and len(values) == len(mask):
            changed[name] = [values[position] for position in kept]
    if "length" in row:
        changed["length"] = len(changed["mask"])
    return changed


masks_left = fine_tuning_on_changed(lambda settings: Refill(None))
deleted = fine_tuning_on_changed(lambda settings: DeleteMasked())
