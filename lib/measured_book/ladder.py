"""What the rooms that train on the ladder share: the model, its text, its lengths, its schedules and its peaks.

A rung is one size at one length in tokens per weight. The text is that of Python's own standard library, of
which no window comes twice.
"""

from __future__ import annotations

from typing import Any

from measured_transformer.models.config import Config
from measured_transformer.tasks.standard_library import StandardLibrary
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

from measured_book.measuring import Search, job, tuned, tuning_seeds

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
SCORED_ON = 1024
"""Held-out windows of a score."""


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


def muon_options(steps: int) -> dict[str, Any]:
    """The training of an arm with Muon, with the cooldown and the weight decay of the arm that has AdamW.

    SGD's weight decay is added to what stands in the place of the gradient, by then Muon's direction: so
    it acts on the weights by the rate of the step, as AdamW's does.
    """
    return {
        "batch_size": BATCH,
        "optimiser": "SGD",
        "betas": (0.0, 0.0),
        "weight_decay": DECAY,
        "clip": None,
        "schedule": schedule_of("cooldown", steps),
        "prepare": Muon(betas=BETAS),
        "after_step": trains_alone,
    }


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
