"""Random numbers that depend on `(seed, epoch, example)` alone.

So an example is masked alike in whatever batch it comes, on however many processes, and after a resume; and a GPU that
draws them waits for nobody.
"""

import torch
from torch import Tensor

_GAMMA, _MIX = -0x61C8864680B583EB, (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # of SplitMix64, as signed numbers


class Draws:
    """A stream of numbers for each example of a batch, by SplitMix64 (Steele et al. 2014).

    Args:
        keys: where each stream begins, int64 `(batch,)`.
        after: so many calls of `uniform`.
    """

    def __init__(self, keys: Tensor, after: int = 0):
        self.keys, self._calls = keys, after

    @classmethod
    def of(cls, seed: int, epoch: int | Tensor, examples: Tensor) -> "Draws":
        """The streams of these examples, by their numbers `(batch,)` in the training set, in one epoch."""
        key = torch.full_like(examples, seed)
        for value in (epoch, examples):
            key = _mixed(key) + value
        return cls(_mixed(key))

    @classmethod
    def by(cls, generator: "Draws | torch.Generator | None", n: int, device: torch.device) -> "Draws":
        """These draws as they are, or new streams for `n` examples by a generator; None is torch's global one."""
        if isinstance(generator, Draws):
            return generator
        source = torch.device("cpu") if generator is None else generator.device
        return cls(torch.randint(2**62, (n,), generator=generator, device=source).to(device))

    def uniform(self, n: int) -> Tensor:
        """The next `n` numbers of each stream, uniform in [0, 1): float32 `(batch, n)`.

        The number at a place does not depend on `n`, and so not on how far a batch is padded.
        """
        self._calls += 1
        keys = _mixed(self.keys + self._calls)
        bits = _mixed(keys[:, None] + torch.arange(n, device=keys.device))  # (batch, n)
        return _shifted(bits, 40).float() * 2.0**-24


Random = Draws | torch.Generator | None  # what numbers are drawn from; None is torch's global generator


def _mixed(x: Tensor) -> Tensor:
    x = x + _GAMMA
    x = (x ^ _shifted(x, 30)) * _MIX[0]
    x = (x ^ _shifted(x, 27)) * _MIX[1]
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, n: int) -> Tensor:
    """Shifted right without its sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)
