"""What the chapter on the size of a step measures: how deep towers of blocks train, and what they write."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.solving import solved
from measured_transformer.analysis.states import rms, turns
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.permutations import PermutationProducts
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.norms import (
    deep_norm,
    gated_branches,
    scaled_branches,
    zero_branches,
)
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

TASK = PermutationProducts(objects=3, length=6)
FOLLOWED = 0.75
"""The share of right answers from which on a model counts as following a move; a guess is right in a third."""
"""The shell game: one ball, three cups, six moves."""
MOVES = tuple(range(1, TASK.length + 1))
RATES = (3e-4, 7e-4, 1.5e-3, 3e-3, 7e-3, 1.5e-2)
"""The grid of learning rates, the same for every arm of the chapter."""
STEPS = 220
OPTIONS: Mapping[str, Any] = {
    "batch_size": 32,
    "schedule": WarmupLinear(warmup=40, steps=STEPS),
}
HALF = 0.5 * TASK.blind_loss()
"""The loss, in nats, at which speeds are compared: half of that of a guess."""


def tower(depth: int, **changes: Any) -> Config:
    """Blocks of width 32 with two heads, for the shell game."""
    given: dict[str, Any] = {
        "d_model": 32,
        "n_heads": 2,
        "activation": "relu",
        "positions": "learned",
        "max_length": TASK.length,
    }
    return Config(vocab=TASK.vocab, n_layers=depth, **(given | changes))


ARMS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "pre": ({}, None),
    "post": ({"placement": "post"}, None),
    "deep": ({"placement": "post"}, deep_norm),
    "none": ({"norm": "none"}, None),
    "scaled": ({"norm": "none"}, scaled_branches),
    "gate": ({"norm": "none"}, gated_branches),
}
"""Who sets the size of a step: what the config changes, and what is done to the initial weights."""


def options_of(prepare: Any, **changes: Any) -> dict[str, Any]:
    """The options of a training, with a preparation where there is one."""
    return {**OPTIONS, **({} if prepare is None else {"prepare": prepare}), **changes}


def at_tuned_rate(name: str, config: Config, prepare: Any, seed: int) -> Job:
    """One run of an arm at the learning rate that suits this arm at this depth."""
    options = options_of(prepare)
    search = Search(f"step-size-{name}", config, TASK, RATES, tuning_seeds(2), STEPS, options)
    return job(config, TASK, seed, steps=STEPS, learning_rate=tuned(search), **options)


# Towers -------------------------------------------------------------------------------------------

DEPTHS = (2, 6, 12)
DEEP = DEPTHS[-1]
DEEPEST = 24
PLACEMENTS = ("pre", "post")
TRAINED = ("pre", "post", "none", "scaled", "gate")


def towers_trainings(seed: int) -> dict[str, Job]:
    """Twelve blocks of every arm, each at a learning rate of its own."""
    return {
        arm: at_tuned_rate(f"{arm}-{DEEP}", tower(DEEP, **ARMS[arm][0]), ARMS[arm][1], seed)
        for arm in TRAINED
    }


@measurement(
    seeds=10,
    coords={"arm": TRAINED, "move": MOVES},
    trainings=towers_trainings,
    repeat="opening",
)
def towers(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The shell game, five kinds of towers of 12 blocks: share of right answers after each move."""
    found = [runs[arm] for arm in TRAINED]
    return {
        "right": (("arm", "move"), [right(run.model, seed) for run in found]),
        "loss": (("arm",), [last_loss(run) for run in found]),
        "learning_rate": (("arm",), [float(run.rates.max()) for run in found]),
        "spread": (("arm",), [spread(stream_sizes(run.model, seed)) for run in found]),
    }


def deepest_trainings(seed: int) -> dict[str, Job]:
    """Both placements of the norm with 24 blocks."""
    return {
        arm: at_tuned_rate(f"{arm}-{DEEPEST}", tower(DEEPEST, **ARMS[arm][0]), None, seed)
        for arm in PLACEMENTS
    }


