"""The plain alternatives to refilling a word: leave a mask in its place, or delete it; once, before fine-tuning."""

from datasets import Dataset

from mtlib.methods.table3 import Refill, fine_tuning_once
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Preparer


class DeleteMasked(Preparer):
    """The training texts without the tokens of `mask`."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        def delete(row: dict) -> dict:
            mask = row["mask"]
            of_tokens = [name for name, values in row.items() if isinstance(values, list) and len(values) == len(mask)]
            left = {name: [value for value, masked in zip(row[name], mask, strict=True) if not masked]
                    for name in of_tokens}  # fmt: skip
            return left | ({"length": len(left["mask"])} if "length" in row else {})

        return Prepared(examples.map(delete, keep_in_memory=True))


masks_left = fine_tuning_once(lambda settings: Refill(None))
deleted = fine_tuning_once(lambda settings: DeleteMasked())
