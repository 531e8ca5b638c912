"""Masked-LM training on a folder of text: what `mini/pretrain.py` and `restore_head.py` share.

The text lies in a folder with one `DOMAIN.txt` or `DOMAIN.txt.xz` per domain, one paragraph a line. A training lies in
a work folder:

    start/          the masked LM to start from, with its tokenizer
    examples/       the text, cut into pieces of token ids; `complete` says that they are all there
    training.json   the settings that the checkpoints were made with
    checkpoints/    what an interrupted training goes on from
    final_mlm/      the trained model; report.json, written last, says that it is there
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
    TrainerCallback,
    set_seed,
)

from mtlib.contexts import precision
from mtlib.masking import ExactMasking
from mtlib.objectives import MaskedLM
from mtlib.plm import SharedPLM
from mtlib.runs.training import last_checkpoint
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

# share of the training tokens; what a corpus lacks is left out and the rest scaled up
MIXTURE = {
    "reviews": 0.14, "chat_forum": 0.09, "news": 0.12, "books_1": 0.13, "books_2": 0.13, "podcasts": 0.07,
    "encyclopedia_core": 0.08, "encyclopedia_more": 0.08, "blogs_docs": 0.05, "speech": 0.04, "textbooks": 0.03,
    "dictionary": 0.04,
}  # fmt: skip
OTHER_DOMAIN = 0.05
SEED = 0
HELD_OUT_LENGTH = 64  # whatever the training pieces are, so that models can be compared
# the settings that a training cannot change on the way; --steps and --decay-steps may be given later
TRAINING = ("batch", "rate", "head_rate", "mask_rate", "warmup", "train_layers")


def parser(description: str, **defaults) -> argparse.ArgumentParser:
    """The options of every training; `defaults` replace those below."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the prepared text")
    options.add_argument("--corpus", type=Path, help="folder of text, one DOMAIN.txt or DOMAIN.txt.xz per domain")
    options.add_argument("--tokens", type=int, default=20_000_000, help="length of the training")
    options.add_argument("--length", type=int, default=64, help="tokens per training piece at most")
    options.add_argument("--batch", type=int, default=64, help="pieces of full length per step, or as many tokens")
    options.add_argument("--rate", type=float, help="peak learning rate")
    options.add_argument("--head-rate", type=float, help="peak learning rate of the masked-LM head; default --rate")
    options.add_argument("--train-layers", type=int, help="train so many upper layers and the head alone")
    options.add_argument("--mask-rate", type=float, default=0.15)
    options.add_argument("--warmup", type=float, default=0.03, help="share of the steps, or their number")
    options.add_argument("--steps", type=int, default=-1, help="stop after so many, with the rate falling to 0 there")
    options.add_argument(
        "--decay-steps", type=int, help="keep the rate constant until so many steps before the end; default: it falls"
    )
    options.add_argument("--save-steps", type=int, default=250, help="steps between checkpoints")
    options.add_argument("--evaluate-steps", type=int, help="steps between evaluations on held-out text; default: none")
    options.add_argument("--held-out", type=int, help="held-out pieces per domain to evaluate on; default: all")
    options.set_defaults(**defaults)
    return options


def settings_of(arguments: argparse.Namespace, names: tuple[str, ...]) -> dict:
    return {name: getattr(arguments, name) for name in names}


