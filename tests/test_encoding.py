"""Rows in, answers out, in the order of the rows."""

import re
import warnings

import numpy as np
import pandas
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict
from transformers import EsmTokenizer

from mtlib import encoding
from mtlib.encoding import Collator, each_token, predict, tokenise
from mtlib.errors import UserError
from mtlib.objectives import FineTuning
from mtlib.plm import SharedPLM
from mtlib.spans import mask_words
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer
from tests.conftest import PLAIN_WORDS, make_plm, tiny_bert_config

WORDS = PLAIN_WORDS[:13]


@pytest.fixture(autouse=True)
def float32(monkeypatch):
    """Also where the processor computes in bf16."""
    monkeypatch.setattr(encoding, "precision", lambda: {"bf16": False, "use_cpu": True})


@pytest.fixture
def telling_plm():
    """Weights so large that its answers differ from row to row."""
    return make_plm(tiny_bert_config(initializer_range=0.5))


def rows(n: int, pair: bool = False) -> Dataset:
    """Texts of 1 to 13 words in no order of length."""
    lengths = np.random.default_rng(0).integers(1, 14, n)
    texts = [" ".join(np.roll(WORDS, i)[:length]) for i, length in enumerate(lengths)]
    return Dataset.from_list(
        [
            {"text": text, "label": i % 2} | ({"text_pair": texts[-i]} if pair else {})
            for i, text in enumerate(texts)
        ]
    )


def one_by_one(plm, dataset) -> np.ndarray:
    plm.eval()
    with torch.no_grad():
        logits = [
            plm.classify(
                plm.tokenizer(row["text"], row.get("text_pair"), return_tensors="pt")
            ).float()
            for row in dataset
        ]
    return torch.cat(logits).numpy()


def test_predictions_stand_in_the_order_of_the_rows(telling_plm):
    plm, dataset = telling_plm, rows(150)  # more than two batches
    logits = predict(plm, dataset)
    assert logits.shape == (150, 2) and logits.dtype == np.float32
    expected = one_by_one(plm, dataset)
    assert np.median(np.abs(expected - expected[::-1])) > 0.2, "the rows differ, so an order shows"
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_what_is_computed_of_tokens_stands_in_the_order_of_the_rows(plm):
    examples = tokenise(rows(150), plm.tokenizer)  # more than two batches
    found = each_token(plm, examples, lambda _, batch: batch["input_ids"])
    assert [values.tolist() for values in found] == examples["input_ids"][:]


