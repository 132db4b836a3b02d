"""What curves of training say: how soon, how low, how steadily."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def steps_until(losses: Float[ndarray, "step"], level: float, *, window: int = 10) -> int:
    """The first step after which the mean loss of the last `window` steps is at most `level`.

    A run that never gets there is given its own length: the comparison then errs on the cautious side.

    >>> steps_until(np.array([3.0, 2.0, 1.0, 1.0]), 1.5, window=2)
    3
    """
    means = np.convolve(losses, np.ones(window) / window, mode="valid")
    reached = np.flatnonzero(means <= level)
    return int(reached[0]) + window if len(reached) else len(losses)
