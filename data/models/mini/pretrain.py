"""Make the bundled masked LM: a small BERT, warm-started from a MiniLM checkpoint, trained on a folder of text.

    python data/models/mini/pretrain.py --warm-start MINILM_FOLDER --corpus TEXT_FOLDER --work WORK --tokens 20_000_000
    python data/models/mini/pretrain.py --work WORK --export data/models/mini

MINILM_FOLDER holds `sentence-transformers/all-MiniLM-L6-v2` (config.json, tokenizer.json, model.safetensors);
TEXT_FOLDER holds one `DOMAIN.txt` or `DOMAIN.txt.xz` per domain, one paragraph a line. Started again, the first
command goes on from its last checkpoint. The result is described in README.md beside this file.
"""

import argparse
import json
import lzma
import random
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification, set_seed

from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM
from mtlib.plm import SharedPLM
from mtlib.trainer import Collator, ObjectiveArguments, ObjectiveTrainer, last_checkpoint, precision

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# share of the training tokens; what a corpus lacks is left out and the rest scaled up
MIXTURE = {
    "reviews": 0.14, "chat_forum": 0.09, "news": 0.12, "books_1": 0.13, "books_2": 0.13, "podcasts": 0.07,
    "encyclopedia_core": 0.08, "encyclopedia_more": 0.08, "blogs_docs": 0.05, "speech": 0.04, "textbooks": 0.03,
    "dictionary": 0.04,
}  # fmt: skip
SEED = 0
# what one work folder is for; --steps may be given later
DECIDING = ("tokens", "layers", "from_scratch", "vocabulary", "length", "batch", "rate", "mask_rate")
HELD_OUT_LENGTH = 64  # whatever the training pieces are, so that models can be compared


def main(given: list[str] | None = None):
    arguments = parse_arguments(given)
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        return export(work, arguments.export)
    start, prepared = work / "start", work / "examples" / "complete"
    deciding = {name: getattr(arguments, name) for name in DECIDING}
    if prepared.exists() and json.loads(prepared.read_text()) != deciding:
        raise SystemExit(
            f"{work} was begun with {prepared.read_text()}, not {json.dumps(deciding)}; give another --work."
        )
    if (work / "report.json").exists():
        print(f"{work} is finished; its report is in report.json.")
        return None
    if not prepared.exists():
        if arguments.warm_start is None or arguments.corpus is None:
            raise SystemExit(f"{work} holds no prepared text yet: --warm-start and --corpus are needed to make it.")
        prepare(arguments, read_corpus(arguments.corpus))
        prepared.write_text(json.dumps(deciding))
    train(start, work, arguments)
    return None


def prepare(arguments: argparse.Namespace, corpus: dict[str, list[str]]) -> None:
    """The model to start from and the pieces to train on, in `arguments.work`."""
    start, warm_start = arguments.work / "start", arguments.warm_start
    kept = choose_vocabulary(AutoTokenizer.from_pretrained(warm_start), corpus, arguments.vocabulary)
    build_start(warm_start, kept, arguments.layers, start, arguments.from_scratch)
    tokenizer = AutoTokenizer.from_pretrained(start)
    build_examples(corpus, tokenizer, arguments.tokens, arguments.length, arguments.work / "examples")


def parse_arguments(given: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the prepared text")
    parser.add_argument("--warm-start", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--export", type=Path, help="write the finished model here instead of training")
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1, 2, 3], help="layers taken from the warm start")
    parser.add_argument("--from-scratch", action="store_true", help="of the warm start take the vocabulary alone")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=64, help="tokens per training piece at most")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--mask-rate", type=float, default=0.15)
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many, with the rate falling to 0 there")
    return parser.parse_args(given)


# --- text ---


def read_corpus(folder: Path) -> dict[str, list[str]]:
    return {name: read_lines(folder, name) for name in domains(folder)}


def domains(corpus: Path) -> list[str]:
    found = sorted({path.name.split(".")[0] for path in corpus.glob("*.txt*")})
    if not found:
        raise SystemExit(f"{corpus} holds no DOMAIN.txt or DOMAIN.txt.xz file.")
    return found


