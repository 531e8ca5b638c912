"""Give an encoder that has none a masked-LM head, for example a sentence encoder, by training on a folder of text.

    python data/models/restore_head.py --checkpoint ENCODER --corpus TEXT_FOLDER --work WORK --to OUT \
        --tokens 2_500_000

The checkpoint keeps its vocabulary and all its layers. Embeddings and lower layers are frozen; the upper layers
(`--train-layers`) and a new head are trained, the head with a rate of its own, its dense layer started at the identity
and its output tied to the embeddings. OUT becomes a plain masked-LM checkpoint in float16. Started again, the command
goes on from its last checkpoint. README.md in this folder says how well this works.
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
    preparing = {**lm_training.settings_of(arguments, PREPARING), "checkpoint": arguments.checkpoint.name}
    lm_training.check_settings(prepared, preparing)
    lm_training.check_settings(work / "training.json", lm_training.settings_of(arguments, lm_training.TRAINING))
    if not (work / "report.json").exists():
        if not prepared.exists():
            build_start(arguments.checkpoint, work / "start")
            corpus = lm_training.read_corpus(arguments.corpus)
            tokenizer = AutoTokenizer.from_pretrained(work / "start")
            lm_training.build_examples(corpus, tokenizer, arguments.tokens, arguments.length, work / "examples")
            prepared.write_text(json.dumps(preparing))
        lm_training.finish(work, lm_training.train(work, arguments))
    lm_training.export(work, arguments.to)
    print(f"{arguments.to} is written; how good it is stands in its pretraining.json.")


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = lm_training.parser(
        __doc__, tokens=2_500_000, batch=32, rate=1e-4, head_rate=1e-3, train_layers=6, held_out=40
    )
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--to", type=Path, required=True, help="folder for the masked LM")
    arguments = parser.parse_args(command_line)
    if arguments.corpus is None:
        parser.error("--corpus is needed")
    return arguments


def build_start(checkpoint: Path, out: Path) -> None:
    """The checkpoint with a new masked-LM head, as a masked-LM checkpoint with its tokenizer."""
    model, tokenizer, missing = load_encoder(checkpoint)
    if tokenizer.mask_token_id is None:
        raise SystemExit(f"{checkpoint} has no mask token; expected a tokenizer with one, such as BERT's.")
    torn = sorted(name for name in missing if name.startswith(model.base_model_prefix + "."))
    if torn:
        raise SystemExit(
            f"{checkpoint} lacks {len(torn)} weights of {type(model).__name__}, for example {torn[0]}; "
            "expected the whole encoder, get it again."
        )
    if not missing:
        raise SystemExit(
            f"{checkpoint} has a masked-LM head already; expected an encoder without one, use it as it is."
        )
    start_at_identity(model)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def load_encoder(checkpoint: Path) -> tuple:
    """The model with a new head, the tokenizer, and the names of the weights that the checkpoint does not hold."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its report would call the missing head a fault
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            checkpoint, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    except (OSError, ValueError) as error:
        raise SystemExit(
            f"Cannot load an encoder with a masked-LM head from {checkpoint}: {str(error).splitlines()[0]} Expected a "
            "folder with config.json, tokenizer and safetensors weights of an encoder such as BERT, RoBERTa or MPNet."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    if model.config.is_encoder_decoder:
        raise SystemExit(f"{checkpoint} is an encoder-decoder ({type(model).__name__}); expected an encoder.")
    return model, tokenizer, {name for name, _ in model.named_parameters()} & set(report["missing_keys"])


def start_at_identity(model) -> None:
    """Set the head's dense layer to the identity: what the trunk knows then comes through from the first step on."""
    trunk = set(model.base_model.modules())
    for module in model.modules():
        is_head = isinstance(module, torch.nn.Linear) and module not in trunk
        if is_head and module is not model.get_output_embeddings() and module.in_features == module.out_features:
            torch.nn.init.eye_(module.weight)
            torch.nn.init.zeros_(module.bias)


if __name__ == "__main__":
    main()
