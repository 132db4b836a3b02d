"""A measurement over a grid of arms: one training for each cell, and the same readings of each.

A room declares the training of a cell, and the axes::

    @grid(axes={"placement": ("pre", "post"), "rate": RATES}, seeds=24, read=[solving])
    def border(seed: int, placement: str, rate: float) -> Job:
        \"\"\"Steps to a loss of 0.05, by placement and learning rate.\"\"\"
        return job(shaped(placement), TASK, seed, steps=400, learning_rate=rate)

and has a `Measurement` whose trainings have the labels of their cells as names, and whose values have the axes
of the grid, then those of the reading itself. A reading is a function of a `Trained` cell to named values:
several stand in `measuring.readings`, and a room has its own where none of them fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run

from measured_book.measuring.measurement import Measurement, Repeat, room_of

Read = Callable[["Trained"], Mapping[str, Any]]
"""A reading: of a trained cell to values by name, each a number or an array with the names of its own axes."""


@dataclass(frozen=True)
class Trained:
    """A cell of a grid, trained from one seed.

    Attributes:
        run: the training.
        seed: that the measurement was asked for; the training may have been given another.
        labels: of the cell along each axis.
        train: the function that gives its job.
    """

    run: Run
    seed: int
    labels: Mapping[str, Any]
    train: Callable[..., Job]

    @property
    def model(self) -> Model:
        """The model as it stood after the last step."""
        return self.run.model

    @cached_property
    def job(self) -> Job:
        """What was asked for: config, task and settings."""
        return self.train(self.seed, **self.labels)


def _cells(axes: Mapping[str, Sequence[Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The cells of a grid: the name of each training, which is its labels, and these by axis."""
    for labels in product(*axes.values()):
        name = labels if len(labels) > 1 else labels[0]
        yield name, dict(zip(axes, labels, strict=True))


@dataclass(frozen=True)
class Trainings:
    """What a grid trains from one seed, by the labels of its cells."""

    train: Callable[..., Job]
    axes: Mapping[str, Sequence[Any]]

    def __call__(self, seed: int) -> dict[Any, Job]:
        """The jobs of one seed."""
        return {name: self.train(seed, **labels) for name, labels in _cells(self.axes)}


@dataclass(frozen=True)
class Only:
    """A reading of those cells alone that have a label: its values lack that axis.

    Attributes:
        read: the reading.
        where: label by axis.
    """

    read: Read
    where: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, one: Trained) -> Mapping[str, Any]:
        """The values of one cell."""
        return self.read(one)


def only(read: Read, **where: Any) -> Only:
    """A reading of those cells alone that have these labels."""
    return Only(read, where)


@dataclass(frozen=True)
class Readings:
    """What a grid reads from the runs of one seed."""

    train: Callable[..., Job]
    axes: Mapping[str, Sequence[Any]]
    read: tuple[Read, ...]
    order: tuple[str, ...] = ()

    def __call__(self, seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
        """The values of one seed, with the names of their axes."""
        cells = {
            name: Trained(runs[name], seed, labels, self.train)
            for name, labels in _cells(self.axes)
        }
        found: dict[str, Any] = {}
        for read in self.read:
            where = read.where if isinstance(read, Only) else {}
            chosen = [
                one
                for one in cells.values()
                if all(one.labels[axis] == label for axis, label in where.items())
            ]
            axes = {axis: labels for axis, labels in self.axes.items() if axis not in where}
            for name, values in _gathered([read(one) for one in chosen]).items():
                found[name] = self._ordered(*_shaped(values, axes))
        return found

    def _ordered(self, axes: tuple[str, ...], values: np.ndarray) -> tuple[Any, np.ndarray]:
        wanted = sorted(axes, key=self.order.index) if self.order else list(axes)
        return tuple(wanted), values.transpose([axes.index(axis) for axis in wanted])


def _gathered(given: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one[name] for one in given] for name in given[0]}


def _shaped(
    values: Sequence[Any], axes: Mapping[str, Sequence[Any]]
) -> tuple[tuple[str, ...], np.ndarray]:
    own = values[0][0] if isinstance(values[0], tuple) else ()
    own = (own,) if isinstance(own, str) else tuple(own)
    arrays = [np.asarray(one[1] if isinstance(one, tuple) else one) for one in values]
    sizes = [len(labels) for labels in axes.values()]
    return (*axes, *own), np.array(arrays).reshape(*sizes, *arrays[0].shape)


@dataclass(frozen=True, eq=False)
class Grid(Measurement):
    """A measurement over a grid; see `grid`."""

    @property
    def digested(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What else its digests count: which cells, and which readings with which parameters."""
        assert isinstance(self.function, Readings)
        return {"axes": self.function.axes}, {"read": self.function.read}


def grid(
    *,
    axes: Mapping[str, Sequence[Any]],
    seeds: int,
    read: Sequence[Read],
    coords: Mapping[str, Sequence[Any]] | None = None,
    repeat: Repeat = "opening",
    tolerance: Mapping[str, float] | None = None,
    data: Sequence[Path] = (),
    corpora: Sequence[str] = (),
) -> Callable[[Callable[..., Job]], Measurement]:
    """Declare a function that gives the training of one cell as a measurement of a whole grid.

    The function takes the seed, and one label of each axis by name; its first line says what is measured.

    Args:
        axes: name -> labels; every combination is trained.
        seeds: for how many seeds it is kept.
        read: what is read from each cell.
        coords: labels of further axes, those that readings give. Values have the axes of the grid first; where
            ``coords`` names one of those too, they have all axes in the order of ``coords``.
        repeat, tolerance, data, corpora: attributes of `Measurement`.

    Raises:
        ValueError: no axis, an axis without labels, no reading, or a reading of cells that are not there.
    """
    if not axes or not math.prod(map(len, axes.values())) or not read:
        raise ValueError(f"expected axes with labels and at least one reading, got {dict(axes)}")
    for one in read:
        for axis, label in (one.where if isinstance(one, Only) else {}).items():
            if label not in axes.get(axis, ()):
                raise ValueError(f"expected a label of the grid to read, got {axis}={label!r}")

    def declare(train: Callable[..., Job]) -> Measurement:
        further = coords or {}
        every = {**further, **axes} if further.keys() & axes.keys() else {**axes, **further}
        order = tuple(every) if further.keys() & axes.keys() else ()
        function = Readings(train, dict(axes), tuple(read), order)
        object.__setattr__(function, "__doc__", train.__doc__)
        return Grid(
            train.__name__,
            room_of(train.__module__),
            function,
            seeds,
            every,
            Trainings(train, dict(axes)),
            repeat,
            dict(tolerance or {}),
            tuple(data),
            tuple(corpora),
        )

    return declare
