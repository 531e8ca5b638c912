"""The scripts that make the bundled masked LM, whole, on a tiny warm start and a tiny corpus."""

import json
import shutil
import sys

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel, set_seed

from mtlib.data.sources import load
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM

sys.path.insert(0, str(MINI_MODEL_DIR))
import choices
import pretrain


@pytest.fixture(scope="module")
def warm_start(tmp_path_factory):
    """Six layers of random weights under the bundled tokenizer."""
    folder = tmp_path_factory.mktemp("warm_start")
    set_seed(0)
    config = BertConfig(
        vocab_size=10_000, hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((MINI_MODEL_DIR / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_bytes((MINI_MODEL_DIR / "tokenizer_config.json").read_bytes())
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    lines = load("testbed_sentiment_train")["text"][:400]
    (folder / "reviews.txt").write_text("\n".join(lines[:200]))
    (folder / "books_1.txt").write_text("\n".join(lines[200:]))
    return folder


def pretrained(work, warm_start, corpus, *options):
    arguments = ["--warm-start", str(warm_start), "--corpus", str(corpus), "--tokens", "3000", "--vocabulary", "600"]
    pretrain.main(["--work", str(work), *arguments, "--batch", "16", *options])
    return work


@pytest.fixture(scope="module")
def finished(tmp_path_factory, warm_start, corpus):
    return pretrained(tmp_path_factory.mktemp("work"), warm_start, corpus, "--layers", "0", "2")


def test_start_has_the_chosen_layers_and_rows(finished, warm_start):
    theirs, ours = load_file(warm_start / "model.safetensors"), load_file(finished / "start" / "model.safetensors")
    name = "encoder.layer.{}.intermediate.dense.weight"
    for layer, full in ((0, 0), (1, 2)):
        assert ours["bert." + name.format(layer)].equal(theirs[name.format(full)])
    full, cut = AutoTokenizer.from_pretrained(warm_start), AutoTokenizer.from_pretrained(finished / "start")
    assert len(cut) == 600 and cut.convert_ids_to_tokens(range(5)) == pretrain.SPECIALS
    table = "embeddings.word_embeddings.weight"
    for piece in ("[MASK]", "film", "the"):
        row, full_row = cut.convert_tokens_to_ids(piece), full.convert_tokens_to_ids(piece)
        assert row != cut.unk_token_id and ours["bert." + table][row].equal(theirs[table][full_row])


def test_held_out_lines_are_not_trained_on(finished, corpus):
    tokenizer = AutoTokenizer.from_pretrained(finished / "start")
    lines = pretrain.read_lines(corpus, "reviews")
    held_out = pretrain.load(finished / "examples" / "held_out" / "reviews")["input_ids"]
    trained = {tuple(ids) for ids in pretrain.load(finished / "examples" / "train" / "reviews")["input_ids"]}
    assert tokenizer.decode(held_out[0], skip_special_tokens=True) == lines[0].lower()
    assert not trained & {tuple(ids) for ids in held_out} and len(trained) > 50


def test_report_counts_what_was_seen(finished):
    report = json.loads((finished / "report.json").read_text())
    lengths = [sum(pretrain.load(finished / "examples" / "train" / name)["length"]) for name in ("reviews", "books_1")]
    assert report["tokens_seen"] == sum(lengths) and report["started_from"] == "warm start"
    assert {name: scores["n_masked"] > 0 for name, scores in report["held_out"].items()} == {
        "books_1": True, "reviews": True,
    }  # fmt: skip


def test_export_is_a_model_that_fills(finished, tmp_path):
    pretrain.main(["--work", str(finished), "--export", str(tmp_path)])
    assert {tensor.dtype.itemsize for tensor in load_file(tmp_path / "model.safetensors").values()} == {2}
    plm = SharedPLM.from_pretrained(tmp_path, num_labels=2)
    assert plm.config.num_hidden_layers == 2 and plm.config.hidden_dropout_prob == 0.1


def test_started_again_it_goes_on_from_its_checkpoint(finished, warm_start, corpus, tmp_path):
    work = shutil.copytree(finished, tmp_path / "work")
    trained = load_file(work / "final_mlm" / "model.safetensors")
    (work / "report.json").unlink()  # as if it had been cut off before its end
    start = load_file(work / "start" / "model.safetensors")  # none but the checkpoint knows the weights
    save_file(
        {name: value * 0 for name, value in start.items()}, work / "start" / "model.safetensors", {"format": "pt"}
    )
    pretrained(work, warm_start, corpus, "--layers", "0", "2")
    again = load_file(work / "final_mlm" / "model.safetensors")
    assert trained.keys() == again.keys() and all(trained[name].equal(again[name]) for name in trained)


def test_what_is_finished_stays(finished, warm_start, corpus, capsys):
    before = (finished / "report.json").read_bytes()
    pretrained(finished, warm_start, corpus, "--layers", "0", "2")
    assert "is finished" in capsys.readouterr().out and (finished / "report.json").read_bytes() == before
    with pytest.raises(SystemExit, match=r"was begun with .*give another --work"):
        pretrained(finished, warm_start, corpus, "--layers", "0", "2", "--rate", "0.5")


def test_from_scratch_takes_the_vocabulary_alone(finished, warm_start, corpus, tmp_path):
    theirs = load_file(warm_start / "model.safetensors")
    work = pretrained(tmp_path, warm_start, corpus, "--layers", "0", "2", "--from-scratch")
    ours = load_file(work / "start" / "model.safetensors")
    name = "encoder.layer.0.intermediate.dense.weight"
    assert not ours["bert." + name].equal(theirs[name])
    assert (work / "start" / "tokenizer.json").read_text() == (finished / "start" / "tokenizer.json").read_text()
    assert json.loads((work / "report.json").read_text())["started_from"] == "random weights"


def test_other_options_on_prepared_text_are_refused(finished, warm_start, corpus):
    with pytest.raises(SystemExit, match=r"was begun with .*give another --work"):
        pretrained(finished, warm_start, corpus, "--layers", "0", "3")


def test_unknown_layer(warm_start, corpus, tmp_path):
    with pytest.raises(SystemExit, match=r"layer 6; .* has 6"):
        pretrained(tmp_path, warm_start, corpus, "--layers", "0", "6")


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(SystemExit, match="--warm-start and --corpus are needed"):
        pretrain.main(["--work", str(tmp_path / "work"), "--corpus", str(tmp_path)])
    with pytest.raises(SystemExit, match="nothing to export"):
        pretrain.main(["--work", str(tmp_path / "work"), "--export", str(tmp_path / "model")])


def test_empty_corpus(warm_start, tmp_path):
    with pytest.raises(SystemExit, match=r"holds no DOMAIN\.txt"):
        pretrained(tmp_path / "work", warm_start, tmp_path)


def test_choices_are_compared_at_equal_tokens(warm_start, corpus, tmp_path, monkeypatch):
    release = tmp_path / "releases" / "sst2" / "SST-2"
    release.mkdir(parents=True)
    rows = load("testbed_sentiment_train")
    for name, chosen in (("train", range(40)), ("dev", range(40, 912))):
        lines = [f"{' '.join(rows[i]['text'].split()[:4])} \t{rows[i]['label']}" for i in chosen]
        (release / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    small = ["--layers", "0", "1", "--vocabulary", "600", "--batch", "16"]
    monkeypatch.setattr(choices, "CHOICES", {"as it is": small, "half masked": [*small, "--mask-rate", "0.5"]})
    monkeypatch.setattr(choices, "PHRASES", 32)
    table = tmp_path / "choices.json"
    arguments = ["--warm-start", str(warm_start), "--corpus", str(corpus), "--sst2", str(tmp_path / "releases")]
    arguments += ["--work", str(tmp_path / "work"), "--to", str(table), "--tokens", "3000"]
    choices.main(arguments)
    scores = json.loads(table.read_text())
    assert list(scores) == ["as it is", "half masked"]
    assert scores["as it is"]["tokens"] == scores["half masked"]["tokens"] > 0
    assert scores["as it is"]["masked_accuracy"] != scores["half masked"]["masked_accuracy"]
    assert all(choice["sst2"]["n"] == 3 for choice in scores.values())
    records = sorted((tmp_path / "work").rglob("sst2/*.json"))
    before = [path.stat().st_mtime_ns for path in records]
    choices.main(arguments)  # nothing is done again
    assert len(records) == 6 and [path.stat().st_mtime_ns for path in records] == before
    assert json.loads(table.read_text()) == scores
