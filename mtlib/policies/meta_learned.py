"""The meta-learned policy: masks chosen so that fine-tuning learns quickly. A reconstruction.

The slides of Ye et al. (2021) say only that the policy "should help the text-to-text to learn
quickly when fine-tuned". This is our plainest reading of it:

    theta_1 = theta   - eta * grad L_MLM(theta; text masked by pi_phi)
    theta_2 = theta_1 - eta * grad L_task(theta_1; training examples)
    phi    <- phi     - grad_phi L_task(theta_2; held-out examples)

with second-order gradients through both steps, and a straight-through Gumbel choice of the masked
token. theta starts from the same model each time. The held-out examples are a part of the training
set. The slides choose a span, we choose a single token; in training, the policy draws as many as
its rate says.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, gumbel_softmax

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import Collator, each_token
from mtlib.errors import UserError
from mtlib.masking import CountedMasking, gumbel, maskable_positions
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.preparing import Prepared, Transform, require_columns, with_column

STEP_SIZE = 0.05  # eta
HELD_OUT = 0.2  # share of the training set on which the policy is judged, at least one example


@dataclass(frozen=True)
class MetaLearnedMasking(CountedMasking):
    """Draws tokens by scores that were trained so that fine-tuning learns quickly.

    A reconstruction: the slides of Ye et al. (2021) do not give the objective. Ours is at the top
    of this module.
    """

    columns = {"meta_scores": 0.0}

    def transforms(self) -> tuple[Transform, ...]:
        return (LearnToMask(),)

    def scores(self, batch, maskable, plm) -> Tensor:
        return batch["meta_scores"]

    def order(self, numbers, scores, candidates) -> Tensor:
        """A draw without replacement, with probabilities proportional to `exp(score)`."""
        # the Gumbel trick: the largest of score + Gumbel noise is such a draw
        noisy = scores + gumbel(numbers)  # (batch, seq)
        return (-noisy).masked_fill(~candidates, torch.inf).argsort(dim=1, stable=True)


class MaskScorer(nn.Module):
    """pi_phi: a score for each token, from the frozen word embeddings of it and its two neighbours.

    Args:
        embeddings: the word embeddings of a trunk, `(vocab, dim)`.
        hidden: width of the hidden layer.
    """

    def __init__(self, embeddings: Tensor, hidden: int = 64):
        super().__init__()
        frozen = embeddings.detach().float().clone()
        self.register_buffer("embeddings", frozen, persistent=False)
        self.context = nn.Conv1d(embeddings.shape[1], hidden, kernel_size=3, padding=1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores `(batch, seq)`. Padding is embedded as zeros, so that it changes nothing."""
        present = batch["attention_mask"].unsqueeze(-1)  # (batch, seq, 1)
        embedded = self.embeddings[batch["input_ids"]] * present  # (batch, seq, dim)
        hidden = torch.tanh(self.context(embedded.mT)).mT  # (batch, seq, hidden)
        return self.head(hidden).squeeze(-1)


def gumbel_choice(scores: Tensor, maskable: Tensor) -> Tensor:
    """One token of each row, drawn with probabilities proportional to exp(score).

    Args:
        scores, maskable: `(batch, seq)`.

    Returns:
        Weights `(batch, seq)`, 0 or 1 with the gradient of the soft choice; all 0 in a row without
        a maskable token.
    """
    possible = scores.masked_fill(~maskable, -1e9)
    return gumbel_softmax(possible, hard=True, dim=1) * maskable


def masked_lm_step_loss(plm: SharedPLM, batch: Mapping[str, Tensor]) -> Tensor:
    """L_MLM of a text whose tokens are masked to the degree `batch["weights"]`, `(batch, seq)`.

    With weight w, a token is embedded as (1 - w) times its own embedding plus w times that of the
    mask token. The loss is the mean of the tokens' cross-entropies, weighted by w.
    """
    input_ids = batch["input_ids"]  # (batch, seq)
    mask_ids = torch.full_like(input_ids, plm.tokenizer.mask_token_id)
    embed = word_embeddings(plm.mlm_trunk)[0]
    weights = batch["weights"]  # (batch, seq)
    w = weights.unsqueeze(-1)  # (batch, seq, 1)
    embedded = (1 - w) * embed(input_ids) + w * embed(mask_ids)  # (batch, seq, dim)
    inputs = plm.inputs(batch) | {"input_ids": None, "inputs_embeds": embedded}
    if plm.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": plm.shifted_right(input_ids), "use_cache": False}
    logits = plm.mlm(**inputs, return_dict=True).logits  # (batch, seq, vocab)
    per_token = cross_entropy(logits.mT, input_ids, reduction="none")  # (batch, seq)
    return (weights * per_token).sum() / weights.sum().clamp(min=1e-6)


