"""Seeds: the same seed gives the same weights and batches, and changes no global random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch

from measured_transformer.training.device import find_device


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block from this seed, then restore PyTorch's generators.

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
    """A separate generator for each purpose of a run, so that an extra draw in one does not shift another.

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
