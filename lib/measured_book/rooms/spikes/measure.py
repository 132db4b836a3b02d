"""What the chapter on loss spikes measures: rewinding before a spike, Adam's second memory, and an odd batch.

Pre-norm encoders of four blocks learn to reverse five tokens and then spike. A training that is taken up again
from a state on its way, with one thing changed, needs more than `train` offers, so it is written out here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.alarms import solved_before, spike_onsets
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.device import settled
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, clip_gradients, make_model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from numpy import ndarray

from measured_book.measuring import job, measurement

TASK = Reversal(vocab=5, length=5)
CONFIG = Config(vocab=5, d_model=32, n_heads=2, n_layers=4, activation="relu", placement="pre")
"""Four pre-norm blocks of width 32 with two heads and Xavier weights."""
BATCH, WARMUP, STEPS = 32, 60, 500
SPIKE_RATE, CALM_RATE = 1.2e-2, 3e-3
BETA = 0.98
LATER = 700
"""What is added to the seeds: those of the chapter on warm-up, up to 539, have been looked at."""

# A training that can be taken up again ------------------------------------------------------------


class Training:
    """Adam on batches that are given, one step at a time; a copy goes on by itself.

    Attributes:
        model: as it stands.
        optimiser: Adam, with its averages.
        losses: training loss of every step so far, in nats.
        norms: length of the whole gradient of every step, before clipping.
        clip: the largest norm at a step, from the norms before it; None for none.
        rate: the learning rate after the warm-up.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        *,
        beta2: float = BETA,
        clip: Callable[[Sequence[float]], float | None] = lambda norms: None,
    ) -> None:
        self.model = make_model(CONFIG, causal=False, seed=seed).train()
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=rate, betas=(0.9, beta2), weight_decay=0.0, fused=True
        )
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.rate, self.clip = rate, clip

    def copy(self) -> Training:
        """The training as it stands; what either does from now on leaves the other alone."""
        return copy.deepcopy(self)

    def forget(self) -> None:
        """Let both of Adam's averages begin anew, from nothing, corrected for their age from now on."""
        self.optimiser.state.clear()

    def step(self, batch: Batch) -> None:
        """Take one step."""
        loss = cross_entropy(predict(self.model, batch), batch.targets, batch.scored)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.norms.append(clip_gradients(list(self.model.parameters()), self.clip(self.norms)))
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate * Constant(WARMUP)(len(self.losses))
        self.optimiser.step()
        self.losses.append(loss.item())


def to_one(norms: Sequence[float]) -> float:
    """The usual bound: norm 1, whatever came before."""
    del norms
    return 1.0


def twice_the_median(norms: Sequence[float]) -> float | None:
    """A bound that follows: twice the median norm of the 20 steps before; none before there are 20."""
    return 2 * float(np.median(norms[-20:])) if len(norms) >= 20 else None


def batches_of(seed: int, count: int) -> list[Batch]:
    """The first batches that `train` draws from a seed."""
    generator = make_generator(seed, "training")
    return [TASK.batch(generator, BATCH) for _ in range(count)]


# Back before a spike ------------------------------------------------------------------------------

REWOUND = (
    "same batches",
    "nudged",
    "other batches",
    "earlier state",
    "bound that follows",
    "half the rate",
)
"""What is changed when a training is taken up again some 50 steps before its spike."""
FROM, BACK, EVERY, NEAR, SKIPPED = 220, 50, 10, 10, 100
"""The first step whose spike counts; how far to go back; steps between states that are kept; how many steps a
spike may come earlier or later and still be the same; batches that are skipped."""
RISE = 0.2
"""Nats by which the loss rises in a spike, above a median that is not negative."""
NUDGE = 1e-4
"""By which share, times a standard normal number, every weight is changed in the nudged arm."""
UNSEEN = 800
"""What is added to the seeds here: the rule was made anew when those from 700 on had been looked at."""


def until_a_spike(
    seed: int, batches: Sequence[Batch]
) -> tuple[int | None, dict[int, Training], Training]:
    """Train until a spike is over, or to the end: where it begins, states on the way, the training."""
    line, kept, onset = Training(seed, SPIKE_RATE), {}, None
    for step in range(STEPS):
        if step % EVERY == 0 and step >= FROM - 2 * BACK - EVERY:
            kept[step] = line.copy()
        line.step(batches[step])
        if onset is None and line.losses[-1] > RISE:
            onset = _first(line.losses)
        if onset is not None and step >= onset + NEAR:
            break
    return onset, kept, line


def _first(losses: Sequence[float]) -> int | None:
    """The first spike from step `FROM` on."""
    if len(losses) <= FROM:
        return None
    found = [t for t in spike_onsets(np.array(losses)) if t >= FROM]
    return found[0] if found else None


def taken_up(arm: str, kept: Mapping[int, Training], onset: int, batches: Sequence[Batch]) -> bool:
    """Whether the spike comes again where it came, when one thing is changed."""
    start = (onset - BACK) // EVERY * EVERY
    younger = BACK if arm == "earlier state" else 0
    ahead = SKIPPED if arm == "other batches" else younger
    line, at = kept[start - younger].copy(), onset - younger
    if arm == "nudged":
        noise = make_generator(onset, "nudge")
        with torch.no_grad():
            for weight in line.model.parameters():
                weight.mul_(1 + NUDGE * torch.randn(weight.shape, generator=noise))
    if arm == "bound that follows":
        line.clip = twice_the_median
    if arm == "half the rate":
        line.rate /= 2
    for step in range(start - younger, at + NEAR + 1):
        line.step(batches[step + ahead])
    return any(abs(t - at) <= NEAR for t in spike_onsets(np.array(line.losses)))


