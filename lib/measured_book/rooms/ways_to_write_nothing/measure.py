"""What heads of a small language model rest on: the first token, a learned sink, or a gate of their own.

All models are the small one of the ladder after 20 tokens a weight, but for a first token that is the same in
every window, so that it can become a sink. Peaks are chosen on two seeds of their own, among six, and where the
best lies at an end beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.tasks.task import Batch, Part, held_out
from measured_transformer.training.jobs import Job
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.gates import gate_heads
from measured_transformer.variants.score_clip import ScoreClip, largest_scores, watch_scores
from torch import Tensor

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

START = 0
"""The byte that begins every window; no source of Python has it."""
THRESHOLD = 10.0
"""Of QK-clip. A score of 10 above 63 scores of 0 gets 0.997 of the weight."""


@dataclass(frozen=True)
class Opened:
    """Windows of the standard library's text behind a start byte; each byte of a window is predicted.

    Attributes:
        length: bytes of a window, and predictions.
        part: which part of the text is drawn from.
    """

    length: int = WINDOW
    part: Part = "train"
    causal = True
    vocab = 256

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """The next `size` windows of a generator's stream; errors as in `StandardLibrary`."""
        given = StandardLibrary(self.length, self.part).batch(generator, size, length=length)
        start = torch.full((size, 1), START)
        opened = torch.cat((start, given.inputs[:, :-1]), dim=1)
        return Batch(opened, given.inputs, given.scored)


ARMS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "softmax": ({}, {}),
    "sink": ({"sinks": True}, {}),
    "gate": ({}, {"prepare": gate_heads}),
    "clip": ({}, {"prepare": watch_scores, "after_step": ScoreClip(THRESHOLD)}),
}
"""What differs from the ladder's model, and from its training."""
HEADS = (1, 2)


@dataclass(frozen=True)
class AtTheFirst:
    """What heads do with the first token of held-out windows, on average over queries of the second half.

    By block and head: its weight, ``first``; the length of its value over that of the others, ``value``; what
    all tokens get, which is less than one with a learned sink, ``kept``; and the gate, one where there is none,
    ``opened``. ``most``: the largest ``first``; ``unspent``: one minus the smallest ``kept``. ``norm``: the
    length of its state after each block over that of the others. ``largest``: the largest score, of keys that
    are not behind their query.

    Attributes:
        windows: how many.
    """

    windows: int = 256

    @torch.no_grad()
    def __call__(self, one: Trained) -> dict[str, Any]:
        """The values of one cell."""
        task = held_out(Opened())
        inputs = task.batch(make_generator(one.seed, "evaluation"), self.windows).inputs
        half = inputs.shape[1] // 2
        seen = _seen(one.model, inputs)
        first, kept, value, opened = [], [], [], []
        for block in range(BLOCKS):
            at = f"blocks.{block}.attention"
            pattern = seen[f"{at}.pattern"][:, :, half:]
            first.append(pattern[..., 0].mean((0, 2)).tolist())
            kept.append(pattern.sum(-1).mean((0, 2)).tolist())
            value.append(_against_the_others(seen[f"{at}.values"]).tolist())
            gates = seen.get(f"{at}.mixed.opened", torch.ones_like(seen[f"{at}.values"][..., 0]))
            opened.append(gates[:, :, half:].mean((0, 2)).tolist())
        states = [seen[f"blocks.{block}.residual_post"] for block in range(BLOCKS)]
        largest = [
            largest_scores(seen[f"blocks.{b}.attention.scores"]).max() for b in range(BLOCKS)
        ]
        place = ("block", "head")
        return {
            "first": (place, first),
            "kept": (place, kept),
            "value": (place, value),
            "opened": (place, opened),
            "most": max(max(row) for row in first),
            "unspent": 1 - min(min(row) for row in kept),
            "norm": ("block", [float(_against_the_others(state)) for state in states]),
            "largest": float(max(largest)),
        }


def _seen(model: Any, inputs: Tensor) -> dict[str, Tensor]:
    names = ["*.attention.scores", "*.attention.pattern", "*.attention.values", "*.residual_post"]
    if any(name.endswith("mixed.opened") for name, _ in model.named_modules()):
        names.append("*.mixed.opened")
    with capture(model, *names) as seen:
        model(inputs)
    return dict(seen)


def _against_the_others(vectors: Tensor) -> Tensor:
    """The mean length of the first position's vectors over that of the others', along all axes but heads."""
    lengths = vectors.norm(dim=-1)
    first, others = lengths[..., 0], lengths[..., 1:].mean(-1)
    return first.mean(0) / others.mean(0)


READ = (Scores(size=SCORED_ON, names=("loss",)), peak_rate, AtTheFirst())
COORDS = {"block": tuple(range(1, BLOCKS + 1)), "head": HEADS}
FRESH, MANY = 4000, 18
"""What is added to the seeds of `ways_afresh`, which nobody had looked at; how many it has."""


def opened(arm: str, seed: int) -> Job:
    """A training of an arm, at the rate that suits it best."""
    changes, special = ARMS[arm]
    config, task = speaker(SMALL).replace(**changes), Opened()
    steps = steps_for(SMALL, LONG)
    options = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": DECAY,
        "schedule": WarmupLinear(WARMUP, steps),
        **special,
    }
    rate = tuned(
        Search(f"ladder-opened-{arm}", config, task, RATES, tuning_seeds(2), steps, options)
    )
    return job(config, task, seed, steps=steps, learning_rate=rate, **options)


@grid(
    axes={"arm": tuple(ARMS)},
    coords=COORDS,
    seeds=6,
    read=READ,
    corpora=(NAME,),
)
def ways(seed: int, arm: str) -> Job:
    """Loss, weight on the first token and largest score, by what heads can rest on and what bounds scores."""
    return opened(arm, seed)


@grid(axes={"arm": tuple(ARMS)}, coords=COORDS, seeds=MANY, read=READ, corpora=(NAME,))
def ways_afresh(seed: int, arm: str) -> Job:
    """The same on eighteen fresh seeds."""
    return opened(arm, FRESH + seed)


UNSEEN, MOST = 8000, 48
"""What is added to the seeds of `sinks_settled`, which nobody had looked at; how many it has."""


@grid(axes={"arm": ("sink",)}, coords=COORDS, seeds=MOST, read=READ, corpora=(NAME,))
def sinks_settled(seed: int, arm: str) -> Job:
    """Learned sinks alone, on forty-eight further seeds."""
    return opened(arm, UNSEEN + seed)


YONDER, PAIRED = 12_000, 40
"""What is added to the seeds of `costs_settled`, which nobody had looked at; how many it has."""


@grid(
    axes={"arm": ("softmax", "sink", "gate")},
    coords=COORDS,
    seeds=PAIRED,
    read=READ,
    corpora=(NAME,),
)
def costs_settled(seed: int, arm: str) -> Job:
    """The softmax alone, learned sinks and gates, on forty further seeds."""
    return opened(arm, YONDER + seed)
