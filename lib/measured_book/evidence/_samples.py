"""Checks of the samples and settings that the statistics take."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

Values = Float[np.ndarray, " seeds"]
Treated = Float[np.ndarray, " treated"]
Untreated = Float[np.ndarray, " untreated"]
Samples = tuple[Float[np.ndarray, " _"], ...]  # one or more, of any sizes


def check_values(name: str, values: Values, least: int = 2) -> None:
    if values.ndim != 1 or values.size < least:
        raise ValueError(
            f"{name}: expected a 1-d array of at least {least} values, got shape {values.shape}; "
            "an interval needs more than one seed"
        )
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"{name}: expected finite values, got {values[where]} at index {where}")


def check_arms(treatment: Treated, baseline: Untreated, *, paired: bool) -> None:
    check_values("treatment", treatment)
    check_values("baseline", baseline)
    if paired and treatment.shape != baseline.shape:
        raise ValueError(
            "expected one treatment and one baseline value for each seed, got "
            f"{treatment.size} and {baseline.size}; measure the same seeds in both arms, "
            "or compare them with paired = false"
        )


def check_confidence(confidence: float) -> None:
    if not 0.5 < confidence < 1:
        raise ValueError(f"expected a confidence between 0.5 and 1, got {confidence!r}")


def check_margin(margin: float) -> None:
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"expected a margin above 0, got {margin!r}")


def check_counts(successes: int, trials: int) -> None:
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"expected 0 <= successes <= trials, trials > 0; got {successes}, {trials}"
        )


def spread_of(values: Values) -> float:
    """Return the standard deviation, exactly 0 for equal values whatever their rounding."""
    return 0.0 if np.ptp(values) == 0 else float(values.std(ddof=1))