def check_settings(file: Path, settings: dict) -> None:
    """Stop unless `file`, where it exists, holds these settings."""
    if not file.exists():
        return
    begun_with = {name: value for name, value in json.loads(file.read_text()).items() if name in settings}
    if begun_with != {name: settings[name] for name in begun_with}:
        raise SystemExit(
            f"{file.parent} was begun with {json.dumps(begun_with)}, not {json.dumps(settings)}; give another --work."
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


def build_examples(corpus: dict[str, list[str]], tokenizer, budget: int, length: int, out: Path) -> None:
    """Cut the text into pieces of at most `length` tokens with [CLS] and [SEP], `budget` tokens in all."""
    shares = {name: MIXTURE.get(name, OTHER_DOMAIN) for name in corpus}
    total = sum(shares.values())
    for name, lines in corpus.items():
        held_out = lines[: n_held_out(lines)]
        cut(held_out, tokenizer, HELD_OUT_LENGTH, 40_000).save(out / "held_out" / name)
        wanted = int(budget * shares[name] / total)
        cut(lines[len(held_out) :], tokenizer, length, wanted).save(out / "train" / name)
        print(f"{name}: {wanted} tokens", flush=True)


def cut(lines: list[str], tokenizer, length: int, wanted: int) -> "Pieces":
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
                        pieces.append(np.array([first, *piece, last], dtype=np.int32))
                        count += len(piece) + 2
            if count >= wanted:
                break
        if count == before:
            raise SystemExit("a domain has no line of four tokens or more left to train on; add text to it.")
    return Pieces(np.concatenate(pieces), np.array([len(piece) for piece in pieces], dtype=np.int32))


@dataclass(frozen=True)
class Pieces:
    """Token ids of many short texts in one array, so that a batch is cut out of it without a loop over its rows.

    Args:
        ids: of all pieces, one after the other, `(tokens,)`.
        lengths: of each, `(pieces,)`.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def load(cls, *folders: Path) -> "Pieces":
        return cls(*(np.concatenate([np.load(folder / name, allow_pickle=False) for folder in folders])
                     for name in ("ids.npy", "lengths.npy")))  # fmt: skip

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
    """A dataset whose every item is a whole batch: pieces of like length, padded, of at most `tokens` tokens.

    So every step costs the same and weighs as many tokens, whatever the length of its pieces, and nothing is done
    piece by piece while training. The order is drawn from `SEED`; without `tokens` it is that of the text, 128 a batch.
    """

    column_names = ("input_ids", "attention_mask")  # the Trainer checks what the objective needs against them

    def __init__(self, pieces: Pieces, pad_id: int, tokens: int | None = None):
        self.pieces, self.pad_id = pieces, pad_id
        self.starts = np.cumsum(pieces.lengths, dtype=np.int64) - pieces.lengths
        if tokens is None:
            self.rows = [np.arange(at, min(at + 128, len(pieces))) for at in range(0, len(pieces), 128)]
        else:
            self.rows = like_lengths(pieces.lengths, tokens, np.random.default_rng(SEED))
        self.n_tokens = np.array([pieces.lengths[rows].sum() for rows in self.rows])  # (batches,)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        rows = self.rows[index]
        lengths = self.pieces.lengths[rows][:, None]  # (batch, 1)
        places = np.arange(lengths.max())[None]  # (1, seq)
        present = places < lengths  # (batch, seq)
        ids = np.full(present.shape, self.pad_id, dtype=np.int64)
        ids[present] = self.pieces.ids[(self.starts[rows][:, None] + places)[present]]
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(present.astype(np.int64))}


def like_lengths(lengths: np.ndarray, tokens: int, generator: np.random.Generator) -> list[np.ndarray]:
    """The numbers of all pieces in batches of like length, at most `tokens` each with padding; the batches shuffled."""
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    batches, at = [], 0
    while at < len(order):
        n_rows = max(1, tokens // int(lengths[order[at]]))  # the first is the longest
        batches.append(order[at : at + n_rows])
        at += n_rows
    generator.shuffle(batches)
    return batches


# --- training ---


def train(work: Path, arguments: argparse.Namespace) -> dict:
    """Train `work/start` on `work/examples`, from the last checkpoint on, and return the report.

    No dropout, AdamW (beta2 0.98, weight decay 0.01), clip 1.0, bf16 where the device computes in it.
    """
    check_settings(work / "training.json", settings_of(arguments, TRAINING))
    (work / "training.json").write_text(json.dumps(settings_of(arguments, TRAINING)))
    set_seed(SEED)
    plm = load_start(work / "start")
    if arguments.train_layers is not None:
        freeze_below(plm, arguments.train_layers)
    pad_id = plm.tokenizer.pad_token_id
    folders = sorted((work / "examples" / "train").iterdir())
    batches = Batches(Pieces.load(*folders), pad_id, arguments.batch * arguments.length)
    texts = work / "examples" / "held_out"
    held_out = {
        folder.name: Batches(Pieces.load(texts / folder.name).first(arguments.held_out), pad_id) for folder in folders
    }
    trainer = ObjectiveTrainer(
        plm, MaskedLM(ExactMasking(arguments.mask_rate)), trainer_arguments(work, arguments, len(batches)), batches,
        data_collator=only_batch, callbacks=[HeldOutCurve(plm, held_out, arguments.evaluate_steps)],
    )  # fmt: skip
    checkpoint = last_checkpoint(work / "checkpoints")
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    log = trainer.state.log_history
    report = {
        "tokens_seen": int(np.resize(batches.n_tokens, trainer.state.global_step).sum()),
        "steps": trainer.state.global_step,
        "seconds_of_last_session": log[-1]["train_runtime"],
        "settings": {
            name: str(value)
            for name, value in vars(arguments).items()
            if value is not None and not isinstance(value, Path)
        },
        "curve": [entry for entry in log if "held_out_accuracy" in entry],
        "held_out": {name: evaluate(plm, texts) for name, texts in held_out.items()},
    }
    for name, scores in report["held_out"].items():
        print(name, scores, flush=True)
    if hasattr(plm.mlm_trunk, "pooler"):
        plm.mlm_trunk.pooler = None  # the classifier's
    plm.mlm.save_pretrained(work / "final_mlm")
    return report


def finish(work: Path, report: dict) -> None:
    (work / "report.json").write_text(json.dumps(report, indent=2))  # last: it says that the model is there


def load_start(folder: Path) -> SharedPLM:
    # torch's fused attention is a third slower here than plain products, forward and backward, on a CPU in bf16
    attention = "sdpa" if torch.cuda.is_available() else "eager"
    mlm = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)
    classifier = AutoModelForSequenceClassification.from_config(mlm.config, attn_implementation=attention)
    classifier.base_model.load_state_dict(mlm.base_model.state_dict(), strict=False)  # all but a pooler
    plm = SharedPLM(classifier, mlm, AutoTokenizer.from_pretrained(folder))
    for module in plm.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # here and not in the configuration, which goes with the trained model
    return plm


def freeze_below(plm: SharedPLM, n_layers: int) -> None:
    """Leave the gradient to the upper `n_layers` layers of the trunk and to the masked-LM head."""
    depth = plm.config.num_hidden_layers
    stacks = [
        module for module in plm.trunk.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == depth
    ]
    if not stacks:
        raise SystemExit(
            f"{type(plm.trunk).__name__} has no list of {depth} layers to train the upper ones of; "
            "expected an encoder with one, such as BERT or MPNet."
        )
    if not 0 <= n_layers <= depth:
        raise SystemExit(f"--train-layers is {n_layers}; expected 0 to {depth}, the layers of the checkpoint.")
    plm.trunk.requires_grad_(False)
    for layer in stacks[0][depth - n_layers :]:
        layer.requires_grad_(True)


def trainer_arguments(work: Path, arguments: argparse.Namespace, n_batches: int) -> ObjectiveArguments:
    schedule = {}
    if arguments.decay_steps is not None:
        schedule = {
            "lr_scheduler_type": "warmup_stable_decay",
            "lr_scheduler_kwargs": {"num_decay_steps": arguments.decay_steps, "decay_type": "linear"},
        }
    settings = ObjectiveArguments(
        output_dir=str(work / "checkpoints"), num_train_epochs=1, max_steps=arguments.steps,
        per_device_train_batch_size=1, train_sampling_strategy="sequential",  # an example is a whole batch: `Batches`
        learning_rate=arguments.rate, mlm_head_learning_rate=arguments.head_rate, warmup_steps=arguments.warmup,
        weight_decay=0.01, adam_beta2=0.98, max_grad_norm=1.0, logging_steps=50, save_steps=arguments.save_steps,
        save_total_limit=2, disable_tqdm=True, seed=SEED, **schedule, **precision(),
    )  # fmt: skip
    n_steps = arguments.steps if arguments.steps > 0 else n_batches
    warmup = settings.get_warmup_steps(n_steps)
    if arguments.decay_steps is not None and not 0 < arguments.decay_steps <= n_steps - warmup:
        raise SystemExit(
            f"--decay-steps is {arguments.decay_steps}; expected 1 to {n_steps - warmup}, the {n_steps} steps of the "
            f"training without its warm-up of {warmup}."
        )
    return settings


def only_batch(batches: list[dict]) -> dict:
    [batch] = batches
    return batch


class HeldOutCurve(TrainerCallback):
    """Evaluates on held-out text every so many steps; the curve goes into the log, which checkpoints carry."""

    def __init__(self, plm: SharedPLM, held_out: dict[str, Batches], every: int | None):
        self.plm, self.held_out, self.every = plm, held_out, every

    def on_step_end(self, args, state, control, **kwargs):
        if not self.every or state.global_step % self.every:
            return
        scores = overall({name: evaluate(self.plm, texts) for name, texts in self.held_out.items()})
        entry = {"step": state.global_step, **{f"held_out_{name}": value for name, value in scores.items()}}
        state.log_history.append(entry)
        print(entry, flush=True)


@torch.no_grad()
def evaluate(plm: SharedPLM, texts: Batches) -> dict[str, float]:
    """Accuracy and cross-entropy (nats) at 15 % masked places that are the same in every call, in float32."""
    plm.eval()
    objective = MaskedLM(ExactMasking(0.15))
    generator = torch.Generator().manual_seed(0)
    loss = correct = masked = 0
    for batch in texts:
        batch = {key: value.to(plm.device) for key, value in batch.items()}
        parts = objective(plm, objective.prepare(plm, batch, generator)).parts
        loss += parts["mlm_loss"].item() * parts["n_masked"].item()
        correct += parts["n_correct"].item()
        masked += parts["n_masked"].item()
    return scores_of(loss / masked, correct / masked, masked)


def overall(held_out: dict[str, dict]) -> dict[str, float]:
    """The scores over all domains, each masked token counted once."""
    masked = sum(scores["n_masked"] for scores in held_out.values())
    loss, accuracy = (
        sum(value(scores) * scores["n_masked"] for scores in held_out.values()) / masked
        for value in (lambda scores: np.log(scores["perplexity"]), lambda scores: scores["accuracy"])
    )
    return scores_of(loss, accuracy, masked)


def scores_of(loss: float, accuracy: float, masked: int) -> dict[str, float]:
    return {
        "accuracy": accuracy, "cross_entropy": float(loss), "perplexity": float(np.exp(loss)), "n_masked": masked,
    }  # fmt: skip


def export(work: Path, out: Path) -> None:
    """The finished model in float16 with its tokenizer and its report."""
    if not (work / "report.json").exists():
        raise SystemExit(f"{work} holds no finished training (report.json): nothing to export.")
    AutoModelForMaskedLM.from_pretrained(work / "final_mlm").half().save_pretrained(out)
    for file in (work / "start").iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, out / file.name)
    (out / "pretraining.json").write_bytes((work / "report.json").read_bytes())
