"""What a small language model reads beyond its trained length, by which pairs and which blocks turn.

All models are the small one of the ladder after 20 tokens a weight, on the same text; they differ in positions
alone. Peaks are chosen on two seeds of their own, among six, and where the best lies at an end beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from measured_transformer.models.config import Config, Layer
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.training.jobs import Job
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.fast_pairs import FastPairs

from measured_book.ladder import (
    BATCH,
    BETAS,
    DECAY,
    LONG,
    RATES,
    SMALL,
    WARMUP,
    WINDOW,
    rung,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, Trained, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import peak_rate

SHARE = 0.25
"""Of the eight pairs of a head, those that turn in p-RoPE: the two fastest."""
NEAR = 32
"""Bytes that a block with a window sees: half of the trained length."""
_NEAR = Layer(window=NEAR)
ARMS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "fast pairs": {"rotary_scaling": FastPairs(SHARE)},
    "none": {"positions": "none"},
    "windows": {"layers": (_NEAR, _NEAR, Layer())},
    "mix": {"layers": (_NEAR, _NEAR, Layer(positions="none"))},
}
"""What differs from the ladder's model: the last two see a window in two of three blocks."""
LENGTHS = (64, 128, 256)
"""Bytes that a model reads; the first is that of training."""
ENDS, WINDOWS = 32, 512
"""How many bytes are scored, the last ones, and of how many windows."""


def config_of(arm: str) -> Config:
    """The ladder's small decoder with the positions of an arm."""
    return speaker(SMALL).replace(**ARMS[arm])


@dataclass(frozen=True)
class LastBytes:
    """``loss``: nats a byte of the last bytes of held-out windows, by how many bytes are read.

    The scored bytes are the same whatever the length: shorter windows end where the longest does.

    Attributes:
        lengths: bytes read, ascending.
        scored: how many of the last are scored.
        windows: how many windows.
    """

    lengths: tuple[int, ...] = LENGTHS
    scored: int = ENDS
    windows: int = WINDOWS

    @torch.no_grad()
    def __call__(self, one: Trained) -> dict[str, Any]:
        """The values of one cell."""
        task = StandardLibrary(length=self.lengths[-1], part="validation")
        batch = task.batch(make_generator(one.seed, "evaluation"), self.windows)
        last = batch.targets[:, -self.scored :]
        losses = []
        for length in self.lengths:
            logits = one.model(batch.inputs[:, -length:])[:, -self.scored :]
            losses.append(float(cross_entropy(logits, last, torch.ones_like(last).bool())))
        return {"loss": ("length", losses)}


@grid(
    axes={"arm": tuple(ARMS)},
    coords={"length": LENGTHS},
    seeds=6,
    read=(LastBytes(), peak_rate),
    corpora=(NAME,),
)
def longer(seed: int, arm: str) -> Job:
    """Nats a byte at one, two and four times the trained length, by the positions that a model has."""
    return placed(arm, seed)


FRESH, MANY = 4000, 30
"""What is added to the seeds of `longer_afresh`, which nobody had looked at; how many it has."""


@grid(
    axes={"arm": ("rotary", "mix")},
    coords={"length": LENGTHS},
    seeds=MANY,
    read=(LastBytes(), peak_rate),
    corpora=(NAME,),
)
def longer_afresh(seed: int, arm: str) -> Job:
    """Rotary positions throughout and the mix with windows, on thirty fresh seeds."""
    return placed(arm, FRESH + seed)


def placed(arm: str, seed: int) -> Job:
    """A training with the positions of an arm, at the rate that suits it best."""
    if arm == "rotary":
        return rung(SMALL, LONG, "linear", seed)
    steps = steps_for(SMALL, LONG)
    task = StandardLibrary(length=WINDOW)
    options = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": DECAY,
        "schedule": WarmupLinear(WARMUP, steps),
    }
    name = f"ladder-positions-{arm.replace(' ', '-')}"
    rate = tuned(Search(name, config_of(arm), task, RATES, tuning_seeds(2), steps, options))
    return job(config_of(arm), task, seed, steps=steps, learning_rate=rate, **options)


MOST = 0.75
"""The share of turning pairs with which the paper's own model ends as low: here six of eight."""
APART, SETTLED = 9000, 24
"""What is added to the seeds of `shares`, which nobody had looked at; how many it has."""


@grid(
    axes={"arm": ("rotary", "most pairs", "fast pairs")},
    coords={"length": LENGTHS},
    seeds=SETTLED,
    read=(LastBytes(), peak_rate),
    corpora=(NAME,),
)
def shares(seed: int, arm: str) -> Job:
    """All pairs, the fastest three quarters or the fastest quarter turn; twenty-four fresh seeds."""
    return mostly_rotary(APART + seed) if arm == "most pairs" else placed(arm, APART + seed)


def mostly_rotary(seed: int) -> Job:
    """The straight line of the ladder for a model in which the slowest quarter of the pairs does not turn."""
    line = rung(SMALL, LONG, "linear", seed)
    config = speaker(SMALL).replace(rotary_scaling=FastPairs(MOST))
    options = {k: v for k, v in line.settings.items() if k not in ("steps", "learning_rate")}
    steps = line.settings["steps"]
    name = "ladder-positions-most-pairs"
    rate = tuned(Search(name, config, line.task, RATES, tuning_seeds(2), steps, options))
    return job(config, line.task, seed, steps=steps, learning_rate=rate, **options)
