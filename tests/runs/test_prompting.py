"""Prompting: scores against a direct computation over the whole sequence; whole sets are scored as a run's are."""

import re
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertLMHeadModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

from mtlib.errors import UserError
from mtlib.runs import prompting
from mtlib.runs.prompting import (
    QUESTIONS,
    CausalPrompt,
    Cloze,
    Prompting,
    Question,
    ask,
    demonstrate,
    draw_demonstrations,
    evaluate,
    load_causal_lm,
    masked_lm_scores,
)
from tests.conftest import WORDS, make_plm, make_tokenizer, tiny_bert_config
from tests.runs.test_runs import sentences, testbed  # noqa: F401  (fixtures)

ROWS = [{"text": "the film was slow", "label": 0}, {"text": "a great story", "label": 1}]
QUESTION = Question("is the film good", ("bad", "slowly boring", "great"))


def test_the_prompt_is_that_of_si_et_al():
    rows = [{"text": "A.", "text_pair": "B.", "label": 2}]
    question = "What is the relationship between these two sentences?"
    assert demonstrate(QUESTIONS["nli"], rows) == f"A.\nB.\n{question}\nAnswer: contradiction\n\n"
    assert ask(QUESTIONS["nli"], "C.", "D.") == f"C.\nD.\n{question}\nAnswer:"


def test_demonstrations_are_balanced_and_seeded():
    labels = [int(i % 3 == 0) for i in range(300)]
    chosen = draw_demonstrations(labels)
    assert len(set(chosen)) == 32 and sum(labels[row] for row in chosen) == 16
    assert chosen == draw_demonstrations(labels) != draw_demonstrations(labels, seed=1)
    with pytest.raises(UserError, match="13 of 20 rows have label 0, and 16 are to be shown"):
        draw_demonstrations(labels[:20])


def of_words():
    return make_tokenizer()


def of_bytes():
    """As GPT-2's: it joins two line breaks at the end of a text, and not before another line."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator([f"{' '.join(WORDS)}\n\n"] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(tokenizer("\n\n")["input_ids"]) == 1 and len(tokenizer("\n\na")["input_ids"]) == 3
    return tokenizer


def of_sentencepiece():
    """Every text begins with a mark, so that a part of a text has other tokens than the same within the whole."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"])
    backend.train_from_iterator([demonstrate(QUESTION, ROWS) + " ".join(WORDS)] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.mark.parametrize("made", [of_words, of_bytes, of_sentencepiece])
def test_demonstrations_are_read_once(made, monkeypatch):
    tokenizer = made()
    size = {"vocab_size": len(tokenizer), "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 512}
    prompt = CausalPrompt(GPT2LMHeadModel(GPT2Config(**size)), tokenizer, QUESTION, demonstrate(QUESTION, ROWS * 4))
    lengths, run = [], prompt._run
    monkeypatch.setattr(prompt, "_run", lambda ids, cache: lengths.append(len(ids)) or run(ids, cache))
    prompt.scores("a film")
    assert len(lengths) == 3 and max(lengths) < len(prompt.prefix) / 2


@pytest.mark.parametrize("shown", [ROWS, []])
@pytest.mark.parametrize("start", [None, 2])
@pytest.mark.parametrize("made", [of_words, of_bytes, of_sentencepiece])
def test_scores_are_those_of_the_whole_sequence(shown, start, made):
    set_seed(0)
    tokenizer = made()
    tokenizer.bos_token = None if start is None else tokenizer.convert_ids_to_tokens(start)
    size = {"vocab_size": len(tokenizer), "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 512}
    model = GPT2LMHeadModel(GPT2Config(**size, initializer_range=0.5, bos_token_id=2, eos_token_id=3))
    prompt = CausalPrompt(model, tokenizer, QUESTION, demonstrate(QUESTION, shown))
    for text in ("the plot is funny", "not a very warm film and boring", "the plot is funny"):
        scores = prompt.scores(text)
        for place, answer in enumerate(QUESTION.answers):
            before = demonstrate(QUESTION, shown) + ask(QUESTION, text)
            ids = tokenizer(f"{before} {answer}", add_special_tokens=False)["input_ids"]
            n = len(ids) - len(tokenizer(before, add_special_tokens=False)["input_ids"])
            ids = ([] if start is None else [start]) + ids
            with torch.no_grad():
                logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            direct = sum(logs[i - 1, ids[i]] for i in range(len(ids) - n, len(ids)))
            torch.testing.assert_close(scores[:, place], torch.stack([direct, direct / n]), rtol=1e-4, atol=1e-5)


def test_a_masked_lm_answers_at_its_mask():
    plm = make_plm()
    scores = masked_lm_scores(plm.train(), ["the film is [MASK]", "a very slow plot is [MASK]"], ["bad", "good"])
    assert plm.training
    batch = dict(plm.eval().tokenizer("the film is [MASK]", return_tensors="pt"))
    logs = plm.mlm(**batch).logits[0, 4].log_softmax(-1)
    torch.testing.assert_close(scores[0], logs[plm.tokenizer.convert_tokens_to_ids(["bad", "good"])].detach())
    with pytest.raises(UserError, match="'slowly' is not one token"):
        masked_lm_scores(plm, ["the film [MASK]"], ["slowly"])
    for prompt, remedy in (("the film", "has 0 masks .*Put {mask} into the template"),
                           ("a [MASK] film is [MASK]", "has 2 masks .*which brings its own")):  # fmt: skip
        with pytest.raises(UserError, match=rf"the prompt {re.escape(repr(prompt))} {remedy}"):
            masked_lm_scores(plm, ["the film is [MASK]", prompt], ["bad"])


def test_a_tokenizer_that_pads_on_the_left_gives_the_same_scores():
    plm, prompts = make_plm(), ["the film is [MASK]", "a very slow plot is [MASK]"]
    expected = masked_lm_scores(plm, prompts, ["bad", "good"])
    plm.tokenizer.padding_side = "left"
    assert torch.equal(masked_lm_scores(plm, prompts, ["bad", "good"]), expected)


def test_what_is_no_causal_model_is_told(tmp_path):
    with pytest.raises(UserError, match="Cannot load "):
        load_causal_lm(str(tmp_path))
    plm = make_plm()
    plm.mlm.save_pretrained(tmp_path)
    plm.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"is a masked LM \(bert\); expected a causal one, as gpt2"):
        load_causal_lm(str(tmp_path))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_causal_model_may_have_a_mask_token(family, tmp_path):
    tokenizer = make_tokenizer()
    if family == "bert":  # its family has masked LMs too
        model = BertLMHeadModel(tiny_bert_config(is_decoder=True))
    else:
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=1, n_positions=64))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, with_mask = load_causal_lm(str(tmp_path))
    assert with_mask.mask_token is not None and type(loaded) is type(model)
    prompts = [CausalPrompt(lm, tokenizer, QUESTION) for lm in (model, loaded)]
    torch.testing.assert_close(*(prompt.scores("a film") for prompt in prompts))


