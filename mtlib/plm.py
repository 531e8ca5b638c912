"""One pretrained language model with two heads: it fills masks and it classifies.

`SharedPLM` works for nearly every Hugging Face encoder with a masked-LM head (not for Funnel, whose classifier has a
trunk of its own kind), and for BART, without a table of architectures. The classifier owns the trunk; the masked-LM
model is pointed at it through its `base_model_prefix` and its output layer is tied again to the trunk's embeddings.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import PushToHubMixin

from mtlib import checkpoints
from mtlib.checkpoints import HEAD_FILE, ON_THE_HUB, SEPARATE_FOLDER, find_file, load_model
from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.settings import Fill
from mtlib.tokens import special_tokens


class FilledMasks(NamedTuple):
    """What `SharedPLM.fill_masks` returns."""

    mlm_logits: Tensor  # (batch, k, vocab), at the places of the batch
    perturbed_ids: Tensor  # (batch, seq)


class SharedPLM(nn.Module, PushToHubMixin):
    """A trunk, a classifier head and a masked-LM head; `push_to_hub` uploads what `save_pretrained` writes.

    Args:
        classifier: a `*ForSequenceClassification` model; its trunk is the one that is kept.
        mlm: a `*ForMaskedLM` model (or `BartForConditionalGeneration`) of the same architecture.
        tokenizer: must have a mask token and a padding token.
        shared: one trunk for both heads (the default, and what equation 1 needs), or each its own.
    """

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
        self.mlm = mlm
        self.tokenizer = tokenizer
        self.shared = shared
        self.objective: nn.Module | None = None  # while a trainer trains parameters of its own
        trunks = [type(model.base_model).__name__ for model in (classifier, mlm)]
        if mlm.get_output_embeddings() is None or (shared and len({*trunks}) > 1):
            raise UserError(
                f"{type(classifier).__name__} ({trunks[0]}) and {type(mlm).__name__} ({trunks[1]}) cannot share a "
                "trunk; expected two models with one kind of trunk and an output layer over the vocabulary, as BERT's."
            )
        if shared:
            setattr(mlm, mlm.base_model_prefix, classifier.base_model)
            mlm.tie_weights()
        self._count_tokens()
        accepted = signature(classifier.forward).parameters.keys() & signature(mlm.forward).parameters.keys()
        self._keys = tuple(name for name in tokenizer.model_input_names if name in accepted - {"input_ids"})

    def _count_tokens(self) -> None:
        """Note which rows of the vocabulary may be filled in."""
        n_rows = self.mlm.get_output_embeddings().weight.shape[0]
        checkpoints.check_tokenizer(self.tokenizer, n_rows)
        forbidden = torch.zeros(n_rows, dtype=torch.bool, device=self.device)
        forbidden[[token for token in special_tokens(self.tokenizer) if token != self.tokenizer.unk_token_id]] = True
        forbidden[len(self.tokenizer) :] = True  # rows that pad the embedding matrix are no tokens
        self.register_buffer("_forbidden", forbidden, persistent=False)  # (vocab,)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, num_labels: int | None = None, shared: bool = True, **options
    ) -> "SharedPLM":
        """Load a masked LM and give it a new classifier head, or read back what `save_pretrained` wrote.

        Args:
            name_or_path: hub id or folder. A folder written by `save_pretrained` comes back whole.
            num_labels: classes of a new head; None takes the checkpoint's own.
            shared: one trunk for a plain masked LM, or two; a saved folder has what it was saved with.
            options: `revision`, `subfolder`, `token`, `cache_dir`, `local_files_only` and `force_download` mean what
                they mean in transformers. All others change the model's configuration by its own names, for example
                BERT's `hidden_dropout_prob=0.0`, or `id2label={0: "negative", 1: "positive"}`, from which `num_labels`
                and `label2id` follow.

        The new head is drawn from torch's global generator: seed it first (`transformers.set_seed`).

        Raises:
            UserError: no such model; no mask or padding token; a tokenizer of another model, or none; weights that the
                checkpoint lacks, those of the masked-LM head among them; a setting that its configuration does not
                know.
        """
        name, labels = str(name_or_path), {} if num_labels is None else {"num_labels": num_labels}
        where = {key: options.pop(key) for key in ON_THE_HUB if key in options}
        config = checkpoints.load_config(name, labels | options, where)
        tokenizer = checkpoints.load_pretrained(AutoTokenizer, name, **where)
        head, apart = find_file(name, HEAD_FILE, where), find_file(name, f"{SEPARATE_FOLDER}/config.json", where)
        classifier = load_model(AutoModelForSequenceClassification, name, config, where, not (head or apart))
        if head:
            plm = cls(classifier, AutoModelForMaskedLM.from_config(config, dtype=torch.float32), tokenizer)
            state = load_file(head)
            if differing := plm._head_state().keys() ^ state.keys():
                raise UserError(f"{head} is of another masked-LM head ({', '.join(sorted(differing))}); save it anew.")
            plm.mlm.load_state_dict(state, strict=False)
            return plm
        inner = "/".join(filter(None, (where.get("subfolder"), SEPARATE_FOLDER)))
        its_own = where | {"subfolder": inner} if apart else where
        return cls(classifier, load_model(AutoModelForMaskedLM, name, config, its_own), tokenizer, shared and not apart)

    def save_pretrained(self, folder: str | Path, **options) -> None:
        """Write a plain sequence-classification checkpoint with the masked-LM head beside it.

        `transformers.pipeline("text-classification", folder)` loads it as it is, and answers as `predict` does (but for
        texts that spell out a structural token, see `mtlib.tokens`). What an earlier call left there is replaced, also
        where that model had one trunk and this one has two. The options are those of transformers.
        """
        folder = Path(folder)
        self._check_size()
        make_writable(folder)
        (folder / HEAD_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / SEPARATE_FOLDER, ignore_errors=True)
        self.classifier.save_pretrained(folder, **options)
        # whole: what equals the default of any model would be left out, and BART's own is three labels
        self.config.to_json_file(folder / "config.json", use_diff=False)
        if self.tokenizer.is_fast:  # how the last call cut and padded is no part of the model
            self.tokenizer.backend_tokenizer.no_truncation()
            self.tokenizer.backend_tokenizer.no_padding()
        self.tokenizer.save_pretrained(folder)
        _remove_entries(folder / "config.json", "_name_or_path")
        _remove_entries(folder / "tokenizer_config.json", "is_local", "local_files_only")
        if self.shared:
            save_file(self._head_state(), folder / HEAD_FILE, metadata={"format": "pt"})
        else:
            self.mlm.save_pretrained(folder / SEPARATE_FOLDER)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, **options) -> nn.Module:
        """Enlarge (or cut) the vocabulary of both heads, after tokens were added to `plm.tokenizer`.

        Args:
            new_num_tokens: None takes the tokenizer's number.
            options: `pad_to_multiple_of` and `mean_resizing`, as in transformers.

        Returns:
            The embeddings of the trunk.
        """
        wanted = len(self.tokenizer) if new_num_tokens is None else new_num_tokens
        self.mlm.resize_token_embeddings(wanted, **options)
        if self.shared:  # the masked LM has replaced the embeddings of the one trunk
            self.config.get_text_config().vocab_size = self.mlm.config.get_text_config().vocab_size
        else:
            self.classifier.resize_token_embeddings(wanted, **options)
        self._count_tokens()
        return word_embeddings(self.trunk)[0]

    def _check_size(self) -> None:
        """Raise `UserError` where embeddings were resized past `resize_token_embeddings`."""
        tables = *word_embeddings(self.trunk), *word_embeddings(self.mlm_trunk), self.mlm.get_output_embeddings()
        if {len(table.weight) for table in tables} != {len(self._forbidden)}:
            raise UserError(
                f"the model had {len(self._forbidden)} tokens, and embeddings of one part were resized alone. Load it "
                "again and call plm.resize_token_embeddings(), which resizes both heads."
            )

    @property
    def config(self) -> PreTrainedConfig:
        return self.classifier.config

    @property
    def device(self) -> torch.device:
        return self.classifier.device

    @property
    def longest(self) -> int:
        """How many tokens it reads at most, structural ones included."""
        most = self.tokenizer.model_max_length
        positions = getattr(self.config, "max_position_embeddings", most)
        for module in self.trunk.modules():  # RoBERTa and its kin count positions from behind that of the padding
            table = getattr(module, "position_embeddings", None)
            if isinstance(table, nn.Embedding) and table.padding_idx is not None:
                positions = table.num_embeddings - table.padding_idx - 1
        return min(most, positions)

    def check_inputs(self, input_ids: Iterable[Sequence[int]], what: str) -> None:
        """Raise `UserError` if the model cannot read one of the texts; `what` names the set of texts."""
        self._check_size()
        longest, largest = 0, 0
        for ids in input_ids:
            longest, largest = max(longest, len(ids)), max(largest, max(ids, default=0))
        if longest > self.longest or largest >= len(self._forbidden):
            raise UserError(
                f"{what} has texts of up to {longest} tokens, numbered up to {largest}; "
                f"{self.tokenizer.name_or_path!r} reads {self.longest} tokens, numbered below {len(self._forbidden)}. "
                "Tokenise with plm.tokenizer and a max_length; after adding tokens call plm.resize_token_embeddings()."
            )

    @property
    def trunk(self) -> PreTrainedModel:
        """The classifier's trunk, which is also the masked LM's when it is shared."""
        return self.classifier.base_model

    @property
    def mlm_trunk(self) -> PreTrainedModel:
        return self.mlm.base_model

    def trunk_parameters(self) -> list[nn.Parameter]:
        """Of one trunk, or of both, each once.

        Without the pooler: it lies in the trunk but serves the classifier alone, and a plain masked LM brings none, so
        that it is new.
        """
        pooler = getattr(self.trunk, "pooler", None)
        of_both = dict.fromkeys([*self.trunk.parameters(), *self.mlm_trunk.parameters()])
        of_pooler = set() if pooler is None else {*pooler.parameters()}
        return [parameter for parameter in of_both if parameter not in of_pooler]

    def activation_checkpointing_enable(self, **kwargs) -> None:
        """What `gradient_checkpointing=True` calls: no activations are kept, at the price of another forward pass."""
        for model in (self.classifier, self.mlm):
            model.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs) -> None:
        """The same under its former name, which transformers 5.20 calls."""
        for model in (self.classifier, self.mlm):
            model.gradient_checkpointing_enable(**kwargs)

    def forward(self, objective=None, batch=None, /, **inputs):
        """Run `objective(self, batch)`; with inputs by name, answer as a sequence classifier.

        All training goes through here, so that what wraps a model (autocast, DistributedDataParallel) sees one call.

        Args:
            objective, batch: what to minimise, and on what.
            inputs: `input_ids` `(batch, seq)` and the like, `labels` `(batch,)` for a loss. What the classifier's own
                `forward` does not name is left out.

        Returns:
            The objective's output, or a `SequenceClassifierOutput` with the mean cross-entropy in nats as its loss.
        """
        if objective is not None:
            return objective(self, batch)
        labels = inputs.pop("labels", None)
        known = signature(self.classifier.forward).parameters
        output = self.classifier(**{name: value for name, value in inputs.items() if name in known}, return_dict=True)
        loss = None if labels is None else nn.functional.cross_entropy(output.logits, labels)
        more = {name: output.get(name) for name in ("hidden_states", "attentions")}
        return SequenceClassifierOutput(loss=loss, logits=output.logits, **more)

    def classify(self, batch) -> Tensor:
        """Class logits `(batch, num_labels)` of `batch["input_ids"]` as it stands."""
        return self.classifier(**self.inputs(batch), return_dict=True).logits

    def masked_lm_logits(self, batch, places: Tensor, masked_ids: Tensor) -> Tensor:
        """Masked-LM logits at some places only, `(batch, k, vocab)`.

        A forward hook replaces the trunk's `last_hidden_state` by its rows at these places before the head sees it: at
        5 % masked the vocabulary product shrinks twenty times.

        Args:
            batch: `input_ids` `(batch, seq)` holds the original text.
            places: `(batch, k)`, see `places_of`.
            masked_ids: what the trunk reads, `(batch, seq)`.

        An encoder-decoder (BART) reads the original text, shifted right, in its decoder: Hugging Face's masked-LM
        collator would show it padding there instead.
        """
        inputs = self.inputs(batch) | {"input_ids": masked_ids}
        if self.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = self.shifted_right(batch["input_ids"])
            inputs["use_cache"] = False
        with _only_at(self.mlm_trunk, places):
            return self.mlm(**inputs, return_dict=True).logits  # (batch, k, vocab)

    def fill_masks(
        self,
        batch,
        mask: Tensor,
        fill: Fill = "argmax",
        top_k: int = 10,
        generator: torch.Generator | None = None,
    ) -> FilledMasks:
        """Let the masked LM fill the masked places with its own predictions.

        Structural tokens ([CLS], [SEP], [PAD], [MASK], `</s>` ...) are never filled in, since they would change what
        the classifier reads as the text's shape, nor are markers that were added as special tokens; [UNK] may be. No
        gradient flows through the filled-in ids.

        In bf16 logits are rounded, so that two tokens can be equally likely; "argmax" then takes the one with the lower
        id. (With the bundled model on SST-2 the filling differs from that in float32 at 1.4 % of the places.)

        Args:
            batch: `input_ids` `(batch, seq)` holds the original text; `places` `(batch, k)`, if it has them, are those
                to predict, and hold all masked ones.
            mask: bool `(batch, seq)`.
            fill: "argmax", "sample" (from the whole distribution) or "top_k" (from the `top_k` likeliest).
            generator: for sampling.

        Returns:
            `(mlm_logits (batch, k, vocab), perturbed_ids (batch, seq))`; the k places are `places_of(mask)` where the
            batch has none.
        """
        input_ids = batch["input_ids"]
        places = batch["places"] if "places" in batch else places_of(mask)[0]  # (batch, k)
        masked_ids = input_ids.masked_fill(mask, self.tokenizer.mask_token_id)
        mlm_logits = self.masked_lm_logits(batch, places, masked_ids)
        scores = mlm_logits.detach().float().masked_fill(self._forbidden, -torch.inf)  # (batch, k, vocab)
        filled = input_ids.scatter(1, places, _pick(scores, fill, top_k, generator))  # (batch, seq)
        return FilledMasks(mlm_logits, torch.where(mask, filled, input_ids))

    def never_fill(self, tokens: Sequence[int]) -> None:
        """Keep `fill_masks` from filling in these tokens too, in this process; saved models do not know it."""
        self._forbidden[list(tokens)] = True

    def inputs(self, batch) -> dict:
        """What the model reads of a batch."""
        return {"input_ids": batch["input_ids"]} | {key: batch[key] for key in self._keys if key in batch}

    def shifted_right(self, input_ids: Tensor) -> Tensor:
        """What an encoder-decoder reads in its decoder when it is to write `input_ids`."""
        shifted = input_ids.roll(1, dims=1)
        shifted[:, 0] = self.config.decoder_start_token_id
        return shifted  # (batch, seq)

    def _head_state(self) -> dict[str, Tensor]:
        """The masked LM's tensors that are its own: neither the trunk's nor tied to it."""
        trunk = {tensor.data_ptr() for tensor in self.trunk.state_dict().values()}
        prefix = self.mlm.base_model_prefix + "."
        state, seen = {}, set()
        for name, tensor in self.mlm.state_dict().items():
            if not name.startswith(prefix) and tensor.data_ptr() not in trunk | seen:
                seen.add(tensor.data_ptr())
                state[name] = tensor.contiguous()
        return state


def word_embeddings(trunk: PreTrainedModel) -> list[nn.Module]:
    """The modules that embed the text: one, or the encoder's and the decoder's, in the order in which they read."""
    parts = [trunk.get_encoder(), trunk.get_decoder()] if trunk.config.is_encoder_decoder else [trunk]
    return [part.get_input_embeddings() for part in parts]


def _remove_entries(file: Path, *names: str) -> None:
    """Take out what tells where a model came from: the same model makes the same files, and no path is given away."""
    entries = {name: value for name, value in json.loads(file.read_text("utf-8")).items() if name not in names}
    file.write_text(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def places_of(mask: Tensor, round_up: bool = False) -> tuple[Tensor, Tensor]:
    """Where the mask is true, in tensors that have one shape for all examples.

    Args:
        mask: bool `(batch, seq)`.
        round_up: k to 1, 2, 4, 8 ..., so that few shapes come often.

    Returns:
        Places in reading order, int64 `(batch, k)`, with k at least 1; a row that has fewer than k is filled up with
        other places. And their weights, float32 `(batch, k)`: 1, or 0 for those that fill up.
    """
    k = max(1, int(mask.sum(dim=1).max()))
    k = 2 ** (k - 1).bit_length() if round_up else k
    places = (~mask).byte().argsort(dim=1, stable=True)[:, :k]
    return places, mask.gather(1, places).float()


def _only_at(trunk: nn.Module, places: Tensor):
    """A block in which the trunk gives back its states at these places alone."""

    def gather(module, args, output):
        states = output.last_hidden_state  # (batch, seq, hidden)
        output.last_hidden_state = states.gather(1, places[:, :, None].expand(-1, -1, states.shape[-1]))
        return output

    return trunk.register_forward_hook(gather)


def _pick(scores: Tensor, fill: str, top_k: int, generator) -> Tensor:
    """One token for each of the rows of `scores`, `(batch, k, vocab)`: `(batch, k)`."""
    if fill == "argmax":
        return scores.argmax(dim=-1)
    if fill == "top_k":
        floor = scores.topk(min(top_k, scores.shape[-1]), dim=-1).values[..., -1:]  # (batch, k, 1)
        scores = scores.masked_fill(scores < floor, -torch.inf)
    # a model that has diverged gives NaN: anything may be drawn then, for the loss says so
    probabilities = scores.softmax(dim=-1).nan_to_num(1.0)
    return torch.multinomial(probabilities.flatten(0, 1), 1, generator=generator).view(scores.shape[:2])
