"""Prompting: scores against plain computations of one text; sets are scored as a run's are."""

import hashlib
import json
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from typer.testing import CliRunner

from mtlib.cli import app
from mtlib.data.sources import load
from mtlib.errors import UserError
from mtlib.runs import prompting
from mtlib.runs.config import configure
from mtlib.runs.prompting import (
    QUESTIONS,
    CausalPrompt,
    Cloze,
    Question,
    ask,
    demonstrate,
    draw_examples,
    evaluate,
    load_causal_lm,
    masked_lm_scores,
)
from tests.conftest import WORDS, make_plm, make_tokenizer, sentences, tiny_bert_config

CLOZE = Cloze("{text} and not {mask}", ("slow", "warm"))


# --- a masked model ---


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_masked_lm_answers_at_its_mask(side):
    plm = make_plm()
    plm.tokenizer.padding_side = side  # some tokenizers pad on the left, of themselves
    prompts = ["the film is [MASK]", "a very slow plot is [MASK]"]
    scores = masked_lm_scores(plm.train(), prompts, ["bad", "good"])
    assert plm.training
    batch = dict(plm.eval().tokenizer("the film is [MASK]", return_tensors="pt"))
    logs = plm.mlm(**batch).logits[0, 4].log_softmax(-1)
    expected = logs[plm.tokenizer.convert_tokens_to_ids(["bad", "good"])].detach()
    torch.testing.assert_close(scores[0], expected)
    with pytest.raises(UserError, match="'slowly' is not one token"):
        masked_lm_scores(plm, ["the film [MASK]"], ["slowly"])
    with pytest.raises(UserError, match="has 2 masks; expected one"):
        masked_lm_scores(plm, ["the film [MASK]", "the [MASK] film is [MASK]"], ["bad"])


@pytest.mark.parametrize("max_length", [50, 500])  # the model reads 64
def test_a_masked_lm_on_a_set(testbed, tmp_path, monkeypatch, max_length):
    monkeypatch.setitem(prompting.CLOZES, "sentiment", CLOZE)
    monkeypatch.setattr(prompting, "precision", lambda: {"bf16": False, "use_cpu": True})
    plm = make_plm(tiny_bert_config(initializer_range=0.5), seed=1)  # answers differ by text
    model = tmp_path / "tiny-bert"
    plm.mlm.save_pretrained(model)
    plm.tokenizer.save_pretrained(model)
    messages = []
    sets = ("testbed_sentiment",)
    settings = {"model": str(model), "sets": sets, "max_length": max_length}
    description = evaluate(
        configure("sentiment", "fine_tuning", **settings), report=messages.append
    )
    scorings = description["metrics"]["testbed_sentiment"]
    rows = sentences(20, 100)
    prompts = [f"{text} and not [MASK]" for text in [row["text"] for row in rows] + ["N/A"]]
    scores = masked_lm_scores(plm.eval(), prompts, CLOZE.answers)
    labels = torch.tensor([row["label"] for row in rows])
    for scoring, answers in (("gap", scores[:-1]), ("calibrated", scores[:-1] - scores[-1])):
        assert scorings[scoring]["correct"] == int((answers.argmax(1) == labels).sum()), scoring
    assert scorings["gap"] != scorings["calibrated"]  # or this test could not tell them apart
    assert messages == ["testbed_sentiment"]
    assert description["prompting"]["template"] == CLOZE.template
    assert description["prompting"]["model"] == "tiny-bert"


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
    names = ("text", "text_pair")
    row = {name: " ".join(["film"] * n) for name, n in zip(names, texts, strict=False)}
    (short,), n_cut = prompting.cut_texts([row], tokenizer, max_length)
    counts = {name: text.count("film") for name, text in short.items()}
    assert counts == dict(zip(row, kept, strict=True))
    assert n_cut == (kept != texts)
    options = {"add_special_tokens": False, "truncation": True, "max_length": max_length}
    as_cut = tokenizer(*row.values(), **options).sequence_ids()
    assert tuple(map(as_cut.count, range(len(texts)))) == kept, "as the tokenizer cuts"


