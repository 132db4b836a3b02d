"""A fixed set of training sequences: what a task becomes when its data must be seen again and again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, get_args

import torch
from torch import Tensor

from measured_transformer.tasks.task import (
    Batch,
    Part,
    SourceTask,
    SplitTask,
    Task,
    check_sizes,
    held_out,
)

# Sequences looked at together, and how many times none of them may do before there are taken to be none.
_TOGETHER, _FRUITLESS = 64, 50


@dataclass(frozen=True)
class FixedSet:
    """Another task, of which training sees only `size` sequences, drawn once and for all.

    Training batches are drawn from the set with replacement: a run of k steps with batches of b sees each
    sequence k b / size times on average. Validation and test draw sequences that are not in the set, fresh
    ones at every draw, and never the same in both. What tells one sequence from another is what the model
    reads: its source where there is one, else its inputs. Where the task divides its items itself, the set is
    drawn from those of training, and the others are drawn as the task has them.

    The result has a source exactly where the task has one, and keeps its padding and its gold. Floors stay with
    `task`. Used where a chapter asks what happens when data repeat.

    Attributes:
        task: whose sequences they are.
        size: number of sequences in the set, each drawn by itself, so that two may be the same.
        seed: of the set.
        part: 'train' draws from the set, 'validation' and 'test' draw sequences that are not in it.

    Raises:
        ValueError: when size is not a positive whole number, the part has another name, or the task is
            itself a held-out part.

    >>> from measured_transformer.tasks.reversal import Reversal
    >>> task = FixedSet(Reversal(vocab=10, length=3), size=2)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 5)
    >>> batch.inputs.tolist()
    [[4, 9, 3], [0, 3, 9], [0, 3, 9], [4, 9, 3], [0, 3, 9]]
    >>> held_out(task).batch(torch.Generator().manual_seed(0), 1).inputs.tolist()
    [[3, 1, 6]]
    """

    task: Task
    size: int
    seed: int = 0
    part: Part = "train"

    def __post_init__(self) -> None:
        check_sizes(size=self.size)
        if self.part not in (names := get_args(Part)):
            raise ValueError(f"part must be one of {', '.join(names)}, got {self.part!r}")
        if isinstance(self.task, SplitTask) and self.task.part != "train":
            raise ValueError(
                f"expected the task to draw from its own training part, got part={self.task.part!r}; "
                "a fixed set has a part of its own"
            )
        if isinstance(self.task, SourceTask):
            # An attribute of this object, not of the class: only then is it a `SourceTask` where the task is.
            object.__setattr__(self, "source_length", self.task.source_length)

    @property
    def vocab(self) -> int:
        """Number of different tokens, as the task has it."""
        return self.task.vocab

    @property
    def length(self) -> int:
        """Positions of a batch, as the task has them."""
        return self.task.length

    @property
    def causal(self) -> bool:
        """True if a model must not see ahead, as the task has it."""
        return self.task.causal

    def sequences(self) -> Batch:
        """The whole set, in the order in which it was drawn."""
        return _rows(_drawn(self), torch.arange(self.size))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences: in training those of the set, else sequences that are not in it.

        Raises:
            ValueError: when a size is not positive, when training sequences are asked for with another length
                than the set's, or when the set leaves none to hold out.
        """
        check_sizes(size=size)
        if self.part != "train":
            return self._fresh(generator, size, length)
        if length not in (None, self.length):
            raise ValueError(f"the set's sequences have length {self.length}, got length={length}")
        chosen = torch.randint(self.size, (size,), generator=generator)
        return _rows(_drawn(self), chosen)

    def _fresh(self, generator: torch.Generator, size: int, length: int | None) -> Batch:
        taken = _read_in(self)
        source, divided = held_out(self.task, self.part), isinstance(self.task, SplitTask)
        kept: list[Batch] = []
        count = fruitless = 0
        while count < size:
            drawn = source.batch(generator, max(size, _TOGETHER), length=length)
            new = [
                row
                for row, read in enumerate(_read(drawn))
                if read not in taken and (divided or _side(read) == self.part)
            ]
            count, fruitless = count + len(new), 0 if new else fruitless + 1
            if fruitless == _FRUITLESS:
                raise ValueError(
                    f"found no sequence for {self.part} outside of the {self.size} in the set; expected a "
                    "task with many more sequences than that, so choose a smaller size or a larger task"
                )
            kept.append(_rows(drawn, torch.tensor(new, dtype=torch.int64)))
        return _rows(_joined(kept), torch.arange(size))


@lru_cache(maxsize=32)
def _drawn(fixed: FixedSet) -> Batch:
    return fixed.task.batch(torch.Generator().manual_seed(fixed.seed), fixed.size)


@lru_cache(maxsize=32)
def _read_in(fixed: FixedSet) -> frozenset[bytes]:
    return frozenset(_read(_drawn(fixed)))


def _read(batch: Batch) -> list[bytes]:
    """The model's input of each sequence in a comparable form."""
    if batch.source is None:
        tokens, real = batch.inputs, batch.padding_mask
    else:
        tokens, real = batch.source, batch.source_padding_mask
    rows = tokens if real is None else [row[there] for row, there in zip(tokens, real, strict=True)]
    return [row.numpy().tobytes() for row in rows]


def _side(read: bytes) -> Part:
    """The held-out part of a sequence, always the same: half go to each part."""
    return "test" if blake2b(read, digest_size=1).digest()[0] % 2 else "validation"


def _each(batches: list[Batch], change: Any) -> Batch:
    """A batch each of whose tensors is what `change` makes of the batches' tensors."""
    names = [f.name for f in dataclasses.fields(Batch) if f.name != "gold"]
    columns = {name: [getattr(batch, name) for batch in batches] for name in names}
    made: dict[str, Any] = {
        name: None if parts[0] is None else change(parts) for name, parts in columns.items()
    }
    gold = {name: change([batch.gold[name] for batch in batches]) for name in batches[0].gold}
    return Batch(**made, gold=gold)


def _rows(batch: Batch, rows: Tensor) -> Batch:
    return _each([batch], lambda parts: parts[0][rows])


def _joined(batches: list[Batch]) -> Batch:
    return _each(batches, torch.cat)