def task_loss(plm: SharedPLM, batch: Mapping[str, Tensor]) -> Tensor:
    """L_task: the cross-entropy of the gold labels, batch mean in nats."""
    return cross_entropy(plm.classify(batch), batch["labels"])


def meta_loss(
    plm: SharedPLM,
    weights: Tensor,
    text: Mapping[str, Tensor],
    train: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor],
    step_size: float,
) -> Tensor:
    """L_task on `held_out` after a masked-LM step on `text` and then a task step on `train`.

    It is differentiable with respect to `weights`. The model must be in evaluation mode (no
    dropout) and is not changed.

    Args:
        weights: the degree to which each token of `text` is masked, `(batch, seq)`.
        step_size: eta, of both steps.
    """
    parameters = _parameters_of_modules(plm)
    theta = {}  # by the parameter, so that tied ones have one value
    for parameter in parameters.values():
        theta[id(parameter)] = parameter.detach().requires_grad_()

    def loss(theta, loss_function, batch):
        values = {name: theta[id(parameter)] for name, parameter in parameters.items()}
        return functional_call(plm, values, (loss_function, batch), tie_weights=False)

    def step(theta, loss_function, batch):
        gradients = torch.autograd.grad(
            loss(theta, loss_function, batch),
            list(theta.values()),
            create_graph=True,
            allow_unused=True,
        )
        after = dict(theta)
        for key, gradient in zip(theta, gradients, strict=True):
            if gradient is not None:
                after[key] = theta[key] - step_size * gradient
        return after

    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no second derivative
        theta_1 = step(theta, masked_lm_step_loss, {**text, "weights": weights})
        theta_2 = step(theta_1, task_loss, train)
        return loss(theta_2, task_loss, held_out)


def _parameters_of_modules(plm: SharedPLM) -> dict[str, nn.Parameter]:
    """Each parameter under one name for each module that holds it.

    A shared trunk has each of its parameters under two names, which `functional_call` would not
    restore correctly.
    """
    parameters = {}
    for path, module in plm.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameters[f"{path}.{name}"] = parameter
    return parameters


@dataclass(frozen=True)
class LearnToMask(Transform):
    """Trains a `MaskScorer` on `meta_loss` and adds its scores of all tokens, `meta_scores`.

    Reports the number of steps and the mean held-out loss of the first and the last 20 of them
    (single batches are noisy).

    Args:
        steps: of Adam on phi.
        batch_size: number of texts, of training examples and of held-out examples in a step.
    """

    steps: int = 200
    batch_size: int = 16

    def check(self, plm: SharedPLM) -> None:
        # with two trunks the masked-LM step leaves the classifier as it is, and the scorer would
        # have no gradient
        if not plm.shared:
            raise UserError(
                "meta_learned asks how a masked-LM step changes the classifier's trunk, but this "
                "model has two trunks; load it with shared=True (leave --separate out), or take "
                "another policy."
            )

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        require_columns(examples, self, "labels")
        full_precision = torch.autocast(plm.device.type, enabled=False)
        with evaluating(plm), forked_random_state(plm.device, seed), full_precision:
            scorer = MaskScorer(word_embeddings(plm.trunk)[0].weight).to(plm.device)
            losses = self.fit(scorer, plm, examples)
            rows = each_token(plm, examples, lambda rows, batch: scorer(batch))
        scores = [row.tolist() for row in rows]
        counts = {
            "meta_learned_steps": self.steps,
            "meta_learned_first_loss": round(statistics.fmean(losses[:20]), 4),
            "meta_learned_last_loss": round(statistics.fmean(losses[-20:]), 4),
        }
        return Prepared(with_column(examples, "meta_scores", scores), counts)

    def fit(self, scorer: MaskScorer, plm: SharedPLM, examples: Dataset) -> list[float]:
        """Train `scorer` in place and return the held-out loss of every step."""
        n_held_out = max(1, round(HELD_OUT * len(examples)))
        held_out, train = torch.randperm(len(examples)).tensor_split([n_held_out])
        collate = Collator(plm.tokenizer)

        def sample(rows: Tensor) -> dict[str, Tensor]:
            chosen = rows[torch.randint(len(rows), (self.batch_size,))]
            batch = collate([examples[row] for row in chosen.tolist()])
            return {name: tensor.to(plm.device) for name, tensor in batch.items()}

        optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-2)
        losses = []
        for _ in range(self.steps):
            text = sample(train)
            train_batch = sample(train)
            held_out_batch = sample(held_out)
            weights = gumbel_choice(scorer(text), maskable_positions(text, plm.tokenizer))
            loss = meta_loss(plm, weights, text, train_batch, held_out_batch, STEP_SIZE)
            optimizer.zero_grad()
            loss.backward(inputs=list(scorer.parameters()))
            optimizer.step()
            losses.append(loss.item())
        return losses
