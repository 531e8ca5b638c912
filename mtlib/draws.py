"""Random numbers that depend only on (seed, epoch, example).

So an example is masked alike in any batch, on any number of processes and after a resume, and
drawing needs no device-to-host synchronisation.
"""

import torch
from torch import Tensor

# the constants of SplitMix64, as signed numbers
_GAMMA = -0x61C8864680B583EB
_FIRST_FACTOR = -0x40A7B892E31B1A47
_SECOND_FACTOR = -0x6B2FB644ECCEEE15


class Draws:
    """A stream of random numbers for each example of a batch, by SplitMix64 (Steele et al. 2014).

    Args:
        keys: where each stream begins, int64 `(batch,)`.
        after: how many calls of `uniform` are skipped.
    """

    def __init__(self, keys: Tensor, after: int = 0):
        self.keys = keys
        self._calls = after

    @classmethod
    def of(cls, seed: int, epoch: int | Tensor, examples: Tensor) -> "Draws":
        """The streams of these examples, by their numbers `(batch,)` in the training set."""
        key = torch.full_like(examples, seed)
        for value in (epoch, examples):
            key = _mixed(key) + value
        return cls(_mixed(key))

    @classmethod
    def by(
        cls,
        generator: "Draws | torch.Generator | None",
        n: int,
        device: torch.device,
    ) -> "Draws":
        """These streams as they are, or new ones for `n` examples by a torch generator."""
        if isinstance(generator, Draws):
            return generator
        source = torch.device("cpu") if generator is None else generator.device
        keys = torch.randint(2**62, (n,), generator=generator, device=source)
        return cls(keys.to(device))

    def uniform(self, n: int) -> Tensor:
        """The next `n` numbers of each stream, uniform in [0, 1): float32 `(batch, n)`.

        The number at a position does not depend on `n`, and so not on how far a batch is padded.
        """
        self._calls += 1
        keys = _mixed(self.keys + self._calls)
        positions = torch.arange(n, device=keys.device)
        bits = _mixed(keys[:, None] + positions)  # (batch, n)
        return _shifted(bits, 40).float() * 2.0**-24


# what random numbers are drawn from; None is torch's global generator
Random = Draws | torch.Generator | None


def _mixed(x: Tensor) -> Tensor:
    x = x + _GAMMA
    x = (x ^ _shifted(x, 30)) * _FIRST_FACTOR
    x = (x ^ _shifted(x, 27)) * _SECOND_FACTOR
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, n: int) -> Tensor:
    """Shifted right, with zeros coming in instead of the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)
