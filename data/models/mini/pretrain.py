"""Make the bundled masked LM: a small BERT, warm-started from a MiniLM checkpoint, trained on a folder of text.

    python data/models/mini/pretrain.py --warm-start MINILM_FOLDER --corpus TEXT_FOLDER --work WORK --tokens 20_000_000
    python data/models/mini/pretrain.py --work WORK --export data/models/mini

MINILM_FOLDER holds `sentence-transformers/all-MiniLM-L6-v2` (config.json, tokenizer.json, model.safetensors);
TEXT_FOLDER holds one `DOMAIN.txt` or `DOMAIN.txt.xz` per domain, one paragraph a line. Started again, the first
command goes on from its last checkpoint. The result is described in README.md beside this file.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, set_seed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import lm_training

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# the settings that the prepared text and the start model were made with
PREPARING = ("tokens", "layers", "from_scratch", "vocabulary", "length")


def main(command_line: list[str] | None = None) -> None:
    arguments = parse_arguments(command_line)
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        return lm_training.export(work, arguments.export)
    prepared, preparing = work / "examples" / "complete", lm_training.settings_of(arguments, PREPARING)
    lm_training.check_settings(prepared, preparing)
    lm_training.check_settings(work / "training.json", lm_training.settings_of(arguments, lm_training.TRAINING))
    if (work / "report.json").exists():
        print(f"{work} is finished; its report is in report.json.")
        return None
    if not prepared.exists():
        if arguments.warm_start is None or arguments.corpus is None:
            raise SystemExit(f"{work} holds no prepared text yet: --warm-start and --corpus are needed to make it.")
        prepare(arguments, lm_training.read_corpus(arguments.corpus))
        prepared.write_text(json.dumps(preparing))
    train(arguments)
    return None


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = lm_training.parser(__doc__, rate=1e-3)
    parser.add_argument("--warm-start", type=Path)
    parser.add_argument("--export", type=Path, help="write the finished model here instead of training")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1, 2, 3], help="layers taken from the warm start")
    parser.add_argument("--from-scratch", action="store_true", help="of the warm start take the vocabulary alone")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    return parser.parse_args(command_line)


def prepare(arguments: argparse.Namespace, corpus: dict[str, list[str]]) -> None:
    """The model to start from and the pieces to train on, in `arguments.work`."""
    start, warm_start = arguments.work / "start", arguments.warm_start
    kept = choose_vocabulary(AutoTokenizer.from_pretrained(warm_start), corpus, arguments.vocabulary)
    build_start(warm_start, kept, arguments.layers, start, arguments.from_scratch)
    tokenizer = AutoTokenizer.from_pretrained(start)
    lm_training.build_examples(corpus, tokenizer, arguments.tokens, arguments.length, arguments.work / "examples")


def train(arguments: argparse.Namespace) -> None:
    started_from = "random weights" if arguments.from_scratch else "warm start"
    lm_training.finish(arguments.work, lm_training.train(arguments.work, arguments) | {"started_from": started_from})


def build_start(warm_start: Path, kept: list[str], layers: list[int], out: Path, from_scratch: bool = False) -> None:
    """Cut the warm start's vocabulary and layers down; the masked-LM head is new, its output tied to the embeddings."""
    full = AutoTokenizer.from_pretrained(warm_start)
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(warm_start, kept, out)
    weights = load_file(warm_start / "model.safetensors")
    settings = json.loads((warm_start / "config.json").read_text())
    for layer in layers:
        if not 0 <= layer < settings["num_hidden_layers"]:
            raise SystemExit(f"--layers has layer {layer}; {warm_start} has {settings['num_hidden_layers']}, from 0.")
    config = BertConfig(
        vocab_size=len(kept), hidden_size=settings["hidden_size"], num_hidden_layers=len(layers),
        num_attention_heads=settings["num_attention_heads"], intermediate_size=settings["intermediate_size"],
        max_position_embeddings=512, pad_token_id=0,
    )  # fmt: skip
    set_seed(lm_training.SEED)
    model = BertForMaskedLM(config)
    rows = torch.tensor([full.convert_tokens_to_ids(token) for token in kept])
    state = {"embeddings.word_embeddings.weight": weights["embeddings.word_embeddings.weight"][rows]}
    for name, tensor in weights.items():
        parts = name.split(".")
        if name.startswith("embeddings.") and "word" not in name and name.endswith(("weight", "bias")):
            state[name] = tensor
        elif name.startswith("encoder.layer.") and int(parts[2]) in layers:
            state[".".join([*parts[:2], str(layers.index(int(parts[2]))), *parts[3:]])] = tensor
    if not from_scratch:
        report = model.bert.load_state_dict(state, strict=False)
        assert not report.unexpected_keys and all("position_ids" in key for key in report.missing_keys), report
    model.save_pretrained(out)


def choose_vocabulary(tokenizer, corpus: dict[str, list[str]], size: int) -> list[str]:
    """The special tokens, every single ASCII character, and the most frequent pieces of the corpus."""
    counts: Counter = Counter()
    for name, lines in corpus.items():
        share = lm_training.MIXTURE.get(name, lm_training.OTHER_DOMAIN)
        sample = lines[lm_training.n_held_out(lines) :][: int(400_000 * share)]
        for start in range(0, len(sample), 1000):
            for ids in tokenizer(sample[start : start + 1000], add_special_tokens=False)["input_ids"]:
                counts.update(ids)
    known = tokenizer.get_vocab()
    characters = [mark + chr(code) for mark in ("", "##") for code in range(33, 127)]
    kept = dict.fromkeys([*SPECIALS, *(piece for piece in characters if piece in known)])
    for piece_id, _ in counts.most_common():
        if len(kept) == size:
            break
        kept.setdefault(tokenizer.convert_ids_to_tokens(piece_id))
    return list(kept)


def write_tokenizer(warm_start: Path, kept: list[str], out: Path) -> None:
    data = json.loads((warm_start / "tokenizer.json").read_text())
    ids = {token: index for index, token in enumerate(kept)}
    data["model"]["vocab"] = ids
    data["truncation"] = data["padding"] = None
    for token in data["added_tokens"]:
        token["id"] = ids[token["content"]]
    for token in data["post_processor"].get("special_tokens", {}).values():
        token["ids"] = [ids[text] for text in token["tokens"]]
    for key in ("sep", "cls"):
        if key in data["post_processor"]:
            data["post_processor"][key][1] = ids[data["post_processor"][key][0]]
    (out / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False))
    settings = {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512, "pad_token": "[PAD]",
        "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
    }  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


if __name__ == "__main__":
    main()
