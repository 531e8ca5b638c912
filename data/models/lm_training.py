"""Masked-LM training on a folder of text: what `mini/pretrain.py` and `restore_head.py` share.

The text is a folder with one `DOMAIN.txt` or `DOMAIN.txt.xz` per domain, one paragraph a line.
A training keeps its files in a work folder:

    start/          the masked LM to start from, with its tokenizer
    examples/       the text as pieces of token ids; the file `complete` says that all are there
    training.json   the settings that the checkpoints were made with
    checkpoints/    from which an interrupted training resumes
    final_mlm/      the trained model; report.json is written last and marks it as complete
"""

import argparse
import json
import lzma
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)

from mtlib.contexts import precision
from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM
from mtlib.plm import SharedPLM
from mtlib.runs.training import last_checkpoint
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

# shares of the training tokens; where a corpus lacks a domain, the others are scaled up
MIXTURE = {
    "reviews": 0.14,
    "chat_forum": 0.09,
    "news": 0.12,
    "books_1": 0.13,
    "books_2": 0.13,
    "podcasts": 0.07,
    "encyclopedia_core": 0.08,
    "encyclopedia_more": 0.08,
    "blogs_docs": 0.05,
    "speech": 0.04,
    "textbooks": 0.03,
    "dictionary": 0.04,
}
OTHER_DOMAIN = 0.05
SEED = 0
HELD_OUT_LENGTH = 64  # the same for every length of training pieces, so that models are comparable
HELD_OUT_TOKENS = 40_000  # per domain
EVALUATION_BATCH = 128
LINES_AT_A_TIME = 1000  # given to the tokenizer
# settings that cannot change when a training resumes; --steps may be given later
TRAINING = ("batch", "rate", "head_rate", "mask_rate", "warmup", "train_layers")


def parser(description: str, **defaults) -> argparse.ArgumentParser:
    """The options of every training; `defaults` replace those below."""
    options = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = options.add_argument
    add("--work", type=Path, required=True, help="folder for checkpoints and the prepared text")
    add("--corpus", type=Path, help="folder of text, one DOMAIN.txt or DOMAIN.txt.xz per domain")
    add("--tokens", type=int, default=20_000_000, help="length of the training")
    add("--length", type=int, default=64, help="tokens per training piece at most")
    add("--batch", type=int, default=64, help="pieces of full length per step, or as many tokens")
    add("--rate", type=float, help="peak learning rate")
    add("--head-rate", type=float, help="that of the masked-LM head; default --rate")
    add("--train-layers", type=int, help="train only the head and this many upper layers")
    add("--mask-rate", type=float, default=0.15)
    add("--warmup", type=float, default=0.03, help="share of the steps, or their number")
    add("--steps", type=int, default=-1, help="stop after this many, where the rate reaches 0")
    add("--save-steps", type=int, default=250, help="steps between checkpoints")
    add("--held-out", type=int, help="held-out pieces per domain to evaluate on; default: all")
    options.set_defaults(**defaults)
    return options


def settings_of(arguments: argparse.Namespace, names: tuple[str, ...]) -> dict:
    return {name: getattr(arguments, name) for name in names}


def check_settings(file: Path, settings: dict) -> None:
    """Stop unless `file`, where it exists, holds these settings."""
    if not file.exists():
        return
    stored = json.loads(file.read_text())
    begun_with = {name: value for name, value in stored.items() if name in settings}
    if begun_with != {name: settings[name] for name in begun_with}:
        raise SystemExit(
            f"{file.parent} was begun with {json.dumps(begun_with)}, not {json.dumps(settings)}; "
            "give these settings, or give another --work."
        )


# --- text ---


def read_corpus(folder: Path) -> dict[str, list[str]]:
    return {name: read_lines(folder, name) for name in domains(folder)}


def domains(corpus: Path) -> list[str]:
    names = sorted({path.name.split(".")[0] for path in corpus.glob("*.txt*")})
    if not names:
        raise SystemExit(f"{corpus} holds no DOMAIN.txt or DOMAIN.txt.xz file.")
    return names


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


