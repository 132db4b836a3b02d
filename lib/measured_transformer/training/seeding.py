"""Seeds: the same seed gives the same weights and the same batches, and leaves no trace behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch

from measured_transformer.training.device import find_device


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block from this seed and put PyTorch's generators back as they were.

    >>> with seeded(3):
    ...     first = torch.rand(2)
    >>> with seeded(3):
    ...     bool((torch.rand(2) == first).all())
    True
    """
    number = torch.cuda.device_count() if find_device().type == "cuda" else 0
    with torch.random.fork_rng(devices=range(number)):
        torch.manual_seed(seed)
        yield


def make_generator(seed: int, purpose: str) -> torch.Generator:
    """A generator of its own for each purpose of a run, so that one draw more here shifts nothing there.

    >>> a, b = make_generator(1, "training"), make_generator(1, "evaluation")
    >>> bool((torch.rand(4, generator=a) == torch.rand(4, generator=b)).all())
    False
    """
    return torch.Generator().manual_seed(derived_seed(seed, purpose))


def derived_seed(seed: int, purpose: str) -> int:
    """The seed of one purpose of a run, as `make_generator` uses it.

    PyTorch's generator on the CPU keeps 32 bits of a seed. So each purpose starts at a place of its own
    among those 2^32 and the seeds count up from there: different seeds never meet.
    """
    start = int.from_bytes(blake2b(purpose.encode(), digest_size=4).digest(), "little")
    return (start + seed) % 2**32
