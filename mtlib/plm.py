"""One pretrained language model with two heads: it fills masks and it classifies.

`SharedPLM` works without a table of architectures for nearly every Hugging Face encoder with a
masked-LM head, and for BART. (An exception is Funnel, whose classifier has another kind of trunk.)
The classifier owns the trunk; the masked-LM model is pointed at it through its
`base_model_prefix`, and its output layer is tied again to the trunk's embeddings.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput
from transformers.utils.hub import PushToHubMixin

from mtlib import checkpoints
from mtlib.checkpoints import HEAD_FILE, ON_THE_HUB, SEPARATE_FOLDER, find_file, load_model
from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.settings import Fill
from mtlib.tokens import special_tokens

Batch = dict[str, Tensor]  # `input_ids` `(batch, seq)` and the other columns, by name
_Output = TypeVar("_Output")


class FilledMasks(NamedTuple):
    """What `SharedPLM.fill_masks` returns."""

    mlm_logits: Tensor  # (batch, k, vocab), at the positions that were predicted
    perturbed_ids: Tensor  # (batch, seq)


class SharedPLM(nn.Module, PushToHubMixin):
    """A trunk, a classifier head and a masked-LM head.

        plm = SharedPLM.from_pretrained("roberta-base", num_labels=2)
        plm.save_pretrained("model")  # for transformers' pipeline, too
        plm.push_to_hub("me/model")  # uploads the same files

    Args:
        classifier: a `*ForSequenceClassification` model; its trunk is the one that is kept.
        mlm: a `*ForMaskedLM` model (or `BartForConditionalGeneration`) of the same architecture.
        tokenizer: must have a mask token and a padding token.
        shared: one trunk for both heads (the default, and what equation 1 needs), or two.

    Raises:
        UserError: the two models cannot share a trunk, or the tokenizer is not theirs.
    """

    _blocked: Tensor  # bool (vocab,): what must not be filled in
    accepts_loss_kwargs = False  # the Trainer leaves the loss of a whole step to the objective

    def __init__(
        self,
        classifier: PreTrainedModel,
        mlm: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        shared: bool = True,
    ):
        super().__init__()
        self.classifier = classifier
        # the checkpoint may be of a multi-label or regression model; here one class is right
        if classifier.config.problem_type is not None:
            classifier.config.problem_type = "single_label_classification"
        self.mlm = mlm
        self.tokenizer = tokenizer
        self.shared = shared
        self.objective: nn.Module | None = None  # while a trainer trains its parameters
        self.has_new_head = False  # drawn at random, and not trained since it was loaded
        _check_heads(classifier, mlm, shared)
        if shared:
            setattr(mlm, mlm.base_model_prefix, classifier.base_model)
            mlm.tie_weights()
        self._also_blocked: set[int] = set()
        self._note_blocked_tokens()
        read_by_classifier = signature(classifier.forward).parameters.keys()
        read_by_both = read_by_classifier & signature(mlm.forward).parameters.keys()
        optional = [name for name in tokenizer.model_input_names if name != "input_ids"]
        self._optional_inputs = tuple(name for name in optional if name in read_by_both)

    def _note_blocked_tokens(self) -> None:
        """Note the rows of the vocabulary, and which of them must not be filled in."""
        n_rows = self.mlm.get_output_embeddings().weight.shape[0]
        checkpoints.check_tokenizer(self.tokenizer, n_rows)
        unknown = self.tokenizer.unk_token_id
        special = [token for token in special_tokens(self.tokenizer) if token != unknown]
        blocked = torch.zeros(n_rows, dtype=torch.bool, device=self.device)
        blocked[[*special, *self._also_blocked]] = True
        blocked[len(self.tokenizer) :] = True  # rows that only pad the embedding matrix
        self.register_buffer("_blocked", blocked, persistent=False)  # (vocab,)

    # --- load and save ---

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        num_labels: int | None = None,
        shared: bool | None = None,
        **options: Any,
    ) -> "SharedPLM":
        """Load a masked LM with a new classifier head, or what `save_pretrained` wrote.

        The new head is drawn from torch's global generator: seed it first
        (`transformers.set_seed`).

        Args:
            name_or_path: hub id or folder. A folder written by `save_pretrained` comes back whole.
            num_labels: classes of a new head; None takes the checkpoint's own number.
            shared: one trunk, or two. None: as the folder was saved; one for a plain masked LM.
            options: `revision`, `subfolder`, `token`, `cache_dir`, `local_files_only` and
                `force_download` mean what they mean in transformers. All others change the model's
                configuration by its own names, for example BERT's `hidden_dropout_prob=0.0`, or
                `id2label={0: "negative", 1: "positive"}`, which also sets `num_labels` and
                `label2id`.

        Raises:
            UserError: no such model; no mask or padding token; a tokenizer of another model, or
                none; weights that the checkpoint lacks, such as those of the masked-LM head; a
                setting that its configuration does not know; another number of trunks than a
                folder was saved with.
        """
        name = str(name_or_path)
        where = {key: options.pop(key) for key in ON_THE_HUB if key in options}
        changes = options if num_labels is None else {"num_labels": num_labels} | options
        config = checkpoints.load_config(name, changes, where)
        tokenizer = checkpoints.load_pretrained(AutoTokenizer, name, **where)
        head_file = find_file(name, HEAD_FILE, where)
        two_trunks = find_file(name, f"{SEPARATE_FOLDER}/config.json", where) is not None
        new_head = head_file is None and not two_trunks
        if not new_head:
            _check_trunks(name, wanted=shared, saved=not two_trunks)
        classifier = load_model(
            AutoModelForSequenceClassification,
            name,
            config,
            where,
            new_head=new_head,
        )
        if head_file is not None:
            mlm = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
            plm = cls(classifier, mlm, tokenizer)
            plm._load_mlm_head(head_file)
            return plm
        mlm_where = where
        if two_trunks:
            folder = [where.get("subfolder"), SEPARATE_FOLDER]
            mlm_where = where | {"subfolder": "/".join(filter(None, folder))}
        mlm = load_model(AutoModelForMaskedLM, name, config, mlm_where)
        plm = cls(classifier, mlm, tokenizer, shared is not False and not two_trunks)
        plm.has_new_head = new_head
        return plm

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write a plain sequence-classification checkpoint with the masked-LM head beside it.

        `transformers.pipeline("text-classification", folder)` loads it as it is, and gives the
        same predictions as `predict` (except for texts of more tokens than `predict` reads, see
        its `max_length`, or that spell out a structural token, see `mtlib.tokens`). Files of an
        earlier call are replaced, also if that model had one trunk and this one has two. The
        options are the classifier's `save_pretrained`'s, but for `push_to_hub`.
        """
        if options.get("push_to_hub"):  # it would upload the classifier alone
            raise UserError("push_to_hub does not work here; call plm.push_to_hub(REPOSITORY).")
        folder = Path(folder)
        make_writable(folder)
        (folder / HEAD_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / SEPARATE_FOLDER, ignore_errors=True)
        self.classifier.save_pretrained(folder, **options)
        # Whole: otherwise values that equal the default of any model would be left out, and
        # BART's own default is three labels.
        self.config.to_json_file(folder / "config.json", use_diff=False)
        if self.tokenizer.is_fast:  # how the last call cut and padded is no part of the model
            self.tokenizer.backend_tokenizer.no_truncation()
            self.tokenizer.backend_tokenizer.no_padding()
        self.tokenizer.save_pretrained(folder)
        _remove_entries(folder / "config.json", "_name_or_path")
        _remove_entries(folder / "tokenizer_config.json", "is_local", "local_files_only")
        if self.shared:
            save_file(self._mlm_head_state(), folder / HEAD_FILE, metadata={"format": "pt"})
        else:
            self.mlm.save_pretrained(folder / SEPARATE_FOLDER)

    def _mlm_head_state(self) -> dict[str, Tensor]:
        """The masked LM's own tensors: neither the trunk's nor tied to it."""
        seen = {tensor.data_ptr() for tensor in self.trunk.state_dict().values()}
        trunk_prefix = self.mlm.base_model_prefix + "."
        state = {}
        for name, tensor in self.mlm.state_dict().items():
            if not name.startswith(trunk_prefix) and tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                state[name] = tensor.contiguous()
        return state

    def _load_mlm_head(self, file: Path) -> None:
        state = load_file(file)
        differing = self._mlm_head_state().keys() ^ state.keys()
        if differing:
            names = ", ".join(sorted(differing))
            raise UserError(f"{file} is of another masked-LM head ({names}); save it anew.")
        self.mlm.load_state_dict(state, strict=False)

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        **options: Any,
    ) -> nn.Embedding:
        """Resize the vocabulary of both heads, after tokens were added to `plm.tokenizer`.

        Args:
            new_num_tokens: None takes the tokenizer's number.
            options: `pad_to_multiple_of` and `mean_resizing`, as in transformers.

        Returns:
            The embeddings of the trunk.
        """
        n_tokens = len(self.tokenizer) if new_num_tokens is None else new_num_tokens
        self.mlm.resize_token_embeddings(n_tokens, **options)
        if self.shared:  # the masked LM has replaced the embeddings of the one trunk
            mlm_config = self.mlm.config.get_text_config()
            self.config.get_text_config().vocab_size = mlm_config.vocab_size
        else:
            self.classifier.resize_token_embeddings(n_tokens, **options)
        self._note_blocked_tokens()
        return word_embeddings(self.trunk)[0]

    # --- what it can read ---

    @property
    def config(self) -> PreTrainedConfig:
        return self.classifier.config

    @property
    def num_labels(self) -> int:
        """The number of classes."""
        return cast(int, self.config.num_labels)

    @property
    def id2label(self) -> dict[int, str]:
        """The names of the classes by their numbers."""
        return cast(dict[int, str], self.config.id2label)

    @property
    def device(self) -> torch.device:
        return self.classifier.device

    @property
    def longest(self) -> int:
        """The maximum number of tokens it reads, structural ones included."""
        return checkpoints.longest_input(self.trunk, self.tokenizer)

    def check_inputs(self, input_ids: Iterable[Sequence[int]], what: str) -> None:
        """Raise `UserError` if the model cannot read one of the texts.

        Args:
            input_ids: of each text.
            what: what the message calls the set of texts.
        """
        n_tokens = len(self._blocked)
        longest = 0
        largest = 0
        for ids in input_ids:
            longest = max(longest, len(ids))
            largest = max(largest, max(ids, default=0))
        if longest > self.longest or largest >= n_tokens:
            raise UserError(
                f"{what} has texts of up to {longest} tokens, numbered up to {largest}; "
                f"{self.tokenizer.name_or_path!r} reads {self.longest} tokens, numbered below "
                f"{n_tokens}. Tokenise with plm.tokenizer and a max_length; after adding tokens "
                "call plm.resize_token_embeddings()."
            )

    def inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The columns of a batch that the model reads."""
        optional = {key: batch[key] for key in self._optional_inputs if key in batch}
        return {"input_ids": batch["input_ids"]} | optional

    # --- parts ---

    @property
    def trunk(self) -> PreTrainedModel:
        """The classifier's trunk, which is also the masked LM's if it is shared."""
        return cast(PreTrainedModel, self.classifier.base_model)

    @property
    def mlm_trunk(self) -> PreTrainedModel:
        return cast(PreTrainedModel, self.mlm.base_model)

    def trunk_parameters(self) -> list[nn.Parameter]:
        """The parameters of one trunk, or of both, each once.

        The pooler is left out: although it lies in the trunk, it serves the classifier alone, and
        it is new since a plain masked LM brings none.
        """
        pooler = getattr(self.trunk, "pooler", None)
        pooler_parameters = set() if pooler is None else set(pooler.parameters())
        # a dictionary keeps the order
        parameters = dict.fromkeys([*self.trunk.parameters(), *self.mlm_trunk.parameters()])
        return [parameter for parameter in parameters if parameter not in pooler_parameters]

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """What `gradient_checkpointing=True` calls: less memory, one more forward pass."""
        for model in (self.classifier, self.mlm):
            model.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """The same under its former name, which transformers 5.20 calls."""
        for model in (self.classifier, self.mlm):
            model.gradient_checkpointing_enable(**kwargs)

    # --- passes ---

    def forward(
        self,
        objective: "Callable[[SharedPLM, Batch], _Output] | None" = None,
        batch: Batch | None = None,
        /,
        **inputs: Tensor,
    ) -> _Output | ModelOutput:
        """Run `objective(self, batch)`; with inputs by name, answer as a sequence classifier.

        All training goes through this method, so that whatever wraps a model (autocast,
        DistributedDataParallel) sees one call.

        Args:
            objective, batch: what to minimise, and on what.
            inputs: `input_ids` `(batch, seq)` and the like, `labels` `(batch,)` for a loss. What
                the classifier's own `forward` does not name is left out.

        Returns:
            The objective's output; or the classifier's, whose loss is the mean cross-entropy in
            nats.
        """
        if objective is not None:
            assert batch is not None, "an objective needs a batch"
            return objective(self, batch)
        known = signature(self.classifier.forward).parameters
        read = {name: value for name, value in inputs.items() if name in known}
        return self.classifier(**read, return_dict=True)

    def classify(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Class logits `(batch, num_labels)` of `batch["input_ids"]` as it stands."""
        return self.classifier(**self.inputs(batch), return_dict=True).logits

    def masked_lm_logits(
        self,
        batch: Mapping[str, Tensor],
        positions: Tensor,
        masked_ids: Tensor,
    ) -> Tensor:
        """Masked-LM logits at some positions only, `(batch, k, vocab)`.

        A forward hook replaces the trunk's `last_hidden_state` by its rows at these positions
        before the head sees it: with 5 % masked, the vocabulary product is twenty times smaller.

        An encoder-decoder (BART) reads the original text, shifted right, in its decoder. (With
        Hugging Face's masked-LM collator it would read padding there.)

        Args:
            batch: `input_ids` `(batch, seq)` holds the original text.
            positions: `(batch, k)`, see `mlm_positions_of`.
            masked_ids: what the trunk reads, `(batch, seq)`.
        """
        inputs: dict[str, Tensor | bool] = {**self.inputs(batch), "input_ids": masked_ids}
        if self.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = self.shifted_right(batch["input_ids"])
            inputs["use_cache"] = False
        with _only_at(self.mlm_trunk, positions):
            return self.mlm(**inputs, return_dict=True).logits  # (batch, k, vocab)

    def fill_masks(
        self,
        batch: Mapping[str, Tensor],
        mask: Tensor,
        fill: Fill = "argmax",
        generator: torch.Generator | None = None,
    ) -> FilledMasks:
        """Let the masked LM fill the masked positions with its own predictions.

        Structural tokens ([CLS], [SEP], [PAD], [MASK], `</s>` ...) are never filled in, since they
        would change what the classifier takes for the shape of the text. Neither are markers that
        were added as special tokens; [UNK] may be. No gradient flows through the filled-in ids.

        In bf16 logits are rounded, so that two tokens can be equally likely; "argmax" then takes
        the one with the lower id. (With the bundled model on SST-2, the filling differs from that
        in float32 at 1.4 % of the positions.)

        Args:
            batch: `input_ids` `(batch, seq)` holds the original text; `mlm_positions` `(batch, k)`,
                if it has them, are the positions to predict, and include all masked ones.
            mask: bool `(batch, seq)`.
            fill: "argmax" or "sample" (from the whole distribution).
            generator: for sampling.

        Returns:
            `(mlm_logits (batch, k, vocab), perturbed_ids (batch, seq))`; the k positions are
            `mlm_positions_of(mask)` if the batch has none.
        """
        input_ids = batch["input_ids"]
        positions = batch.get("mlm_positions")  # (batch, k)
        if positions is None:
            positions, _ = mlm_positions_of(mask)
        masked_ids = input_ids.masked_fill(mask, self.tokenizer.mask_token_id)
        mlm_logits = self.masked_lm_logits(batch, positions, masked_ids)
        scores = mlm_logits.detach().float()
        scores = scores.masked_fill(self._blocked, -torch.inf)  # (batch, k, vocab)
        predictions = _pick(scores, fill, generator)  # (batch, k)
        filled = input_ids.scatter(1, positions, predictions)  # (batch, seq)
        return FilledMasks(mlm_logits, torch.where(mask, filled, input_ids))

    def block(self, tokens: Sequence[int]) -> None:
        """Keep `fill_masks` from filling in these tokens too; this is not saved with the model."""
        self._also_blocked.update(tokens)
        self._blocked[list(tokens)] = True

    def shifted_right(self, input_ids: Tensor) -> Tensor:
        """What an encoder-decoder reads in its decoder when it is to write `input_ids`."""
        shifted = input_ids.roll(1, dims=1)
        shifted[:, 0] = self.config.decoder_start_token_id
        return shifted  # (batch, seq)