def test_pairs_and_three_labels():
    plm = make_plm(tiny_bert_config(num_labels=3, initializer_range=0.5))
    dataset = rows(20, pair=True)
    logits = predict(plm, dataset)
    assert logits.shape == (20, 3)
    np.testing.assert_allclose(logits, one_by_one(plm, dataset), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*texts were cut")
def test_long_texts_are_cut(plm):
    (row,) = tokenise(
        Dataset.from_list([{"text": " ".join(WORDS), "label": 1}]), plm.tokenizer, max_length=6
    )
    assert len(row["input_ids"]) == row["length"] == 6 and row["labels"] == 1
    whole = Dataset.from_list([{"text": " ".join(WORDS), "label": 1}])
    cut = Dataset.from_list([{"text": " ".join(WORDS[:4]), "label": 1}])
    assert np.array_equal(predict(plm, whole, max_length=6), predict(plm, cut))


def test_it_is_said_what_is_cut(plm):
    plm.tokenizer.model_max_length = 200
    texts = Dataset.from_list(
        [{"text": "good " * n} for n in (126, 127, 3, 150)]
    )  # with two structural tokens each
    with pytest.warns(UserWarning, match="2 of 4 texts were cut to 128 tokens; max_length"):
        assert tokenise(texts, plm.tokenizer)["length"][:] == [128, 128, 5, 128]
    with pytest.warns(UserWarning, match="3 of 4 texts were cut to 100 tokens; max_length"):
        assert tokenise(texts, plm.tokenizer, max_length=100)["length"][:] == [100, 100, 5, 100]
    with warnings.catch_warnings(action="error"):
        tokenise(texts.select([0, 2]), plm.tokenizer)
    plm.tokenizer.model_max_length = 16
    with pytest.warns(UserWarning, match="3 of 4 texts were cut to 16 tokens"):
        assert tokenise(texts, plm.tokenizer)["length"][:] == [16, 16, 5, 16]


def test_a_tokenizer_in_python_says_what_it_cuts(tmp_path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTID", "<mask>"])
    )
    tokenizer = EsmTokenizer(tmp_path / "vocab.txt", model_max_length=10)
    with pytest.warns(UserWarning, match="1 of 3 texts were cut to 10 tokens"):
        examples = tokenise(Dataset.from_dict({"text": ["LAGV" * 5, "LAGVLAGV", "LA"]}), tokenizer)
    assert examples["length"][:] == [10, 10, 4]


@pytest.mark.parametrize("pair", [False, True])
def test_lists_of_texts_are_predicted_and_answers_have_names(telling_plm, pair):
    dataset = rows(20, pair)
    texts = (
        list(zip(dataset["text"], dataset["text_pair"], strict=True))
        if pair
        else dataset["text"][:]
    )
    logits = predict(telling_plm, texts)
    assert np.array_equal(logits, predict(telling_plm, dataset))
    telling_plm.config.id2label = {0: "negative", 1: "positive"}
    names = ["negative" if first >= second else "positive" for first, second in logits]
    assert predict(telling_plm, texts, names=True) == names and {*names} == {"negative", "positive"}
    assert predict(telling_plm, pandas.Series(texts), names=True) == names


@pytest.mark.filterwarnings("ignore:.*texts were cut")
def test_as_much_of_a_text_is_read_as_in_the_training(telling_plm, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "DEFAULT_LENGTH", 6)
    arguments = ObjectiveArguments(
        str(tmp_path / "run"),
        max_steps=1,
        learning_rate=0.0,
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    ObjectiveTrainer(
        telling_plm, FineTuning(), arguments, tokenise(rows(8), telling_plm.tokenizer, max_length=9)
    ).train()
    telling_plm.save_pretrained(tmp_path / "saved")
    again = SharedPLM.from_pretrained(tmp_path / "saved")
    assert np.array_equal(predict(again, rows(8)), predict(again, rows(8), max_length=9))
    assert not np.array_equal(predict(again, rows(8)), predict(again, rows(8), max_length=60))


def test_precision_can_be_chosen(telling_plm, monkeypatch):
    monkeypatch.setattr(encoding, "precision", lambda: {"bf16": True, "use_cpu": True})
    exact, rounded = predict(telling_plm, rows(10), bf16=False), predict(telling_plm, rows(10))
    np.testing.assert_allclose(exact, one_by_one(telling_plm, rows(10)), atol=1e-4)
    assert not np.array_equal(exact, rounded)


def test_columns_that_an_objective_needs_are_carried_through(plm):
    dataset = (
        rows(6)
        .add_column("bias", [[i / 7, 1 - i / 7] for i in range(6)])
        .add_column("length", [0] * 6)
    )
    plain, kept = tokenise(dataset, plm.tokenizer), tokenise(dataset, plm.tokenizer, keep=["bias"])
    assert kept["bias"][:] == dataset["bias"][:] and kept.remove_columns("bias")[:] == plain[:]
    assert set(kept.column_names) - set(plain.column_names) == {"bias"}
    assert tokenise(dataset, plm.tokenizer, keep="bias")[:] == kept[:]
    assert tokenise(dataset, plm.tokenizer, keep={"bias", "label"})[:] == kept[:]
    both = tokenise(
        dataset, plm.tokenizer, keep=("text", "text_pair")
    )  # as transforms ask, that read pairs too
    assert "text" in both.column_names and "text_pair" not in both.column_names
    pairs = rows(6, pair=True)
    kept = tokenise(pairs, plm.tokenizer, keep=["text"])
    assert kept["text_pair"][:] == pairs["text_pair"][:]


def test_a_second_text_under_another_name_is_not_dropped_silently(plm):
    dataset = rows(2, pair=True).rename_column("text_pair", "hypothesis")
    with pytest.warns(
        UserWarning, match="hypothesis is not read; the second text of a pair is called text_pair"
    ):
        tokenise(dataset, plm.tokenizer, 60)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (None, "the dataset is a NoneType; expected a Dataset with a column `text`"),
        ("reviews.csv", "the dataset is a str; expected"),
        (DatasetDict(train=rows(2), test=rows(2)), "the dataset is a DatasetDict with {'train'"),
        (rows(2).rename_column("text", "sentence"), "the dataset is a Dataset with ['sentence'"),
        (Dataset.from_dict({"text": ["good", None]}), "row 1 has None for text; expected a text"),
        (Dataset.from_dict({"text": ["a"], "text_pair": [None]}), "row 0 has None for text_pair"),
    ],
)
def test_what_cannot_be_tokenised_is_said(plm, dataset, message):
    with pytest.raises(UserError, match=re.escape(message)):
        tokenise(dataset, plm.tokenizer, 6)
    if isinstance(dataset, Dataset):
        with pytest.raises(UserError, match=re.escape(message)):
            predict(plm, dataset, 6)


