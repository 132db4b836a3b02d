"""Defines a task: batches from a seeded generator, with the right answers and the scored positions.

Every batch is drawn on the CPU from the generator that is handed in, so that the same generator state gives the
same batch on every machine. Training and evaluation use generators that never meet. Where a task has so few
different sequences that both would come across the same ones, its items are divided once and for all, and the
task says by its `part` which of them it draws from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Batch:
    """Inputs with their right answers.

    Attributes:
        inputs: tokens the model sees; for an encoder-decoder those that the decoder sees.
        targets: the right answer at each position.
        scored: where an answer counts, in the loss and in the accuracy.
        padding_mask: which inputs are real, as the models take it; None when all are.
        source: tokens that the encoder of an encoder-decoder reads; None for other models.
        source_padding_mask: which tokens of the source are real; None when all are.
        gold: what is known about the sequences besides the answers, by name, each tensor with one row a
            sequence. Positions are -1 where there is none.

    Raises:
        ValueError: when targets, scored or a mask have another shape than the tokens that they belong to.
    """

    inputs: Int[Tensor, "batch position"]
    targets: Int[Tensor, "batch position"]
    scored: Bool[Tensor, "batch position"]
    padding_mask: Bool[Tensor, "batch position"] | None = None
    source: Int[Tensor, "batch source"] | None = None
    source_padding_mask: Bool[Tensor, "batch source"] | None = None
    gold: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that answers and masks belong to the inputs: comparisons would stretch a single row."""
        for name in ("targets", "scored", "padding_mask"):
            _check_shape(name, getattr(self, name), "inputs", self.inputs)
        if self.source is not None:
            _check_shape("source_padding_mask", self.source_padding_mask, "source", self.source)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        gold = {name: tensor.to(device) for name, tensor in moved.pop("gold").items()}
        moved = {name: t if t is None else t.to(device) for name, t in moved.items()}
        return Batch(**moved, gold=gold)


def _check_shape(name: str, given: Tensor | None, whose: str, tokens: Tensor) -> None:
    if given is not None and given.shape != tokens.shape:
        raise ValueError(
            f"{name} must have the shape {tuple(tokens.shape)} of {whose}, got {tuple(given.shape)}"
        )


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
        """True if a model of it must not see ahead (a `Decoder`), false if it may (an `Encoder`)."""
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


@runtime_checkable
class SourceTask(Task, Protocol):
    """A task for an `EncoderDecoder`: its batches have a source.

    Attributes:
        source_length: tokens of a source when no other length is asked for.
    """

    @property
    def source_length(self) -> int:
        """Tokens of a source when no other length is asked for."""


@runtime_checkable
class SplitTask(Task, Protocol):
    """A task with a limited number of items, divided among training, validation and test.

    Attributes:
        part: which items its batches are drawn from.
    """

    @property
    def part(self) -> Part:
        """Which items its batches are drawn from."""


def held_out(task: Task, part: Part = "validation") -> Task:
    """The task for scoring a model that was trained on `task`.

    A task whose items are divided gives another part of them. Any other is its own, and nothing of it is held
    out: there a generator of its own keeps evaluation from drawing what training draws, but no sequence is kept
    from training.

    >>> from measured_transformer.tasks.modular import ModularAddition
    >>> held_out(ModularAddition(modulus=7), "test").part
    'test'
    """
    if isinstance(task, SplitTask):
        return cast(Task, dataclasses.replace(cast(Any, task), part=part))
    return task


def check_sizes(**sizes: int) -> None:
    """Raise ValueError unless every given size is a positive whole number."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive whole number, got {value!r}")


def check_share(**shares: float) -> None:
    """Raise ValueError unless every given share or probability lies between 0 and 1."""
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
