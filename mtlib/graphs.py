"""Training steps as CUDA graphs: a GPU that is told once what to do for a shape of batch, and then no longer waits."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Step = Callable[[dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]  # a batch to its loss and named scalars


class CapturedStep:
    """Forward and backward pass of a training step, captured for each shape of batch and replayed from then on.

    The first batch of a shape takes the step as it is, the second captures it. All graphs leave their gradients in the
    same tensors, which `.grad` is pointed at after each replay. Dropout draws anew in each replay.

    Args:
        step: runs both passes of a batch, asks the device for no number, and returns tensors without a graph.
        model: whose parameters get gradients.
    """

    def __init__(self, step: Step, model: nn.Module):
        self.step, self.model = step, model
        self._graphs: dict[tuple, tuple] = {}
        self._seen: set[tuple] = set()
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._pool, self._failed = None, False

    def __call__(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        shape = tuple(sorted((name, tensor.shape) for name, tensor in batch.items()))
        if self._failed or shape not in self._seen:
            self._seen.add(shape)
            result = self.step(batch)
            if not self._gradients:
                self._gradients = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
            return result
        if shape not in self._graphs:
            try:
                self._graphs[shape] = self._capture(batch)
            except RuntimeError as error:
                warnings.warn(f"steps are not captured as CUDA graphs, which is slower: {error}", stacklevel=2)
                self._failed = True
                return self(batch)
        graph, inputs, loss, parts = self._graphs[shape]
        for name, tensor in inputs.items():
            tensor.copy_(batch[name], non_blocking=True)
        graph.replay()
        self._point_at_gradients()
        return loss.clone(), parts

    def _capture(self, batch: dict[str, Tensor]) -> tuple:
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        self.model.zero_grad()
        with batch["input_ids"].device, _Filled(), torch.cuda.graph(graph, pool=self._pool):
            loss, parts = self.step(inputs)
            torch._foreach_copy_(*map(list, zip(*((kept, p.grad) for p, kept in self._gradients), strict=True)))
        self._pool = self._pool or graph.pool()
        return graph, inputs, loss, parts

    def _point_at_gradients(self) -> None:
        for parameter, gradient in self._gradients:
            parameter.grad = gradient


class _Filled(TorchFunctionMode):
    """A number becomes a tensor by filling one on the device: a graph cannot hold its copy from the CPU.

    (transformers makes masks so for "eager" attention. A block in which the device is the default one does the same for
    what models count out anew in each pass, such as MPNet's relative positions.)
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.tensor and isinstance(args[0], int | float):
            return torch.full((), *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))