def _check_heads(classifier: PreTrainedModel, mlm: PreTrainedModel, shared: bool) -> None:
    """Raise `UserError` unless both have the same kind of trunk, and `mlm` an output layer."""
    classifier_trunk = type(classifier.base_model).__name__
    mlm_trunk = type(mlm.base_model).__name__
    differ = shared and classifier_trunk != mlm_trunk
    if differ or mlm.get_output_embeddings() is None:
        raise UserError(
            f"{type(classifier).__name__} ({classifier_trunk}) and {type(mlm).__name__} "
            f"({mlm_trunk}) cannot share a trunk; expected two models with one kind of trunk and "
            "an output layer over the vocabulary, as BERT's."
        )


def _check_trunks(name: str, wanted: bool | None, saved: bool) -> None:
    """Raise `UserError` if a folder was saved with another number of trunks than is wanted."""
    if wanted not in (None, saved):
        trunks = "one trunk" if saved else "two trunks"
        instead = "shared=True (no --separate)" if saved else "shared=False (--separate)"
        raise UserError(
            f"{name!r} was saved with {trunks}, but shared is {wanted}; give {instead}."
        )


def word_embeddings(trunk: PreTrainedModel) -> list[nn.Embedding]:
    """The modules that embed the text: one, or the encoder's and then the decoder's."""
    parts = [trunk]
    if trunk.config.is_encoder_decoder:
        parts = [trunk.get_encoder(), trunk.get_decoder()]
    return [cast(nn.Embedding, part.get_input_embeddings()) for part in parts]