# --- a causal model ---


QUESTION = Question("is the film good", ("bad", "slowly boring", "great"))
ROWS = [{"text": "the film was slow", "label": 0}, {"text": "a great story", "label": 1}]
TEXTS = ["the plot is funny", "not a very warm film and boring", "the plot is funny"]


def of_words() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def of_bytes() -> PreTrainedTokenizerFast:
    """As GPT-2's: it joins two line breaks at the end of a text, and not before another line."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([f"{' '.join(WORDS)}\n\n"] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(tokenizer("\n\n")["input_ids"]) == 1
    assert len(tokenizer("\n\na")["input_ids"]) == 3
    return tokenizer


def of_sentencepiece() -> PreTrainedTokenizerFast:
    """Every text begins with a mark, so that a part of a text has other tokens by itself."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, unk_token="<unk>", special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator([demonstrate(QUESTION, ROWS) + " ".join(WORDS)] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def tiny_gpt2(tokenizer, n_positions=512) -> GPT2LMHeadModel:
    set_seed(0)
    size = {"vocab_size": len(tokenizer), "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(
        GPT2Config(**size, n_positions=n_positions, initializer_range=0.5)
    ).eval()


def plain_score(model, tokenizer, question, shown, row, answer) -> float:
    """The mean log-probability of an answer's tokens: one text, no padding, no cache."""
    before = demonstrate(question, shown) + ask(question, row)
    ids = tokenizer(f"{before} {answer}", add_special_tokens=False)["input_ids"]
    n_tokens = len(ids) - len(tokenizer(before, add_special_tokens=False)["input_ids"])
    if tokenizer.bos_token_id is not None:
        ids = [tokenizer.bos_token_id, *ids]
    with torch.no_grad():
        logs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    of_answer = [logs[i - 1, ids[i]] for i in range(len(ids) - n_tokens, len(ids))]
    return float(sum(of_answer) / n_tokens)


def test_the_prompt_is_that_of_si_et_al():
    question = QUESTIONS["nli"]
    row = {"text": "A.", "text_pair": "B.", "label": 2}
    asked = "A.\nB.\nWhat is the relationship between these two sentences?\nAnswer:"
    assert ask(question, row) == asked
    assert demonstrate(question, [row]) == f"{asked} contradiction\n\n"


def test_examples_are_drawn_evenly_and_by_the_seed():
    labels = [int(i % 3 == 0) for i in range(300)]
    rows = draw_examples(labels, 16, seed=0)
    assert len(set(rows)) == 16
    assert sum(labels[row] for row in rows) == 8
    assert [labels[row] for row in rows] != sorted(labels[row] for row in rows), "in random order"
    assert rows == draw_examples(labels, 16, seed=0) != draw_examples(labels, 16, seed=1)
    three = [i % 3 for i in range(300)]
    counts = [[three[row] for row in draw_examples(three, 16, seed)] for seed in range(10)]
    by_label = {tuple(map(drawn.count, range(3))) for drawn in counts}
    assert by_label == {(6, 5, 5), (5, 6, 5), (5, 5, 6)}, "the odd one is not always of one label"
    assert draw_examples(labels, 0, seed=0) == []
    assert {0, 3, 6, 9, 12, 15, 18, 21} < {*draw_examples(labels[:24], 16, seed=0)}, "each once"
    with pytest.raises(UserError, match="takes 8 examples of label 1; the training set has 7"):
        draw_examples(labels[:21], 16, seed=0)


