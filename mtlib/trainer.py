"""Training with any objective: the stock Trainer, with its loss, its log and its batches made right for ours."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from mtlib.checkpoints import load_objective, save_objective
from mtlib.contexts import forked_random_state
from mtlib.diagnostics import gradient_diagnostics
from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.objectives import FineTuning, Objective, ObjectiveOutput
from mtlib.plm import SharedPLM
from mtlib.sampler import LengthGroups
from mtlib.settings import COUNT, FROM_0, STEPS, Update, check_choice
from mtlib.trainer_checks import (
    check_arguments,
    check_checkpoint,
    check_evaluation_sets,
    check_optimizer,
    check_set,
    check_sets,
    check_shapes,
    names_of_labels,
)
from mtlib.updates import AlternatingUpdate, BalancedUpdate

_OF_A_TRAINING = (TRAINER_STATE_NAME, OPTIMIZER_NAME, SCHEDULER_NAME)  # in a checkpoint, beside the model


@dataclass
class ObjectiveArguments(TrainingArguments):
    """transformers' `TrainingArguments` with what Mask-tuning adds.

    Other defaults than the stock ones: batches grouped by length, columns kept, no reporting to services, and a loss
    that is not finite is logged as it is.

    Args:
        mlm_head_learning_rate: rate of the masked-LM head; default `learning_rate`.
        classifier_learning_rate: rate of the classifier head, pooler included; default `learning_rate`.
        update: "joint", one step on equation 1; "balanced", the same with both gradients brought to one length on
            the shared trunk (`updates.BalancedUpdate`; ours); or "alternating", one AdamW step on alpha * L_MLM, then
            one on (1 - alpha) * L_FT, each with its own moments (our second reading of the paper's "two training
            phases"; alpha is then all but inert, since Adam divides the scale of a loss out).
        gradient_diagnostics_steps: every so many steps log the norms of both losses' trunk gradients and their
            cosine, of each slice of the step by itself; 0 is off. Costs one more forward and two backward passes each
            time, changes nothing else.
    """

    mlm_head_learning_rate: float | None = None
    classifier_learning_rate: float | None = None
    update: Update = "joint"
    gradient_diagnostics_steps: int = 0
    train_sampling_strategy: str = field(default="group_by_length")
    remove_unused_columns: bool = field(default=False)
    logging_nan_inf_filter: bool = field(default=False)
    report_to: None | str | list[str] = field(default="none")  # noqa: RUF036  (HfArgumentParser needs this order)

    def __post_init__(self):
        for name in ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate"):
            if getattr(self, name) is not None:
                FROM_0.check(name, getattr(self, name))
        STEPS.check("gradient_diagnostics_steps", self.gradient_diagnostics_steps)
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            COUNT.check(name, getattr(self, name))
        if self.remove_unused_columns:
            raise UserError("remove_unused_columns is True, which would drop what the objectives read; leave it out.")
        check_choice("update", self.update, Update)
        if self.update == "alternating" and (self.gradient_accumulation_steps != 1 or self.fp16):
            raise UserError(
                'update="alternating" steps twice per batch: it needs gradient_accumulation_steps=1 and no fp16 '
                "(use bf16 or float32, and a larger batch)."
            )
        if self.update == "balanced" and self.fp16:
            raise UserError('update="balanced" measures gradients, which fp16 scales; use bf16 or float32.')
        super().__post_init__()


class ObjectiveTrainer(Trainer):
    """transformers' Trainer around `objective(plm, batch)`; everything else (bf16, resuming) is stock.

    Several GPUs need `accelerate launch`; with plain `python` one is used.

    - Mean losses are means over the whole optimiser step, however it is cut into accumulation steps or processes:
      8 x 1, 4 x 2 and 2 x 4 train alike. Stock transformers 5 gets this wrong for these heads (transformers#47688).
      (Where the training set does not divide among several processes, an epoch's last step repeats some examples.)
    - The masks of an optimiser step depend on `(seed, step)` only, however it is cut; so a resumed run draws the same.
      (Cut otherwise, these draws differ: `salient_spans` where a text has no span, the cut of Span Cutoff inside
      Mask-tuning, the random words of `80_10_10`, and sampled filling.)
    - The log carries the objective's parts beside `loss`: `mlm_loss`, `ft_loss`, `n_masked` and `share_changed`.
    - Evaluation and prediction classify the text as it stands; for `MaskedLM`, `eval_loss` is the mean
      over batches of each one's masked-LM loss, so it depends a little on the size of the batches.

    Args:
        plm: the model.
        objective: what to minimise.
        args: `ObjectiveArguments`.
        train_dataset: `datasets.Dataset` of tokenised examples, with `labels` for an objective that classifies (and
            `length`, which saves counting). Where it names its labels and the model does not, the model takes them.
        kwargs: any other argument of Trainer (callbacks, optimizers, ...).
    """

    # compute_loss divides by the counts of the whole step, so the Trainer must not divide again
    loss_is_scaled_for_ga = True

    def __init__(self, plm: SharedPLM, objective: Objective, args: ObjectiveArguments, train_dataset=None, **kwargs):
        check_arguments(plm, objective, args, kwargs)
        check_sets(plm, objective, args, train_dataset, kwargs.get("eval_dataset"))
        # an earlier trainer in bf16 has left its autocast around the model's forward
        plm = extract_model_from_parallel(plm, keep_fp32_wrapper=False)
        if args.n_gpu > 1:
            # one process drives one GPU: DataParallel cannot split our batches, `accelerate launch` can
            args._n_gpu = 1
        plm.config.id2label = names_of_labels(plm, train_dataset)
        plm.config.label2id = {name: number for number, name in plm.config.id2label.items()}
        torch.manual_seed(args.seed)  # the same parameters in a resumed run; Trainer seeds once more
        if train_dataset is not None or not objective.classifies:  # evaluating a classifier needs no bias network
            objective.build(plm, train_dataset)
        kwargs.setdefault("data_collator", Collator(plm.tokenizer, objective.columns))
        kwargs.setdefault("processing_class", plm.tokenizer)
        super().__init__(model=plm, args=args, train_dataset=train_dataset, **kwargs)
        self.objective = objective
        self.update = BalancedUpdate() if args.update == "balanced" else None  # alternating: with the optimiser
        self.epoch = 0  # counted; `state.epoch` lags where a callback has cut an epoch short
        self._forget_parts()

    @property
    def plm(self) -> SharedPLM:
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def train(self, *args, **kwargs):
        self._forget_parts()  # of steps that an earlier training did not log
        try:
            self._attach_objective()
            check_optimizer(self.optimizer, self.objective)
            return super().train(*args, **kwargs)
        finally:
            self.plm.objective = None

    def _attach_objective(self):
        """Make it a part of the model, so that optimiser, gradients and processes take its parameters in."""
        self.objective.to(self.plm.device)
        self.plm.objective = self.objective if any(True for _ in self.objective.parameters()) else None

    # --- one step ---

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """The slices of one optimiser step, with masks drawn and the counts of the whole step attached."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        generator = torch.Generator().manual_seed(self._mask_seed())
        batches = [self._prepared(batch, generator) for batch in batches]
        of_slices = [self.objective.totals(batch) for batch in batches]
        totals = {
            name: torch.as_tensor(sum(counts[name] for counts in of_slices), device=device) for name in of_slices[0]
        }
        if self.args.world_size > 1:
            totals = self.accelerator.reduce(totals, "sum")
        self._steps_in_parts += 1
        return [{**batch, **totals} for batch in batches], None

    def _prepared(self, batch, generator):
        """The batch with what the objective draws, which does not depend on the number of processes."""
        draws = type(self.objective).prepare is not Objective.prepare
        if self.args.world_size == 1 or not draws:
            return self.objective.prepare(self.plm, batch, generator)
        # every process draws for the rows of all, in the order in which one process would, and keeps its own
        n, length = batch["input_ids"].shape
        whole = self._gathered(batch)
        prepared = self.objective.prepare(self.plm, whole, generator)
        first = self.args.process_index * n
        drawn = {name: value[first : first + n] for name, value in prepared.items() if name not in batch}
        for name in drawn.keys() & {*self.objective.token_draws}:
            drawn[name] = drawn[name][:, :length]
        return batch | drawn

    def _gathered(self, batch) -> dict[str, torch.Tensor]:
        """The rows of all processes, padded to the longest."""
        padding = {"input_ids": self.plm.tokenizer.pad_token_id} | dict(self.objective.columns)
        whole = {}
        for name, rows in sorted(batch.items()):  # in one order in all processes
            # padding makes other integers of booleans, and of those of one process alone
            whole_rows = rows.to(torch.uint8) if rows.dtype is torch.bool else rows
            if rows.ndim > 1:
                pad_index = padding.get(name, 0)
                whole_rows = self.accelerator.pad_across_processes(whole_rows, dim=1, pad_index=pad_index)
            whole[name] = self.accelerator.gather(whole_rows).to(rows.dtype)
        return whole

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        every = self.args.gradient_diagnostics_steps
        if every and self.objective.two_losses and self.state.global_step % every == 0:
            with self.accelerator.autocast():
                self._diagnostics.append(gradient_diagnostics(self.plm, self.objective, self._prepare_inputs(inputs)))
        if self.update is None:
            return super().training_step(model, inputs, num_items_in_batch)
        return self.update.step(self, model, self._prepare_inputs(inputs))

    def run_loss(self, model, loss: Callable[[SharedPLM, dict], ObjectiveOutput], batch: dict) -> ObjectiveOutput:
        """One loss of an objective that has two, forward."""
        output = model(loss, batch)
        self._note(output.parts)
        return output

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        output = model(self.objective, inputs)
        self._note(output.parts)
        # DistributedDataParallel averages gradients over processes, whereas the slices' losses are to be summed
        loss = output.loss * self.args.world_size
        return (loss, output) if return_outputs else loss

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        # a text names one that was checked at the start
        check_evaluation_sets(eval_dataset, self.plm, self.objective, self.plm.config.id2label)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(self, test_dataset, ignore_keys=None, metric_key_prefix="test"):
        check_set("the test set", test_dataset, self.plm, self.objective, self.plm.config.id2label)
        return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            if not self.objective.classifies:
                # the same draws for the same batch in every evaluation, and others for the next batch
                seed = self.args.seed + int(inputs["input_ids"].sum())
                with forked_random_state(self.plm.device, seed):
                    batch = self.objective.prepare(self.plm, inputs, torch.Generator().manual_seed(seed))
                    return model(self.objective, batch).loss, None, None
            if "labels" not in inputs:  # through the model, which brings the autocast
                return None, model(SharedPLM.classify, inputs).float(), None
            output = model(FineTuning(), inputs)
        if prediction_loss_only:
            return output.loss, None, None
        return output.loss, output.logits.float(), inputs["labels"]

    def _run_epoch(self, epoch, **kwargs):
        self.epoch = epoch
        # a training cut off after its last step has none left; within an epoch the stock loop would take one more
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(epoch=epoch, **kwargs)

    # --- optimisers, order of the data, checkpoints ---

    def create_optimizer(self, model=None):
        """AdamW, or what was asked for, with a rate for the trunk, for the masked-LM head and for the classifier head.

        An `lr` in `optimizer_cls_and_kwargs` stands for `learning_rate`.
        """
        if self.optimizer is None:
            self._attach_objective()
            chosen = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, self.plm)
            optimizer_class, options = chosen
            groups = partial(self._parameter_groups, options.get("lr", self.args.learning_rate))
            self.optimizer = optimizer_class(groups(), **options)
            if self.args.update == "alternating":
                self.update = AlternatingUpdate(optimizer_class(groups(), **options))
        return self.optimizer

    def _parameter_groups(self, learning_rate: float) -> list[dict]:
        plm, args = self.plm, self.args
        trunk = {id(p) for p in plm.trunk_parameters()}
        classifier = {id(p) for p in plm.classifier.parameters()} - trunk
        objective = {id(p) for p in self.objective.parameters()}
        decayed = set(self.get_decay_parameter_names(plm))
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in plm.named_parameters():
            if id(parameter) in trunk:
                rate = learning_rate
            elif id(parameter) in objective and self.objective.learning_rate is not None:
                rate = self.objective.learning_rate
            elif id(parameter) in classifier | objective:
                rate = args.classifier_learning_rate
            else:
                rate = args.mlm_head_learning_rate
            rate = learning_rate if rate is None else rate  # 0 freezes
            groups.setdefault((rate, args.weight_decay if name in decayed else 0.0), []).append(parameter)
        return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        columns = dataset.with_format(None) if isinstance(dataset, Dataset) else dataset  # a format may hide columns
        has_lengths = "length" in columns.column_names
        lengths = list(columns["length"]) if has_lengths else [len(ids) for ids in columns["input_ids"]]
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return LengthGroups(batch, lengths, seed, self)

    def _get_eval_sampler(self, eval_dataset):
        # the stock one also groups by length, and then returns predictions in an order the caller cannot know
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def _save(self, output_dir=None, state_dict=None):
        # not the stock way, which would pickle the arguments and trip over tied tensors
        if self.args.should_save:
            folder = output_dir or self.args.output_dir
            self.plm.save_pretrained(folder)
            save_objective(self.objective, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled  # they have files of their own
        check_checkpoint(Path(resume_from_checkpoint), [TRAINER_STATE_NAME] if sharded else _OF_A_TRAINING)
        self._load_weights(resume_from_checkpoint)

    def _load_weights(self, folder):
        plm, objective = self.plm, self.plm.objective
        plm.objective = None  # it has a file of its own
        saved = SharedPLM.from_pretrained(folder).state_dict()
        check_shapes(plm, saved, folder)
        plm.load_state_dict(saved)
        plm.objective = objective
        load_objective(self.objective, folder)

    def _load_best_model(self):
        self._load_weights(self.state.best_model_checkpoint)

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

    def _note(self, parts: dict[str, torch.Tensor]) -> None:
        """Add up the parts on their device; they are fetched only when logged."""
        for name, value in parts.items():
            self._parts[name] = self._parts.get(name, 0) + value.detach()

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
        if self._diagnostics:
            for name in self._diagnostics[0]:
                logs[name] = torch.stack([entry[name] for entry in self._diagnostics]).mean().item()
        self._forget_parts()
        return logs

    def _forget_parts(self) -> None:
        self._parts: dict[str, torch.Tensor] = {}
        self._steps_in_parts = 0
        self._diagnostics: list[dict[str, torch.Tensor]] = []

    def _mask_seed(self) -> int:
        # spread far apart, so that neighbouring seeds and steps share no stream
        return (self.args.seed * 1_000_003 + self.state.global_step) * 4_099