def read_lines(corpus: Path, name: str) -> list[str]:
    """The lines of a domain in random order; the first hundredth is held out."""
    packed = corpus / f"{name}.txt.xz"
    if packed.exists():
        text = lzma.decompress(packed.read_bytes()).decode()
    else:
        text = (corpus / f"{name}.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    random.Random(f"{SEED}/{name}").shuffle(lines)
    return lines


def build_examples(corpus: dict[str, list[str]], tokenizer, budget: int, length: int, out: Path) -> None:
    """Cut the text into pieces of at most `length` tokens with [CLS] and [SEP], `budget` tokens in all."""
    shares = {name: MIXTURE.get(name, 0.05) for name in corpus}
    total = sum(shares.values())
    for name, lines in corpus.items():
        held_out = lines[: n_held_out(lines)]
        save(chunks(held_out, tokenizer, HELD_OUT_LENGTH, 40_000), out / "held_out" / name)
        wanted = int(budget * shares[name] / total)
        save(chunks(lines[len(held_out) :], tokenizer, length, wanted), out / "train" / name)
        print(f"{name}: {wanted} tokens", flush=True)


def chunks(lines: list[str], tokenizer, length: int, wanted: int) -> list[list[int]]:
    """At least `wanted` tokens in pieces, a thousand lines at a time; from the start again where lines are too few."""
    pieces, count = [], 0
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    while count < wanted:
        before = count
        for start in range(0, len(lines), 1000):
            for ids in tokenizer(lines[start : start + 1000], add_special_tokens=False)["input_ids"]:
                for at in range(0, len(ids), length - 2):
                    piece = ids[at : at + length - 2]
                    if len(piece) >= 4:
                        pieces.append([first, *piece, last])
                        count += len(piece) + 2
            if count >= wanted:
                break
        if count == before:
            raise SystemExit("a domain has no line of four tokens or more left to train on; add text to it.")
    return pieces


def n_held_out(lines: list[str]) -> int:
    return max(1, len(lines) // 100)


def save(pieces: list[list[int]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "lengths.npy", np.array([len(piece) for piece in pieces], dtype=np.int32))
    np.save(folder / "ids.npy", np.concatenate([np.array(piece, dtype=np.int32) for piece in pieces]))


def load(folder: Path) -> Dataset:
    lengths = np.load(folder / "lengths.npy", allow_pickle=False)
    ids = np.load(folder / "ids.npy", allow_pickle=False)
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    return Dataset.from_dict({"input_ids": rows, "length": lengths})


# --- model ---


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
    set_seed(SEED)
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
        sample = lines[n_held_out(lines) :][: int(400_000 * MIXTURE.get(name, 0.05))]
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


def train(start: Path, work: Path, arguments) -> None:
    set_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(start)
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # torch's fused attention is a third slower here than plain products, forward and backward, on a CPU in bf16
    attention = "sdpa" if torch.cuda.is_available() else "eager"
    mlm = BertForMaskedLM.from_pretrained(start, attn_implementation=attention, **no_dropout)
    classifier = BertForSequenceClassification(mlm.config)
    classifier.bert.load_state_dict(mlm.bert.state_dict(), strict=False)
    plm = SharedPLM(classifier, mlm, tokenizer)
    names = sorted(path.name for path in (work / "examples" / "train").iterdir())
    held_out = {name: load(work / "examples" / "held_out" / name) for name in names}
    train_set = concatenate_datasets([load(work / "examples" / "train" / name) for name in names])
    settings = ObjectiveArguments(
        output_dir=str(work / "checkpoints"), num_train_epochs=1, max_steps=arguments.steps,
        per_device_train_batch_size=arguments.batch,
        learning_rate=arguments.rate, warmup_steps=0.03, weight_decay=0.01, adam_beta2=0.98, max_grad_norm=1.0,
        logging_steps=50, save_steps=250, save_total_limit=2, disable_tqdm=True, seed=SEED, **precision(),
    )  # fmt: skip
    trainer = ObjectiveTrainer(plm, MaskedLM(ExactMasking(arguments.mask_rate)), settings, train_set)
    checkpoint = last_checkpoint(work / "checkpoints")
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    tokens = int(sum(train_set["length"]) * min(1.0, trainer.state.epoch))
    report = {
        "tokens_seen": tokens,
        "started_from": "random weights" if arguments.from_scratch else "warm start",
        "seconds_of_last_session": trainer.state.log_history[-1]["train_runtime"],
        "settings": {key: str(value) for key, value in vars(arguments).items() if key in (
            "tokens", "layers", "vocabulary", "length", "batch", "rate", "mask_rate", "steps")},
        "held_out": {name: evaluate(plm, examples) for name, examples in held_out.items()},
    }  # fmt: skip
    for name, scores in report["held_out"].items():
        print(name, scores, flush=True)
    mlm.bert.pooler = None  # the classifier's
    mlm.save_pretrained(work / "final_mlm")
    (work / "report.json").write_text(json.dumps(report, indent=2))  # last: it says that the model is there


@torch.no_grad()
def evaluate(plm: SharedPLM, examples: Dataset) -> dict[str, float]:
    """Accuracy and perplexity at 15 % masked places that are the same in every call."""
    plm.eval()
    objective, collate = MaskedLM(ExactMasking(0.15)), Collator(plm.tokenizer)
    generator = torch.Generator().manual_seed(0)
    loss = correct = masked = 0
    for start in range(0, len(examples), 128):
        batch = collate([examples[i] for i in range(start, min(start + 128, len(examples)))])
        batch = {key: value.to(plm.device) for key, value in batch.items()}
        parts = objective(plm, objective.prepare(plm, batch, generator)).parts
        loss += parts["mlm_loss"].item() * parts["n_masked"].item()
        correct += parts["n_correct"].item()
        masked += parts["n_masked"].item()
    return {"accuracy": correct / masked, "perplexity": float(np.exp(loss / masked)), "n_masked": masked}


def export(work: Path, out: Path) -> None:
    """The finished model in float16 with its tokenizer: what the project ships."""
    if not (work / "report.json").exists():
        raise SystemExit(f"{work} holds no finished training (report.json): nothing to export.")
    model = BertForMaskedLM.from_pretrained(work / "final_mlm")
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.1
    model.half().save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((work / "start" / name).read_bytes())
    (out / "pretraining.json").write_bytes((work / "report.json").read_bytes())


if __name__ == "__main__":
    main()
