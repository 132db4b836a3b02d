"""What the chapter on the fate of positions measures: whether they can be read off the stream, and are used.

What a stack keeps of the vectors that were added below it, untrained and trained; heads whose patterns
depend on places; networks that act on a place; and what wrong positions cost a trained model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.positions import (
    Model,
    captured,
    position_r2_by_layer,
    position_vectors,
    probe_r2,
)
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config, Positions
from measured_transformer.parts.attention import causal_mask
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.order import Duplicates, PlaceMap
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.initialisation import BranchFactor
from measured_transformer.variants.positions import WithoutAttention
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds


def explained_by_position(
    pattern: Float[Tensor, "batch head query key"], *, causal: bool = False
) -> Float[Tensor, "head"]:
    """Share of the variance of each head's weights that the places of query and key account for.

    The mean pattern over the batch is what depends on places alone; the rest depends on the tokens. Entries
    are compared with the flat pattern (each query's weight spread evenly over the keys that it sees), so a
    head that attends evenly to all has nothing to explain and gets 0.
    """
    n_query, n_key = pattern.shape[-2:]
    seen = causal_mask(n_query, n_key) if causal else torch.ones(n_query, n_key, dtype=torch.bool)
    seen = seen.to(pattern.device)
    centred = (pattern - seen / seen.sum(-1, keepdim=True)).double()
    total = centred.pow(2).mean(0).sum((-2, -1))
    by_place = centred.mean(0).pow(2).sum((-2, -1))
    return torch.where(total > 0, by_place / total.clamp(min=1e-300), torch.zeros_like(total))


@contextmanager
def changed_positions(model: Model, vectors: Float[Tensor, "position d_model"]) -> Iterator[None]:
    """While the block runs, the model adds these vectors instead of its own (zeros: no positions)."""
    own = position_vectors(model, len(vectors))
    with intervene(model, {"embedding": lambda x: x - own + vectors}):
        yield


@torch.no_grad()
def task_loss(model: Model, task: Task, *, seed: int, size: int = 256) -> float:
    """Cross-entropy per scored position on sequences of the evaluation stream."""
    device = next(model.parameters()).device
    batch = task.batch(make_generator(seed, "evaluation"), size).to(device)
    logits = model(batch.inputs)
    return F.cross_entropy(logits[batch.scored], batch.targets[batch.scored]).item()


@torch.no_grad()
def loss_without_places(model: Model, task: Task, *, seed: int, size: int = 256) -> list[float]:
    """Loss after what tells the positions apart is taken out of the stream at one place.

    At each place (the embedding, then the exit of each block) the mean of the stream at each position, over
    the batch, is replaced by the mean over batch and positions: what remains of a position is what its
    tokens brought. One number a place.
    """
    places = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    losses = []
    for place in places:
        with intervene(model, {place: lambda x: x - x.mean(0) + x.mean((0, 1))}):
            losses.append(task_loss(model, task, seed=seed, size=size))
    return losses


def untrained(model: Model, *, seed: int) -> Model:
    """A fresh model of the same config, for comparison."""
    with seeded(seed):
        return type(model)(model.config).to(next(model.parameters()).device).eval()


# One entry, and noise ---------------------------------------------------------------------------------


def diluted_r2(deviation: float) -> float:
    """R2 of the best linear reader of a value with variance one under noise of this standard deviation.

    >>> diluted_r2(1.0), round(diluted_r2(3.0), 2)
    (0.5, 0.1)
    """
    return 1 / (1 + deviation**2)


def kept(write: float, *, sublayers: int, norms: bool) -> float:
    """Share of a stream's variance that is still what entered, after independent writes.

    Each sublayer adds `write` times the variance of the stream that enters the stack; with norms in the
    stream, `write` times that of the stream as it is, which is then scaled back to its size.

    >>> round(kept(0.25, sublayers=24, norms=False), 2), round(kept(0.25, sublayers=24, norms=True), 3)
    (0.14, 0.005)

    Raises:
        ValueError: for a negative variance or number of sublayers.
    """
    if write < 0 or sublayers < 0:
        raise ValueError(
            f"expected neither a negative variance nor a negative number, got {write}, {sublayers}"
        )
    return (1 + write) ** -sublayers if norms else 1 / (1 + sublayers * write)


# Stacks of twelve blocks, untrained ---------------------------------------------------------------------

MIRROR = Reversal(vocab=12, length=12)
DEEP = Config(vocab=12, d_model=32, max_length=12, n_layers=12)
LAYERS = tuple(range(DEEP.n_layers + 1))
STACKS = ("pre-norm", "pre-norm, table", "pre-norm, none", "post-norm")
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0)
PLACEMENTS = ("pre", "post")
MODELS = 12
"""Untrained stacks a seed, of which a seed's value is the mean."""
FEWER = 4
"""The same where the size of the writes is varied."""


def stack(name: str) -> Config:
    """The config of one of `STACKS`."""
    return {
        "pre-norm": DEEP,
        "pre-norm, table": DEEP.replace(positions="learned"),
        "pre-norm, none": DEEP.replace(positions="none"),
        "post-norm": DEEP.replace(placement="post"),
    }[name]


def fresh_r2(config: Config, seed: int, models: int, factor: float = 1.0) -> list[float]:
    """R2 of the position by layer, mean over untrained stacks whose writes are multiplied by a factor."""
    found = []
    for i in range(models):
        model = make_model(config, causal=False, seed=100 * seed + i)
        BranchFactor(factor)(model)
        found.append(position_r2_by_layer(model, MIRROR, seed=seed))
    return [float(each) for each in np.mean(found, axis=0)]


@measurement(
    seeds=10,
    coords={"stack": STACKS, "layer": LAYERS},
    repeat=1,
    tolerance={"r2": 0.05},
)
def untrained_stacks(seed: int) -> dict[str, Any]:
    """How well the position can be read from the stream of untrained encoders of twelve blocks, by layer."""
    return {"r2": (("stack", "layer"), [fresh_r2(stack(name), seed, MODELS) for name in STACKS])}


@measurement(
    seeds=10,
    coords={"placement": PLACEMENTS, "factor": FACTORS},
    repeat=1,
    tolerance={"top": 0.05},
)
def sizes(seed: int) -> dict[str, Any]:
    """The same after the last block, with the matrices that write to the stream multiplied by a factor."""
    return {
        "top": (
            ("placement", "factor"),
            [
                [
                    fresh_r2(DEEP.replace(placement=placement), seed, FEWER, factor)[-1]
                    for factor in FACTORS
                ]
                for placement in PLACEMENTS
            ],
        )
    }


# Stacks of twelve blocks, trained -------------------------------------------------------------------------

DEEP_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
DEEP_STEPS = 400
LATER = 500
"""What is added to the seeds of these trainings: with half the steps the first ten had been looked at."""
SMALL = 0.125
"""What the writes of the trained post-norm stack begin with, in units of a usual initialisation."""
TRAINED = ("pre-norm", "post-norm, small writes")


def deep_trainings(seed: int) -> dict[str, Job]:
    """Both stacks on reversal, each at the learning rate that suits it."""
    jobs = {}
    for name in TRAINED:
        options: dict[str, Any] = {"batch_size": 16, "schedule": Constant(warmup=20)}
        config = DEEP
        if name != "pre-norm":
            config = DEEP.replace(placement="post")
            options["prepare"] = BranchFactor(SMALL)
        search = Search(
            f"surviving-{name.replace(', ', '-').replace(' ', '-')}",
            config,
            MIRROR,
            DEEP_RATES,
            tuning_seeds(2),
            DEEP_STEPS,
            options,
        )
        jobs[name] = job(
            config, MIRROR, seed + LATER, steps=DEEP_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={"model": TRAINED, "layer": LAYERS},
    trainings=deep_trainings,
    repeat="opening",
    tolerance={"r2": 0.3, "shuffled": 0.1, "without": 1.0, "loss": 0.5, "accuracy": 0.3},
)
def deep(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Trained encoders of twelve blocks: reading the position by layer, and the loss when it is taken out."""
    models: list[Any] = [runs[name].model for name in TRAINED]
    scores = [evaluate(model, MIRROR, seed=seed, size=256) for model in models]
    return {
        "r2": (
            ("model", "layer"),
            [position_r2_by_layer(model, MIRROR, seed=seed) for model in models],
        ),
        "shuffled": (
            ("model", "layer"),
            [position_r2_by_layer(model, MIRROR, seed=seed, shuffle_seed=seed) for model in models],
        ),
        "without": (
            ("model", "layer"),
            [loss_without_places(model, MIRROR, seed=seed) for model in models],
        ),
        "loss": ("model", [score.loss for score in scores]),
        "accuracy": ("model", [score.accuracy for score in scores]),
    }


# What trained models make of positions ----------------------------------------------------------------------

WIDE = Config(vocab=12, d_model=64, max_length=12, positions="sinusoidal")
WIDE_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
BACK = Lag(vocab=8, length=32)
BACK_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
TWINS = Duplicates(vocab=12, length=12)
CASES = ("reversal", "lag", "rotary")


def _reversal(seed: int) -> Job:
    options = {"batch_size": 32}
    search = Search("tables-sinusoidal", WIDE, MIRROR, WIDE_RATES, tuning_seeds(2), 300, options)
    return job(WIDE, MIRROR, seed, steps=300, learning_rate=tuned(search), **options)


def _back(scheme: Positions, seed: int) -> Job:
    config = Config(vocab=8, d_model=32, n_heads=2, max_length=256, positions=scheme)
    options = {"batch_size": 16}
    name = f"relative-lag-{scheme}"
    search = Search(name, config, BACK, BACK_RATES, tuning_seeds(2), 200, options)
    return job(config, BACK, seed, steps=200, learning_rate=tuned(search), **options)


def _twins(seed: int) -> Job:
    options = {"batch_size": 32}
    search = Search("surviving-duplicates", WIDE, TWINS, WIDE_RATES, tuning_seeds(2), 300, options)
    return job(WIDE, TWINS, seed, steps=300, learning_rate=tuned(search), **options)


def pattern_trainings(seed: int) -> dict[str, Job]:
    """Reversal with sinusoidal vectors, and three back with sinusoidal and with rotary positions."""
    return {
        "reversal": _reversal(seed),
        "lag": _back("sinusoidal", seed),
        "rotary": _back("rotary", seed),
    }


def case_task(case: str) -> Task:
    """What the model of one of `CASES` has learned."""
    return MIRROR if case == "reversal" else BACK


def strongest(model: Model, task: Task, seed: int) -> tuple[float, Float[Tensor, "query key"]]:
    """The share of the head whose weights places account for most, and its mean weights."""
    seen = captured(model, task, "*.pattern", seed=seed)
    shares = torch.cat([explained_by_position(each, causal=task.causal) for each in seen.values()])
    means = torch.cat([each.mean(0) for each in seen.values()])
    best = int(shares.argmax())
    return float(shares[best]), means[best]


@measurement(
    seeds=10,
    coords={"case": CASES, "query": tuple(range(12)), "key": tuple(range(12))},
    trainings=pattern_trainings,
    repeat="opening",
    tolerance={"trained": 0.2, "fresh": 0.1, "weights": 1.0, "fresh_weights": 0.5},
)
def patterns(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The share of a head's weights that places account for, largest over the heads, trained and untrained.

    And the mean weights of these heads, of their last twelve queries and keys.
    """
    models: dict[str, Any] = {case: runs[case].model for case in CASES}
    trained = [strongest(models[case], case_task(case), seed) for case in CASES]
    fresh = [strongest(untrained(models[case], seed=seed), case_task(case), seed) for case in CASES]
    return {
        "trained": ("case", [share for share, _ in trained]),
        "fresh": ("case", [share for share, _ in fresh]),
        "weights": (
            ("case", "query", "key"),
            torch.stack([weights[-12:, -12:] for _, weights in trained]).numpy(),
        ),
        "fresh_weights": (("query", "key"), fresh[0][1].numpy()),
    }


ALTERNATING, HALVES = PlaceMap(block=1), PlaceMap(block=6)
NETWORKS: Mapping[str, tuple[Positions, PlaceMap, int]] = {
    "learned, alternating": ("learned", ALTERNATING, 100),
    "sinusoidal, alternating": ("sinusoidal", ALTERNATING, 100),
    "sinusoidal, alternating, longer": ("sinusoidal", ALTERNATING, 1500),
    "sinusoidal, halves": ("sinusoidal", HALVES, 100),
    "rotary, halves": ("rotary", HALVES, 100),
}
NETWORK_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 1.28e-1)


def network_trainings(seed: int) -> dict[str, Job]:
    """Models without attention on the two maps; the longer training at the rate that suits the short one."""
    jobs = {}
    for name, (scheme, task, steps) in NETWORKS.items():
        config = Config(vocab=12, d_model=32, max_length=12, positions=scheme)
        options = {"batch_size": 16, "prepare": WithoutAttention()}
        search = Search(
            f"surviving-map-{task.block}-{scheme}",
            config,
            task,
            NETWORK_RATES,
            tuning_seeds(2),
            100,
            options,
        )
        jobs[name] = job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)
    return jobs