TWO_TEXTS = ["a film", "the plot is slow"]


@pytest.mark.parametrize(
    "texts",
    [
        tuple(TWO_TEXTS),
        np.array(TWO_TEXTS),
        np.array(TWO_TEXTS, dtype=object),
        pandas.Series(TWO_TEXTS, index=[7, 7]),
        pandas.Series(TWO_TEXTS, dtype="string"),
        pandas.Index(TWO_TEXTS),
        Dataset.from_dict({"text": TWO_TEXTS})["text"],
        Dataset.from_dict({"text": TWO_TEXTS, "labels": ["good", None]}),
        Dataset.from_dict({"text": TWO_TEXTS, "labels": [7, -1], "label": [None, [0.5]]}),
    ],
)
def test_texts_may_come_in_any_of_these(telling_plm, texts):
    assert np.array_equal(predict(telling_plm, texts), predict(telling_plm, TWO_TEXTS))


def test_hidden_words_are_read_as_masks(telling_plm):
    mask = telling_plm.tokenizer.mask_token
    hidden = predict(
        telling_plm, ["a Film", "the plot is slow"], hide=["film", "absent", "is slow"]
    )
    masked = [f"a {mask}", f"the plot {mask} {mask}"]
    reader = telling_plm.tokenizer(masked)["input_ids"]
    examples = tokenise(
        Dataset.from_dict({"text": ["a Film", "the plot is slow"]}),
        telling_plm.tokenizer,
        keep={"text"},
    )
    assert mask_words(telling_plm, examples, ["film", "is slow"])["input_ids"][:] == reader
    shown = predict(telling_plm, TWO_TEXTS)
    assert hidden.shape == shown.shape and not np.array_equal(hidden, shown)
    assert np.array_equal(predict(telling_plm, TWO_TEXTS, hide=["absent"]), shown)
    pairs = [("a film", "is slow"), ("a", "film")]
    assert predict(telling_plm, pairs, hide="film").shape == (2, shown.shape[1])
    assert predict(telling_plm, [], hide="film").shape == (0, shown.shape[1])


def test_two_columns_of_labels_are_refused(plm):
    rows = Dataset.from_dict({"text": ["a"], "label": [0], "labels": [1]})
    with pytest.raises(UserError, match="a column label and a column labels; expected one"):
        tokenise(rows, plm.tokenizer)


