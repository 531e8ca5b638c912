"""Train a masked-LM head for an encoder that has none, such as a sentence encoder.

    python data/models/restore_head.py --checkpoint ENCODER --corpus TEXT_FOLDER --work WORK \
        --to OUT --tokens 2_500_000

The checkpoint keeps its vocabulary and all its layers. The embeddings and the lower layers are
frozen; the upper layers (`--train-layers`) and a new head are trained. The head has its own
learning rate, its dense layer starts at the identity, and its output is tied to the embeddings. OUT
becomes an ordinary masked-LM checkpoint in float16. Started again, the command resumes from its
last checkpoint. README.md in this folder says how well this works.
"""

import argparse
import json
from pathlib import Path

import lm_training
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

PREPARING = ("tokens", "length")


def main(command_line: list[str] | None = None) -> None:
    arguments = parse_arguments(command_line)
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    prepared = work / "examples" / "complete"
    preparing = lm_training.settings_of(arguments, PREPARING)
    preparing["checkpoint"] = arguments.checkpoint.name
    training = lm_training.settings_of(arguments, lm_training.TRAINING)
    lm_training.check_settings(prepared, preparing)
    lm_training.check_settings(work / "training.json", training)
    if not (work / "report.json").exists():
        if not prepared.exists():
            prepare(arguments)
            prepared.write_text(json.dumps(preparing))
        lm_training.finish(work, lm_training.train(work, arguments))
    lm_training.export(work, arguments.to)
    print(f"{arguments.to} is written; its pretraining.json says how good it is.")


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = lm_training.parser(
        __doc__,
        tokens=2_500_000,
        batch=32,
        rate=1e-4,
        head_rate=1e-3,
        train_layers=6,
        held_out=40,
    )
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--to", type=Path, required=True, help="folder for the masked LM")
    arguments = parser.parse_args(command_line)
    if arguments.corpus is None:
        parser.error("--corpus is needed")
    return arguments


def prepare(arguments: argparse.Namespace) -> None:
    """The model to start from and the pieces to train on, in `arguments.work`."""
    start = arguments.work / "start"
    build_start(arguments.checkpoint, start)
    lm_training.build_examples(
        lm_training.read_corpus(arguments.corpus),
        AutoTokenizer.from_pretrained(start),
        arguments.tokens,
        arguments.length,
        arguments.work / "examples",
    )


def build_start(checkpoint: Path, out: Path) -> None:
    """Write the checkpoint with a new masked-LM head, as a masked LM with its tokenizer."""
    model, tokenizer, missing = load_encoder(checkpoint)
    if tokenizer.mask_token_id is None:
        raise SystemExit(
            f"The tokenizer of {checkpoint} has no mask token; expected a checkpoint that was "
            "trained with one, such as BERT or MPNet."
        )
    trunk_prefix = model.base_model_prefix + "."
    missing_in_trunk = sorted(name for name in missing if name.startswith(trunk_prefix))
    if missing_in_trunk:
        raise SystemExit(
            f"{checkpoint} lacks {len(missing_in_trunk)} weights of {type(model).__name__}, for "
            f"example {missing_in_trunk[0]}; expected the whole encoder, get it again."
        )
    if not missing:
        raise SystemExit(f"{checkpoint} has a masked-LM head already; use it as it is.")
    start_at_identity(model)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def load_encoder(checkpoint: Path) -> tuple:
    """The model with a new head, its tokenizer, and the names of weights that are not stored."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # transformers would report the missing head as a fault
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            checkpoint,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SystemExit(
            f"Cannot load an encoder with a masked-LM head from {checkpoint}: {reason} Expected a "
            "folder with config.json, tokenizer and safetensors weights of an encoder such as "
            "BERT, RoBERTa or MPNet."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    if model.config.is_encoder_decoder:
        kind = type(model).__name__
        raise SystemExit(f"{checkpoint} is an encoder-decoder ({kind}); expected an encoder.")
    parameters = {name for name, _ in model.named_parameters()}
    return model, tokenizer, parameters & set(report["missing_keys"])


def start_at_identity(model) -> None:
    """Set the head's dense layer to the identity, so that it passes on what the trunk knows."""
    trunk = set(model.base_model.modules())
    output = model.get_output_embeddings()
    for module in model.modules():
        if not isinstance(module, torch.nn.Linear) or module in trunk or module is output:
            continue
        if module.in_features == module.out_features:
            torch.nn.init.eye_(module.weight)
            torch.nn.init.zeros_(module.bias)


if __name__ == "__main__":
    main()