def n_held_out(lines: list[str]) -> int:
    return max(1, len(lines) // 100)


def build_examples(
    corpus: dict[str, list[str]],
    tokenizer,
    budget: int,
    length: int,
    out: Path,
) -> None:
    """Cut the text into pieces of at most `length` tokens, `budget` tokens in all.

    Every piece begins with [CLS] and ends with [SEP], which count.
    """
    shares = {name: MIXTURE.get(name, OTHER_DOMAIN) for name in corpus}
    total = sum(shares.values())
    for name, lines in corpus.items():
        n = n_held_out(lines)
        held_out = cut(lines[:n], tokenizer, HELD_OUT_LENGTH, HELD_OUT_TOKENS)
        held_out.save(out / "held_out" / name)
        wanted = int(budget * shares[name] / total)
        train = cut(lines[n:], tokenizer, length, wanted)
        train.save(out / "train" / name)
        print(f"{name}: {wanted} tokens", flush=True)


def cut(lines: list[str], tokenizer, length: int, wanted: int) -> "Pieces":
    """At least `wanted` tokens in pieces; the lines are read again where they are too few."""
    pieces = []
    n_tokens = 0
    while n_tokens < wanted:
        n_before = n_tokens
        for start in range(0, len(lines), LINES_AT_A_TIME):
            some = lines[start : start + LINES_AT_A_TIME]
            new = pieces_of(some, tokenizer, length)
            pieces += new
            n_tokens += sum(map(len, new))
            if n_tokens >= wanted:
                break
        if n_tokens == n_before:
            raise SystemExit("a domain has no line of four tokens or more left; add text to it.")
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int32)
    return Pieces(np.concatenate(pieces), lengths)


def pieces_of(lines: list[str], tokenizer, length: int) -> list[np.ndarray]:
    """The lines in pieces of at most `length` tokens; what has fewer than four is left out."""
    first = tokenizer.cls_token_id
    last = tokenizer.sep_token_id
    pieces = []
    for ids in tokenizer(lines, add_special_tokens=False)["input_ids"]:
        for start in range(0, len(ids), length - 2):
            text = ids[start : start + length - 2]
            if len(text) >= 4:
                pieces.append(np.array([first, *text, last], dtype=np.int32))
    return pieces


