"""The scripts that make the bundled masked LM and restore a head, whole, on tiny models."""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertConfig, BertModel, set_seed

from mtlib.data.sources import load
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM

sys.path.insert(0, str(MINI_MODEL_DIR.parent))
sys.path.insert(0, str(MINI_MODEL_DIR))
import lm_training
import pretrain
import restore_head


@pytest.fixture(scope="module")
def warm_start(tmp_path_factory):
    """Six layers of random weights under the bundled tokenizer."""
    folder = tmp_path_factory.mktemp("warm_start")
    set_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    BertModel(BertConfig(vocab_size=10_000, **sizes)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MINI_MODEL_DIR / name, folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    lines = load("testbed_sentiment_train")["text"][:400]
    (folder / "reviews.txt").write_text("\n".join(lines[:200]))
    (folder / "books_1.txt").write_text("\n".join(lines[200:]))
    return folder


def pretrained(work, warm_start, corpus, *options):
    arguments = f"--work {work} --warm-start {warm_start} --corpus {corpus} --tokens 3000"
    arguments += " --vocabulary 600 --batch 16"
    pretrain.main([*arguments.split(), *options])
    return work


@pytest.fixture(scope="module")
def finished(tmp_path_factory, warm_start, corpus):
    return pretrained(tmp_path_factory.mktemp("work"), warm_start, corpus, "--layers", "0", "2")


def test_start_has_the_chosen_layers_and_rows(finished, warm_start):
    theirs = load_file(warm_start / "model.safetensors")
    ours = load_file(finished / "start" / "model.safetensors")
    name = "encoder.layer.{}.intermediate.dense.weight"
    for layer, full in ((0, 0), (1, 2)):
        assert ours["bert." + name.format(layer)].equal(theirs[name.format(full)])
    full = AutoTokenizer.from_pretrained(warm_start)
    cut = AutoTokenizer.from_pretrained(finished / "start")
    assert len(cut) == 600 and cut.convert_ids_to_tokens(range(5)) == pretrain.SPECIALS
    table = "embeddings.word_embeddings.weight"
    for piece in ("[MASK]", "film", "the"):
        row, full_row = cut.convert_tokens_to_ids(piece), full.convert_tokens_to_ids(piece)
        assert row != cut.unk_token_id and ours["bert." + table][row].equal(theirs[table][full_row])


def test_held_out_lines_are_not_trained_on(finished, corpus):
    tokenizer = AutoTokenizer.from_pretrained(finished / "start")
    lines = lm_training.read_lines(corpus, "reviews")
    held_out = lm_training.Pieces.load(finished / "examples" / "held_out" / "reviews").rows()
    trained = {
        tuple(ids)
        for ids in lm_training.Pieces.load(finished / "examples" / "train" / "reviews").rows()
    }
    assert tokenizer.decode(held_out[0], skip_special_tokens=True) == lines[0].lower()
    assert not trained & {tuple(ids) for ids in held_out} and len(trained) > 50


def test_export_is_a_model_that_fills(finished, tmp_path):
    pretrain.main(["--work", str(finished), "--export", str(tmp_path)])
    assert {
        tensor.dtype.itemsize for tensor in load_file(tmp_path / "model.safetensors").values()
    } == {2}
    plm = SharedPLM.from_pretrained(tmp_path, num_labels=2)
    assert plm.config.num_hidden_layers == 2 and plm.config.hidden_dropout_prob == 0.1


def test_batches_hold_every_piece_once_in_like_lengths():
    lengths = torch.randint(6, 65, (500,), generator=torch.Generator().manual_seed(0)).numpy()
    pieces = lm_training.Pieces(
        torch.arange(lengths.sum()).numpy(), lengths
    )  # every token has a number of its own
    batches = list(lm_training.Batches(pieces, pad_id=-1, tokens=512))
    tokens = torch.cat([batch["input_ids"][batch["attention_mask"].bool()] for batch in batches])
    assert tokens.sort().values.equal(torch.arange(lengths.sum()))
    assert max(batch["input_ids"].numel() for batch in batches) <= 512
    assert sum(batch["input_ids"].numel() for batch in batches) < 1.05 * lengths.sum()
    shapes = [batch["input_ids"].shape[1] for batch in batches]
    assert shapes != sorted(shapes) and shapes != sorted(shapes, reverse=True)
    row = pieces.rows()[3]
    assert any(
        row.tolist() == ids[: len(row)] for batch in batches for ids in batch["input_ids"].tolist()
    )


# --- restore_head.py ---


def test_restored_head_fills_and_lower_layers_are_as_they_were(warm_start, corpus, tmp_path):
    arguments = f"--checkpoint {warm_start} --corpus {corpus} --work {tmp_path / 'work'}"
    arguments += f" --to {tmp_path / 'model'} --tokens 2000 --batch 4 --train-layers 2"
    restore_head.main([*arguments.split(), "--held-out", "10"])
    encoder = load_file(warm_start / "model.safetensors")
    model = load_file(tmp_path / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in model.values()} == {torch.float16}
    moved = {
        name
        for name in encoder
        if f"bert.{name}" in model and not model[f"bert.{name}"].equal(encoder[name].half())
    }
    assert {name.split(".")[2] for name in moved} == {"4", "5"} and len(moved) > 20
    dropped = encoder.keys() - {name.removeprefix("bert.") for name in model}
    assert dropped == {"pooler.dense.weight", "pooler.dense.bias"}

    dense = "cls.predictions.transform.dense.weight"
    start = load_file(tmp_path / "work" / "start" / "model.safetensors")
    assert start[dense].equal(torch.eye(16)) and not model[dense].equal(torch.eye(16).half())

    plm = SharedPLM.from_pretrained(tmp_path / "model", num_labels=2)
    assert plm.config.hidden_dropout_prob == 0.1
    assert len(plm.tokenizer) == plm.config.vocab_size == 10_000
    assert plm.mlm.get_output_embeddings().weight is plm.trunk.get_input_embeddings().weight

    report = json.loads((tmp_path / "model" / "pretraining.json").read_text())
    assert {"accuracy", "cross_entropy", "n_masked"} <= report["held_out"]["reviews"].keys()
    assert str(tmp_path) not in json.dumps(report)