@measurement(
    seeds=40,
    coords={"arm": REWOUND},
    tolerance={"spiked": 1.0, "again": 1.0, "onset": 500.0},
)
def rewound(seed: int) -> dict[str, Any]:
    """Whether a spike comes again, taken up some 50 steps before it with one thing changed."""
    seed += UNSEEN
    batches = batches_of(seed, STEPS + SKIPPED)
    with settled(torch.device("cpu")):
        onset, kept, _ = until_a_spike(seed, batches)
        again = [onset is not None and taken_up(arm, kept, onset, batches) for arm in REWOUND]
    return {
        "spiked": onset is not None,
        "onset": float(onset or 0),
        "again": ("arm", again),
    }


# The memory of squares ----------------------------------------------------------------------------

BETAS = (0.95, 0.98, 0.999)


def betas_trainings(seed: int) -> dict[float, Job]:
    """The same model at the same rate, with three memories."""
    given = {
        "steps": STEPS,
        "schedule": Constant(WARMUP),
        "batch_size": BATCH,
        "clip": None,
        "learning_rate": SPIKE_RATE,
    }
    return {beta: job(CONFIG, TASK, seed + LATER, betas=(0.9, beta), **given) for beta in BETAS}


@measurement(seeds=12, coords={"beta": BETAS}, trainings=betas_trainings, repeat="opening")
def betas(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Four pre-norm blocks at a high rate, by Adam's second beta: spikes, and how high they are."""
    del seed
    onsets = [spike_onsets(runs[beta].losses) for beta in BETAS]
    return {
        "spikes": ("beta", [len(found) for found in onsets]),
        "ready": ("beta", [int(solved_before(runs[b].losses).sum()) for b in BETAS]),
        "height": (
            "beta",
            [_height(runs[b].losses, at) for b, at in zip(BETAS, onsets, strict=True)],
        ),
        "bad": ("beta", [_bad(runs[b].losses) for b in BETAS]),
    }


def _height(losses: Float[ndarray, "step"], onsets: Sequence[int]) -> float:
    """The mean over spikes of the highest loss in their first 30 steps; NaN without a spike."""
    return float(np.mean([losses[t : t + 30].max() for t in onsets])) if onsets else float("nan")


def _bad(losses: Float[ndarray, "step"]) -> int:
    """Steps after the first 200 whose loss is above 0.2 nats."""
    return int((losses[200:] > 0.2).sum())


# One odd batch ------------------------------------------------------------------------------------

ODD: Mapping[str, dict[str, Any]] = {
    "beta 0.95": {"beta2": 0.95},
    "beta 0.98": {},
    "beta 0.999": {"beta2": 0.999},
    "clipped to 1": {"clip": to_one},
    "bound that follows": {"clip": twice_the_median},
}
"""What is different throughout the training; clipping is with a second beta of 0.98."""
MEMORIES = ("from the start", "anew")
"""When Adam's averages begin: with the training, or once more when the model has learned."""
ANEW, AT, AFTER, WATCHED = 200, 300, 20, 10
"""The step at which they begin anew; that of the odd batch; ordinary ones after it; steps that moves are summed
over."""


@measurement(
    seeds=12,
    coords={"arm": tuple(ODD), "memory": MEMORIES},
    tolerance={"height": 20.0, "before": 1.0, "growth": 1e6, "first": 5.0, "moved": 500.0},
)
def odd(seed: int) -> dict[str, Any]:
    """A batch with random answers after 300 calm steps: how far the weights move, how high the loss goes."""
    seed += UNSEEN
    batches = batches_of(seed, AT + 1 + AFTER)
    answers = torch.randint(TASK.vocab, (BATCH, TASK.length), generator=make_generator(seed, "odd"))
    wrong = Batch(batches[AT].inputs, answers, batches[AT].scored)
    rows: dict[str, list[list[float]]] = {}
    for changed in ODD.values():
        with settled(torch.device("cpu")):
            line = Training(seed, CALM_RATE, **changed)
            for batch in batches[:ANEW]:
                line.step(batch)
            other = line.copy()
            other.forget()
            values = [_after(one, batches, wrong) for one in (line, other)]
        for name in values[0]:
            rows.setdefault(name, []).append([one[name] for one in values])
    return {name: (("arm", "memory"), row) for name, row in rows.items()}


def _after(line: Training, batches: Sequence[Batch], wrong: Batch) -> dict[str, float]:
    """Train on, meet the odd batch, and go on: norms, moves in units of the rate, and losses."""
    for batch in batches[ANEW:AT]:
        line.step(batch)
    places = [_weights(line)]
    line.step(wrong)
    places.append(_weights(line))
    for batch in batches[AT + 1 :]:
        line.step(batch)
        places.append(_weights(line))

    def moved(steps: int) -> float:
        way = places[steps] - places[0]
        return float(way.square().mean().sqrt()) / line.rate

    return {
        "before": float(np.median(line.losses[AT - 20 : AT])),
        "growth": line.norms[AT] / float(np.median(line.norms[AT - 20 : AT])),
        "first": moved(1),
        "moved": moved(WATCHED),
        "height": max(line.losses[AT + 1 :]),
    }


def _weights(line: Training) -> torch.Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in line.model.parameters()])