@dataclass(frozen=True)
class Pieces:
    """Token ids of many short texts in one array, so that a batch is indexed without a loop.

    Args:
        ids: of all pieces, one after the other, `(tokens,)`.
        lengths: of the pieces, `(pieces,)`.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def load(cls, *folders: Path) -> "Pieces":
        ids = [np.load(folder / "ids.npy", allow_pickle=False) for folder in folders]
        lengths = [np.load(folder / "lengths.npy", allow_pickle=False) for folder in folders]
        return cls(np.concatenate(ids), np.concatenate(lengths))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "lengths.npy", self.lengths)
        np.save(folder / "ids.npy", self.ids)

    def __len__(self) -> int:
        return len(self.lengths)

    def first(self, n: int | None) -> "Pieces":
        lengths = self.lengths[:n]
        return Pieces(self.ids[: lengths.sum()], lengths)

    def rows(self) -> list[np.ndarray]:
        return np.split(self.ids, np.cumsum(self.lengths)[:-1])


class Batches(torch.utils.data.Dataset):
    """A dataset whose items are whole batches: padded pieces of similar length.

    With `tokens`, a batch has at most so many tokens with its padding, and the order is drawn from
    `SEED`: every step costs about the same, whatever the length of its pieces. Without, the pieces
    keep their order, `EVALUATION_BATCH` a batch.
    """

    # the Trainer compares them with what the objective needs
    column_names = ("input_ids", "attention_mask")

    def __init__(self, pieces: Pieces, pad_id: int, tokens: int | None = None):
        self.pieces = pieces
        self.pad_id = pad_id
        self.starts = np.cumsum(pieces.lengths, dtype=np.int64) - pieces.lengths  # (pieces,)
        if tokens is None:
            self.rows = in_order(len(pieces))
        else:
            self.rows = like_lengths(pieces.lengths, tokens, np.random.default_rng(SEED))
        self.n_tokens = np.array([pieces.lengths[rows].sum() for rows in self.rows])  # (batches,)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        rows = self.rows[index]
        lengths = self.pieces.lengths[rows][:, None]  # (batch, 1)
        starts = self.starts[rows][:, None]  # (batch, 1)
        positions = np.arange(lengths.max())[None]  # (1, seq)
        present = positions < lengths  # (batch, seq)
        ids = np.full(present.shape, self.pad_id, dtype=np.int64)
        ids[present] = self.pieces.ids[(starts + positions)[present]]
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(present.astype(np.int64)),
        }


def in_order(n: int) -> list[np.ndarray]:
    """The numbers of `n` pieces in batches of `EVALUATION_BATCH`."""
    return np.split(np.arange(n), range(EVALUATION_BATCH, n, EVALUATION_BATCH))


def like_lengths(
    lengths: np.ndarray,
    tokens: int,
    generator: np.random.Generator,
) -> list[np.ndarray]:
    """The numbers of all pieces in batches of similar length, shuffled.

    A batch has at most `tokens` tokens with its padding, and at least one piece.
    """
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    batches = []
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        n_rows = max(1, tokens // longest)
        batches.append(order[start : start + n_rows])
        start += n_rows
    generator.shuffle(batches)
    return batches


# --- training ---


def train(work: Path, arguments: argparse.Namespace) -> dict:
    """Train `work/start` on `work/examples`, from the last checkpoint on, and return the report.

    No dropout, AdamW (beta2 0.98, weight decay 0.01), gradients clipped at 1.0, bf16 where the
    device computes in it.
    """
    settings = settings_of(arguments, TRAINING)
    check_settings(work / "training.json", settings)
    (work / "training.json").write_text(json.dumps(settings))
    set_seed(SEED)
    plm = load_start(work / "start")
    if arguments.train_layers is not None:
        freeze_below(plm, arguments.train_layers)
    batches = training_batches(work, arguments, plm.tokenizer.pad_token_id)
    trainer = ObjectiveTrainer(
        plm,
        MaskedLM(ExactMasking(arguments.mask_rate)),
        trainer_arguments(work, arguments),
        batches,
        data_collator=only_batch,
    )
    checkpoint = last_checkpoint(work / "checkpoints")
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    report = report_of(trainer, batches, arguments)
    held_out = held_out_batches(work, arguments.held_out, plm.tokenizer.pad_token_id)
    report["held_out"] = {name: evaluate(plm, texts) for name, texts in held_out.items()}
    for name, scores in report["held_out"].items():
        print(name, scores, flush=True)
    save_masked_lm(plm, work / "final_mlm")
    return report


def training_batches(work: Path, arguments: argparse.Namespace, pad_id: int) -> Batches:
    folders = sorted((work / "examples" / "train").iterdir())
    return Batches(Pieces.load(*folders), pad_id, arguments.batch * arguments.length)


def held_out_batches(work: Path, n: int | None, pad_id: int) -> dict[str, Batches]:
    """The first `n` held-out pieces of each domain; all if `n` is None."""
    folders = sorted((work / "examples" / "held_out").iterdir())
    return {folder.name: Batches(Pieces.load(folder).first(n), pad_id) for folder in folders}


def report_of(
    trainer: ObjectiveTrainer,
    batches: Batches,
    arguments: argparse.Namespace,
) -> dict:
    steps = trainer.state.global_step
    settings = {}
    for name, value in vars(arguments).items():
        if value is not None and not isinstance(value, Path):
            settings[name] = str(value)
    return {
        "tokens_seen": int(np.resize(batches.n_tokens, steps).sum()),
        "steps": steps,
        "seconds_of_last_session": trainer.state.log_history[-1]["train_runtime"],
        "settings": settings,
    }


def save_masked_lm(plm: SharedPLM, out: Path) -> None:
    if hasattr(plm.mlm_trunk, "pooler"):
        plm.mlm_trunk.pooler = None  # it belongs to the classifier
    plm.mlm.save_pretrained(out)


def finish(work: Path, report: dict) -> None:
    # written last: the report says that the model is complete
    (work / "report.json").write_text(json.dumps(report, indent=2))


def load_start(folder: Path) -> SharedPLM:
    # on a CPU in bf16, torch's fused attention is a third slower here than plain matrix products
    attention = "sdpa" if torch.cuda.is_available() else "eager"
    mlm = AutoModelForMaskedLM.from_pretrained(
        folder,
        attn_implementation=attention,
        dtype=torch.float32,
    )
    classifier = AutoModelForSequenceClassification.from_config(
        mlm.config,
        attn_implementation=attention,
    )
    # not strict, for the masked LM has no pooler
    classifier.base_model.load_state_dict(mlm.base_model.state_dict(), strict=False)
    plm = SharedPLM(classifier, mlm, AutoTokenizer.from_pretrained(folder))
    # dropout is set here and not in the configuration, which is saved with the trained model
    for module in plm.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return plm


def freeze_below(plm: SharedPLM, n_layers: int) -> None:
    """Train only the masked-LM head and the upper `n_layers` layers of the trunk."""
    layers = layers_of(plm)
    if not 0 <= n_layers <= len(layers):
        raise SystemExit(
            f"--train-layers is {n_layers}; expected 0 (to train only the head) to {len(layers)} "
            "(to train all layers of the checkpoint)."
        )
    plm.trunk.requires_grad_(False)
    for layer in layers[len(layers) - n_layers :]:
        layer.requires_grad_(True)


def layers_of(plm: SharedPLM) -> torch.nn.ModuleList:
    depth = plm.config.num_hidden_layers
    for module in plm.trunk.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == depth:
            return module
    raise SystemExit(
        f"{type(plm.trunk).__name__} has no list of {depth} layers to train the upper ones of; "
        "expected an encoder with one, such as BERT or MPNet."
    )


def trainer_arguments(work: Path, arguments: argparse.Namespace) -> ObjectiveArguments:
    return ObjectiveArguments(
        output_dir=str(work / "checkpoints"),
        num_train_epochs=1,
        max_steps=arguments.steps,
        per_device_train_batch_size=1,  # an example is a whole batch, see `Batches`
        train_sampling_strategy="sequential",
        learning_rate=arguments.rate,
        mlm_head_learning_rate=arguments.head_rate,
        warmup_steps=arguments.warmup,
        weight_decay=0.01,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        logging_steps=50,
        save_steps=arguments.save_steps,
        save_total_limit=2,
        disable_tqdm=True,
        seed=SEED,
        **precision(),
    )


def only_batch(batches: list[dict]) -> dict:
    [batch] = batches
    return batch


@torch.no_grad()
def evaluate(plm: SharedPLM, texts: Batches) -> dict[str, float]:
    """Accuracy and cross-entropy (nats) at 15 % masked tokens, in float32.

    The same tokens are masked in every call.
    """
    plm.eval()
    objective = MaskedLM(ExactMasking(0.15))
    generator = torch.Generator().manual_seed(0)
    loss = correct = masked = 0
    for batch in texts:
        batch = {key: value.to(plm.device) for key, value in batch.items()}
        parts = objective(plm, objective.sample(plm, batch, generator)).components
        loss += parts["mlm_loss"].item() * parts["n_masked"].item()
        correct += parts["n_correct"].item()
        masked += parts["n_masked"].item()
    cross_entropy = loss / masked
    return {
        "accuracy": correct / masked,
        "cross_entropy": cross_entropy,
        "perplexity": float(np.exp(cross_entropy)),
        "n_masked": masked,
    }


def export(work: Path, out: Path) -> None:
    """The finished model in float16 with its tokenizer and its report."""
    if not (work / "report.json").exists():
        raise SystemExit(f"{work} holds no finished training (report.json): nothing to export.")
    AutoModelForMaskedLM.from_pretrained(work / "final_mlm").half().save_pretrained(out)
    for file in (work / "start").iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, out / file.name)
    (out / "pretraining.json").write_bytes((work / "report.json").read_bytes())
