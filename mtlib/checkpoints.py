"""What lies in a folder of a saved model or a checkpoint, and reading it with errors that say what is wrong."""

from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file, logging

from mtlib.errors import UserError
from mtlib.paths import is_missing_folder

HEAD_FILE = "masked_lm_head.safetensors"
SEPARATE_FOLDER = "masked_lm"  # the masked LM, where it has a trunk of its own
# keywords of `from_pretrained` that say where on the hub a checkpoint lies
ON_THE_HUB = ("revision", "subfolder", "token", "cache_dir", "local_files_only", "force_download")
LOADING = {"trust_remote_code": False, "use_safetensors": True, "dtype": torch.float32}


def load_pretrained(auto_class, name_or_path: str, **kwargs):
    """`auto_class.from_pretrained`, without its report and its progress bar."""
    # the report would list the other head as unexpected and the new one as missing: both are meant to be
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return auto_class.from_pretrained(name_or_path, **kwargs)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = _why_not_there(name_or_path) or str(error).splitlines()[0]
        if reason.startswith("Unrecognized configuration class"):  # the text goes on with a class and a long list
            reason = "it is a model of another kind."
        what = auto_class.__name__.removeprefix("Auto").removeprefix("ModelFor")
        raise UserError(
            f"Cannot load {what} from {name_or_path!r}: {reason} "
            "Expected a folder with config.json, tokenizer and safetensors weights, or the id of such a model on the "
            "hub (which needs a network)."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _why_not_there(name_or_path: str) -> str | None:
    """What is wrong with the path itself; None where it is a folder with a configuration, or an id of the hub."""
    if is_missing_folder(name_or_path):
        return "it does not exist."
    path = Path(name_or_path)
    if path.is_file():
        return "it is a file."
    return "it is a folder without config.json." if path.is_dir() and not any(path.rglob("config.json")) else None


def load_config(name_or_path: str, changes: dict, where: dict) -> PreTrainedConfig:
    """The configuration with these changes, all of which it must know; `where` holds keywords of `ON_THE_HUB`."""
    fixed = {"torch_dtype", *LOADING} & changes.keys()
    known = {name: value for name, value in changes.items() if name not in fixed}
    config, unknown = load_pretrained(AutoConfig, name_or_path, return_unused_kwargs=True, **where, **known)
    if unknown := sorted({*unknown} | fixed):
        raise UserError(
            f"the configuration of {name_or_path!r} ({type(config).__name__}) has no {', '.join(unknown)}; expected "
            f"names that stand in its config.json. Models are always loaded with {LOADING}."
        )
    kind = getattr(config, "problem_type", None)
    if config.num_labels < 2 or kind not in (None, "single_label_classification"):
        raise UserError(
            f"num_labels is {config.num_labels} and problem_type {kind!r}; expected 2 labels or more, of which each "
            "text has one (problem_type=None): all losses here are of single-label classification."
        )
    return config


def label_settings(num_labels: int | None, changes: dict) -> dict:
    """The number of labels and their names in both directions, as far as they are given."""
    ids = changes.get("label2id")
    names = changes.get("id2label") or {number: name for name, number in (ids or {}).items()}
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not names:
        return {} if num_labels is None else {"num_labels": num_labels}
    number = len(names) if num_labels is None else num_labels
    inverse = {name: index for index, name in names.items()}
    if {*names} != {*range(number)} or len(inverse) < number or (ids or inverse) != inverse:
        raise UserError(
            f"id2label is {names!r} and label2id {ids!r}, for num_labels={number}; expected one name for each of 0 to "
            f"{number - 1}, which are numbers, not texts. Give id2label alone: label2id and num_labels follow from it."
        )
    return {"num_labels": number, "id2label": names, "label2id": inverse}


def require_tokens(tokenizer) -> None:
    for what, token in (("mask", tokenizer.mask_token), ("padding", tokenizer.pad_token)):
        if token is None:
            raise UserError(
                f"The tokenizer of {tokenizer.name_or_path!r} ({type(tokenizer).__name__}) has no {what} token; take a "
                "masked language model such as bert-base-uncased, roberta-base or facebook/bart-base (or set "
                "tokenizer.pad_token to one of its special tokens, and save it into the model's folder)."
            )


def check_vocabulary(tokenizer, n_rows: int) -> None:
    """The tokenizer must be the model's; embeddings padded with unused rows (DeBERTa) are fine.

    Without tokenizer files transformers makes a tokenizer of a handful of tokens, and every word is unknown.
    """
    if not n_rows / 4 <= len(tokenizer) <= n_rows:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the model has embeddings "
            f"for {n_rows}. Put the model's own tokenizer files (tokenizer.json, or vocab.txt and the like) into its "
            "folder; after adding tokens to plm.tokenizer, call plm.resize_token_embeddings()."
        )


def load_classifier(name_or_path: str, config, new_head: bool, where: dict) -> PreTrainedModel:
    """A classifier whose head is drawn anew, or is the checkpoint's, which must have one."""
    options = {"config": config, "output_loading_info": True, **where, **LOADING}
    classifier, report = load_pretrained(AutoModelForSequenceClassification, name_or_path, **options)
    _require_weights(name_or_path, classifier, report, classifier.base_model_prefix + "." if new_head else "")
    return classifier


def load_masked_lm(name_or_path: str, config, where: dict) -> PreTrainedModel:
    """A masked LM whose head the checkpoint has."""
    options = {"config": config, "output_loading_info": True, **where, **LOADING}
    mlm, report = load_pretrained(AutoModelForMaskedLM, name_or_path, **options)
    head = {name for name, _ in mlm.named_parameters() if not name.startswith(mlm.base_model_prefix + ".")}
    missing = head & set(report["missing_keys"])
    if missing:
        raise UserError(
            f"{name_or_path!r} has no masked-LM head (missing {', '.join(sorted(missing))}): its predictions would be "
            "random. Use a checkpoint that was saved from a masked LM."
        )
    return mlm


def saved_form(name_or_path: str, config, where: dict) -> Literal["shared", "separate"] | None:
    """How `save_pretrained` wrote this checkpoint, or None for anything else."""
    if find_file(name_or_path, HEAD_FILE, where):
        return "shared"
    if find_file(name_or_path, f"{SEPARATE_FOLDER}/config.json", where):
        return "separate"
    if any(name.endswith("ForSequenceClassification") for name in config.architectures or []):
        raise UserError(
            f"{name_or_path} is a classifier without its masked-LM head; expected {HEAD_FILE} beside it. "
            "Only checkpoints that mtlib saved can be trained further with Mask-tuning."
        )
    return None


def find_file(name_or_path: str, name: str, where: dict) -> Path | None:
    """A file of a checkpoint, fetched if that is on the hub; None if there is no such file."""
    path = cached_file(
        name_or_path, name, **where,
        _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
    )  # fmt: skip
    return None if path is None else Path(path)


def in_subfolder(where: dict, name: str) -> dict:
    """Where a folder within the checkpoint lies."""
    outer = where.get("subfolder")
    return where | {"subfolder": f"{outer}/{name}" if outer else name}


def _require_weights(name_or_path: str, model: PreTrainedModel, report: dict, prefix: str) -> None:
    """A new head may be missing from a checkpoint, and the pooler that a masked LM has no use for; nothing else."""
    needed = {name for name, _ in model.named_parameters() if name.startswith(prefix) and "pooler" not in name}
    if missing := sorted(needed & set(report["missing_keys"])):
        raise UserError(
            f"{name_or_path!r} lacks {len(missing)} weights of {type(model).__name__}, for example {missing[0]}: the "
            "checkpoint is torn or of another architecture; get it again."
        )
