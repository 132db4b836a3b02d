"""What a learning rate does, how Adam sizes its steps, and which hyper-parameter the loss depends on most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import qmc

from measured_transformer.models.config import Config

FACTORS = ("rate", "depth", "heads", "width")
"""What a search varies, in this order wherever an axis runs over factors."""


def descend(
    curvatures: Sequence[float], start: Sequence[float], rate: float, steps: int
) -> Float[ndarray, "step weight"]:
    """Gradient descent on the parabola with loss sum of c w^2 / 2; the start comes first.

    >>> descend([1.0], [1.0], 0.5, 2).ravel().tolist()
    [1.0, 0.5, 0.25]

    Raises:
        ValueError: when there is not one curvature for each weight.
    """
    if len(curvatures) != len(start):
        raise ValueError(
            f"expected one curvature a weight, got {len(curvatures)} for {len(start)} weights"
        )
    path = [np.array(start, dtype=float)]
    for _ in range(steps):
        gradient = np.array(curvatures) * path[-1]
        path.append(path[-1] - rate * gradient)
    return np.stack(path)


def adam_steps(
    gradients: Sequence[float], *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Float[ndarray, "step"]:
    """How far PyTorch's Adam moves a weight at each of these gradients, in units of the learning rate.

    Positive is downhill for a positive gradient.
    """
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = torch.optim.Adam([weight], lr=1.0, betas=betas, eps=eps)
    places = [0.0]
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimiser.step()
        places.append(weight.item())
    return -np.diff(places)


def variance_parts(table: Float[ndarray, "..."]) -> dict[tuple[int, ...], float]:
    """Functional analysis of variance of a full table: the variance that each set of its axes accounts for.

    The table is split into a mean, one function of each axis, one of each pair, and so on; each has mean zero
    along all its axes, so that they are orthogonal and their variances add up to that of the table.

    Returns:
        from sets of axes, as increasing tuples, to variances; the single axes come first.

    >>> table = np.array([[3.0, 2.8], [2.2, 1.6]])
    >>> {axes: round(part, 2) for axes, part in variance_parts(table).items()}
    {(0,): 0.25, (1,): 0.04, (0, 1): 0.01}
    """
    axes = range(table.ndim)
    sets = list(chain.from_iterable(combinations(axes, size) for size in range(table.ndim + 1)))
    functions: dict[tuple[int, ...], ndarray] = {}
    for kept in sets:
        others = tuple(axis for axis in axes if axis not in kept)
        mean = table.mean(axis=others, keepdims=True)
        functions[kept] = mean - sum(
            function for smaller, function in functions.items() if set(smaller) < set(kept)
        )
    return {kept: float(np.square(functions[kept]).mean()) for kept in sets[1:]}


@dataclass(frozen=True)
class Space:
    """What a search draws from: a range of rates, and as many levels of each size.

    Attributes:
        rates: lowest and highest learning rate; drawn evenly on a logarithmic scale.
        depths: numbers of layers.
        heads: numbers of heads, which must divide each width.
        widths: of the residual stream.

    Raises:
        ValueError: when the numbers of levels differ or are no prime number of at least 3, when heads do not
            divide a width, or the rates are no range of positive numbers.
    """

    rates: tuple[float, float]
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    widths: tuple[int, ...] = (16, 32, 48, 64, 80)

    def __post_init__(self) -> None:
        sizes = {len(self.depths), len(self.heads), len(self.widths)}
        count = len(self.depths)
        if len(sizes) > 1 or count < 3 or any(count % n == 0 for n in range(2, count)):
            raise ValueError(
                "expected as many depths as heads and widths, a prime number of at least 3, got "
                f"{len(self.depths)}, {len(self.heads)} and {len(self.widths)}"
            )
        if any(width % heads for width in self.widths for heads in self.heads):
            raise ValueError(
                f"heads must divide each width, got heads {self.heads} and widths {self.widths}"
            )
        if not 0 < self.rates[0] < self.rates[1]:
            raise ValueError(f"expected a range of positive rates, got {self.rates}")

    @property
    def levels(self) -> int:
        """Number of levels of each factor; a search has the square of it trials."""
        return len(self.depths)


@dataclass(frozen=True)
class Trial:
    """One point of a search.

    Attributes:
        rate: its learning rate.
        config: its model.
        levels: number of the level of each factor; a level of the rate is an equal part of the
            logarithmic range.
    """

    rate: float
    config: Config
    levels: tuple[int, int, int, int]


def draw_trials(space: Space, vocab: int, *, seed: int) -> list[Trial]:
    """A balanced random search: for any two factors each pair of levels is tried exactly once.

    A randomised Latin hypercube on an orthogonal array (Tang 1993), as scipy makes it: which levels meet and
    where in its part a rate lies is drawn anew for each seed.
    """
    count = space.levels
    unit = qmc.LatinHypercube(d=len(FACTORS), strength=2, seed=seed).random(count**2)
    low, high = np.log(space.rates)
    trials = []
    for point in unit:
        rate, depth, heads, width = (int(level) for level in np.floor(point * count))
        config = Config(
            vocab=vocab,
            n_layers=space.depths[depth],
            n_heads=space.heads[heads],
            d_model=space.widths[width],
        )
        drawn = float(np.exp(low + (high - low) * point[0]))
        trials.append(Trial(drawn, config, (rate, depth, heads, width)))
    return trials


@dataclass(frozen=True)
class Shares:
    """The variance of a search's losses, taken apart.

    Attributes:
        main: share of each factor alone, corrected for what chance gives it; may lie below 0.
        raw: the same without the correction.
        rest: share of everything else: interactions, seeds, and the rate within its level.
        means: mean loss at each level of each factor.
    """

    main: Float[ndarray, "factor"]
    raw: Float[ndarray, "factor"]
    rest: float
    means: Float[ndarray, "factor level"]


def variance_shares(
    levels: Int[ndarray, "trial factor"], losses: Float[ndarray, "trial"]
) -> Shares:
    """How much of the variance of the losses each factor accounts for on its own, in a balanced design.

    The means over a factor's levels spread a little even where the factor does nothing, because each is a mean
    of few noisy trials. The correction takes that away: the mean square of the rest, once for each degree of
    freedom. What it estimates is the first-order share of functional analysis of variance.

    Args:
        levels: of each factor in each trial, counted from 0.
        losses: one a trial.

    Raises:
        ValueError: when some pair of levels of two factors is not tried as often as the others, when nothing
            is left to estimate the rest from, or when all losses are the same.
    """
    trials, factors = levels.shape
    count = int(levels.max()) + 1
    for first, second in combinations(range(factors), 2):
        pairs = np.bincount(levels[:, first] * count + levels[:, second], minlength=count**2)
        if len(set(pairs.tolist())) > 1:
            raise ValueError(
                f"expected each pair of levels equally often, got {pairs.tolist()} for the factors "
                f"{first} and {second}; make trials with draw_trials"
            )
    free = trials - 1 - factors * (count - 1)
    if free < 1 or np.ptp(losses) == 0:
        raise ValueError(
            f"expected losses that differ and a rest to compare with, got {trials} trials for "
            f"{factors} factors of {count} levels, losses from {losses.min()} to {losses.max()}"
        )
    means = np.array([[losses[own == level].mean() for level in range(count)] for own in levels.T])
    squares = trials / count * np.square(means - losses.mean()).sum(1)
    total = float(np.square(losses - losses.mean()).sum())
    rest = total - float(squares.sum())
    chance = (count - 1) * rest / free
    return Shares((squares - chance) / total, squares / total, rest / total, means)
