"""The files of a saved model, and reading them with errors that say what is wrong."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.hub import cached_file

from mtlib.errors import UserError

HEAD_FILE = "masked_lm_head.safetensors"
SEPARATE_FOLDER = "masked_lm"  # the masked LM, if it has a trunk of its own
# keywords of `from_pretrained` that say where on the hub a checkpoint is
ON_THE_HUB = (
    "revision",
    "subfolder",
    "token",
    "cache_dir",
    "local_files_only",
    "force_download",
)
LOADING = {"trust_remote_code": False, "use_safetensors": True, "dtype": torch.float32}


@contextmanager
def _quiet() -> Iterator[None]:
    """A block without transformers' reports and progress bars.

    The report would list the other head as unexpected and the new one as missing; both are
    intended.
    """
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_pretrained(auto_class: type, name_or_path: str, **kwargs: Any) -> Any:
    """`auto_class.from_pretrained`, without its report and its progress bar.

    Raises:
        UserError: there is no such model, or it cannot be read.
    """
    try:
        with _quiet():
            # transformers' Auto classes share no base that has it
            return auto_class.from_pretrained(name_or_path, **kwargs)  # type: ignore[attr-defined]
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        what = auto_class.__name__.removeprefix("Auto")
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if not Path(name_or_path).exists():
            reason = f"there is no such folder, and {reason}"
        raise UserError(
            f"cannot load {what} from {name_or_path!r}: {reason} Expected a folder with "
            "config.json, tokenizer and safetensors weights, or the id of such a model on the hub "
            "(which needs a network)."
        ) from error


def load_config(
    name_or_path: str,
    changes: dict[str, Any],
    where: Mapping[str, Any],
) -> PreTrainedConfig:
    """The configuration of a checkpoint with some changes.

    Args:
        name_or_path: hub id or folder.
        changes: settings of the configuration, by its own names.
        where: keywords of `ON_THE_HUB`.

    Raises:
        UserError: the configuration does not know one of the settings.
    """
    names = changes.get("id2label")
    if names:
        ids = {name: int(number) for number, name in names.items()}
        wanted = changes.get("num_labels", len(names))
        if wanted != len(names):
            raise UserError(
                f"num_labels is {wanted}, and id2label names {len(names)} labels; leave one out."
            )
        changes = changes | {"num_labels": len(names), "label2id": ids}
    fixed = LOADING.keys() & changes.keys()
    changeable = {name: value for name, value in changes.items() if name not in fixed}
    config, unused = load_pretrained(
        AutoConfig,
        name_or_path,
        return_unused_kwargs=True,
        **where,
        **changeable,
    )
    unknown = sorted({*unused} | fixed)
    if unknown:
        raise UserError(
            f"the configuration of {name_or_path!r} ({type(config).__name__}) has no "
            f"{', '.join(unknown)}; expected names that stand in its config.json. Models are "
            f"always loaded with {LOADING}."
        )
    return config


def load_model(
    auto_class: type,
    name_or_path: str,
    config: PreTrainedConfig,
    where: Mapping[str, Any],
    new_head: bool = False,
) -> PreTrainedModel:
    """A model with the weights of a checkpoint.

    Args:
        auto_class: of transformers.
        name_or_path: hub id or folder.
        config: its configuration.
        where: keywords of `ON_THE_HUB`.
        new_head: the checkpoint has no weights for the head. A pooler, for which masked LMs have
            no use, may always be new.

    Raises:
        UserError: the checkpoint lacks other weights.
    """
    model, report = load_pretrained(
        auto_class,
        name_or_path,
        config=config,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **where,
        **LOADING,
    )
    prefix = model.base_model_prefix + "." if new_head else ""
    parameters = [name for name, _ in model.named_parameters()]
    needed = {name for name in parameters if name.startswith(prefix) and "pooler" not in name}
    mismatched = {name for name, *_ in report["mismatched_keys"]}
    missing = sorted(needed & {*report["missing_keys"], *mismatched})
    if missing:
        raise UserError(
            f"{name_or_path!r} lacks {len(missing)} weights of {type(model).__name__}, for example "
            f"{missing[0]}, or has others than for {config.num_labels} labels; expected a whole "
            "checkpoint: a masked LM with its head, a classifier with its own where one is asked, "
            "or what SharedPLM.save_pretrained has written, with its own number of labels."
        )
    return model


def find_file(name_or_path: str, name: str, where: Mapping[str, Any]) -> Path | None:
    """A file of a checkpoint, downloaded if that is on the hub; None if there is no such file."""
    path = cached_file(
        name_or_path,
        name,
        **where,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if path is None else Path(path)


def longest_input(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The maximum number of tokens that a model reads, structural ones included."""
    tokenizer_limit = tokenizer.model_max_length
    n_positions = getattr(model.config, "max_position_embeddings", tokenizer_limit)
    for module in model.modules():
        # RoBERTa-style models count positions from behind the padding's position
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:
            n_positions = table.num_embeddings - table.padding_idx - 1
    return min(tokenizer_limit, n_positions)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, n_rows: int) -> None:
    """Raise `UserError` unless the tokenizer has the tokens needed and fits the model.

    Args:
        tokenizer: without tokenizer files, transformers makes one with only a handful of tokens,
            for which every word is unknown.
        n_rows: embeddings of the model, which may be padded with unused rows (DeBERTa).
    """
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has the mask token "
            f"{tokenizer.mask_token} and the padding token {tokenizer.pad_token}; take a masked "
            "language model such as roberta-base (or set tokenizer.pad_token to one of its special "
            "tokens, and save it into the model's folder)."
        )
    if not n_rows / 4 <= len(tokenizer) <= n_rows:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the "
            f"model has embeddings for {n_rows}. Put the model's own tokenizer files "
            "(tokenizer.json, or vocab.txt and the like) into its folder; after adding tokens to "
            "plm.tokenizer, call plm.resize_token_embeddings()."
        )
