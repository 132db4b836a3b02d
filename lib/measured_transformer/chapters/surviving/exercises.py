"""Exercises of the chapter `book/positions/surviving`."""

from __future__ import annotations

import math

from measured_transformer.exercises.answers import (
    Answer,
    demand_number,
)
from measured_transformer.exercises.registry import exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""
_LAYERS = "book/positions/surviving"


@exercise(_LAYERS)
def diluted(answer: Answer) -> None:
    """Two numbers: (a) the variance each of 24 sublayers writes; (b) what 24 norms leave of an amplitude."""
    variance, amplitude = answer.numbers("(a)", "(b)")
    slips = {
        1 / 24: "the position has not variance one",
        0.5: "there are 24 sublayers",
        1 / 96: "half of the sum is the position's, so the other half is as large as it",
        math.sqrt(1 / 48): "asked for is a variance; of independent numbers variances add",
    }
    demand_number(variance, 1 / 48, name="(a)", within=1e-3, way="variances add", slips=slips)
    slips = {
        2**-24: "a norm divides by the standard deviation, not by the variance",
        1
        / 25: "without the norms it would be so, of the variance; each norm shrinks what is there",
        1 / 5: "without the norms it would be so; each norm shrinks what is there",
    }
    way = "what does one norm divide by, and how often?"
    demand_number(amplitude, 2**-12, name="(b)", within=1e-3, way=way, slips=slips)
