"""Prompting on whole sets: the scores are those of the prompts, one by one, and a set is scored as a run's is."""

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

from mtlib.errors import UserError
from mtlib.prompting import QUESTIONS, CausalPrompt, Cloze, demonstrate, load_causal_lm, masked_lm_scores
from mtlib.runs import prompted
from mtlib.runs.prompted import Prompting, evaluate
from tests.conftest import WORDS, make_plm, make_tokenizer, tiny_bert_config
from tests.runs.test_runs import sentences, testbed  # noqa: F401  (fixtures)

CLOZE = Cloze("{text} and not {mask}", ("slow", "warm"))


@pytest.fixture
def gpt(tmp_path) -> str:
    set_seed(0)
    size = {"vocab_size": len(WORDS) + 5, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 400}
    GPT2LMHeadModel(GPT2Config(**size, initializer_range=0.5)).save_pretrained(tmp_path / "gpt")
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "gpt")
    return str(tmp_path / "gpt")


def test_a_causal_lm_answers_in_float32_whatever_its_file_holds(gpt):
    model, _ = load_causal_lm(gpt)
    model.half().save_pretrained(gpt)
    assert load_causal_lm(gpt)[0].dtype == torch.float32


def test_a_masked_lm_on_a_set(testbed, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setitem(prompted.CLOZES, "sentiment", CLOZE)
    monkeypatch.setattr(prompted, "precision", lambda: {"bf16": False, "use_cpu": True})
    plm = make_plm(tiny_bert_config(initializer_range=0.5), seed=1)  # its answers differ from text to text
    model = tmp_path / "tiny-bert"
    plm.mlm.save_pretrained(model)
    plm.tokenizer.save_pretrained(model)
    told = []
    prompting = Prompting("sentiment", model=str(model), sets=("testbed_sentiment",), max_length=50)
    description = evaluate(prompting, told.append)
    scorings = description["metrics"]["testbed_sentiment"]
    rows = sentences(20, 100)
    prompts = [f"{text} and not [MASK]" for text in [row["text"] for row in rows] + ["N/A"]]
    scores = masked_lm_scores(plm.eval(), prompts, CLOZE.answers)
    labels = torch.tensor([row["label"] for row in rows])
    for scoring, answers in (("gap", scores[:-1]), ("calibrated", scores[:-1] - scores[-1])):
        assert scorings[scoring]["correct"] == int((answers.argmax(1) == labels).sum()), scoring
    assert scorings["gap"] != scorings["calibrated"]  # or this test could not tell them apart
    assert told == ["testbed_sentiment"]
    assert description["prompting"]["template"] == CLOZE.template and description["prompting"]["model"] == "tiny-bert"


def test_a_causal_lm_on_a_folded_set(gpt, monkeypatch):
    pairs = [
        {"text": f"the {'film' if i % 3 else 'plot'} is {'good' if i % 5 else 'slow'}", "text_pair": "a story is warm",
         "label": i % 3, "uid": str(i), "group": f"lexical_overlap/of_{i % 2}"}
        for i in range(60)
    ]  # fmt: skip
    asked = [row | {"label": min(row["label"], 1)} for row in pairs[:24]]
    sets = {"train": pairs, "testbed_overlap": asked}
    datasets = {name: Dataset.from_list(rows) for name, rows in sets.items()}
    monkeypatch.setattr(prompted, "read_inputs", lambda config: SimpleNamespace(datasets=datasets))
    prompting = Prompting("nli", model=gpt, causal=True, per_label=2, sets=("testbed_overlap",), max_length=16)
    scorings = evaluate(prompting)["metrics"]["testbed_overlap"]

    question = QUESTIONS["hans"]
    labels = [min(row["label"], 1) for row in pairs]
    chosen = prompted.draw_demonstrations(labels, 2, seed=0)
    shown = demonstrate(question, [pairs[row] | {"label": labels[row]} for row in chosen])
    asker = CausalPrompt(*load_causal_lm(gpt), question, shown)
    scores = [asker.scores(row["text"], row["text_pair"]) for row in asked]
    for scoring in ("total", "mean"):
        answers = torch.stack([getattr(score, scoring) for score in scores]).argmax(1)
        right = int((answers == torch.tensor([row["label"] for row in asked])).sum())
        assert scorings[scoring]["correct"] == right
        assert set(scorings[scoring]["by_rule"].values()) == {right / len(asked)}  # two answers: nothing to fold


@pytest.mark.parametrize(
    ("texts", "max_length", "kept"),
    [
        ((7, 2), 9, (7, 2)),  # more than half of the tokens, but the pair fits
        ((7, 2), 8, (6, 2)),
        ((2, 7), 8, (2, 6)),
        ((7, 6), 8, (4, 4)),
        ((7, 7), 9, (4, 5)),
        ((7, 0), 8, (7, 0)),
        ((7,), 8, (7,)),
        ((9,), 8, (8,)),
    ],
)
def test_the_longer_text_of_a_pair_is_cut_first(texts, max_length, kept):
    tokenizer = make_tokenizer()
    row = {name: " ".join(["film"] * n) for name, n in zip(("text", "text_pair"), texts, strict=False)}
    short = prompted._short(row, tokenizer, max_length)
    assert {name: text.count("film") for name, text in short.items()} == dict(zip(row, kept, strict=True))
    cut = tokenizer(*row.values(), add_special_tokens=False, truncation=True, max_length=max_length)
    assert len(cut["input_ids"]) == sum(kept), "as many tokens as the tokenizer itself keeps"
    assert tuple(cut.sequence_ids().count(number) for number in range(len(texts))) == kept


def test_what_cannot_be_asked(gpt, testbed):  # noqa: F811
    for settings, words in (
        ({"causal": True}, "a masked LM; expected a causal one"),
        ({"per_label": -1}, "per_label is -1"),
        ({"max_length": 2}, "max_length is 2"),
    ):
        with pytest.raises(UserError, match=words):
            Prompting("sentiment", **settings)
    with pytest.raises(UserError, match="no evaluation set of sentiment"):
        evaluate(Prompting("sentiment", sets=("hans",)))
    with pytest.raises(UserError, match=r"max_length is 512, and mini reads 512 tokens.* give 50[0-9] at most"):
        evaluate(Prompting("sentiment", max_length=512, sets=("testbed_sentiment",)))
    with pytest.raises(UserError, match="the model reads 400; show fewer than 16"):
        evaluate(Prompting("sentiment", model=gpt, causal=True, sets=("testbed_sentiment",)))
