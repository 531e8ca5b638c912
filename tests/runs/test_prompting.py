"""Prompting: scores against the masked LM's own; whole sets are scored as a run's are."""

import pytest
import torch

from mtlib.errors import UserError
from mtlib.runs import prompting
from mtlib.runs.config import configure
from mtlib.runs.prompting import Cloze, evaluate, masked_lm_scores
from tests.conftest import make_plm, make_tokenizer, tiny_bert_config
from tests.runs.test_runs import sentences, testbed  # noqa: F401  (fixtures)

CLOZE = Cloze("{text} and not {mask}", ("slow", "warm"))


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_masked_lm_answers_at_its_mask(side):
    plm = make_plm()
    plm.tokenizer.padding_side = side  # some tokenizers pad on the left, of themselves
    scores = masked_lm_scores(plm.train(), ["the film is [MASK]", "a very slow plot is [MASK]"], ["bad", "good"])
    assert plm.training
    batch = dict(plm.eval().tokenizer("the film is [MASK]", return_tensors="pt"))
    logs = plm.mlm(**batch).logits[0, 4].log_softmax(-1)
    torch.testing.assert_close(scores[0], logs[plm.tokenizer.convert_tokens_to_ids(["bad", "good"])].detach())
    with pytest.raises(UserError, match="'slowly' is not one token"):
        masked_lm_scores(plm, ["the film [MASK]"], ["slowly"])


@pytest.mark.parametrize("max_length", [50, 500])  # the model reads 64
def test_a_masked_lm_on_a_set(testbed, tmp_path, monkeypatch, max_length):  # noqa: F811
    monkeypatch.setitem(prompting.CLOZES, "sentiment", CLOZE)
    monkeypatch.setattr(prompting, "precision", lambda: {"bf16": False, "use_cpu": True})
    plm = make_plm(tiny_bert_config(initializer_range=0.5), seed=1)  # its answers differ from text to text
    model = tmp_path / "tiny-bert"
    plm.mlm.save_pretrained(model)
    plm.tokenizer.save_pretrained(model)
    told, sets = [], ("testbed_sentiment",)
    asked = configure("sentiment", "fine_tuning", model=str(model), sets=sets, max_length=max_length)
    description = evaluate(asked, told.append)
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


@pytest.mark.parametrize(
    ("texts", "max_length", "kept"),
    [
        ((7, 2), 9, (7, 2)),  # more than half of the tokens, but the pair fits
        ((7, 2), 8, (6, 2)),
        ((2, 7), 8, (2, 6)),
        ((7, 6), 8, (4, 4)),
        ((7, 0), 8, (7, 0)),
        ((9,), 8, (8,)),
    ],
)
def test_the_longer_text_of_a_pair_is_cut_first(texts, max_length, kept):
    tokenizer = make_tokenizer()
    row = {name: " ".join(["film"] * n) for name, n in zip(("text", "text_pair"), texts, strict=False)}
    short = prompting._short(row, tokenizer, max_length)
    assert {name: text.count("film") for name, text in short.items()} == dict(zip(row, kept, strict=True))
    cut = tokenizer(*row.values(), add_special_tokens=False, truncation=True, max_length=max_length)
    assert tuple(cut.sequence_ids().count(number) for number in range(len(texts))) == kept, "as the tokenizer cuts"