@pytest.mark.parametrize("make", [list, np.array, pandas.Series])
def test_pairs_may_come_in_any_of_these(telling_plm, make):
    pairs = [["a film", "a plot"], ["a story", "the plot is slow"]]
    dataset = Dataset.from_dict(
        {"text": ["a film", "a story"], "text_pair": ["a plot", "the plot is slow"]}
    )
    assert np.array_equal(predict(telling_plm, make(pairs)), predict(telling_plm, dataset))


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, pandas.Series, lambda texts: Dataset.from_dict({"text": texts})]
)
def test_no_texts_have_no_logits(plm, make):
    assert predict(plm, make([])).shape == (0, 2)
    assert predict(plm, make([]), names=True) == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "texts is a NoneType; expected a list of texts or of pairs of texts, or a Dataset"),
        ("a film", "texts is a str; expected a list"),
        (rows(2).to_pandas(), "texts is a DataFrame; expected a list"),
        (["a film", None], "texts[1] is None; expected a text or a pair of texts"),
        (pandas.Series(["a film", np.nan]), "texts[1] is nan; expected"),
        ([{"text": "a film"}], "texts[0] is {'text': 'a film'}; expected"),
        ([("a", "b"), ("a", None)], "texts[1] is ('a', None); expected"),
        (["a", ("a", "b")], "texts[1] is ('a', 'b'); expected a text or a pair of texts, alike in"),
        ([("a", "b"), "a"], "texts[1] is 'a'; expected"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(plm, texts, message):
    with pytest.raises(UserError, match=re.escape(message)):
        predict(plm, texts)


def test_labels_by_either_name_keep_their_classes(plm):
    dataset = rows(4).cast_column("label", ClassLabel(names=["negative", "positive"]))
    for rows_with_labels in (dataset, dataset.rename_column("label", "labels")):
        examples = tokenise(rows_with_labels, plm.tokenizer)
        assert examples["labels"][:] == [0, 1, 0, 1]
        assert examples.features["labels"].names == ["negative", "positive"]


def test_a_format_of_the_rows_changes_nothing(telling_plm):
    dataset = rows(4)
    formatted = dataset.with_format("torch", columns=["text"])  # which hides the labels too
    assert (
        tokenise(formatted, telling_plm.tokenizer)[:] == tokenise(dataset, telling_plm.tokenizer)[:]
    )
    assert np.array_equal(predict(telling_plm, formatted), predict(telling_plm, dataset))


def test_predicting_leaves_no_trace_in_a_training(plm, monkeypatch):
    """Its mode, its precision and the random state stay as they were; dropout is off."""
    monkeypatch.setattr(encoding, "precision", lambda: {"bf16": True, "use_cpu": True})
    state, forward = torch.get_rng_state(), plm.forward
    plm.train()
    first, second = predict(plm, rows(10)), predict(plm, rows(10))
    assert first.dtype == np.float32 and np.array_equal(first, second) and plm.training
    assert torch.equal(torch.get_rng_state(), state) and plm.forward == forward


def test_precision_of_an_earlier_trainer_does_not_stay(plm, tmp_path):
    batch = plm.tokenizer(["good film"], return_tensors="pt") | {"labels": torch.tensor([1])}
    for bf16, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        arguments = ObjectiveArguments(str(tmp_path), bf16=bf16, use_cpu=True, disable_tqdm=True)
        ObjectiveTrainer(plm, FineTuning(), arguments).predict(tokenise(rows(4), plm.tokenizer))
        seen = []
        hook = plm.classifier.register_forward_hook(
            lambda *args, seen=seen: seen.append(args[-1].logits.dtype)
        )
        plm(FineTuning(), batch)
        hook.remove()
        assert seen == [dtype]


@pytest.mark.parametrize("label", ["positive", None, 1.0])
def test_labels_that_are_no_numbers_are_refused(plm, label):
    dataset = Dataset.from_dict(
        {"text": ["a film", "the plot"], "label": [type(label)() if label else None, label]}
    )
    with pytest.raises(
        UserError, match=r"has the label .* `dataset.class_encode_column\(\"label\"\)`"
    ):
        tokenise(dataset, plm.tokenizer)


def test_no_texts_with_names_of_labels(plm):
    dataset = Dataset.from_dict(
        {"text": ["a film", "the plot"], "label": ["bad", "good"]}
    ).class_encode_column("label")
    assert len(tokenise(dataset.select([]), plm.tokenizer)) == 0


def test_buckets_end_where_the_model_stops_reading(plm):
    collate = Collator(plm.tokenizer, buckets=True, longest=36)
    lengths = {n: collate([{"input_ids": [5] * n}])["input_ids"].shape[1] for n in (3, 9, 33, 36)}
    assert lengths == {3: 8, 9: 16, 33: 36, 36: 36}
