"""Make the bundled masked LM, a small BERT that is warm-started from a MiniLM checkpoint.

    python data/models/mini/pretrain.py --warm-start MINILM_FOLDER --corpus TEXT_FOLDER \
        --work WORK --tokens 20_000_000
    python data/models/mini/pretrain.py --work WORK --export data/models/mini

MINILM_FOLDER holds `sentence-transformers/all-MiniLM-L6-v2` (config.json, tokenizer.json,
model.safetensors). TEXT_FOLDER holds one `DOMAIN.txt` or `DOMAIN.txt.xz` per domain, one paragraph
a line. Started again, the first command resumes from its last checkpoint. README.md beside this
file describes the result.
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
VOCABULARY_LINES = 400_000  # over which the pieces of words are counted
# the settings that the prepared text and the start model were made with
PREPARING = ("tokens", "layers", "vocabulary", "length")


def main(command_line: list[str] | None = None) -> None:
    arguments = parse_arguments(command_line)
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        return lm_training.export(work, arguments.export)
    prepared = work / "examples" / "complete"
    preparing = lm_training.settings_of(arguments, PREPARING)
    training = lm_training.settings_of(arguments, lm_training.TRAINING)
    lm_training.check_settings(prepared, preparing)
    lm_training.check_settings(work / "training.json", training)
    if (work / "report.json").exists():
        print(f"{work} is finished; its report is in report.json.")
        return None
    if not prepared.exists():
        if arguments.warm_start is None or arguments.corpus is None:
            raise SystemExit(f"{work} has no prepared text yet: give --warm-start and --corpus.")
        prepare(arguments, lm_training.read_corpus(arguments.corpus))
        prepared.write_text(json.dumps(preparing))
    train(arguments)
    return None


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = lm_training.parser(__doc__, rate=1e-3)
    parser.add_argument("--warm-start", type=Path)
    parser.add_argument("--export", type=Path, help="write the finished model to this folder")
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        default=[0, 1, 2, 3],
        help="layers taken from the warm start",
    )
    parser.add_argument("--vocabulary", type=int, default=10_000)
    return parser.parse_args(command_line)


def prepare(arguments: argparse.Namespace, corpus: dict[str, list[str]]) -> None:
    """The model to start from and the pieces to train on, in `arguments.work`."""
    warm_start = arguments.warm_start
    start = arguments.work / "start"
    full_tokenizer = AutoTokenizer.from_pretrained(warm_start)
    vocabulary = choose_vocabulary(full_tokenizer, corpus, arguments.vocabulary)
    build_start(warm_start, vocabulary, arguments.layers, start)
    lm_training.build_examples(
        corpus,
        AutoTokenizer.from_pretrained(start),
        arguments.tokens,
        arguments.length,
        arguments.work / "examples",
    )


def train(arguments: argparse.Namespace) -> None:
    report = lm_training.train(arguments.work, arguments)
    lm_training.finish(arguments.work, report)


def build_start(
    warm_start: Path,
    vocabulary: list[str],
    layers: list[int],
    out: Path,
) -> None:
    """Write the warm start with this vocabulary and these of its layers, and a new masked-LM head.

    The head's output is tied to the word embeddings.
    """
    settings = json.loads((warm_start / "config.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(warm_start, vocabulary, out)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=settings["hidden_size"],
        num_hidden_layers=len(layers),
        num_attention_heads=settings["num_attention_heads"],
        intermediate_size=settings["intermediate_size"],
        max_position_embeddings=512,
        pad_token_id=0,
    )
    set_seed(lm_training.SEED)
    model = BertForMaskedLM(config)
    state = chosen_weights(warm_start, vocabulary, layers)
    report = model.bert.load_state_dict(state, strict=False)
    assert not report.unexpected_keys, report
    assert all("position_ids" in key for key in report.missing_keys), report
    model.save_pretrained(out)


def chosen_weights(
    warm_start: Path,
    vocabulary: list[str],
    layers: list[int],
) -> dict[str, torch.Tensor]:
    """The warm start's weights for these tokens and layers, under the names of the new trunk."""
    weights = load_file(warm_start / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(warm_start)
    token_ids = torch.tensor([tokenizer.convert_tokens_to_ids(token) for token in vocabulary])
    embeddings = "embeddings.word_embeddings.weight"
    state = {embeddings: weights[embeddings][token_ids]}
    for name, tensor in weights.items():
        if is_other_embedding(name):
            state[name] = tensor
        elif name.startswith("encoder.layer."):
            encoder, layer, number, weight = name.split(".", maxsplit=3)
            if int(number) in layers:
                state[f"{encoder}.{layer}.{layers.index(int(number))}.{weight}"] = tensor
    return state


def is_other_embedding(name: str) -> bool:
    """Whether a weight is of the positions, the segments, or the embeddings' layer norm."""
    is_embedding = name.startswith("embeddings.") and "word" not in name
    return is_embedding and name.endswith(("weight", "bias"))


def choose_vocabulary(tokenizer, corpus: dict[str, list[str]], size: int) -> list[str]:
    """The special tokens, all single ASCII characters, and the corpus's most frequent pieces."""
    counts = count_pieces(tokenizer, corpus)
    known = tokenizer.get_vocab()
    characters = [chr(code) for code in range(33, 127)]
    characters += [f"##{character}" for character in characters]
    chosen = dict.fromkeys(SPECIALS)  # in order, without repetition
    chosen |= dict.fromkeys(piece for piece in characters if piece in known)
    for piece_id, _ in counts.most_common():
        if len(chosen) == size:
            break
        chosen.setdefault(tokenizer.convert_ids_to_tokens(piece_id))
    return list(chosen)


def count_pieces(tokenizer, corpus: dict[str, list[str]]) -> Counter:
    """How often each token id occurs in a sample of the training text."""
    counts = Counter()
    for name, lines in corpus.items():
        share = lm_training.MIXTURE.get(name, lm_training.OTHER_DOMAIN)
        first = lm_training.n_held_out(lines)
        sample = lines[first : first + int(VOCABULARY_LINES * share)]
        for start in range(0, len(sample), lm_training.LINES_AT_A_TIME):
            some = sample[start : start + lm_training.LINES_AT_A_TIME]
            for ids in tokenizer(some, add_special_tokens=False)["input_ids"]:
                counts.update(ids)
    return counts


def write_tokenizer(warm_start: Path, vocabulary: list[str], out: Path) -> None:
    """The warm start's tokenizer with another vocabulary, in which a token's id is its place."""
    tokenizer = json.loads((warm_start / "tokenizer.json").read_text())
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokenizer["model"]["vocab"] = ids
    tokenizer["truncation"] = None
    tokenizer["padding"] = None
    for token in tokenizer["added_tokens"]:
        token["id"] = ids[token["content"]]
    post_processor = tokenizer["post_processor"]
    for token in post_processor.get("special_tokens", {}).values():
        token["ids"] = [ids[text] for text in token["tokens"]]
    for key in ("sep", "cls"):
        if key in post_processor:
            token, _ = post_processor[key]
            post_processor[key] = [token, ids[token]]
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": 512,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


if __name__ == "__main__":
    main()