@measurement(
    seeds=10,
    coords={"arm": PLACEMENTS, "move": MOVES},
    trainings=deepest_trainings,
    repeat="opening",
)
def deepest(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same with 24 blocks, pre-norm and post-norm."""
    return {
        "right": (("arm", "move"), [right(runs[arm].model, seed) for arm in PLACEMENTS]),
        "loss": (("arm",), [last_loss(runs[arm]) for arm in PLACEMENTS]),
        "learning_rate": (("arm",), [float(runs[arm].rates.max()) for arm in PLACEMENTS]),
    }


@torch.no_grad()
def right(model: Model, seed: int, size: int = 512) -> list[float]:
    """The share of right answers after each move, on sequences held out."""
    batch = TASK.batch(make_generator(seed, "evaluation"), size)
    answers = predict(model, batch).argmax(-1)
    shares: list[float] = (answers == batch.targets).double().mean(0).tolist()
    return shares


def last_loss(run: Run) -> float:
    """Mean loss of the last 20 steps; that of a guess times ten where the run left the range of numbers."""
    loss = float(np.mean(run.losses[-20:]))
    return loss if math.isfinite(loss) else 10 * TASK.blind_loss()


def stream_sizes(model: Any, seed: int) -> np.ndarray:
    """Root mean square of the stream's entries, at the embedding and after each block."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    return rms(ledger(model, batch.inputs).blocks)


def spread(sizes: Any) -> float:
    """Powers of ten between the largest and the smallest of some positive sizes; 0 where all are zero."""
    found = np.asarray(sizes, dtype=np.float64)
    if found.max() == 0:
        return 0.0
    return float(np.log10(found.max() / found.min()))


# Which learning rates work ------------------------------------------------------------------------

GRID: Mapping[str, tuple[int, dict[str, Any], Any]] = {
    "pre, 2": (2, {}, None),
    "post, 2": (2, {"placement": "post"}, None),
    "none, 2": (2, {"norm": "none"}, None),
    "pre, 6": (6, {}, None),
    "post, 6": (6, {"placement": "post"}, None),
    "none, 6": (6, {"norm": "none"}, None),
    "pre gate, 6": (6, {}, gated_branches),
    "gate, 6": (6, {"norm": "none"}, gated_branches),
}


def rates_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Shallow towers with norms and without, at every learning rate of the grid."""
    return {
        (arm, rate): job(
            tower(depth, **changes),
            TASK,
            seed,
            steps=STEPS,
            learning_rate=rate,
            **options_of(prepare),
        )
        for arm, (depth, changes, prepare) in GRID.items()
        for rate in RATES
    }


GATED = ("pre gate, 6", "gate, 6")
SECOND = PermutationProducts(objects=3, length=6, start=1)
"""The same game, but the ball begins under the second cup."""
LATER = 60


@measurement(
    seeds=12,
    coords={"arm": tuple(GRID), "rate": RATES, "move": MOVES, "gated": GATED},
    trainings=rates_trainings,
    repeat="opening",
)
def rates(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Towers of 2 and 6 blocks with norms and without, at six learning rates each: who learns, and how soon."""
    cells = [[runs[arm, rate] for rate in RATES] for arm in GRID]
    return {
        "right": (("arm", "rate", "move"), [[right(run.model, seed) for run in c] for c in cells]),
        "loss": (("arm", "rate"), [[last_loss(run) for run in c] for c in cells]),
        "steps": (("arm", "rate"), [[steps_to_half(run) for run in c] for c in cells]),
        "second": (
            ("gated", "rate"),
            [[last_loss(learned_later(runs[arm, rate])) for rate in RATES] for arm in GATED],
        ),
    }


FRESH = 1000
"""Seeds of `gated_rates` count from here, so that none of them was seen in `rates`."""


def gated_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Towers of six gated blocks with norms and without, at every learning rate, from a fresh seed."""
    trainings = rates_trainings(FRESH + seed)
    return {(arm, rate): one for (arm, rate), one in trainings.items() if arm in GATED}


@measurement(
    seeds=60,
    coords={"arm": GATED, "rate": RATES, "move": MOVES},
    trainings=gated_trainings,
    repeat="opening",
)
def gated_rates(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Towers of six gated blocks with norms and without, at six learning rates, from sixty fresh seeds."""
    shares = [[right(runs[arm, rate].model, FRESH + seed) for rate in RATES] for arm in GATED]
    return {"right": (("arm", "rate", "move"), shares)}


@dataclass(frozen=True, eq=False)
class TakesOver:
    """Begin a training with the weights of a trained model, as a `prepare` of `train`.

    Attributes:
        model: whose weights are taken over; it is left as it is.
        prepare: what made the model's parts before it was trained.
    """

    model: Model
    prepare: Any

    def __call__(self, fresh: Model) -> None:
        """Copy the weights.

        Raises:
            ValueError: when the new model has another config.
        """
        if fresh.config != self.model.config:
            raise ValueError(f"expected the config {self.model.config}, got {fresh.config}")
        self.prepare(fresh)
        fresh.load_state_dict(self.model.state_dict())


def learned_later(run: Run) -> Run:
    """Go on from a model behind gates to the second game, for a few steps at the same learning rate."""
    return train(
        run.model.config,
        SECOND,
        steps=LATER,
        seed=run.seed,
        learning_rate=float(run.rates.max()),
        batch_size=32,
        schedule=WarmupLinear(warmup=10, steps=LATER),
        prepare=TakesOver(run.model, gated_branches),
    )


def steps_to_half(run: Run) -> float:
    """Steps to half the loss of a guess; all steps where a run does not get there."""
    found = solved([run], level=HALF)
    return float(found.steps[0]) if found.observed[0] else float(STEPS)


# At the stated learning rate ----------------------------------------------------------------------

STATED = 5e-4
STATED_TOWERS = {"none, 2": ("none", 2), "none, 12": ("none", 12)}


def stated_trainings(seed: int) -> dict[str, Job]:
    """Towers without norms from Xavier weights, at the stated learning rate and without a warm-up."""
    return {
        name: job(
            tower(depth, **ARMS[arm][0]),
            TASK,
            seed,
            steps=STEPS,
            learning_rate=STATED,
            **options_of(ARMS[arm][1], schedule=Constant()),
        )
        for name, (arm, depth) in STATED_TOWERS.items()
    }


@measurement(
    seeds=10,
    coords={"tower": tuple(STATED_TOWERS)},
    trainings=stated_trainings,
    repeat="opening",
)
def stated(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Towers without norms at a learning rate of 0.0005 throughout: the loss at the end."""
    return {"loss": (("tower",), [last_loss(runs[name]) for name in STATED_TOWERS])}


AFRESH = 4000
"""What is added to a seed of `stated_afresh`, which nothing else is measured on."""


def stated_afresh_trainings(seed: int) -> dict[str, Job]:
    """As `stated_trainings`, from further seeds."""
    return stated_trainings(AFRESH + seed)


@measurement(
    seeds=20,
    coords={"tower": tuple(STATED_TOWERS)},
    trainings=stated_afresh_trainings,
    repeat="opening",
)
def stated_afresh(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Towers without norms at a rate of 0.0005 throughout, on twenty fresh seeds: the loss at the end."""
    del seed
    return {"loss": (("tower",), [last_loss(runs[name]) for name in STATED_TOWERS])}


# Before training ----------------------------------------------------------------------------------

STATES = tuple(range(DEEPEST + 1))
BLOCKS = STATES[1:]
CONNECTIONS = ("with", "without")
DIMENSION_STARTS = ("xavier", "zero", "gpt2")
DIMENSION_DEPTH = 12


@measurement(
    seeds=30,
    coords={
        "arm": tuple(ARMS),
        "state": STATES,
        "block": BLOCKS,
        "depth": DEPTHS,
        "connections": CONNECTIONS,
        "start": DIMENSION_STARTS,
    },
    tolerance={"turn": 0.01},
)
def untrained(seed: int) -> dict[str, Any]:
    """Before training: the stream's size and turns over 24 blocks, gradients, and how far dimensions differ."""
    states = {arm: block_states(arm, seed) for arm in ARMS}
    return {
        "size": (("arm", "state"), [rms(states[arm]) for arm in ARMS]),
        "turn": (("arm", "block"), [turns(states[arm]) for arm in ARMS]),
        "gradients": (
            ("arm", "depth"),
            [[spread(block_gradients(fresh(arm, n, seed), seed)) for n in DEPTHS] for arm in ARMS],
        ),
        "range": (
            ("arm",),
            [spread(stream_sizes(fresh(arm, DIMENSION_DEPTH, seed), seed)) for arm in ARMS],
        ),
        "dimensions": (
            ("connections", "start"),
            [
                [dimension_spread(c == "with", s, seed) for s in DIMENSION_STARTS]
                for c in CONNECTIONS
            ],
        ),
    }


def fresh(arm: str, depth: int, seed: int) -> Any:
    """An untrained tower of an arm, in double precision: some of these numbers grow large."""
    changes, prepare = ARMS[arm]
    model = make_model(tower(depth, **changes), causal=True, seed=seed).double()
    if prepare is not None:
        prepare(model)
    return model.eval()


@torch.no_grad()
def block_states(arm: str, seed: int) -> Tensor:
    """The embedding and the stream after each block of an untrained tower: (state batch position d_model)."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(DEEPEST))]
    model = fresh(arm, DEEPEST, seed)
    with capture(model, *names) as seen:
        model(batch.inputs)
    return torch.stack([seen[name] for name in names])


def block_gradients(model: Any, seed: int) -> list[float]:
    """For each block, the length of the loss's gradient with respect to all of its parameters."""
    batch: Batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
    lengths = []
    for block in model.blocks:
        gradients = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
        squares = [float(one.square().sum()) for one in gradients]
        lengths.append(math.sqrt(math.fsum(squares)))
    return lengths


def dimension_spread(connected: bool, start: str, seed: int) -> float:
    """Powers of ten between the largest and the smallest dimension of the stream after twelve blocks.

    A dimension's size is the root mean square of its entries over tokens and sequences.
    """
    config = tower(
        DIMENSION_DEPTH,
        norm="none",
        residual=connected,
        initialisation="gpt2" if start == "gpt2" else "xavier",
    )
    model: Any = make_model(config, causal=True, seed=seed).double().eval()
    if start == "zero":
        zero_branches(model)
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    last = ledger(model, batch.inputs).states[-1]
    return spread(last.square().mean(dim=(0, 1)).sqrt().numpy())
