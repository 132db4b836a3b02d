"""What could stand in for a warm-up: remedies that each take away one suspected cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from measured_transformer.training.loop import Model


@dataclass(frozen=True)
class Held:
    """A schedule that keeps the weights where they are at first, then the full rate at once.

    Adam's averages of the gradient and of its square go on meanwhile. So the weights' first step rests on
    many gradients and not on one: what a warm-up would do for Adam's averages, without its small steps. (In
    the test called Adam-2k by Liu et al., 2020, "On the Variance of the Adaptive Learning Rate and Beyond",
    only the average of the square goes on; that of the gradient begins when the weights are released.)

    Attributes:
        steps: number of steps at a rate of zero.

    Raises:
        ValueError: when `steps` is not a whole number of at least 0.
    """

    steps: int

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 0:
            raise ValueError(f"steps must be a whole number of at least 0, got {self.steps!r}")

    def __call__(self, step: int) -> float:
        """The factor at this step: 0 while the weights are held, then 1.

        Raises:
            ValueError: when `step` is negative.
        """
        if step < 0:
            raise ValueError(f"steps are counted from 0, got step {step}")
        return float(step >= self.steps)


@torch.no_grad()
def quiet_branches(model: Model) -> None:
    """Divide every matrix that writes to the stream by twice the number of sublayers, in place.

    Each block then begins close to doing nothing, so that no block hangs on what the others write: the idea
    of Admin (Liu et al., 2020, "Understanding the Difficulty of Training Transformers") and of DeepNorm
    (Wang et al., 2022) in its plainest form. Made to be given to `train` as its `prepare`.
    """
    factor = 1 / (4 * model.config.n_layers)
    for name, weight in model.named_parameters():
        if name.endswith(("attention.output.weight", "feedforward.down.weight")):
            weight.mul_(factor)


def jumps(values: Float[ndarray, "step"], *, window: int = 20) -> Float[ndarray, "step"]:
    """How far each value lies above the median of the `window` values before it; NaN for the first ones.

    >>> jumps(np.array([1.0, 3.0, 2.0, 7.0]), window=3)
    array([nan, nan, nan,  5.])
    """
    found = np.full(len(values), np.nan)
    for step in range(window, len(values)):
        found[step] = values[step] - np.median(values[step - window : step])
    return found


def followed(events: Bool[ndarray, "step"], *, within: int = 10) -> Bool[ndarray, "step"]:
    """Whether an event comes after each step, among the next `within` steps; the step itself is not counted.

    >>> followed(np.array([False, True, False, False]), within=2)
    array([ True, False, False, False])
    """
    return np.array([bool(events[t + 1 : t + 1 + within].any()) for t in range(len(events))])
