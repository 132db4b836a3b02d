"""Summarises curves: how soon a training loss gets low, and how well a score separates two kinds."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import stats


def steps_until(losses: Float[ndarray, "step"], level: float, *, window: int = 10) -> int:
    """The first step after which the mean loss of the last `window` steps is at most `level`.

    A run that never gets there is given its own length: the comparison then errs on the cautious side.

    >>> steps_until(np.array([3.0, 2.0, 1.0, 1.0]), 1.5, window=2)
    3
    """
    means = np.convolve(losses, np.ones(window) / window, mode="valid")
    reached = np.flatnonzero(means <= level)
    return int(reached[0]) + window if len(reached) else len(losses)


def area_under_curve(scores: Float[ndarray, "case"], events: Bool[ndarray, "case"]) -> float:
    """The share of pairs, one case with the event and one without, that the score orders correctly.

    The area under the ROC curve: 0.5 for a score that says nothing; ties count half.

    Raises:
        ValueError: when there is no case with the event or none without.

    >>> area_under_curve(np.array([1.0, 2.0, 3.0]), np.array([False, False, True]))
    1.0
    """
    yes, no = scores[events], scores[~events]
    if not len(yes) or not len(no):
        raise ValueError(f"expected cases of both kinds, got {len(yes)} with and {len(no)} without")
    return float(stats.mannwhitneyu(yes, no).statistic / (len(yes) * len(no)))
