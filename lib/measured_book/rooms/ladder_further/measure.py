"""What else the chapter on the length of training measures: passes over the data, batches, the longest runs.

All models are the small one of the ladder, on the same text. Peaks are chosen on two seeds of their own, among
six, and for the longest runs among three; where the best lies at an end, the search goes on beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.training.jobs import Job
from measured_transformer.training.schedules import WarmupLinear

from measured_book.ladder import (
    AVERAGED,
    BATCH,
    BETAS,
    COOLDOWNS,
    COSINES,
    DECAY,
    ENDS,
    LONG,
    LONGEST,
    RATES,
    SCORED_ON,
    SMALL,
    WARMUP,
    WINDOW,
    muon_options,
    options_of,
    rung,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

SEEDS = 6
FRESH, MANY = 1000, 12
"""What is added to the seeds of the measurements `afresh`, and how many they have."""
READ = (Scores(size=SCORED_ON, names=("loss",)), peak_rate)
"""Nats a byte on held-out windows; the peak rate."""


def chosen(
    arm: str,
    rates: Sequence[float],
    task: StandardLibrary,
    seed: int,
    **how: Any,
) -> Job:
    """A training of the small model at the peak that suits it best, among those given and beyond their ends."""
    config = speaker(SMALL)
    steps = how.pop("steps")
    rate = tuned(Search(arm, config, task, tuple(rates), tuning_seeds(2), steps, how))
    return job(config, task, seed, steps=steps, learning_rate=rate, **how)


# Passes over the data -----------------------------------------------------------------------------

PASSES = (1, 4, 16)
"""How often each window comes, in as many steps: 20 tokens a weight in all."""
DECAYS = (0.0, 0.1, 0.3, 1.0)
"""AdamW's weight decay."""
DROPPED = 0.1
"""The share of a vector's entries that dropout sets to zero."""


def passed(passes: int, decay: float, dropout: float, seed: int) -> Job:
    """A training whose windows come so often, along a straight line to zero."""
    steps = steps_for(SMALL, LONG)
    config = replace(speaker(SMALL), dropout=dropout)
    task = StandardLibrary(length=WINDOW, windows=steps * BATCH // passes, passes=passes)
    how = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": decay,
        "schedule": WarmupLinear(WARMUP, steps),
    }
    arm = f"ladder-passes-{passes}-{decay}-{dropout}"
    rate = tuned(Search(arm, config, task, RATES, tuning_seeds(2), steps, how))
    return job(config, task, seed, steps=steps, learning_rate=rate, **how)


@grid(axes={"passes": PASSES, "decay": DECAYS}, seeds=SEEDS, read=READ, corpora=(NAME,))
def repeated(seed: int, passes: int, decay: float) -> Job:
    """20 tokens a weight, all new, or a quarter or a sixteenth of them over and over: by weight decay."""
    return passed(passes, decay, 0.0, seed)


@grid(axes={"passes": PASSES[2:], "decay": DECAYS}, seeds=SEEDS, read=READ, corpora=(NAME,))
def dropped(seed: int, passes: int, decay: float) -> Job:
    """Sixteen passes with dropout of a tenth, by weight decay."""
    return passed(passes, decay, DROPPED, seed)


@grid(axes={"passes": PASSES[:2]}, seeds=MANY, read=READ, corpora=(NAME,))
def repeated_afresh(seed: int, passes: int) -> Job:
    """The same with new windows and with four passes at the usual weight decay, on twelve fresh seeds."""
    return passed(passes, DECAY, 0.0, FRESH + seed)


# Batches ------------------------------------------------------------------------------------------

SIZES = (4, 16, 64)
"""Windows of a step; the number of tokens is the same."""
AVERAGES = ("kept", "scaled")
"""Adam's second average forgets by steps, as with batches of 16, or by tokens."""


def beta(size: int, average: str) -> float:
    """How much of Adam's second average is kept in a step.

    >>> beta(16, "kept"), round(beta(4, "scaled"), 4), round(beta(64, "scaled"), 4)
    (0.95, 0.9873, 0.8145)
    """
    return BETAS[1] ** (size / BATCH) if average == "scaled" else BETAS[1]


def in_batches(seed: int, batch: int, average: str) -> Job:
    """A training of 20 tokens a weight in batches of a size, along a straight line to zero."""
    steps = steps_for(SMALL, LONG) * BATCH // batch
    return chosen(
        f"ladder-batch-{batch}-{beta(batch, average):.4f}",
        RATES,
        StandardLibrary(length=WINDOW),
        seed,
        steps=steps,
        batch_size=batch,
        betas=(BETAS[0], beta(batch, average)),
        weight_decay=DECAY,
        schedule=WarmupLinear(WARMUP * BATCH // batch, steps),
    )


@grid(axes={"batch": SIZES, "average": AVERAGES}, seeds=SEEDS, read=READ, corpora=(NAME,))
def batches(seed: int, batch: int, average: str) -> Job:
    """20 tokens a weight in small, middle and large batches, Adam's second average kept or scaled."""
    return in_batches(seed, batch, average)


@grid(axes={"batch": SIZES[:2], "average": AVERAGES[1:]}, seeds=MANY, read=READ, corpora=(NAME,))
def batches_afresh(seed: int, batch: int, average: str) -> Job:
    """Batches of 4 and 16 on twelve fresh seeds, Adam's second average scaled."""
    return in_batches(FRESH + seed, batch, average)


# Sixty tokens a weight ----------------------------------------------------------------------------

MUON = "Muon"
LATE = RATES[1:4]
"""The peaks that means and Muon try first: three, round the one that was best after 20 tokens a weight."""
PLANNED = (COOLDOWNS[0], COSINES[0], ENDS[1])
"""Schedules of the ladder that fall to zero."""


@grid(axes={"arm": (*PLANNED, AVERAGED, MUON)}, seeds=SEEDS, read=READ, corpora=(NAME,))
def longest(seed: int, arm: str) -> Job:
    """60 tokens a weight: AdamW with three schedules or a mean of states, and Muon with a cooldown."""
    if arm in PLANNED:
        return rung(SMALL, LONGEST, arm, seed)
    steps = steps_for(SMALL, LONGEST)
    how = muon_options(steps)
    if arm == AVERAGED:
        how = {
            "batch_size": BATCH,
            "weight_decay": DECAY,
            "betas": BETAS,
            **options_of(arm, steps),
        }
    name = f"ladder-{SMALL}-{LONGEST}-{arm.lower()}"
    return chosen(name, LATE, StandardLibrary(length=WINDOW), seed, steps=steps, **how)


@grid(axes={"arm": PLANNED}, seeds=MANY, read=READ, corpora=(NAME,))
def longest_afresh(seed: int, arm: str) -> Job:
    """60 tokens a weight, twelve fresh seeds: AdamW with the three schedules that fall to zero."""
    return rung(SMALL, LONGEST, arm, FRESH + seed)


UNSEEN, MOST = 7000, 24
"""What is added to the seeds of `longest_settled`, which nobody had looked at; how many it has."""


@grid(axes={"arm": PLANNED[:2]}, seeds=MOST, read=READ, corpora=(NAME,))
def longest_settled(seed: int, arm: str) -> Job:
    """60 tokens a weight, twenty-four further seeds: a cosine and a cooldown that fall to zero."""
    return rung(SMALL, LONGEST, arm, UNSEEN + seed)
