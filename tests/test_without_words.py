"""Masks left in the text, and words deleted from it, before fine-tuning."""

from datasets import Dataset

from mtlib.encoding import tokenise
from mtlib.masking import GivenWords
from mtlib.methods.table3 import Refill
from mtlib.methods.without_words import DeleteMasked, LeaveMasks
from mtlib.policies.wrapping import BarMasked

TEXTS = ["the film is very good", "funny", "a boring plot"]


def prepared(plm, preparer, texts=TEXTS):
    masking = GivenWords(["film", "very good", "plot"])
    examples = tokenise(Dataset.from_dict({"text": texts, "label": [1] * len(texts)}), plm.tokenizer, keep={"text"})
    (mark,) = masking.preparers()
    return preparer(masking)(plm, mark(plm, examples).examples)


def test_masks_stand_where_the_words_stood(plm):
    examples, counts = prepared(plm, LeaveMasks)
    assert plm.tokenizer.batch_decode(list(examples["input_ids"])) == [
        "[CLS] the [MASK] is [MASK] [MASK] [SEP]", "[CLS] funny [SEP]", "[CLS] a boring [MASK] [SEP]"
    ]  # fmt: skip
    assert counts == {"masked": 4, "changed": 4}


def test_deleted_is_as_if_the_words_had_never_been_there(plm):
    examples, counts = prepared(plm, DeleteMasked)
    without = Dataset.from_dict({"text": ["the is", "funny", "a boring"], "label": [1, 1, 1]})
    expected = tokenise(without, plm.tokenizer)
    for name in expected.column_names:
        assert examples[name][:] == expected[name][:], name
    assert [len(marks) for marks in examples["given_words"]] == examples["length"][:] and counts["masked"] == 4


def test_barred_words_are_never_filled_in(plm):
    def fillings() -> set[str]:
        examples, _ = prepared(plm, lambda masking: Refill(masking, fill="sample"), ["the film is very good"] * 300)
        return {word for row in plm.tokenizer.batch_decode(list(examples["input_ids"])) for word in row.split()}

    barred = {"film", "very", "good", "plot"}
    assert barred <= fillings()
    _, counts = prepared(plm, BarMasked, [*TEXTS, "not very funny, very", "very"])  # "very" is masked in one of four
    assert counts == {"barred": 3} and barred & fillings() == {"very"}