@pytest.mark.parametrize("shown", [ROWS, []])
@pytest.mark.parametrize("start", [None, 2])
@pytest.mark.parametrize("made", [of_words, of_bytes, of_sentencepiece])
def test_scores_are_those_of_each_text_alone(shown, start, made):
    tokenizer = made()
    tokenizer.bos_token = None if start is None else tokenizer.convert_ids_to_tokens(start)
    tokenizer.model_max_length = 512
    model = tiny_gpt2(tokenizer)
    prompt = CausalPrompt(model, tokenizer, QUESTION, shown)
    rows = [{"text": text} for text in TEXTS]
    expected = [
        [plain_score(model, tokenizer, QUESTION, shown, row, answer) for answer in QUESTION.answers]
        for row in rows
    ]
    torch.testing.assert_close(prompt.scores(rows), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    # a batch of one needs no padding
    alone = torch.cat([prompt.scores([row]) for row in rows])
    torch.testing.assert_close(prompt.scores(rows), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("made", [of_words, of_bytes, of_sentencepiece])
def test_examples_are_read_once(made, monkeypatch):
    tokenizer = made()
    tokenizer.model_max_length = 512
    prompt = CausalPrompt(tiny_gpt2(tokenizer), tokenizer, QUESTION, ROWS * 4)
    lengths = []
    run = prompt._run
    monkeypatch.setattr(
        prompt, "_run", lambda ids, cache: lengths.append(ids.shape[1]) or run(ids, cache)
    )
    prompt.scores([{"text": "a film"}])
    assert len(lengths) == 1
    assert lengths[0] < len(prompt._prefix) / 2


def test_what_is_no_causal_model(tmp_path):
    with pytest.raises(UserError, match="cannot load "):
        load_causal_lm(str(tmp_path))
    plm = make_plm()
    plm.mlm.save_pretrained(tmp_path)
    plm.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"is a masked LM \(bert\); expected a causal one"):
        load_causal_lm(str(tmp_path))


@pytest.fixture
def gpt(tmp_path) -> str:
    """A folder with a tiny GPT-2 that reads 400 tokens, and a tokenizer of words."""
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    tokenizer.model_max_length = 400
    folder = tmp_path / "tiny-gpt2"
    tiny_gpt2(tokenizer, n_positions=400).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_causal_lm_answers_in_float32_whatever_its_file_holds(gpt):
    model, _ = load_causal_lm(gpt)
    model.half().save_pretrained(gpt)
    assert load_causal_lm(gpt)[0].dtype == torch.float32


def test_a_causal_lm_on_a_set_by_the_command(gpt, testbed, tmp_path):
    """Examples, scores, calibration and metrics, recomputed by hand from what the record names."""
    out = tmp_path / "prompted.json"
    command = ["prompt", "--causal", "--model", gpt, "--shots", "6", "--seed", "3"]
    command += ["--sets", "testbed_sentiment", "--json", str(out)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "calibrated" in result.stdout
    record = json.loads(out.read_text())
    settings = {"causal": True, "shots": 6, "seed": 3, "model": "tiny-gpt2"}
    assert settings.items() <= record["prompting"].items()
    of_set = record["prompts"]["testbed_sentiment"]
    assert (of_set["shown_shortened"], of_set["shortened"]) == (0, 0)

    train = {row["uid"]: row for row in load("testbed_sentiment_train")}
    shown = [train[uid] for uid in of_set["shown"]]
    assert sorted(row["label"] for row in shown) == [0, 0, 0, 1, 1, 1]
    question = QUESTIONS["sentiment"]
    assert (of_set["question"], of_set["answers"]) == (question.text, list(question.answers))
    context = demonstrate(question, shown)
    assert of_set["shown_sha256"] == hashlib.sha256(context.encode()).hexdigest()

    model, tokenizer = load_causal_lm(gpt)
    rows = list(load("testbed_sentiment"))
    scores = torch.tensor(
        [
            [
                plain_score(model, tokenizer, question, shown, row, answer)
                for answer in question.answers
            ]
            for row in [*rows, {"text": "N/A"}]
        ]
    )
    labels = torch.tensor([row["label"] for row in rows])
    metrics = record["metrics"]["testbed_sentiment"]
    correct = {
        "mean": int((scores[:-1].argmax(1) == labels).sum()),
        "calibrated": int(((scores[:-1] - scores[-1]).argmax(1) == labels).sum()),
    }
    assert {scoring: of_scoring["correct"] for scoring, of_scoring in metrics.items()} == correct


def test_a_causal_lm_on_a_set_of_two_of_three_labels(gpt, monkeypatch):
    pairs = [
        {
            "text": f"the {'film' if i % 3 else 'plot'} is {'good' if i % 5 else 'slow'}",
            "text_pair": "a story is warm",
            "label": i % 3,
            "uid": str(i),
            "group": f"lexical_overlap/of_{i % 2}",
        }
        for i in range(60)
    ]
    asked = [row | {"label": min(row["label"], 1)} for row in pairs[:24]]
    datasets = {"train": Dataset.from_list(pairs), "testbed_overlap": Dataset.from_list(asked)}

    def read_inputs(config):
        config = config.resolved()
        return SimpleNamespace(config=config, public=config.public(), datasets=datasets)

    monkeypatch.setattr(prompting, "read_inputs", read_inputs)
    settings = {"model": gpt, "sets": ("testbed_overlap",), "max_length": 16}
    result = evaluate(configure("nli", "fine_tuning", **settings), shots=4)
    question = prompting.FOLDED_QUESTION
    uids = result["prompts"]["testbed_overlap"]["shown"]
    shown = [pairs[int(uid)] | {"label": min(pairs[int(uid)]["label"], 1)} for uid in uids]
    assert sorted(row["label"] for row in shown) == [0, 0, 1, 1]
    model, tokenizer = load_causal_lm(gpt)
    scores = CausalPrompt(model, tokenizer, question, shown).scores(asked)
    right = int((scores.argmax(1) == torch.tensor([row["label"] for row in asked])).sum())
    metrics = result["metrics"]["testbed_overlap"]["mean"]
    assert metrics["correct"] == right, "two answers: nothing to fold"


def test_texts_that_are_too_long_are_cut_and_counted(gpt):
    model, tokenizer = load_causal_lm(gpt)
    long = {"text": "the film is slow " * 100, "label": 0}
    rows = [long, {"text": "a warm story"}]
    prompt = CausalPrompt(model, tokenizer, QUESTION, [long], max_length=8)
    assert prompt.context.startswith("the film is slow the film is slow\n")
    assert prompt.description["shown_shortened"] == 1
    short, n_cut = prompt.cut([{"text": row["text"]} for row in rows])
    assert n_cut == 1
    assert [row["text"] for row in short] == ["the film is slow the film is slow", "a warm story"]
    # without max_length in the way, what is left is what the model reads, and not a token less
    (short,), _ = CausalPrompt(model, tokenizer, QUESTION, ROWS, 1000).cut([{"text": long["text"]}])
    context = demonstrate(QUESTION, ROWS)
    whole = f"{context}{ask(QUESTION, short)} {QUESTION.answers[1]}"
    assert len(tokenizer(whole, add_special_tokens=False)["input_ids"]) == 400


def test_examples_that_leave_no_room_are_refused(gpt, testbed):
    with pytest.raises(UserError, match=r"shots is 32: .* reads 400 with the text; show fewer"):
        settings = {"model": gpt, "sets": ("testbed_sentiment",)}
        evaluate(configure("sentiment", "fine_tuning", **settings), shots=32)
    with pytest.raises(UserError, match=r"is a masked LM \(bert\); .* is asked without --causal"):
        evaluate(configure("sentiment", "fine_tuning"), shots=2)
    with pytest.raises(UserError, match="gpt2, needs --causal"):
        evaluate(configure("sentiment", "fine_tuning", model=gpt))


@pytest.mark.parametrize("option", ["--shots", "--seed"])
def test_options_about_examples_shown_need_a_causal_model(option):
    result = CliRunner().invoke(app, ["prompt", option, "3"])
    assert isinstance(result.exception, UserError)
    assert "takes --causal" in str(result.exception) or "with --causal" in str(result.exception)


@pytest.mark.parametrize(("reads", "n_positions"), [(64, 512), (512, 64)])
def test_a_text_has_the_room_that_both_tokenizer_and_model_leave(reads, n_positions):
    tokenizer = of_words()
    tokenizer.model_max_length = reads
    prompt = CausalPrompt(tiny_gpt2(tokenizer, n_positions), tokenizer, QUESTION)
    asked = tokenizer.tokenize("is the film good Answer: slowly boring")  # the longest answer
    assert prompt.max_length == 64 - len(asked)