@measurement(
    seeds=10,
    coords={"network": tuple(NETWORKS)},
    trainings=network_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2},
)
def networks(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Encoders without attention: accuracy at mapping tokens by one of two permutations, chosen by place."""
    found = [
        evaluate(runs[name].model, task, seed=seed, size=256).accuracy
        for name, (_, task, _) in NETWORKS.items()
    ]
    return {"accuracy": ("network", found)}


TASKS = ("reversal", "duplicates")
CHANGES = ("shuffled", "average", "zero")


def forced_trainings(seed: int) -> dict[str, Job]:
    """A task that needs the order, and one that has no use for it."""
    return {"reversal": _reversal(seed), "duplicates": _twins(seed)}


def changed(own: Float[Tensor, "position d_model"], how: str, seed: int) -> Tensor:
    """Position vectors, changed in one of `CHANGES`: dealt anew, their mean everywhere, or nothing.

    Raises:
        ValueError: there is no such change.
    """
    if how == "zero":
        return torch.zeros_like(own)
    if how == "average":
        return own.mean(0).expand_as(own)
    if how == "shuffled":
        generator = make_generator(seed, "shuffled places")
        return own[torch.randperm(len(own), generator=generator).to(own.device)]
    raise ValueError(f"expected one of {', '.join(CHANGES)}, got {how!r}")


@measurement(
    seeds=10,
    coords={"task": TASKS, "change": CHANGES},
    trainings=forced_trainings,
    repeat="opening",
    tolerance={"rise": 1.5, "loss": 0.1},
)
def forced(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """By how much the loss of a trained model rises when its position vectors are changed in three ways."""
    rises: list[list[float]] = []
    losses = []
    tasks: tuple[Task, ...] = (MIRROR, TWINS)
    for name, task in zip(TASKS, tasks, strict=True):
        model: Any = runs[name].model
        own = position_vectors(model, 12)
        before = task_loss(model, task, seed=seed, size=1024)
        losses.append(before)
        rises.append([])
        for how in CHANGES:
            with changed_positions(model, changed(own, how, seed)):
                rises[-1].append(task_loss(model, task, seed=seed, size=1024) - before)
    return {"rise": (("task", "change"), rises), "loss": ("task", losses)}


@measurement(seeds=20, repeat=2, tolerance={"r2": 0.01})
def rotary_values(seed: int) -> dict[str, Any]:
    """How well the place can be read from the values of the first layer of an untrained rotary model."""
    config = Config(vocab=8, d_model=32, positions="rotary")
    model = make_model(config, causal=True, seed=seed)
    name = "blocks.0.attention.values"
    seen = captured(model, Lag(vocab=8), name, seed=seed, size=256)
    return {"r2": probe_r2(seen[name].transpose(1, 2).flatten(2))}
