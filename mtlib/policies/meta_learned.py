"""The meta-learned policy: masks chosen so that fine-tuning afterwards learns quickly. A reconstruction.

The slides of Ye et al. (2021) say only that the policy "should help the text-to-text to learn quickly when fine-tuned".
What stands here is our plainest reading of that:

    theta_1 = theta   - eta * grad L_MLM(theta; text masked by pi_phi)
    theta_2 = theta_1 - eta * grad L_task(theta_1; training examples)
    phi    <- phi     - grad_phi L_task(theta_2; held-out examples)

with gradients of second order through both steps, and a straight-through Gumbel choice of the masked token. theta
starts from the same model each time. The held-out examples are a part of the training set. The slides choose a span;
here it is a single token, and in training the policy draws as many as its rate says.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, gumbel_softmax

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import Collator, each_token
from mtlib.errors import UserError
from mtlib.masking import CountedMasking, maskable_positions
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.preparing import Prepared, Preparer, require_columns, with_column

RATE = 0.05  # eta
HELD_OUT = 0.2  # share of the training set that the policy is judged on, at least one example


@dataclass(frozen=True)
class MetaLearnedMasking(CountedMasking):
    """Tokens drawn by learned scores, which were trained so that fine-tuning learns quickly. Our reconstruction.

    The slides of Ye et al. (2021) do not give the objective; see the head of this module for ours.
    """

    columns = {"meta_scores": 0.0}

    temperature: float = field(default=1.0, kw_only=True)

    def preparers(self) -> tuple[Preparer, ...]:
        return (LearnToMask(),)

    def scores(self, batch, maskable, plm) -> Tensor:
        return batch["meta_scores"]


class MaskScorer(nn.Module):
    """pi_phi: a score for every token, from frozen word embeddings of it and of its two neighbours.

    Args:
        embeddings: of a trunk, `(vocab, dim)`.
        hidden: width of the layer between.
    """

    def __init__(self, embeddings: Tensor, hidden: int = 64):
        super().__init__()
        self.register_buffer("embeddings", embeddings.detach().float().clone(), persistent=False)
        self.context = nn.Conv1d(embeddings.shape[1], hidden, kernel_size=3, padding=1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """`(batch, seq)`; padding counts as zeros, so that it changes nothing."""
        embedded = self.embeddings[batch["input_ids"]] * batch["attention_mask"].unsqueeze(-1)  # (batch, seq, dim)
        return self.head(torch.tanh(self.context(embedded.mT)).mT).squeeze(-1)


def gumbel_choice(scores: Tensor, maskable: Tensor, hard: bool = True) -> Tensor:
    """One token of each row, drawn with probabilities proportional to exp(score): weights `(batch, seq)`.

    0 in rows without a maskable token. `hard` rounds to 0 and 1, with the gradient of the soft choice.
    """
    return gumbel_softmax(scores.masked_fill(~maskable, -1e9), hard=hard, dim=1) * maskable


def masked_lm_step_loss(plm: SharedPLM, batch: Mapping[str, Tensor]) -> Tensor:
    """L_MLM of a text of which each token is masked as far as `batch["weights"]` `(batch, seq)` says.

    The embedding of a token with weight w is (1 - w) times its own plus w times the mask token's; the loss is the mean
    of the tokens' cross-entropies, weighted by w.
    """
    weights, input_ids = batch["weights"], batch["input_ids"]  # (batch, seq)
    embed, w = word_embeddings(plm.mlm_trunk)[0], weights.unsqueeze(-1)
    embedded = (1 - w) * embed(input_ids) + w * embed(torch.full_like(input_ids, plm.tokenizer.mask_token_id))
    inputs = plm.inputs(batch) | {"input_ids": None, "inputs_embeds": embedded}
    if plm.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": plm.shifted_right(input_ids), "use_cache": False}
    logits = plm.mlm(**inputs, return_dict=True).logits  # (batch, seq, vocab)
    per_token = cross_entropy(logits.mT, input_ids, reduction="none")  # (batch, seq)
    return (weights * per_token).sum() / weights.sum().clamp(min=1e-6)


def task_loss(plm: SharedPLM, batch: Mapping[str, Tensor]) -> Tensor:
    return cross_entropy(plm.classify(batch), batch["labels"])


def meta_loss(
    plm: SharedPLM, weights: Tensor, text: Mapping[str, Tensor], train: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor], rate: float,
) -> Tensor:  # fmt: skip
    """L_task on `held_out` after a masked-LM step on `text` and a task step on `train`, differentiable by `weights`.

    The model must be in evaluation mode (no dropout), and is left as it is.

    Args:
        weights: how far each token of `text` is masked, `(batch, seq)`.
        rate: eta, of both steps.
    """
    # every place of a parameter by one name: a shared trunk has two, and `functional_call` would not put it back right
    places = {
        f"{path}.{name}": parameter
        for path, module in plm.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
    }
    theta = {id(parameter): parameter.detach().requires_grad_() for parameter in places.values()}  # tied ones are one

    def loss(parameters, function, batch):
        values = {name: parameters[id(parameter)] for name, parameter in places.items()}
        return functional_call(plm, values, (function, batch), tie_weights=False)

    def stepped(parameters, function, batch):
        gradients = torch.autograd.grad(
            loss(parameters, function, batch), list(parameters.values()), create_graph=True, allow_unused=True
        )
        return {
            key: parameter if gradient is None else parameter - rate * gradient
            for (key, parameter), gradient in zip(parameters.items(), gradients, strict=True)
        }

    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no second derivative
        after_masked_lm = stepped(theta, masked_lm_step_loss, {**text, "weights": weights})
        return loss(stepped(after_masked_lm, task_loss, train), task_loss, held_out)


@dataclass(frozen=True)
class LearnToMask(Preparer):
    """Trains a `MaskScorer` on `meta_loss` and adds its scores of every token, `meta_scores`.

    Counts its steps, and notes the mean held-out loss of the first and of the last 20, for single batches are noisy.

    Args:
        steps: of Adam on phi.
        batch_size: texts, training and held-out examples of a step, each.
    """

    steps: int = 200
    batch_size: int = 16

    def check(self, plm: SharedPLM) -> None:
        if not plm.shared:  # the masked-LM step would leave the classifier as it is: no gradient reaches the scorer
            raise UserError(
                "meta_learned asks how a masked-LM step changes the classifier's trunk, but this model has two trunks; "
                "load it with shared=True (leave --separate out), or take another policy."
            )

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        require_columns(examples, self, "labels")
        # an earlier trainer in bf16 has left its autocast around the model's forward, which `meta_loss` goes through
        plm = extract_model_from_parallel(plm, keep_fp32_wrapper=False)
        whole_precision = torch.autocast(plm.device.type, enabled=False)
        with evaluating(plm), forked_random_state(plm.device, seed), whole_precision:
            scorer = MaskScorer(word_embeddings(plm.trunk)[0].weight).to(plm.device)
            losses = self.fit(scorer, plm, examples)
            scores = [row.tolist() for row in each_token(plm, examples, lambda rows, batch: scorer(batch))]
        first, last = (round(statistics.fmean(some), 4) for some in (losses[:20], losses[-20:]))
        counts = {"meta_learned_steps": self.steps, "meta_learned_first_loss": first, "meta_learned_last_loss": last}
        return Prepared(with_column(examples, "meta_scores", scores), counts)

    def fit(self, scorer: MaskScorer, plm: SharedPLM, examples: Dataset) -> list[float]:
        """Train `scorer` in place; the held-out loss of every step."""
        held_out, train = torch.randperm(len(examples)).tensor_split([max(1, round(HELD_OUT * len(examples)))])
        collate = Collator(plm.tokenizer)

        def drawn(rows: Tensor) -> dict[str, Tensor]:
            some = rows[torch.randint(len(rows), (self.batch_size,))]
            batch = collate([examples[i] for i in some.tolist()])
            return {name: tensor.to(plm.device) for name, tensor in batch.items()}

        optimizer, losses = torch.optim.Adam(scorer.parameters(), lr=1e-2), []
        for _ in range(self.steps):
            text, support, query = drawn(train), drawn(train), drawn(held_out)
            weights = gumbel_choice(scorer(text), maskable_positions(text, plm.tokenizer))
            loss = meta_loss(plm, weights, text, support, query, RATE)
            optimizer.zero_grad()
            loss.backward(inputs=list(scorer.parameters()))
            optimizer.step()
            losses.append(loss.item())
        return losses
