"""The masked LM that comes with the project."""

import json
import re

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM

ENGLISH = [
    "The soup was cold, but the waiter couldn't have been nicer!",
    "Is there a way to learn Spanish quickly without a teacher?",
    "A man in a blue shirt is playing the guitar on stage; nobody listens.",
    "in 1997, 3 of the 12 committee members (from Ohio & Texas) paid $40 - 50% more.",
]


@pytest.fixture(scope="module")
def mini() -> SharedPLM:
    torch.manual_seed(0)
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()


def test_is_small_and_holds_no_code():
    files = [path for path in MINI_MODEL_DIR.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 24e6
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".md", ".py", ""}
    assert {"README.md", "NOTICE", "pretrain.py"} <= {path.name for path in files}


def test_plain_english_has_no_unknown_token():
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    for text in ENGLISH:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        words = re.sub(r"\W+", "", text.lower())
        assert re.sub(r"\W+", "", tokenizer.decode(ids, skip_special_tokens=True)) == words


def test_fills_with_words_that_fit(mini):
    fill = pipeline("fill-mask", model=mini.mlm, tokenizer=mini.tokenizer, device="cpu", top_k=10)
    for text, fitting in {
        "she opened the [MASK] .": {"door", "window", "book", "box", "letter"},
        "the food was [MASK] and the staff were friendly .": {
            "good",
            "great",
            "delicious",
            "excellent",
            "amazing",
        },
        "he drove the [MASK] to work .": {"car", "truck", "bus", "train", "horse"},
    }.items():
        assert {row["token_str"] for row in fill(text)} & fitting, text


def test_card_figures_are_those_of_the_training_report():
    domains = json.loads((MINI_MODEL_DIR / "pretraining.json").read_text())["held_out"].values()
    n = sum(scores["n_masked"] for scores in domains)
    right = sum(scores["accuracy"] * scores["n_masked"] for scores in domains)
    assert (
        f"{100 * right / n:.1f} % of {n:,} masked tokens"
        in (MINI_MODEL_DIR / "README.md").read_text()
    )
