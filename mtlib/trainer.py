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
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_pt_utils import LengthGroupedSampler

from mtlib.contexts import forked_random_state
from mtlib.draws import Draws
from mtlib.encoding import TrainingCollator, check_labels, label_column, length_given
from mtlib.errors import UserError
from mtlib.graphs import CapturedStep
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.updates import AlternatingUpdate, BalancedUpdate, check_update

OBJECTIVE_FILE = "objective.safetensors"  # its parameters, in a checkpoint
_WITHOUT_EFFECT = ("label_smoothing_factor", "neftune_noise_alpha")


@dataclass
class ObjectiveArguments(TrainingArguments):
    """transformers' `TrainingArguments` with what Mask-tuning adds.

    Other defaults than the stock ones: batches grouped by length, columns kept, no reporting to services, a loss that
    is not finite is logged as it is, and batches are copied to the device without waiting.

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
    remove_unused_columns: bool = field(default=False)
    logging_nan_inf_filter: bool = field(default=False)
    report_to: None | str | list[str] = field(default="none")  # noqa: RUF036  (HfArgumentParser needs this order)

    def __post_init__(self):
        if self.remove_unused_columns:
            raise UserError("remove_unused_columns is True, which would drop what the objectives read; leave it out.")
        if self.accelerator_config is None and torch.cuda.is_available() and not self.use_cpu:
            self.accelerator_config = {"non_blocking": True}
        super().__post_init__()

    @property
    def captures(self) -> bool:
        """Whether steps may be captured as CUDA graphs."""
        eager = self.gradient_checkpointing or self.torch_compile or self.update == "alternating" or self.n_gpu < 1
        return self.cuda_graphs and not eager and self.gradient_accumulation_steps == self.world_size == 1


class ObjectiveTrainer(Trainer):
    """transformers' Trainer around `objective(plm, batch)`; everything else (bf16, resuming) is stock.

    Several GPUs need `accelerate launch`; with plain `python` one is used.

    - Mean losses are means over the whole optimiser step, however it is cut into accumulation steps or processes:
      8 x 1, 4 x 2 and 2 x 4 train alike. Stock transformers 5 gets this wrong for these heads (transformers#47688).
      (Where the training set does not divide among several processes, an epoch's last step repeats some examples.)
    - The masks of an example depend on `(seed, epoch, example)` alone, however a step is cut, and in a resumed run too.
      (Drawn from torch's global generator: the random words of `80_10_10`, sampled filling, dropout.)
    - The log carries the objective's parts beside `loss`: `mlm_loss`, `ft_loss`, `n_masked` and `share_changed`.
    - Evaluation and prediction classify the text as it stands; for `MaskedLM`, `eval_loss` is the mean
      over batches of each one's masked-LM loss, so it depends a little on the size of the batches.

    Args:
        plm: the model; None with `model_init`, which makes one for each training (`hyperparameter_search`).
        objective: what to minimise (`training_objective`; `objective` is the score of a hyperparameter search).
        args: `ObjectiveArguments`.
        train_dataset: `datasets.Dataset` of tokenised examples, with `labels` (or `label`) for an objective that
            classifies, and `length`, which saves counting. Where it names its labels and the model does not, the model
            takes them. A column that the masking policy reads is added by the policy's preparers, which need `text`.
        kwargs: any other argument of Trainer (callbacks, optimizers, ...).
    """

    def __init__(
        self, plm: SharedPLM | None, objective: Objective, args: ObjectiveArguments, train_dataset=None, **kwargs
    ):
        _check_arguments(objective, args, kwargs)
        if args.n_gpu > 1:
            # one process drives one GPU: DataParallel cannot split our batches, `accelerate launch` can
            args._n_gpu = 1
        self.args, self.training_objective = args, objective
        self.train_dataset, self.eval_dataset = train_dataset, kwargs.get("eval_dataset")
        # of batches, seeded for each epoch: torch's global generator has another state there in a resumed run
        self._order = torch.Generator()
        self._forget_parts()
        plm = None if plm is None and kwargs.get("model_init") else self._ready(plm)
        super().__init__(model=plm, args=args, train_dataset=self.train_dataset, **kwargs)
        masking = getattr(objective, "masking", None)
        own = TrainingCollator(self.plm.tokenizer, objective.columns, masking, args.seed, self._captures)
        self.data_collator = kwargs.get("data_collator") or own
        self.processing_class = kwargs.get("processing_class") or self.plm.tokenizer

    @property
    def plm(self) -> SharedPLM:
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def call_model_init(self, trial=None):
        return self._ready(super().call_model_init(trial))

    def _ready(self, plm: SharedPLM) -> SharedPLM:
        """The model, checked against everything else and with the labels' names; the objective is built for it."""
        args, objective = self.args, self.training_objective
        if not isinstance(plm, nn.Module) or not hasattr(plm, "trunk_parameters"):
            raise UserError(f"plm is a {type(plm).__name__}; expected what SharedPLM.from_pretrained(...) gives.")
        # an earlier trainer in bf16 has left its autocast around the model's forward
        plm = extract_model_from_parallel(plm, keep_fp32_wrapper=False)
        check_update(plm, objective, args)
        objective.check(plm)
        train = self.train_dataset = _with_columns(self.train_dataset, plm, objective, args.seed)
        id2label = _names_of_labels(plm, train)
        if train is not None:
            check_set("the training set", train, plm, objective, id2label, training=True)
        _check_evaluation_sets(self.eval_dataset, plm, objective, id2label)
        plm.config.id2label, plm.config.label2id = id2label, {name: number for number, name in id2label.items()}
        plm.config.trained_length = length_given(train) or plm.trained_length  # `predict` cuts texts so too
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
        return self.args.captures and self.training_objective.static

    def get_train_dataloader(self):
        plain, self.train_dataset = self.train_dataset, _Numbered(self.train_dataset)
        try:
            return super().get_train_dataloader()
        finally:
            self.train_dataset = plain

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
        inputs = self._prepare_inputs(inputs)
        step = self._captured or partial(self._step, model, totals=num_items_in_batch)
        loss, parts = step(inputs)
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
        if isinstance(self.data_collator, TrainingCollator):
            self.data_collator.epoch.fill_(epoch)

    # --- evaluation ---

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        # a text names one that was checked at the start
        _check_evaluation_sets(eval_dataset, self.plm, self.training_objective, self.plm.config.id2label)
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
        rates: dict[int, float | None] = {}
        for parameters, rate in (
            (plm.parameters(), args.mlm_head_learning_rate),
            (plm.classifier.parameters(), args.classifier_learning_rate),
            (objective.parameters(), own),
            (plm.trunk_parameters(), learning_rate),
        ):
            rates |= {id(parameter): rate for parameter in parameters}
        decayed = set(self.get_decay_parameter_names(plm))
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in plm.named_parameters():
            rate = learning_rate if rates[id(parameter)] is None else rates[id(parameter)]  # 0 freezes
            groups.setdefault((rate, args.weight_decay if name in decayed else 0.0), []).append(parameter)
        return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]

    def _get_train_sampler(self, train_dataset=None):
        dataset = getattr(train_dataset, "dataset", train_dataset) or self.train_dataset  # not numbered
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        plain = dataset.with_format(None)  # a format may hide columns
        has_lengths = "length" in plain.column_names
        lengths = list(plain["length"]) if has_lengths else [len(ids) for ids in plain["input_ids"]]
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
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled  # they have files of their own
        needed = (TRAINER_STATE_NAME,) if sharded else (TRAINER_STATE_NAME, OPTIMIZER_NAME, SCHEDULER_NAME)
        if lacking := [name for name in needed if not Path(resume_from_checkpoint, name).is_file()]:
            raise UserError(
                f"{resume_from_checkpoint} has no {', '.join(lacking)}: it is torn, or holds a model alone. Resume "
                "from an earlier checkpoint (move this one away), or train in a new folder."
            )
        self._load_weights(Path(resume_from_checkpoint))

    def _load_weights(self, folder: Path) -> None:
        plm, own = self.plm, folder / OBJECTIVE_FILE
        state = SharedPLM.from_pretrained(folder).state_dict()
        state_of_objective = load_file(own) if own.exists() else {}
        attached, plm.objective = plm.objective, None  # it has a file of its own
        plm.load_state_dict(state)
        plm.objective = attached
        self.training_objective.load_state_dict(state_of_objective)

    def _load_best_model(self):
        try:
            self._load_weights(Path(self.state.best_model_checkpoint))
        except UserError as error:  # after a whole training nothing may cost the model
            warnings.warn(f"the model is that of the last step, not the best one: {error}", stacklevel=2)

    def _save_optimizer_and_scheduler(self, output_dir):
        super()._save_optimizer_and_scheduler(output_dir)
        if self.update is not None and self.args.should_save:
            self.update.save(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.update is not None and checkpoint is not None:
            self.update.load(Path(checkpoint), self.args.device)

    # --- log ---

    def log(self, logs, start_time=None):
        if "loss" in logs:
            logs |= self._take_parts()
        super().log(logs, start_time)

    def _take_parts(self) -> dict[str, float]:
        sums = {name: value.double() for name, value in self._parts.items()}
        if self.args.world_size > 1:
            sums = self.accelerator.reduce(sums, "sum")
        logs = {}
        for name, value in sums.items():
            if name in ("n_changed", "n_correct") and "n_masked" in sums:
                logs[name.replace("n_", "share_")] = (value / sums["n_masked"].clamp(min=1)).item()
            else:
                logs[name] = value.item() / self._steps_in_parts
        self._forget_parts()
        return logs

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

    def __getitem__(self, row: int) -> dict:
        return {**self.dataset[row], "example": row}

    def __getitems__(self, rows: list[int]) -> list[dict]:
        if not isinstance(self.dataset, Dataset):  # batches that are made on the fly
            return [self[row] for row in rows]
        columns = {**self.dataset[rows], "example": rows}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# --- what a trainer refuses, before it starts ---


def _check_arguments(objective: Objective, args: ObjectiveArguments, others: dict) -> None:
    """`others` is what else the constructor was given, by name."""
    if not isinstance(objective, Objective):
        raise UserError(f"objective is {objective!r}; expected what MaskTuning() or FineTuning() makes.")
    if not isinstance(args, ObjectiveArguments):
        raise UserError(f"args is {type(args).__name__}; expected ObjectiveArguments, which takes the same arguments.")
    if args.should_save:
        make_writable(Path(args.output_dir))
    given = {name: getattr(args, name) for name in _WITHOUT_EFFECT}
    given["compute_loss_func"] = others.get("compute_loss_func")
    for name, value in given.items():
        if value:
            instead = " and give FineTuning(label_smoothing=...)" if name == "label_smoothing_factor" else ""
            raise UserError(f"{name} is {value!r}, but the loss is the objective's; leave {name} out{instead}.")
    if others.get("compute_metrics") and not objective.classifies:
        raise UserError(
            f"compute_metrics is given, but {type(objective).__name__} trains no classifier, so that there are no "
            "predictions to score; leave it out and read eval_loss."
        )
    if args.push_to_hub and args.hub_strategy != "end":
        raise UserError(
            f"hub_strategy is {args.hub_strategy.value!r}, which uploads checkpoints without the masked-LM head and "
            'with a pickle; give hub_strategy="end" and call trainer.push_to_hub() after the training.'
        )
    if args.update == "alternating" and (others.get("optimizers") or (None,))[0] is not None:
        raise UserError('update="alternating" makes its own two optimisers; leave `optimizers` out, or its first.')


def _check_optimizer(optimizer: torch.optim.Optimizer, objective: Objective) -> None:
    """One that the user made may lack the parameters of the objective, which then would not train."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    lacking = [name for name, p in objective.named_parameters() if p.requires_grad and id(p) not in held]
    if lacking:
        raise UserError(
            f"the optimizer has no group with {', '.join(lacking)} of {type(objective).__name__}, which are made "
            "with the trainer; leave `optimizers` out, or give `optimizer_cls_and_kwargs` instead."
        )


def _check_evaluation_sets(evaluation, plm: SharedPLM, objective: Objective, id2label: dict[int, str]) -> None:
    """A set, or several by name. A text stands for one that was checked before, None for none."""
    named = evaluation if isinstance(evaluation, dict) else {"": evaluation}
    for name, dataset in named.items():
        if dataset is not None and not isinstance(dataset, str):
            what = f"the evaluation set {name!r}" if name else "the evaluation set"
            check_set(what, dataset, plm, objective, id2label)


def save_objective(objective: Objective, folder: Path) -> None:
    """The parameters of an objective that has some (a gate, a bias network), in a folder with a saved model."""
    if state := objective.state_dict():
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / OBJECTIVE_FILE)


def check_set(
    name: str, dataset, plm: SharedPLM, objective: Objective, id2label: dict[int, str], training: bool = False
) -> None:
    """One set, which messages call `name`, for a model whose labels have these names."""
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
        raise UserError(
            f"{name} is a {type(dataset).__name__}; expected a Dataset, as mtlib.tokenise makes one. Streams and torch "
            "datasets are not read; Dataset.from_list(list(rows)) makes a Dataset of their rows."
        )
    if len(dataset) == 0:
        raise UserError(f"{name} is empty; expected at least one example.")
    columns = ", ".join(dataset.column_names)
    if "input_ids" not in dataset.column_names:
        raise UserError(f"{name} has no column `input_ids`, but {columns}; give it to mtlib.tokenise.")
    # a classifier is evaluated on the texts as they stand
    needed = objective.columns.keys() if training or not objective.classifies else set()
    if missing := sorted(needed - {*dataset.column_names}):
        raise UserError(
            f"{name} has no column {', '.join(missing)}, which {type(objective).__name__} needs; it has {columns}."
            + (f" {added_by} adds it." if (added_by := objective.prepared_by) else "")
        )
    if not isinstance(dataset, Dataset):
        return  # another thing with columns, such as batches that are made on the fly, is not looked into
    plm.check_inputs(dataset.with_format(None)["input_ids"], name)  # a format may hide columns
    if objective.classifies and label_column(dataset.column_names):
        check_labels(name, dataset, plm.config.num_labels)
        _check_label_names(name, dataset, id2label)
    elif objective.classifies and training:
        raise UserError(f"{name} has no column `labels` or `label` with class numbers; it has {columns}.")


def _with_columns(train, plm: SharedPLM, objective: Objective, seed: int):
    """A training set with what the objective's masking policy reads."""
    masking = getattr(objective, "masking", None)
    if masking is not None and isinstance(train, Dataset) and masking.columns.keys() - {*train.column_names}:
        for prepare in masking.preparers():
            train = prepare(plm, train, seed).examples
    return train


def _check_label_names(name: str, dataset: Dataset, id2label: dict[int, str]) -> None:
    """Where a set names its labels and the model too, one name must have one number: else answers count as wrong."""
    ids = {label: number for number, label in enumerate(_label_names(dataset))}
    if ids and len(ids) < len(id2label) and (unknown := sorted(ids.keys() - {*id2label.values()})):
        raise UserError(
            f"{name} names {len(ids)} labels, among them {unknown[0]!r}; the model has {len(id2label)}, "
            f"{', '.join(id2label.values())}. Number its rows by the model's labels, or take `trainer.predict` without "
            "labels and fold the answers."
        )
    for number, label in id2label.items():
        if ids.get(label, number) != number:
            raise UserError(
                f"the label {label!r} is {ids[label]} in {name}, but {number} in the model's id2label, which is the "
                "training set's where the model came without names. Number the labels of all sets alike; where the "
                f"model's are the wrong ones, give id2label={dict(enumerate(ids))} to SharedPLM.from_pretrained."
            )


def _names_of_labels(plm: SharedPLM, training_set) -> dict[int, str]:
    """The model's `id2label`, or the training set's where that names all labels and the model none."""
    names = _label_names(training_set)
    takes_them = plm.has_nameless_labels and len(names) == plm.config.num_labels
    return dict(enumerate(names)) if takes_them else plm.config.id2label


def _label_names(dataset) -> list[str]:
    """Of a `ClassLabel` column of labels; none where it is another one."""
    features = getattr(dataset, "features", None) or {}
    column = features.get(label_column(features))
    return list(column.names) if isinstance(column, ClassLabel) else []
