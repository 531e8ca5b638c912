"""Training with any objective: the stock Trainer, with its loss, its log and its batches made right for ours."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import ClassLabel, Dataset
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_pt_utils import LengthGroupedSampler

from mtlib.contexts import forked_random_state
from mtlib.draws import Draws
from mtlib.encoding import Collator, check_labels, label_column
from mtlib.errors import UserError
from mtlib.graphs import CapturedStep
from mtlib.objectives import ORIGINAL, FineTuning, Objective, ObjectiveOutput
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.updates import AlternatingUpdate, BalancedUpdate, check_update

OBJECTIVE_FILE, UPDATE_FILE = "objective.safetensors", "update.pt"  # their states, in a checkpoint


@dataclass
class ObjectiveArguments(TrainingArguments):
    """transformers' `TrainingArguments` with what Mask-tuning adds.

    Other defaults than the stock ones: batches grouped by length, no reporting to services, uploads at the end alone
    (earlier ones lack the masked-LM head), and a loss that is not finite is logged as it is.

    Args:
        mlm_head_learning_rate: rate of the masked-LM head; default `learning_rate`.
        classifier_learning_rate: rate of the classifier head, pooler included; default `learning_rate`.
        update: "joint", one step on equation 1; "balanced", the same with both gradients brought to one length on
            the shared trunk (`updates.BalancedUpdate`; ours); or "alternating", one AdamW step on alpha * L_MLM, then
            one on (1 - alpha) * L_FT (`updates.AlternatingUpdate`).
        cuda_graphs: on a GPU, capture both passes of a step as a graph (`graphs.CapturedStep`) where the objective
            allows that and the step is one batch in one process; batches are then padded to few lengths.
    """

    mlm_head_learning_rate: float | None = None
    classifier_learning_rate: float | None = None
    update: str = "joint"
    cuda_graphs: bool = True
    train_sampling_strategy: str = field(default="group_by_length")
    logging_nan_inf_filter: bool = field(default=False)
    hub_strategy: str = field(default="end")
    report_to: None | str | list[str] = field(default="none")  # noqa: RUF036  (HfArgumentParser needs this order)

    def __post_init__(self):
        self.remove_unused_columns = False  # what the objective does not read, the collator leaves out
        pinned = self.dataloader_pin_memory and torch.cuda.is_available() and not self.use_cpu
        self.accelerator_config = self.accelerator_config or {"non_blocking": pinned}
        super().__post_init__()


class ObjectiveTrainer(Trainer):
    """transformers' Trainer around `objective(plm, batch)`; everything else (bf16, resuming) is stock.

    Several GPUs need `accelerate launch`; with plain `python` one is used.

    - Mean losses are means over the whole optimiser step, however it is cut into accumulation steps or processes:
      8 x 1, 4 x 2 and 2 x 4 train alike. Stock transformers 5 gets this wrong for these heads (transformers#47688).
      (Where the training set does not divide among several processes, an epoch's last step repeats some examples.)
    - The masks of an example depend on `(seed, epoch, example)` alone, however a step is cut, and in a resumed run too.
      (Drawn from torch's global generator: sampled filling, dropout.)
    - The log carries the objective's parts beside `loss`: `mlm_loss`, `ft_loss`, `n_masked` and `share_changed`.
    - Evaluation and prediction classify the text as it stands; for `MaskedLM`, `eval_loss` is the mean
      over batches of each one's masked-LM loss, so it depends a little on the size of the batches.

    Args:
        plm: the model; None with `model_init`, which makes one for each training (`hyperparameter_search`).
        objective: what to minimise (`training_objective`; `objective` is the score of a hyperparameter search).
        args: `ObjectiveArguments`.
        train_dataset: `datasets.Dataset` of tokenised examples, with `labels` (or `label`) for an objective that
            classifies. Where it names its labels and the model does not, the model takes them. A column that the
            masking policy reads is added by the policy's preparers, which need `text`.
        kwargs: any other argument of Trainer (callbacks, `optimizer_cls_and_kwargs`, ...).
    """

    def __init__(
        self, plm: SharedPLM | None, objective: Objective, args: ObjectiveArguments, train_dataset=None, **kwargs
    ):
        _check_arguments(objective, args, kwargs)
        args._n_gpu = min(args.n_gpu, 1)  # DataParallel cannot split our batches, `accelerate launch` can
        self.args, self.training_objective = args, objective
        self.train_dataset, self.eval_dataset = train_dataset, kwargs.get("eval_dataset")
        # of batches, seeded for each epoch: torch's global generator has another state there in a resumed run
        self._order = torch.Generator()
        self._forget_parts()
        plm = None if plm is None and kwargs.get("model_init") else self._ready(plm)
        super().__init__(model=plm, args=args, train_dataset=self.train_dataset, **kwargs)
        tokenizer = self.plm.tokenizer
        own = Collator(tokenizer, objective.columns, objective.masking, args.seed, self._captures)
        self.data_collator = kwargs.get("data_collator") or own
        self.processing_class = kwargs.get("processing_class") or tokenizer

    @property
    def plm(self) -> SharedPLM:
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def call_model_init(self, trial=None):
        return self._ready(super().call_model_init(trial))

    def _ready(self, plm: SharedPLM) -> SharedPLM:
        """The model, checked against everything else and with the labels' names; the objective is built for it."""
        args, objective = self.args, self.training_objective
        # an earlier trainer in bf16 has left its autocast around the model's forward
        plm = extract_model_from_parallel(plm, keep_fp32_wrapper=False)
        check_update(plm, objective, args)
        objective.check(plm)
        train = self.train_dataset = _with_columns(self.train_dataset, plm, objective, args.seed)
        id2label = _names_of_labels(plm, train)
        check_set("the training set", train, plm, objective, id2label, training=True)
        check_set("the evaluation set", self.eval_dataset, plm, objective, id2label)
        plm.config.id2label, plm.config.label2id = id2label, {name: number for number, name in id2label.items()}
        if isinstance(train, Dataset):
            lengths = map(len, train.with_format(None)["input_ids"])
            plm.config.trained_length = max(lengths, default=0)  # `predict` reads as much
        torch.manual_seed(args.seed)  # the same parameters in a resumed run; Trainer seeds once more
        if train is not None or not objective.classifies:  # evaluating a classifier needs no bias network
            objective.build(plm, train)
        self.update = BalancedUpdate() if args.update == "balanced" else None  # alternating: with the optimiser
        return plm

    def train(self, *args, **kwargs):
        self._forget_parts()  # of steps that an earlier training did not log
        self._captured: CapturedStep | None = None
        try:
            return super().train(*args, **kwargs)
        finally:
            self.plm.objective = self._captured = None

    # --- one step ---

    @property
    def _captures(self) -> bool:
        """Whether steps are captured as CUDA graphs."""
        args = self.args
        eager = args.gradient_checkpointing or args.torch_compile or args.update == "alternating" or args.n_gpu < 1
        whole = args.gradient_accumulation_steps == args.world_size == 1
        return args.cuda_graphs and self.training_objective.static and whole and not eager

    def get_train_dataloader(self):
        numbered = _Numbered(self.train_dataset)
        sampler = self._get_train_sampler
        return self._get_dataloader(numbered, "Training", self._train_batch_size, sampler, is_training=True)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The slices of one optimiser step with all drawn, and what the means of the whole step are over, by name."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        batches = [self._drawn(batch, number) for number, batch in enumerate(batches)]
        self._steps_in_parts += 1
        if self.args.gradient_accumulation_steps == self.args.world_size == 1:
            return batches, None
        totals = totals_of([sizes_of(self.training_objective, batch) for batch in batches], device)
        if self.args.world_size > 1:
            totals = self.accelerator.reduce(totals, "sum")
        return batches, totals

    def _drawn(self, batch: dict, number: int) -> dict:
        """A slice with what the collator has not drawn: a policy reads the model, or the collator is another's."""
        n, device = batch["input_ids"].shape[0], batch["input_ids"].device
        keys = batch.pop("keys", None)
        if keys is None:
            first = (number * self.args.world_size + self.args.process_index) * n
            keys = Draws.of(self.args.seed, self.state.global_step, torch.arange(first, first + n, device=device)).keys
        # other numbers than the collator has used
        return self.training_objective.prepare(self.plm, batch, Draws(keys, after=100))

    def run_loss(
        self, model, loss: Callable[[SharedPLM, dict], ObjectiveOutput], batch: dict, totals: dict | None = None
    ) -> ObjectiveOutput:
        """A loss of one slice, forward, with its means made its share in those of the whole step."""
        output = model(loss, batch)
        if totals is not None:
            output = share_of_step(output, sizes_of(self.training_objective, batch), totals)
        self._parts_of_step |= {name: part.detach() for name, part in output.parts.items()}
        return output

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        output = self.run_loss(model, self.training_objective, inputs, num_items_in_batch)
        # DistributedDataParallel averages gradients over processes, whereas the slices' losses are to be summed
        loss = output.loss * self.args.world_size
        return (loss, output) if return_outputs else loss

    def training_step(self, model, inputs, num_items_in_batch=None):
        if self._captured is None and self._captures:
            self._captured = CapturedStep(partial(self._step, model), model)
        step = self._captured or partial(self._step, model, totals=num_items_in_batch)
        loss, parts = step(self._prepare_inputs(inputs))
        for name, part in parts.items():  # added up on their device; they are fetched only when logged
            self._parts[name] = self._parts.get(name, 0) + part
        return loss

    def _step(self, model, inputs: dict, totals: dict | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """All passes of one slice: its loss, and the parts of that."""
        self._parts_of_step: dict[str, Tensor] = {}
        if self.update is None:
            # compute_loss divides by the sizes of the whole step: the stock step must not divide once more
            self.current_gradient_accumulation_steps = 1
            return super().training_step(model, inputs, totals), self._parts_of_step
        model.train()
        return self.update.step(self, model, inputs, totals), self._parts_of_step

    def _run_epoch(self, epoch, **kwargs):
        self._begin(epoch)
        # a training cut off after its last step has none left; within an epoch the stock loop would take one more
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(epoch=epoch, **kwargs)

    def _begin(self, epoch: int) -> None:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self._order.manual_seed(seed * 1_000_003 + epoch)
        if isinstance(self.data_collator, Collator):
            self.data_collator.epoch.fill_(epoch)

    # --- evaluation ---

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        check_set("the evaluation set", eval_dataset, self.plm, self.training_objective, self.plm.config.id2label)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(self, test_dataset, ignore_keys=None, metric_key_prefix="test"):
        check_set("the test set", test_dataset, self.plm, self.training_objective, self.plm.config.id2label)
        return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs, objective = self._prepare_inputs(inputs), self.training_objective
        with torch.no_grad():
            if not objective.classifies:
                # the same draws for the same batch in every evaluation, and others for the next batch
                seed = self.args.seed + int(inputs["input_ids"].sum())
                with forked_random_state(self.plm.device, seed):
                    batch = objective.prepare(self.plm, inputs, torch.Generator().manual_seed(seed))
                    return model(objective, batch).loss, None, None
            if "labels" not in inputs:  # through the model, which brings the autocast
                return None, model(SharedPLM.classify, inputs).float(), None
            output = model(FineTuning(), inputs)
        if prediction_loss_only:
            return output.loss, None, None
        return output.loss, output.logits.float(), inputs["labels"]

    # --- optimisers, order of the data, checkpoints ---

    def create_optimizer(self, model=None):
        """AdamW, or what was asked for, with a rate for the trunk, for the masked-LM head and for the classifier head.

        An `lr` in `optimizer_cls_and_kwargs` stands for `learning_rate`.
        """
        objective = self.training_objective.to(self.plm.device)
        # a part of the model, so that optimiser, gradients and processes take its parameters in
        self.plm.objective = objective if any(True for _ in objective.parameters()) else None
        if self.optimizer is None:
            chosen = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, self.plm)
            optimizer_class, options = chosen
            groups = partial(self._parameter_groups, options.get("lr", self.args.learning_rate))
            self.optimizer = optimizer_class(groups(), **options)
            if self.args.update == "alternating":
                self.update = AlternatingUpdate(optimizer_class(groups(), **options))
        _check_optimizer(self.optimizer, objective)
        return self.optimizer

    def _parameter_groups(self, learning_rate: float) -> list[dict]:
        plm, args, objective = self.plm, self.args, self.training_objective
        own = args.classifier_learning_rate if objective.learning_rate is None else objective.learning_rate
        rates = dict.fromkeys(plm.parameters(), args.mlm_head_learning_rate)
        rates |= dict.fromkeys(plm.classifier.parameters(), args.classifier_learning_rate)
        rates |= dict.fromkeys(objective.parameters(), own)
        rates |= dict.fromkeys(plm.trunk_parameters())
        decayed = set(self.get_decay_parameter_names(plm))
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in plm.named_parameters():
            rate = learning_rate if rates[parameter] is None else rates[parameter]  # 0 freezes
            groups.setdefault((rate, args.weight_decay if name in decayed else 0.0), []).append(parameter)
        return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]

    def _get_train_sampler(self, train_dataset=None):
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        lengths = [len(ids) for ids in self.train_dataset.with_format(None)["input_ids"]]  # a format may hide columns
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return LengthGroupedSampler(batch, lengths=lengths, generator=self._order)

    def _get_eval_sampler(self, eval_dataset):
        # the stock one also groups by length, and then returns predictions in an order the caller cannot know
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def _save(self, output_dir=None, state_dict=None):
        # not the stock way, which would pickle the arguments and trip over tied tensors
        if not self.args.should_save:  # every process comes here
            return
        folder = Path(output_dir or self.args.output_dir)
        self.plm.save_pretrained(folder)
        save_objective(self.training_objective, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        plm, own = self.plm, Path(resume_from_checkpoint, OBJECTIVE_FILE)
        state = SharedPLM.from_pretrained(resume_from_checkpoint).state_dict()
        attached, plm.objective = plm.objective, None  # it has a file of its own
        plm.load_state_dict(state)
        plm.objective = attached
        self.training_objective.load_state_dict(load_file(own) if own.exists() else {})

    def _load_best_model(self):
        try:
            self._load_from_checkpoint(self.state.best_model_checkpoint)
        except UserError as error:  # after a whole training nothing may cost the model
            warnings.warn(f"the model is that of the last step, not the best one: {error}", stacklevel=2)

    def _save_optimizer_and_scheduler(self, output_dir):
        super()._save_optimizer_and_scheduler(output_dir)
        if self.update is not None and self.args.should_save:
            torch.save(self.update.state_dict(), Path(output_dir, UPDATE_FILE))

    def _load_optimizer_and_scheduler(self, checkpoint):
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled  # they have files of their own
        if checkpoint is not None and not sharded:
            _check_whole(Path(checkpoint))  # else the stock method begins anew, and says nothing
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.update is not None and checkpoint is not None:
            file, device = Path(checkpoint, UPDATE_FILE), self.args.device
            self.update.load_state_dict(torch.load(file, map_location=device, weights_only=True))

    # --- log ---

    def log(self, logs, start_time=None):
        if "loss" in logs:
            sums = {name: value.double() for name, value in self._parts.items()}
            if self.args.world_size > 1:
                sums = self.accelerator.reduce(sums, "sum")
            for name, value in sums.items():
                if name in ("n_changed", "n_correct") and "n_masked" in sums:
                    logs[name.replace("n_", "share_")] = (value / sums["n_masked"].clamp(min=1)).item()
                else:
                    logs[name] = value.item() / self._steps_in_parts
            self._forget_parts()
        super().log(logs, start_time)

    def _forget_parts(self) -> None:
        self._parts: dict[str, Tensor] = {}
        self._steps_in_parts = 0


# --- the loss of a step, however it is cut ---


def sizes_of(objective: Objective, batch: dict) -> dict[str, Tensor | int]:
    """What the means among an objective's parts are over; those without an entry of their own, over "examples"."""
    return {"examples": len(batch["input_ids"])} | objective.sizes(batch)


def totals_of(sizes: list[dict[str, Tensor | int]], device: torch.device) -> dict[str, Tensor]:
    """The sizes of a whole step, from those of its slices."""
    return {name: torch.as_tensor(sum(of_slice[name] for of_slice in sizes), device=device) for name in sizes[0]}


def share_of_step(output: ObjectiveOutput, sizes: dict, totals: dict[str, Tensor]) -> ObjectiveOutput:
    """A slice's output whose means are weighed so that the slices add up to the step's; counts are left as they are."""
    smallest = torch.finfo(torch.float32).tiny  # where nothing is masked the part is 0
    shares = {name: size / totals[name].clamp(min=smallest) for name, size in sizes.items()}
    parts = {
        name: part if name.startswith("n_") else part * shares.get(name, shares["examples"])
        for name, part in output.parts.items()
    }
    return replace(output, parts=parts)


class _Numbered(torch.utils.data.Dataset):
    """A training set whose examples bring their number, `example`: by it masks are drawn."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: list[int]) -> list[dict]:
        if isinstance(self.dataset, Dataset):
            examples = self.dataset.__getitems__(rows)
        else:  # batches that are made on the fly, as in data/models/lm_training.py
            examples = [self.dataset[row] for row in rows]
        return [{**example, "example": row} for row, example in zip(rows, examples, strict=True)]


def save_objective(objective: Objective, folder: Path) -> None:
    """The parameters of an objective that has some (a gate, a bias network), in a folder with a saved model."""
    if state := objective.state_dict():
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / OBJECTIVE_FILE)


# --- what a trainer refuses, before it starts ---


def _check_arguments(objective: Objective, args: ObjectiveArguments, others: dict) -> None:
    """`others` is what else the constructor was given, by name."""
    if args.should_save:
        make_writable(Path(args.output_dir))
    alternating, optimizer = args.update == "alternating", (others.get("optimizers") or (None,))[0]
    for name, value, instead in (
        ("label_smoothing_factor", args.label_smoothing_factor, "FineTuning(label_smoothing=...)"),
        ("neftune_noise_alpha", args.neftune_noise_alpha, "no value"),
        ("compute_loss_func", others.get("compute_loss_func"), "an Objective of your own"),
        ("optimizers, with update alternating,", alternating and optimizer is not None, "optimizer_cls_and_kwargs"),
        ("compute_metrics", not objective.classifies and others.get("compute_metrics"), "nothing, and read eval_loss"),
    ):
        if value:
            raise UserError(f"{name} does not work with {type(objective).__name__}; give {instead}.")


def _check_optimizer(optimizer: torch.optim.Optimizer, objective: Objective) -> None:
    """One that the user made may lack the parameters of the objective, which then would not train."""
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if lacking := [name for name, p in objective.named_parameters() if p.requires_grad and p not in held]:
        raise UserError(
            f"the optimizer has no group with {', '.join(lacking)} of {type(objective).__name__}, which are made "
            "with the trainer; leave `optimizers` out, or give `optimizer_cls_and_kwargs` instead."
        )


def _check_whole(checkpoint: Path) -> None:
    if lacking := [name for name in (OPTIMIZER_NAME, SCHEDULER_NAME) if not (checkpoint / name).is_file()]:
        raise UserError(
            f"{checkpoint} has no {', '.join(lacking)}: it is torn, or holds a model alone. Resume from an earlier "
            "checkpoint (move this one away), or train in a new folder."
        )


def check_set(
    name: str, dataset, plm: SharedPLM, objective: Objective, id2label: dict[int, str], training: bool = False
) -> None:
    """One set, which messages call `name`, or several by name, for a model whose labels have these names."""
    if isinstance(dataset, dict):
        for key, part in dataset.items():
            check_set(f"{name} {key!r}", part, plm, objective, id2label)
    if dataset is None or isinstance(dataset, str | dict):  # a text names one that was checked at the start
        return
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        raise UserError(
            f"{name} is a {type(dataset).__name__}; expected a Dataset, as mtlib.tokenise makes one. Streams and torch "
            "datasets are not read; Dataset.from_list(list(rows)) makes a Dataset of their rows."
        )
    columns = {*dataset.column_names}
    labels = label_column(columns) if objective.classifies else None
    needed = {"input_ids"}
    if training or not objective.classifies:  # a classifier is evaluated on the texts as they stand
        needed |= objective.columns.keys() | ({labels or "labels"} if objective.classifies else set())
    if missing := sorted(needed - columns):
        raise UserError(
            f"{name} has no column {', '.join(missing)}, which {type(objective).__name__} needs; it has "
            f"{', '.join(dataset.column_names)}. mtlib.tokenise makes tokens and labels, "
            f"MaskTuning(classification=...) brings {ORIGINAL}, and preparers add all else."
        )
    if not isinstance(dataset, Dataset):
        return  # another thing with columns, such as batches that are made on the fly, is not looked into
    plm.check_inputs(dataset.with_format(None)["input_ids"], name)  # a format may hide columns
    if labels:
        check_labels(name, dataset, plm.config.num_labels)
        _check_label_names(name, dataset, id2label)


def _check_label_names(name: str, dataset: Dataset, id2label: dict[int, str]) -> None:
    """Where a set names its labels and the model too, one name must have one number: else answers count as wrong."""
    ids = {label: number for number, label in enumerate(_label_names(dataset))}
    turned = any(ids.get(label, number) != number for number, label in id2label.items())
    if turned or (len(ids) < len(id2label) and ids.keys() - {*id2label.values()}):
        raise UserError(
            f"{name} numbers its labels {', '.join(ids)}, the model {', '.join(id2label.values())} (as the training "
            "set, where it came without names). Number the labels of all sets by the model's, give these by "
            "SharedPLM.from_pretrained(id2label=...), or call `trainer.predict` without labels and fold the answers."
        )


def _with_columns(train, plm: SharedPLM, objective: Objective, seed: int):
    """A training set with what the objective's masking policy reads."""
    masking = objective.masking
    if masking is not None and isinstance(train, Dataset) and masking.columns.keys() - {*train.column_names}:
        for prepare in masking.preparers():
            train = prepare(plm, train, seed).examples
    return train


def _names_of_labels(plm: SharedPLM, training_set) -> dict[int, str]:
    """The model's `id2label`, or the training set's where that names all labels and the model none."""
    names = _label_names(training_set)
    nameless = all(name == f"LABEL_{number}" for number, name in plm.config.id2label.items())  # transformers' own
    return dict(enumerate(names)) if nameless and len(names) == plm.config.num_labels else plm.config.id2label


def _label_names(dataset) -> list[str]:
    """Of a `ClassLabel` column of labels; none where it is another one."""
    features = getattr(dataset, "features", None) or {}
    column = features.get(label_column(features))
    return list(column.names) if isinstance(column, ClassLabel) else []
