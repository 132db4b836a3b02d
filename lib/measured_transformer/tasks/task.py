"""What a task is: batches from a seeded generator, with the right answers and what counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Inputs with their right answers.

    Attributes:
        inputs: tokens the model sees.
        targets: the right answer at each position.
        scored: where an answer counts, in the loss and in the accuracy.
    """

    inputs: Int[Tensor, "batch position"]
    targets: Int[Tensor, "batch position"]
    scored: Bool[Tensor, "batch position"]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(self.inputs.to(device), self.targets.to(device), self.scored.to(device))


@runtime_checkable
class Task(Protocol):
    """Makes batches; the same generator state gives the same batch on every device."""

    @property
    def vocab(self) -> int:
        """Number of different tokens in inputs and targets."""
        ...

    @property
    def length(self) -> int:
        """Positions of a batch when no other length is asked for."""
        ...

    @property
    def causal(self) -> bool:
        """Whether a model of it must not see ahead (a `Decoder`) or may (an `Encoder`)."""
        ...

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Args:
            generator: where the numbers come from.
            size: number of sequences.
            length: positions of each; the task's own when not given.

        Raises:
            ValueError: when `size` or `length` is not a positive whole number.
        """
        ...


def check_sizes(**sizes: int) -> None:
    """Raise ValueError unless every given size is a positive whole number."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive whole number, got {value!r}")
