"""transformers' Trainer around an objective: its losses, batches, log and checkpoints."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import PredictionOutput, TrainOutput

from mtlib.contexts import forked_random_state
from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.graphs import CapturedStep
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput
from mtlib.paths import make_writable
from mtlib.plm import Batch, SharedPLM
from mtlib.rng import KeyedRNG, example_keys
from mtlib.training_sets import (
    Examples,
    Numbered,
    check_set,
    id2label_of,
    note_trained_length,
    with_columns,
)
from mtlib.updates import AlternatingUpdate, BalancedUpdate, Loss, check_update

# in a checkpoint, beside the stock files: the parameters of the objective, the state of the update
OBJECTIVE_FILE = "objective.safetensors"
UPDATE_FILE = "update.pt"
_SEED_STRIDE = 1_000_003  # so that no epoch of one seed has the order of an epoch of another

Totals = Mapping[str, Tensor]  # the denominators of the means of a whole step, by name


@dataclass
class ObjectiveArguments(TrainingArguments):
    """transformers' `TrainingArguments` with what Mask-tuning adds.

    Defaults that differ from the stock ones: batches are grouped by length, nothing is reported to
    services, only the final model is uploaded (earlier uploads would lack the masked-LM head), and
    non-finite losses are logged unfiltered.

    Args:
        mlm_head_learning_rate: rate of the masked-LM head; default `learning_rate`.
        classifier_learning_rate: rate of the classifier head, pooler included; default
            `learning_rate`.
        update: "joint", one step on equation 1; "balanced", the same with both gradients scaled to
            one length on the shared trunk (`updates.BalancedUpdate`; ours); or "alternating", one
            AdamW step on alpha * L_MLM, then one on (1 - alpha) * L_FT
            (`updates.AlternatingUpdate`).
        cuda_graphs: on a GPU, capture both passes of a step as a graph (`graphs.CapturedStep`) if
            the objective is `static` and the step is one batch in one process, neither compiled nor
            checkpointed nor alternating. Batches are then padded to few lengths.
    """

    mlm_head_learning_rate: float | None = None
    classifier_learning_rate: float | None = None
    update: str = "joint"
    cuda_graphs: bool = True
    train_sampling_strategy: str = field(default="group_by_length")
    logging_nan_inf_filter: bool = field(default=False)
    hub_strategy: str = field(default="end")
    # HfArgumentParser needs this order
    report_to: None | str | list[str] = field(default="none")  # noqa: RUF036

    def __post_init__(self) -> None:
        # Apple's cards have no float64, and no CUDA graphs
        self.use_cpu = self.use_cpu or torch.backends.mps.is_available()
        self.remove_unused_columns = False  # the collator drops what the objective does not read
        on_gpu = torch.cuda.is_available() and not self.use_cpu
        self.dataloader_pin_memory = self.dataloader_pin_memory and on_gpu
        non_blocking = {"non_blocking": self.dataloader_pin_memory}
        self.accelerator_config = self.accelerator_config or non_blocking
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers has no type for it


class ObjectiveTrainer(Trainer):
    """transformers' Trainer around `objective(plm, batch)`; all else (bf16, resuming) is stock.

    Several GPUs need `accelerate launch`; plain `python` uses one.

    - Mean losses are means over the whole optimiser step, however it is cut into accumulation steps
      or processes: 8 x 1, 4 x 2 and 2 x 4 train alike. Stock transformers 5 gets this wrong for
      these heads (transformers#47688). If the training set does not divide evenly among several
      processes, the last step of an epoch repeats some examples.
    - The masks of an example depend only on (seed, epoch, example), however a step is cut, and in a
      resumed run too. Sampled filling and dropout use torch's global generator.
    - The log carries the components of the loss beside `loss`: `mlm_loss`, `ft_loss`, `n_masked`
      and `share_changed`.
    - Evaluation and prediction classify the text as it stands, and `eval_loss` is its mean
      cross-entropy, without class weights, label smoothing or a loss of your own. For `MaskedLM`
      it is the mean of the batches' masked-LM losses, so it depends slightly on the batch size.

        trainer = ObjectiveTrainer(plm, MaskTuning(alpha=0.6), ObjectiveArguments("out"), train)
        trainer.train()
        trainer.plm.save_pretrained("model")

    Args:
        plm: the model; or None with `model_init`, which makes one for each training
            (`hyperparameter_search`).
        objective: what to minimise. It is kept as `training_objective`, since `objective` is the
            score of a hyperparameter search in transformers.
        args: `ObjectiveArguments`.
        train_dataset: `datasets.Dataset` of tokenised examples, with `labels` (or `label`) for an
            objective that classifies. If it names its labels and the model does not, the model
            takes these names. A column that the masking policy reads is added by the policy's
            transforms, which need `text`.
        kwargs: any other argument of Trainer (callbacks, `optimizer_cls_and_kwargs`, ...).

    Raises:
        UserError: model, objective, arguments and data do not fit together.
    """

    args: ObjectiveArguments

    def __init__(
        self,
        plm: SharedPLM | None,
        objective: Objective,
        args: ObjectiveArguments,
        train_dataset: Examples | None = None,
        **kwargs: Any,
    ):
        _check_types(plm, objective, args)
        _check_arguments(objective, args, kwargs)
        args._n_gpu = min(args.n_gpu, 1)  # DataParallel cannot split our batches
        # Trainer's constructor may make the model (`call_model_init`), and `_ready` reads these.
        self.args = args
        self.training_objective = objective
        self.train_dataset = train_dataset
        self.eval_dataset = kwargs.get("eval_dataset")
        # The order of the batches has a generator of its own, seeded for each epoch: torch's
        # global one is in another state there in a resumed run.
        self._order_generator = torch.Generator()
        self._training_key = object()  # tells this trainer from others with the same objective
        self._forget_components()
        if plm is None and kwargs.get("model_init") is None:
            raise UserError("plm is None; give a SharedPLM, or model_init, which makes one.")
        model = None if plm is None else self._ready(plm)
        super().__init__(model=model, args=args, train_dataset=self.train_dataset, **kwargs)
        self._set_collator(kwargs.get("data_collator"))
        self.processing_class = kwargs.get("processing_class") or self.plm.tokenizer
        self.callback_handler.processing_class = self.processing_class

    def _set_collator(self, data_collator: Callable[[list[dict[str, Any]]], Batch] | None) -> None:
        """The user's collator, or ours, which draws the masks."""
        self._has_default_collator = data_collator is None
        if data_collator is not None:
            self.data_collator = data_collator
            return
        self.data_collator = Collator(
            self.plm.tokenizer,
            columns=self.training_objective.columns,
            masking=self.training_objective.masking,
            seed=self.args.seed,
            buckets=self._uses_cuda_graphs,
            longest=self.plm.longest,
        )

    @property
    def plm(self) -> SharedPLM:
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def call_model_init(self, trial: Any = None) -> SharedPLM:
        return self._ready(cast(SharedPLM, super().call_model_init(trial)))

    def _ready(self, plm: SharedPLM) -> SharedPLM:
        """The model, checked; the sets, the objective and the update are made ready for it."""
        # an earlier trainer in bf16 has left its autocast around the model's forward
        plm = extract_model_from_parallel(plm, keep_fp32_wrapper=False)
        check_update(self.args.update, plm, self.training_objective, self.args)
        self.training_objective.check(plm)
        self._fit_sets(plm)
        self._build_objective(plm)
        # the alternating update is made with the optimiser
        self.update: AlternatingUpdate | BalancedUpdate | None = None
        if self.args.update == "balanced":
            self.update = BalancedUpdate()
        return plm

    def _fit_sets(self, plm: SharedPLM) -> None:
        """Give the training set its columns, check all sets, and give the model its label names."""
        objective = self.training_objective
        self.train_dataset = with_columns(self.train_dataset, plm, objective, self.args.seed)
        id2label = id2label_of(plm, self.train_dataset)
        check_set("the training set", self.train_dataset, plm, objective, id2label, training=True)
        check_set("the evaluation set", self.eval_dataset, plm, objective, id2label)
        plm.config.id2label = id2label
        plm.config.label2id = {name: number for number, name in id2label.items()}
        note_trained_length(plm, self.train_dataset)

    def _build_objective(self, plm: SharedPLM) -> None:
        """Make the parameters that the objective has beside the model's, if it has some."""
        torch.manual_seed(self.args.seed)  # the same in a resumed run; Trainer seeds again
        # an evaluation without a training set needs no bias network
        if self.train_dataset is not None or not self.training_objective.classifies:
            self.training_objective.build(plm, self.train_dataset)
        self.training_objective.built_for = self._training_key

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        if self.model is not None and self.training_objective.built_for is not self._training_key:
            self._build_objective(self.plm)  # another trainer has built it for its own data since
        self._forget_components()  # of steps that an earlier training did not log
        self._captured_step: CapturedStep | None = None
        try:
            return super().train(*args, **kwargs)
        finally:
            self._captured_step = None
            # the model outlives its trainer, without the parameters that `create_optimizer` added
            if self.model is not None:  # `model_init` may have failed
                self.plm.objective = None

    # --- loss: batches, one step, its log ---

    @property
    def _uses_cuda_graphs(self) -> bool:
        """Whether steps are captured as CUDA graphs."""
        args = self.args
        if not args.cuda_graphs or not self.training_objective.static or args.n_gpu < 1:
            return False
        if args.gradient_checkpointing or args.torch_compile or args.update == "alternating":
            return False
        return args.gradient_accumulation_steps == args.world_size == 1

    def _run_epoch(self, epoch: int, **kwargs: Any) -> None:  # type: ignore[override]  # by name
        self._begin_epoch(epoch)
        # A training that was cut off after its last step has none left, but the stock loop would
        # take one more within the epoch.
        if self.state.global_step < self.state.max_steps:
            # transformers has no type for it
            super()._run_epoch(epoch=epoch, **kwargs)  # type: ignore[no-untyped-call]

    def _begin_epoch(self, epoch: int) -> None:
        """Seed the order of the batches and the masks."""
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self._order_generator.manual_seed(seed * _SEED_STRIDE + epoch)
        if isinstance(self.data_collator, Collator):
            self.data_collator.epoch.fill_(epoch)
            if self._has_default_collator:  # a hyperparameter search may have changed the seed
                self.data_collator.seed = self.args.seed
        if self.state.global_step == 0:  # after a batch size that did not fit, too
            self._captured_step = None
            self._forget_components()

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self.train_dataset is None:
            raise UserError("train_dataset is None; give a Dataset, as mtlib.tokenise makes one.")
        return self._get_dataloader(
            dataset=Numbered(self.train_dataset),
            description="Training",
            batch_size=self._train_batch_size,
            # the type of this parameter forgets that there may be no sampler
            sampler_fn=self._get_train_sampler,  # type: ignore[arg-type]
            is_training=True,
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        args = self.args
        if args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        dataset = cast(Dataset, self.train_dataset)
        examples = dataset.with_format(None)  # a format may hide columns
        lengths = [len(ids) for ids in examples["input_ids"]]
        step_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return LengthGroupedSampler(step_size, lengths=lengths, generator=self._order_generator)

    def get_batch_samples(
        self,
        epoch_iterator: Iterator[Batch],
        num_batches: int,
        device: torch.device,
    ) -> tuple[list[Batch], Any]:
        """The micro-batches of one optimiser step with everything drawn, and its denominators.

        transformers passes the second on to `training_step`, as `num_items_in_batch`.
        """
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        batches = [self._with_draws(batch, number) for number, batch in enumerate(batches)]
        self._steps_since_log += 1
        if self.args.gradient_accumulation_steps == self.args.world_size == 1:
            return batches, None
        denominators = [denominators_of(self.training_objective, batch) for batch in batches]
        totals = totals_of(denominators, device)
        if self.args.world_size > 1:
            totals = self.accelerator.reduce(totals, "sum")
        return batches, totals

    def _with_draws(self, batch: Batch, number: int) -> Batch:
        """A micro-batch, by its number in the step, with what the collator has not drawn.

        A policy may read the model, and the collator may be another one.
        """
        keys = batch.pop("keys", None)
        if keys is None:
            n = batch["input_ids"].shape[0]
            first = (number * self.args.world_size + self.args.process_index) * n
            rows = torch.arange(first, first + n, device=batch["input_ids"].device)
            keys = example_keys(self.args.seed, self.state.global_step, rows)
        rng = KeyedRNG(keys, stream="step")  # other numbers than the collator has used
        return self.training_objective.sample(self.plm, batch, rng)

    def training_step(
        self,
        model: nn.Module,
        inputs: Batch,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        if self._captured_step is None and self._uses_cuda_graphs:
            self._captured_step = CapturedStep(partial(self._step, model), model)
        step = self._captured_step or partial(self._step, model, totals=num_items_in_batch)
        loss, components = step(self._prepare_inputs(inputs))
        # summed on the device, and fetched only when logged
        for name, component in components.items():
            self._components[name] = self._components.get(name, 0) + component
        return loss

    def _step(
        self,
        model: nn.Module,
        inputs: Batch,
        totals: Totals | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """All passes over one micro-batch: its loss, and the components of that loss.

        `run_loss`, which each way of stepping calls, fills `_components_of_step`.
        """
        self._components_of_step: dict[str, Tensor] = {}
        if self.update is not None:
            model.train()
            loss = self.update.step(self, model, inputs, totals)
            return loss, self._components_of_step
        # compute_loss divides by the denominators of the whole step; the stock step must not
        self.current_gradient_accumulation_steps = 1
        loss = super().training_step(model, inputs, cast(Any, totals))  # for compute_loss
        return loss, self._components_of_step

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor | tuple[Tensor, ObjectiveOutput]:
        output = self.run_loss(model, self.training_objective, inputs, num_items_in_batch)
        # DistributedDataParallel averages gradients over processes, whereas losses are to be summed
        loss = output.loss * self.args.world_size
        return (loss, output) if return_outputs else loss

    def run_loss(
        self,
        model: nn.Module,
        loss: Loss,
        batch: Batch,
        totals: Totals | None = None,
    ) -> ObjectiveOutput:
        """The forward pass of a loss on one micro-batch; its means become shares of the step's."""
        output = model(loss, batch)
        if totals is not None:
            denominators = denominators_of(self.training_objective, batch)
            output = share_of_step(output, denominators, totals)
        for name, component in output.components.items():
            self._components_of_step[name] = component.detach()
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs.update(self._means_of_components())
            self._forget_components()
        super().log(logs, start_time)

    def _means_of_components(self) -> dict[str, float]:
        """The components of the losses since the last log, as means over its steps or as shares."""
        sums = {name: value.double() for name, value in self._components.items()}
        if self.args.world_size > 1:
            sums = self.accelerator.reduce(sums, "sum")
        means = {}
        for name, value in sums.items():
            if name in ("n_changed", "n_correct") and "n_masked" in sums:
                share = value / sums["n_masked"].clamp(min=1)
                means[name.replace("n_", "share_")] = share.item()
            else:
                means[name] = value.item() / self._steps_since_log
        return means

    def _forget_components(self) -> None:
        self._components: dict[str, Tensor] = {}
        self._steps_since_log = 0

    # --- evaluation ---

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        self._check_set("the evaluation set", eval_dataset)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> PredictionOutput:
        self._check_set("the test set", test_dataset)
        return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def _check_set(self, name: str, dataset: object) -> None:
        check_set(name, dataset, self.plm, self.training_objective, self.plm.id2label)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int] | None:
        # The stock sampler also groups by length, and then returns predictions in an order that
        # the caller cannot know.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    @torch.no_grad()
    def prediction_step(
        self,
        model: nn.Module,
        inputs: Batch,
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs = self._prepare_inputs(inputs)
        if not self.training_objective.classifies:
            return self._loss_without_classes(model, inputs), None, None
        if "labels" not in inputs:  # through the model, which brings the autocast
            return None, model(SharedPLM.classify, inputs).float(), None
        output = model(FineTuning(), inputs)
        if prediction_loss_only:
            return output.loss, None, None
        return output.loss, output.logits.float(), inputs["labels"]

    def _loss_without_classes(self, model: nn.Module, inputs: Batch) -> Tensor:
        """The loss of an objective without a classifier; every evaluation draws the same masks."""
        objective = self.training_objective
        # the content of a batch decides its masks
        seed = self.args.seed + int(inputs["input_ids"].sum())
        with forked_random_state(self.plm.device, seed):
            generator = torch.Generator().manual_seed(seed)
            batch = objective.sample(self.plm, inputs, generator)
            return model(objective, batch).loss

    # --- rates ---

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW, or what was asked for, with one rate each for the trunk and the two heads.

        An `lr` in `optimizer_cls_and_kwargs` stands for `learning_rate`.
        """
        objective = self.training_objective.to(self.plm.device)
        # as a part of the model, its parameters reach the optimiser, clipping and all processes
        has_parameters = any(True for _ in objective.parameters())
        self.plm.objective = objective if has_parameters else None
        if self.optimizer is None:
            self.optimizer = self._new_optimizer()
            if self.args.update == "alternating":  # it steps once for each loss
                self.update = AlternatingUpdate(self._new_optimizer())
        _check_optimizer(self.optimizer, objective)
        return self.optimizer

    def _new_optimizer(self) -> torch.optim.Optimizer:
        chosen = self.optimizer_cls_and_kwargs
        if not chosen:
            model = cast(PreTrainedModel, self.plm)  # it asks for modules and parameters alone
            chosen = self.get_optimizer_cls_and_kwargs(self.args, model)
        optimizer_class, options = chosen
        learning_rate = options.get("lr", self.args.learning_rate)
        return optimizer_class(self._parameter_groups(learning_rate), **options)

    def _parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The parameters of model and objective, grouped by learning rate and weight decay."""
        plm, args = self.plm, self.args
        trunk = set(plm.trunk_parameters())
        rates = {  # by the names of the attributes of `SharedPLM` that hold the parameters
            "mlm": args.mlm_head_learning_rate,
            "classifier": args.classifier_learning_rate,
            "objective": self.training_objective.learning_rate,
        }
        if rates["objective"] is None:
            rates["objective"] = rates["classifier"]

        def rate_of(name: str, parameter: nn.Parameter) -> float:
            part_of_model = name.partition(".")[0]
            rate = None if parameter in trunk else rates[part_of_model]
            return learning_rate if rate is None else rate  # a rate of 0 freezes

        with_decay = set(self.get_decay_parameter_names(plm))
        groups: dict[tuple[float, float], dict[str, Any]] = {}
        for name, parameter in plm.named_parameters():
            rate = rate_of(name, parameter)
            decay = args.weight_decay if name in with_decay else 0.0
            new_group = {"params": [], "lr": rate, "weight_decay": decay}
            group = groups.setdefault((rate, decay), new_group)
            group["params"].append(parameter)
        return list(groups.values())

    # --- checkpoints ---

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # not the stock way, which would pickle the arguments and fail on tied tensors
        if not self.args.should_save:  # every process comes here
            return
        folder = Path(output_dir or _folder_of(self.args))
        self.plm.save_pretrained(folder)
        save_objective(self.training_objective, folder)

    def _load_from_checkpoint(
        self,
        resume_from_checkpoint: str,
        model: nn.Module | None = None,
    ) -> None:
        plm = self.plm
        saved = SharedPLM.from_pretrained(resume_from_checkpoint).state_dict()
        attached = plm.objective
        plm.objective = None  # it has a file of its own
        plm.load_state_dict(saved)
        plm.objective = attached
        file = Path(resume_from_checkpoint, OBJECTIVE_FILE)
        self.training_objective.load_state_dict(load_file(file) if file.exists() else {})

    def _load_best_model(self) -> None:
        try:
            self._load_from_checkpoint(cast(str, self.state.best_model_checkpoint))
        except UserError as error:  # after a whole training nothing may cost the model
            message = f"the model is that of the last step, not the best one: {error}"
            warnings.warn(message, stacklevel=2)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.update is not None and self.args.should_save:
            torch.save(self.update.state_dict(), Path(output_dir, UPDATE_FILE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled  # with files of their own
        if checkpoint is not None and not sharded:
            own_files = [] if self.update is None else [UPDATE_FILE]
            # the stock method would silently start anew
            _check_complete(Path(checkpoint), own_files)
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.update is not None and checkpoint is not None:
            file = Path(checkpoint, UPDATE_FILE)
            state = torch.load(file, map_location=self.args.device, weights_only=True)
            self.update.load_state_dict(state)


# --- the loss of a step, however it is cut ---


def denominators_of(objective: Objective, batch: Batch) -> dict[str, Tensor | int]:
    """The denominators of an objective's mean components; "examples" for those it does not name."""
    return {"examples": len(batch["input_ids"])} | objective.denominators(batch)


def totals_of(
    denominators: list[dict[str, Tensor | int]],
    device: torch.device,
) -> dict[str, Tensor]:
    """The denominators of a whole step, from those of its micro-batches."""
    totals = {}
    for name in denominators[0]:
        total = sum(of_micro_batch[name] for of_micro_batch in denominators)
        totals[name] = torch.as_tensor(total, device=device)
    return totals


def share_of_step(
    output: ObjectiveOutput,
    denominators: Mapping[str, Tensor | int],
    totals: Totals,
) -> ObjectiveOutput:
    """A micro-batch's output, with its means weighted so that all of them add up to the step's.

    Counts (`n_...`) stay as they are.
    """
    smallest = torch.finfo(torch.float32).tiny  # where nothing is masked the component is 0
    shares = {}
    for name, denominator in denominators.items():
        shares[name] = denominator / totals[name].clamp(min=smallest)
    components = {}
    for name, component in output.components.items():
        is_count = name.startswith("n_")
        share = 1 if is_count else shares.get(name, shares["examples"])
        components[name] = component * share
    return replace(output, components=components)


def _folder_of(args: TrainingArguments) -> Path:
    return Path(cast(str, args.output_dir))  # set by TrainingArguments, if not by the user


def save_objective(objective: Objective, folder: Path) -> None:
    """Save the parameters of an objective that has some (a gate, a bias network) beside a model."""
    state = {name: tensor.contiguous() for name, tensor in objective.state_dict().items()}
    if state:
        save_file(state, folder / OBJECTIVE_FILE)


# --- what a trainer refuses, before it starts ---


def _check_types(plm: object, objective: object, args: object) -> None:
    expected = (
        ("plm", plm, SharedPLM | None, "a SharedPLM, as SharedPLM.from_pretrained loads it"),
        ("objective", objective, Objective, "an objective, such as MaskTuning(alpha=0.6)"),
        ("args", args, ObjectiveArguments, "ObjectiveArguments, which take all TrainingArguments"),
    )
    for name, value, kind, wanted in expected:
        if not isinstance(value, kind):
            given = value.__name__ if isinstance(value, type) else type(value).__name__
            raise UserError(f"{name} is {given}; expected {wanted}.")


def _check_arguments(
    objective: Objective,
    args: ObjectiveArguments,
    others: Mapping[str, Any],
) -> None:
    """`others` holds the remaining arguments of the constructor, by name."""
    if args.should_save:
        make_writable(_folder_of(args))
    optimizer, *_ = others.get("optimizers") or (None,)
    two_optimizers = args.update == "alternating" and optimizer is not None
    metrics_without_classes = not objective.classifies and others.get("compute_metrics")
    refused = (
        ("label_smoothing_factor", args.label_smoothing_factor, "FineTuning(label_smoothing=...)"),
        ("neftune_noise_alpha", args.neftune_noise_alpha, "no value"),
        ("compute_loss_func", others.get("compute_loss_func"), "an Objective of your own"),
        ("optimizers, with update alternating,", two_optimizers, "optimizer_cls_and_kwargs"),
        ("compute_metrics", metrics_without_classes, "nothing, and read eval_loss"),
    )
    for name, value, instead in refused:
        if value:
            kind = type(objective).__name__
            raise UserError(f"{name} does not work with {kind}; give {instead}.")


def _check_optimizer(optimizer: torch.optim.Optimizer, objective: Objective) -> None:
    """A user's optimiser may lack the parameters of the objective, which then would not train."""
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    lacking = [name for name, parameter in trained.items() if parameter not in held]
    if lacking:
        raise UserError(
            f"the optimizer has no group with {', '.join(lacking)} of {type(objective).__name__}, "
            "which are made with the trainer; leave `optimizers` out, or give "
            "`optimizer_cls_and_kwargs` instead."
        )


def _check_complete(checkpoint: Path, own_files: Sequence[str]) -> None:
    files = (OPTIMIZER_NAME, SCHEDULER_NAME, *own_files)
    lacking = [name for name in files if not (checkpoint / name).is_file()]
    if lacking:
        raise UserError(
            f"{checkpoint} has no {', '.join(lacking)}: it is torn, or holds a model alone. Resume "
            "from an earlier checkpoint (move this one away), or train in a new folder."
        )