# --- whole sets ---

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
    monkeypatch.setitem(prompting.CLOZES, "sentiment", CLOZE)
    monkeypatch.setattr(prompting, "precision", lambda: {"bf16": False, "use_cpu": True})
    plm = make_plm(tiny_bert_config(initializer_range=0.5), seed=1)  # its answers differ from text to text
    model = tmp_path / "tiny-bert"
    plm.mlm.save_pretrained(model)
    plm.tokenizer.save_pretrained(model)
    told = []
    asked_of = Prompting(task="sentiment", model=str(model), sets=("testbed_sentiment",), max_length=50)
    description = evaluate(asked_of, told.append)
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
    monkeypatch.setattr(
        prompting,
        "read_inputs",
        lambda of: SimpleNamespace(config=of.resolved(), public=of.public(), datasets=datasets),
    )
    asked_of = Prompting(task="nli", model=gpt, causal=True, per_label=2, sets=("testbed_overlap",), max_length=16)
    scorings = evaluate(asked_of)["metrics"]["testbed_overlap"]

    question = QUESTIONS["hans"]
    labels = [min(row["label"], 1) for row in pairs]
    chosen = prompting.draw_demonstrations(labels, 2, seed=0)
    shown = demonstrate(question, [pairs[row] | {"label": labels[row]} for row in chosen])
    asker = CausalPrompt(*load_causal_lm(gpt), question, shown)
    scores = [asker.scores(row["text"], row["text_pair"]) for row in asked]
    for number, scoring in enumerate(("total", "mean")):
        answers = torch.stack(scores)[:, number].argmax(1)
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
    short = prompting._short(row, tokenizer, max_length)
    assert {name: text.count("film") for name, text in short.items()} == dict(zip(row, kept, strict=True))
    cut = tokenizer(*row.values(), add_special_tokens=False, truncation=True, max_length=max_length)
    assert len(cut["input_ids"]) == sum(kept), "as many tokens as the tokenizer itself keeps"
    assert tuple(cut.sequence_ids().count(number) for number in range(len(texts))) == kept


def test_what_cannot_be_asked(gpt, testbed):  # noqa: F811
    with pytest.raises(UserError, match=r"a masked LM \(bert\); expected a causal one"):
        evaluate(Prompting(task="sentiment", causal=True))
    with pytest.raises(UserError, match="no evaluation set of sentiment"):
        evaluate(Prompting(task="sentiment", sets=("hans",)))
    with pytest.raises(UserError, match=r"max_length is 512, and mini reads 512 tokens.* give 50[0-9] at most"):
        evaluate(Prompting(task="sentiment", max_length=512, sets=("testbed_sentiment",)))
    with pytest.raises(UserError, match=r"reads 400 tokens.* Or show fewer examples than 16"):
        evaluate(Prompting(task="sentiment", model=gpt, causal=True, sets=("testbed_sentiment",)))
