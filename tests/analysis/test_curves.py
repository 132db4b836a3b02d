"""Curves of training."""

import numpy as np
from measured_transformer.analysis.curves import steps_until


def test_steps_until_counts_the_window() -> None:
    losses = np.array([4.0, 4.0, 1.0, 1.0, 1.0])
    assert steps_until(losses, 1.0, window=1) == 3
    assert steps_until(losses, 1.0, window=3) == 5
    assert steps_until(losses, 0.5, window=3) == 5  # never: the whole run
