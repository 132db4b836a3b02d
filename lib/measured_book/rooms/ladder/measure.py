"""What the chapter on the length of training measures: the same comparisons at several tokens a weight.

Each measurement is one rung of the ladder: one size, one length, some schedules. A rung is trained in some
minutes on one core, so that whoever has an hour can go on where the last one stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from measured_transformer.models.config import Config
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.training.jobs import Job
from measured_transformer.training.schedules import (
    Constant,
    Schedule,
    WarmupCosine,
    WarmupLinear,
    WarmupStableDecay,
    WarmupStableRoot,
)
from measured_transformer.variants.averages import MeanOfLast, room_for_a_mean
from measured_transformer.variants.gradients import trains_alone
from measured_transformer.variants.muon import Muon

from measured_book.measuring import Search, Trained, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

SMALL, MEDIUM = 32, 48
"""Widths of the two models, of some 45,000 and 96,000 weights."""
BLOCKS, HEAD = 3, 16
"""Blocks of every model, and the width of each head."""
WINDOW, BATCH = 64, 16
"""Bytes of a window, and windows of a step."""
WARMUP = 20
"""Steps of warm-up, the same in runs of all lengths."""
DECAY, BETAS = 0.1, (0.9, 0.95)
"""AdamW's weight decay, which acts on all weights by the rate of the step, and its averages."""
RATES = (4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128)
SHORT, LONG, LONGEST = 5, 20, 60
"""Tokens a weight."""
SEEDS = {SHORT: 24, LONG: 6, LONGEST: 6}
"""How many seeds are measured: short runs differ more from seed to seed."""
SCORED_ON, POINTS = 1024, 20


def speaker(width: int) -> Config:
    """A decoder of a width, with the parts of today's language models: RMSNorm, rotary positions, no biases."""
    return Config(
        vocab=256,
        d_model=width,
        n_layers=BLOCKS,
        n_heads=width // HEAD,
        positions="rotary",
        norm="rms",
        bias=False,
        tie_embeddings=True,
        activation="gelu",
        initialisation="xavier",
    )


def weights_of(width: int) -> int:
    """The number of its weights: the embedding, which is the unembedding too, blocks and norms.

    >>> weights_of(32)
    45280
    """
    return 256 * width + BLOCKS * (12 * width**2 + 2 * width) + width


def steps_for(width: int, tokens: int) -> int:
    """The number of steps in which a model of a width sees so many tokens a weight.

    >>> steps_for(32, 5), steps_for(32, 20), steps_for(48, 20)
    (221, 884, 1867)
    """
    return round(tokens * weights_of(width) / (BATCH * WINDOW))


ENDS = ("constant", "linear")
"""A rate that is kept, and one that falls along a straight line to zero."""
COSINES = ("cosine", "cosine to a tenth")
"""To zero, and to a tenth of the peak."""
COOLDOWNS = ("cooldown", "root cooldown")
"""A rate that is kept until the last fifth, and then falls to zero along a line, or as one minus a root."""
AVERAGED = "averaged"
"""A rate that is kept; the model that counts is the mean of the states of the last fifth."""
AROUND = {
    "constant": RATES[0:3],
    "linear": RATES[2:5],
    "cosine": RATES[2:5],
    "cosine to a tenth": RATES[2:5],
    "cooldown": RATES[1:4],
}
"""The peaks that the longest runs try first: three, round the one that was best after 20 tokens a weight."""


def schedule_of(name: str, steps: int) -> Schedule:
    """A schedule by its name, for a run of so many steps.

    Raises:
        ValueError: there is no such schedule.
    """
    match name:
        case "constant":
            return Constant(WARMUP)
        case "cosine":
            return WarmupCosine(WARMUP, steps)
        case "cosine to a tenth":
            return WarmupCosine(WARMUP, steps, 0.1)
        case "linear":
            return WarmupLinear(WARMUP, steps)
        case "cooldown":
            return WarmupStableDecay(WARMUP, steps, steps // 5)
        case "root cooldown":
            return WarmupStableRoot(WARMUP, steps, steps // 5)
    raise ValueError(f"there is no schedule {name!r} on the ladder")


def options_of(name: str, steps: int) -> dict[str, Any]:
    """What is special about the training of an arm: its schedule, and the mean of states where that is the arm.

    Raises:
        ValueError: there is no such arm.
    """
    if name == AVERAGED:
        hook = MeanOfLast(steps // 5, steps)
        return {"schedule": Constant(WARMUP), "prepare": room_for_a_mean, "after_step": hook}
    return {"schedule": schedule_of(name, steps)}


def rung(width: int, tokens: int, schedule: str, seed: int) -> Job:
    """A training of a size for a length with a schedule, at the peak that suits these three best.

    The peak is chosen on two seeds of their own, on other held-out windows: among six, and for the longest runs
    among three round the best of 20 tokens a weight. Where the best lies at an end, the search goes on beyond.
    """
    steps = steps_for(width, tokens)
    task = StandardLibrary(length=WINDOW)
    options = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": DECAY,
        **options_of(schedule, steps),
    }
    rates = AROUND[schedule] if tokens == LONGEST else RATES
    arm = f"ladder-{width}-{tokens}-{schedule}".replace(" ", "-")
    rate = tuned(Search(arm, speaker(width), task, rates, tuning_seeds(2), steps, options))
    return job(speaker(width), task, seed, steps=steps, learning_rate=rate, **options)


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
    """A training of the small model with Muon, at the peak that suits it best.

    SGD's weight decay is added to what stands in the place of the gradient, by then Muon's direction: so
    it acts on the weights by the rate of the step, as AdamW's does.
    """
    steps = steps_for(SMALL, tokens)
    task = StandardLibrary(length=WINDOW)
    options: dict[str, Any] = {
        "batch_size": BATCH,
        "optimiser": "SGD",
        "betas": (0.0, 0.0),
        "weight_decay": DECAY,
        "clip": None,
        "schedule": schedule_of("cooldown", steps),
        "prepare": Muon(betas=BETAS),
        "after_step": trains_alone,
    }
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
