"""What lies in a folder of a saved model, and reading it with errors that say what is wrong."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file, logging

from mtlib.errors import UserError

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
        raise UserError(
            f"cannot load {auto_class.__name__.removeprefix('Auto')} from {name_or_path!r}: "
            f"{str(error).splitlines()[0]} Expected a folder with config.json, tokenizer and safetensors weights of a "
            "masked LM, or the id of such a model on the hub (which needs a network)."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_config(name_or_path: str, changes: dict, where: dict) -> PreTrainedConfig:
    """The configuration with these changes, all of which it must know; `where` holds keywords of `ON_THE_HUB`."""
    if names := changes.get("id2label"):
        ids = {name: int(number) for number, name in names.items()}
        changes = changes | {"num_labels": len(names), "label2id": ids}
    fixed = LOADING.keys() & changes.keys()
    known = {name: value for name, value in changes.items() if name not in fixed}
    config, unknown = load_pretrained(AutoConfig, name_or_path, return_unused_kwargs=True, **where, **known)
    if unknown := sorted({*unknown} | fixed):
        raise UserError(
            f"the configuration of {name_or_path!r} ({type(config).__name__}) has no {', '.join(unknown)}; expected "
            f"names that stand in its config.json. Models are always loaded with {LOADING}."
        )
    return config


def load_model(auto_class, name_or_path: str, config, where: dict, new_head: bool = False) -> PreTrainedModel:
    """A model whose weights the checkpoint has, but for a new head, and a pooler, for which masked LMs have no use."""
    options = {"config": config, "output_loading_info": True, "ignore_mismatched_sizes": True, **where, **LOADING}
    model, report = load_pretrained(auto_class, name_or_path, **options)
    prefix = model.base_model_prefix + "." if new_head else ""
    needed = {name for name, _ in model.named_parameters() if name.startswith(prefix) and "pooler" not in name}
    if missing := sorted(needed & {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}):
        raise UserError(
            f"{name_or_path!r} lacks {len(missing)} weights of {type(model).__name__}, for example {missing[0]}, or "
            f"has others than for {config.num_labels} labels; expected a whole checkpoint of a masked LM with its "
            "head, or what SharedPLM.save_pretrained has written, with its own number of labels."
        )
    return model


def find_file(name_or_path: str, name: str, where: dict) -> Path | None:
    """A file of a checkpoint, fetched if that is on the hub; None if there is no such file."""
    path = cached_file(
        name_or_path, name, **where,
        _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
    )  # fmt: skip
    return None if path is None else Path(path)


def check_tokenizer(tokenizer, n_rows: int) -> None:
    """Raise `UserError` unless it has the tokens that are needed, and is that of a model with so many embeddings.

    These may be padded with unused rows (DeBERTa). Without tokenizer files transformers makes a tokenizer of a handful
    of tokens, and every word is unknown.
    """
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has the mask token {tokenizer.mask_token} and the padding "
            f"token {tokenizer.pad_token}; take a masked language model such as roberta-base (or set "
            "tokenizer.pad_token to one of its special tokens, and save it into the model's folder)."
        )
    if not n_rows / 4 <= len(tokenizer) <= n_rows:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the model has embeddings "
            f"for {n_rows}. Put the model's own tokenizer files (tokenizer.json, or vocab.txt and the like) into its "
            "folder; after adding tokens to plm.tokenizer, call plm.resize_token_embeddings()."
        )
