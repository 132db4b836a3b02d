"""How soon runs solve their task, when some do not within their steps.

A run that has not reached the level by its last step is *censored*: all that is known is that it takes longer.
Its steps count as the length of the run where a single number is needed, which errs on the cautious side, and
exactly as what they are in the Kaplan-Meier curve and the log-rank test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import stats

from measured_transformer.training.loop import Run

LEVEL = 0.05
"""The loss, in nats, below which a task counts as solved: that of the case study."""
WINDOW = 10
"""Steps over which the training loss is averaged before it is compared with the level."""


@dataclass(frozen=True)
class Solved:
    """The step at which each of several runs solved its task.

    Attributes:
        steps: the first step after which the mean loss of the last `WINDOW` steps is at most the level; the
            length of the run where there is none.
        observed: whether there is one.
    """

    steps: Float[ndarray, "run"]
    observed: Bool[ndarray, "run"]

    @property
    def share(self) -> float:
        """Share of the runs that solved it."""
        return float(self.observed.mean())

    def still_at_it(self, at: Float[ndarray, "at"]) -> Float[ndarray, "at"]:
        """The Kaplan-Meier estimate of the share of runs that have not solved it after so many steps."""
        curve: ndarray = stats.ecdf(self._censored()).sf.evaluate(at)
        return curve

    def differs_from(self, other: Solved) -> float:
        """The two-sided p of the log-rank test that both sets of runs take equally long.

        Raises:
            ValueError: when no run of either set solved its task, so that there is nothing to compare.
        """
        if not (self.observed.any() or other.observed.any()):
            raise ValueError(
                "expected at least one run that solved its task, got none in both sets"
            )
        return float(stats.logrank(self._censored(), other._censored()).pvalue)

    def _censored(self) -> stats.CensoredData:
        return stats.CensoredData(
            uncensored=self.steps[self.observed], right=self.steps[~self.observed]
        )


def solved(runs: Sequence[Run], *, level: float = LEVEL) -> Solved:
    """The steps at which these runs solved their task.

    A run that diverged counts as one that did not, with the steps that it was to take.

    Raises:
        ValueError: when there is no run, or one shorter than `WINDOW` that did not diverge.
    """
    if not runs:
        raise ValueError("expected at least one run, got none")
    longest = max(len(run.losses) for run in runs)
    steps, observed = [], []
    for run in runs:
        if len(run.losses) < WINDOW and not run.diverged:
            raise ValueError(f"expected runs of at least {WINDOW} steps, got {len(run.losses)}")
        means = np.convolve(run.losses, np.ones(WINDOW) / WINDOW, mode="valid")
        reached = np.flatnonzero(means <= level)
        steps.append(int(reached[0]) + WINDOW if len(reached) else longest)
        observed.append(len(reached) > 0)
    return Solved(np.array(steps, dtype=np.float64), np.array(observed))
