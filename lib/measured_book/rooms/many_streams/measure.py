"""What several residual streams bring to a small language model, and what mixing them does to their size.

All models are the small one of the ladder after 20 tokens a weight, on the same text. Peaks are chosen on two
seeds of their own, among six, and where the best lies at an end beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.tasks.task import held_out
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.decay import DecayExcept, room_for_decay
from measured_transformer.variants.streams import ManyStreams, composite_gain

from measured_book.ladder import (
    BATCH,
    BETAS,
    BLOCKS,
    DECAY,
    LONG,
    RATES,
    SCORED_ON,
    SMALL,
    WARMUP,
    WINDOW,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, Trained, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

SEEDS = 12
STREAMS = 4
"""As in both papers."""
WIDER = 225
"""Neurons of a network, instead of 128, with which one stream has as many weights as mHC has."""
ARMS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one": ({}, {}),
    "wider": ({"d_ff": WIDER}, {}),
    "hyper": ({}, {"prepare": ManyStreams(STREAMS)}),
    "constrained": ({}, {"prepare": ManyStreams(STREAMS, constrained=True)}),
}
"""What differs from the ladder's model, and from its training."""


@dataclass(frozen=True)
class Gains:
    """``forward``, ``backward``: the largest sums of rows and columns of the streams' mixtures, multiplied.

    One for models with one stream. Means over the bytes of held-out windows.

    Attributes:
        windows: how many.
    """

    windows: int = 64

    @torch.no_grad()
    def __call__(self, one: Trained) -> dict[str, Any]:
        """The values of one cell."""
        if "prepare" not in ARMS[one.labels["arm"]][1]:
            return {"forward": 1.0, "backward": 1.0}
        task = held_out(one.job.task)
        inputs = task.batch(make_generator(one.seed, "evaluation"), self.windows).inputs
        names = [
            f"blocks.{block}.{sublayer}_streams.mixing"
            for block in range(BLOCKS)
            for sublayer in ("attention", "feedforward")
        ]
        with capture(one.model, *names) as seen:
            one.model(inputs)
        forward, backward = composite_gain([seen[name] for name in names])
        return {"forward": forward, "backward": backward}


@grid(
    axes={"arm": tuple(ARMS)},
    seeds=SEEDS,
    read=(Scores(size=SCORED_ON, names=("loss",)), peak_rate, Gains()),
    corpora=(NAME,),
)
def streams(seed: int, arm: str) -> Job:
    """Loss by the number of residual streams, and how much the product of their mixtures amplifies."""
    changes, special = ARMS[arm]
    config, task = speaker(SMALL).replace(**changes), StandardLibrary(length=WINDOW)
    steps = steps_for(SMALL, LONG)
    options = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": DECAY,
        "schedule": WarmupLinear(WARMUP, steps),
        **special,
    }
    name = f"ladder-streams-{arm}"
    rate = tuned(Search(name, config, task, RATES, tuning_seeds(2), steps, options))
    return job(config, task, seed, steps=steps, learning_rate=rate, **options)


FRESH, MANY = 7000, 24
STATIC = ("reading_bias", "writing_bias", "mixing_bias")
"""The parts of hyper-connections that do not depend on the input, and that the paper does not decay."""


@dataclass(frozen=True)
class Ready:
    """Preparation for training: an arm's streams, where it has several, and room for the decay.

    Attributes:
        streams: None leaves the one stream.
    """

    streams: ManyStreams | None = None

    def __call__(self, model: Model) -> None:
        """Change the model in place."""
        if self.streams is not None:
            self.streams(model)
        room_for_decay(model)


@grid(
    axes={"arm": tuple(ARMS)},
    seeds=MANY,
    read=(Scores(size=SCORED_ON, names=("loss",)), peak_rate, Gains()),
    corpora=(NAME,),
)
def spared(seed: int, arm: str) -> Job:
    """Loss and gain by the number of streams, on fresh seeds; what no input changes does not decay."""
    changes, special = ARMS[arm]
    config, task = speaker(SMALL).replace(**changes), StandardLibrary(length=WINDOW)
    steps = steps_for(SMALL, LONG)
    options = {
        "batch_size": BATCH,
        "betas": BETAS,
        "schedule": WarmupLinear(WARMUP, steps),
        "prepare": Ready(special.get("prepare")),
        "after_step": DecayExcept(DECAY, STATIC),
    }
    name = f"ladder-streams-{arm}-spared"
    rate = tuned(Search(name, config, task, RATES, tuning_seeds(2), steps, options))
    return job(config, task, FRESH + seed, steps=steps, learning_rate=rate, **options)


AGAIN, MORE = 9000, 36
"""Fresh seeds for the price of the constraint, and how many."""


@grid(
    axes={"arm": ("hyper", "constrained")},
    seeds=MORE,
    read=(Scores(size=SCORED_ON, names=("loss",)), peak_rate),
    corpora=(NAME,),
)
def constraint_afresh(seed: int, arm: str) -> Job:
    """Loss with and without the constraint on the mixtures, on seeds that nobody had looked at."""
    return spared.trainings.train(AGAIN - FRESH + seed, arm=arm)  # type: ignore[union-attr]
