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

# The streams of an example, each with the number of calls of `uniform` that it skips: the masks
# that the collator draws, all that is drawn in the step itself, and masks that are drawn once after
# a training on the first ones.
_STREAMS = {"masks": 0, "step": 100, "refill": 200}


def example_keys(seed: int, epoch: int | Tensor, examples: Tensor) -> Tensor:
    """A key for each example in one epoch, int64 `(batch,)`.

    Args:
        seed: of the run.
        epoch: its number.
        examples: their numbers in the training set, int64 `(batch,)`.
    """
    key = torch.full_like(examples, seed)
    for value in (epoch, examples):
        key = _mixed(key) + value
    return _mixed(key)


class KeyedRNG:
    """A stream of random numbers for each example of a batch, by SplitMix64 (Steele et al. 2014).

        masks = KeyedRNG(example_keys(seed, epoch, examples), stream="masks")
        masks.uniform(12)  # (batch, 12)

    Args:
        keys: of the examples (`example_keys`), int64 `(batch,)`.
        stream: "masks", "step" or "refill", which draw different numbers for the same keys.
    """

    def __init__(self, keys: Tensor, stream: str = "masks"):
        self.keys = keys
        self._calls = _STREAMS[stream]

    @classmethod
    def per_example(cls, rng: "RNG", n: int, device: torch.device) -> "KeyedRNG":
        """These streams as they are, or new ones for `n` examples by a torch generator."""
        if isinstance(rng, KeyedRNG):
            return rng
        source = torch.device("cpu") if rng is None else rng.device
        keys = torch.randint(2**62, (n,), generator=rng, device=source)
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
RNG = KeyedRNG | torch.Generator | None


def _mixed(x: Tensor) -> Tensor:
    x = x + _GAMMA
    x = (x ^ _shifted(x, 30)) * _FIRST_FACTOR
    x = (x ^ _shifted(x, 27)) * _SECOND_FACTOR
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, n: int) -> Tensor:
    """Shifted right, with zeros coming in instead of the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)
