"""When runs solve their task, censored ones included."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.analysis.solving import Solved, solved
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import Run, make_model
from scipy import stats

TASK = Reversal(vocab=5, length=5)


MODEL = make_model(Config(vocab=5, d_model=8, n_layers=1, n_heads=1), causal=False, seed=0)


def run(losses, diverged=False):
    none = np.array([])
    return Run(
        MODEL,
        np.array(losses, dtype=float),
        seed=0,
        diverged=diverged,
        rates=np.full(len(losses), 0.01),
        gradient_norms=np.ones(len(losses)),
        evaluated=np.array([], dtype=int),
        evaluation_losses=none,
        evaluation_accuracies=none,
    )


def falling(at, steps=60):
    """A loss of 1 that drops to 0 at a step: ten steps later the mean of the last ten is below any level."""
    return run([1.0] * at + [0.0] * (steps - at))


def test_solved_at_the_first_window_below_the_level():
    found = solved([falling(20), falling(35), falling(55)])
    assert found.steps.tolist() == [30, 45, 60]
    assert found.observed.tolist() == [True, True, False]
    assert found.share == pytest.approx(2 / 3)


def test_solved_in_the_very_last_window_is_observed():
    found = solved([falling(50), run([1.0] * 60)])
    assert found.steps.tolist() == [60, 60]
    assert found.observed.tolist() == [True, False]


def test_a_run_that_diverged_has_not_solved_it():
    found = solved([falling(20), run([1.0, 2.0, np.nan], diverged=True)])
    assert found.steps.tolist() == [30, 60]
    assert found.observed.tolist() == [True, False]


def test_too_short_or_no_runs_are_refused():
    with pytest.raises(ValueError, match="at least 10 steps"):
        solved([run([0.0] * 3)])
    with pytest.raises(ValueError, match="at least one run"):
        solved([])


def test_the_share_still_at_it_is_the_estimate_of_kaplan_and_meier():
    done = np.array([True] * 4 + [False] * 6)
    found = Solved(np.array([80.0, 90, 120, 150] + [100] * 6), done)
    at = np.array([79.0, 80, 90, 119, 120, 150, 200])
    assert found.still_at_it(at) == pytest.approx([1, 0.9, 0.8, 0.8, 0.4, 0, 0])


def test_two_sets_of_runs_are_told_apart_by_the_log_rank_test():
    soon = Solved(np.array([10.0, 12, 14, 16, 18]), np.full(5, True))
    never = Solved(np.full(5, 60.0), np.full(5, False))
    expected = stats.logrank(
        stats.CensoredData(uncensored=soon.steps), stats.CensoredData(right=never.steps)
    ).pvalue
    assert soon.differs_from(never) == pytest.approx(expected)
    assert expected < 0.01
    assert soon.differs_from(soon) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least one run that solved"):
        never.differs_from(never)
