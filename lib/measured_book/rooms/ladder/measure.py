"""What the chapter on the length of training measures: the same comparisons at several tokens a weight.

Each measurement is one rung of the ladder: one size, one length, some schedules. A rung is trained in some
minutes on one core, so that whoever has an hour can go on where the last one stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.training.jobs import Job

from measured_book.ladder import (
    AVERAGED,
    COOLDOWNS,
    COSINES,
    ENDS,
    LONG,
    LONGEST,
    RATES,
    SCORED_ON,
    SHORT,
    SMALL,
    WINDOW,
    muon_options,
    rung,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, Trained, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

SEEDS = {SHORT: 24, LONG: 6, LONGEST: 6}
"""How many seeds are measured: short runs differ more from seed to seed."""
POINTS = 20


@dataclass(frozen=True)
class Fall:
    """``fall``: the training loss in equal parts of the run, each the mean of its steps.

    No window comes twice in a run, so this is the loss on text that the model has not seen. Where a run has
    fewer steps than parts, some are NaN.

    Attributes:
        parts: how many.
    """

    parts: int = POINTS

    def __call__(self, one: Trained) -> dict[str, Any]:
        """The values of one cell."""
        pieces = np.array_split(one.run.losses, self.parts)
        means = [float(piece.mean()) if len(piece) else math.nan for piece in pieces]
        return {"fall": ("part", means)}


READ = (Scores(size=SCORED_ON, names=("loss",)), peak_rate, Fall())
"""Nats a byte on held-out windows; the peak rate; the loss on the way."""
PARTS = {"part": tuple(range(1, POINTS + 1))}


@grid(axes={"schedule": ENDS}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,))
def ends_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: a rate that is kept and one that falls to zero."""
    return rung(SMALL, SHORT, schedule, seed)


@grid(axes={"schedule": COSINES}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,))
def cosines_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: cosines to zero and to a tenth of the peak."""
    return rung(SMALL, SHORT, schedule, seed)


@grid(axes={"schedule": ENDS}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def ends_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: a rate that is kept and one that falls to zero."""
    return rung(SMALL, LONG, schedule, seed)


@grid(axes={"schedule": COSINES}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def cosines_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: cosines to zero and to a tenth of the peak."""
    return rung(SMALL, LONG, schedule, seed)


@grid(
    axes={"schedule": COOLDOWNS[:1]}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,)
)
def cooldown_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: a cooldown over the last fifth."""
    return rung(SMALL, SHORT, schedule, seed)


@grid(axes={"schedule": COOLDOWNS[:1]}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def cooldown_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: a cooldown over the last fifth."""
    return rung(SMALL, LONG, schedule, seed)


@grid(
    axes={"schedule": COOLDOWNS[1:]}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,)
)
def root_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: a cooldown as one minus a root."""
    return rung(SMALL, SHORT, schedule, seed)


@grid(axes={"schedule": COOLDOWNS[1:]}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def root_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: a cooldown as one minus a root."""
    return rung(SMALL, LONG, schedule, seed)


@grid(axes={"schedule": (AVERAGED,)}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,))
def averaged_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: the mean of the last states at a rate that is kept."""
    return rung(SMALL, SHORT, schedule, seed)


@grid(axes={"schedule": (AVERAGED,)}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def averaged_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: the mean of the last states at a rate that is kept."""
    return rung(SMALL, LONG, schedule, seed)


@grid(axes={"schedule": ENDS}, coords=PARTS, seeds=SEEDS[LONGEST], read=READ, corpora=(NAME,))
def ends_60(seed: int, schedule: str) -> Job:
    """45,000 weights, 60 tokens a weight: a rate that is kept and one that falls to zero."""
    return rung(SMALL, LONGEST, schedule, seed)


@grid(
    axes={"schedule": COSINES[:1]}, coords=PARTS, seeds=SEEDS[LONGEST], read=READ, corpora=(NAME,)
)
def cosine_60(seed: int, schedule: str) -> Job:
    """45,000 weights, 60 tokens a weight: a cosine to zero."""
    return rung(SMALL, LONGEST, schedule, seed)


@grid(
    axes={"schedule": COSINES[1:]}, coords=PARTS, seeds=SEEDS[LONGEST], read=READ, corpora=(NAME,)
)
def tenth_60(seed: int, schedule: str) -> Job:
    """45,000 weights, 60 tokens a weight: a cosine to a tenth of the peak."""
    return rung(SMALL, LONGEST, schedule, seed)


FRESH = 1000
"""Seeds of `late_20` count from here: none of them was seen in another measurement of this room."""


@grid(axes={"schedule": ("linear", "cooldown")}, coords=PARTS, seeds=18, read=READ, corpora=(NAME,))
def late_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight, eighteen fresh seeds: a line to zero and a cooldown."""
    return rung(SMALL, LONG, schedule, FRESH + seed)


MUON = "Muon"
"""Muon for the matrices of the blocks, with the cooldown and the decay of the arm that has AdamW."""


def muon_rung(tokens: int, seed: int) -> Job:
    """A training of the small model with Muon, at the peak that suits it best."""
    steps = steps_for(SMALL, tokens)
    task = StandardLibrary(length=WINDOW)
    options = muon_options(steps)
    name = f"ladder-{SMALL}-{tokens}-muon"
    rate = tuned(Search(name, speaker(SMALL), task, RATES, tuning_seeds(2), steps, options))
    return job(speaker(SMALL), task, seed, steps=steps, learning_rate=rate, **options)


@grid(axes={"schedule": (MUON,)}, coords=PARTS, seeds=SEEDS[SHORT], read=READ, corpora=(NAME,))
def muon_5(seed: int, schedule: str) -> Job:
    """45,000 weights, 5 tokens a weight: Muon with a cooldown."""
    return muon_rung(SHORT, seed)


@grid(axes={"schedule": (MUON,)}, coords=PARTS, seeds=SEEDS[LONG], read=READ, corpora=(NAME,))
def muon_20(seed: int, schedule: str) -> Job:
    """45,000 weights, 20 tokens a weight: Muon with a cooldown."""
    return muon_rung(LONG, seed)


@grid(
    axes={"schedule": COOLDOWNS[:1]}, coords=PARTS, seeds=SEEDS[LONGEST], read=READ, corpora=(NAME,)
)
def cooldown_60(seed: int, schedule: str) -> Job:
    """45,000 weights, 60 tokens a weight: a cooldown over the last fifth."""
    return rung(SMALL, LONGEST, schedule, seed)