def _remove_entries(file: Path, *names: str) -> None:
    """Remove entries that say where a model came from.

    So the same model makes the same files, and they hold no local path.
    """
    entries = json.loads(file.read_text("utf-8"))
    kept = {name: value for name, value in entries.items() if name not in names}
    text = json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False)
    file.write_text(text + "\n", "utf-8")


def mlm_positions_of(mask: Tensor, round_up: bool = False) -> tuple[Tensor, Tensor]:
    """The positions at which the mask is true, in tensors of one shape for all examples.

    Args:
        mask: bool `(batch, seq)`.
        round_up: round k up to 1, 2, 4, 8 ..., so that few shapes occur often.

    Returns:
        Positions in reading order, int64 `(batch, k)`, with k at least 1; a row that has fewer
        than k is filled up with other positions. And their weights, float32 `(batch, k)`: 1, or 0
        for those that only fill up.
    """
    k = max(1, int(mask.sum(dim=1).max()))
    if round_up:
        k = 2 ** (k - 1).bit_length()
    positions = (~mask).byte().argsort(dim=1, stable=True)[:, :k]
    return positions, mask.gather(1, positions).float()


def _only_at(trunk: nn.Module, positions: Tensor) -> RemovableHandle:
    """Let the trunk return its states at these positions only, while the handle is entered."""

    def gather(module: nn.Module, args: object, output: BaseModelOutput) -> BaseModelOutput:
        states = output.last_hidden_state  # (batch, seq, hidden)
        assert states is not None
        index = positions[:, :, None].expand(-1, -1, states.shape[-1])
        output.last_hidden_state = states.gather(1, index)
        return output

    return trunk.register_forward_hook(gather)


def _pick(scores: Tensor, fill: Fill, generator: torch.Generator | None) -> Tensor:
    """One token for each row of `scores`, `(batch, k, vocab)`: `(batch, k)`."""
    if fill == "argmax":
        return scores.argmax(dim=-1)
    # a model that has diverged gives NaN; its loss shows that, and anything may be drawn
    probabilities = scores.softmax(dim=-1).nan_to_num(1.0)
    # as torch.multinomial draws, which may ask the device for a number
    noise = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / noise).argmax(dim=-1)
