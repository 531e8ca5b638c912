"""Training steps as CUDA graphs: the GPU replays a recorded step without waiting for Python."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# a batch to its loss and named scalars
Step = Callable[[dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]
# the shape of each tensor of a batch, by name
_Shape = tuple[tuple[str, torch.Size], ...]


class _Captured(NamedTuple):
    """A graph, the tensors that it reads, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    loss: Tensor
    components: dict[str, Tensor]


class CapturedStep:
    """Forward and backward pass of a training step, captured for each shape of batch and replayed.

    The first batch of a shape runs the step as it is, the second captures it. All graphs leave
    their gradients in the same tensors, to which `.grad` is pointed after each replay. Dropout
    draws anew in each replay. What a batch holds beside tensors the step does not see.

    Args:
        step: runs both passes of a batch, needs no device-to-host synchronisation, and returns
            tensors without an autograd graph.
        model: whose parameters get gradients.
    """

    def __init__(self, step: Step, model: nn.Module):
        self.step = step
        self.model = model
        self._graphs: dict[_Shape, _Captured] = {}
        self._seen: set[_Shape] = set()
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._pool: torch.cuda._POOL_HANDLE | None = None
        self._failed = False

    def __call__(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        batch = {name: tensor for name, tensor in batch.items() if isinstance(tensor, Tensor)}
        shape = tuple(sorted((name, tensor.shape) for name, tensor in batch.items()))
        if shape in self._seen and shape not in self._graphs and not self._failed:
            try:
                self._graphs[shape] = self._capture(batch)
            except RuntimeError as error:
                message = f"steps are not captured as CUDA graphs, which is slower: {error}"
                warnings.warn(message, stacklevel=2)
                self._failed = True
        self._seen.add(shape)
        if self._failed or shape not in self._graphs:
            return self._run_plainly(batch)
        return self._replay(self._graphs[shape], batch)

    def _run_plainly(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        result = self.step(batch)
        if not self._gradients:
            parameters = self.model.parameters()
            self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]
        return result

    def _replay(
        self,
        captured: _Captured,
        batch: dict[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        for name, tensor in captured.inputs.items():
            tensor.copy_(batch[name], non_blocking=True)
        captured.graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return captured.loss.clone(), captured.components

    def _capture(self, batch: dict[str, Tensor]) -> _Captured:
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        self.model.zero_grad()
        device = batch["input_ids"].device
        # other threads may go on meanwhile, such as the one that pins batches
        capture = torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local")
        with device, _NumbersFilledOnDevice(), capture:
            loss, components = self.step(inputs)
            kept = [gradient for _, gradient in self._gradients]
            new = [cast(Tensor, parameter.grad) for parameter, _ in self._gradients]
            torch._foreach_copy_(kept, new)
        self._pool = self._pool or graph.pool()
        return _Captured(graph, inputs, loss, components)


class _NumbersFilledOnDevice(TorchFunctionMode):
    """Makes a tensor of a number by filling it on the device.

    A graph cannot hold a copy from the CPU, which transformers makes in its masks for "eager"
    attention. (The block in which the device is the default one does the same for what models
    compute anew in each pass, such as MPNet's relative positions.)
    """

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if function is torch.tensor and isinstance(args[0], int | float):
            return torch.full((), *args, **kwargs)
        return function(*args, **kwargs)
