"""What the chapter on norm placement measures: who learns, how soon, at which depth and learning rate."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.early_stopping import WhenSolved
from measured_transformer.analysis.solving import LEVEL as LEVEL
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, make_model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.norms import head_norms, sandwich
from torch import Tensor

from measured_book.measuring import (
    Search,
    Trained,
    grid,
    job,
    measurement,
    tuned,
    tuning_seeds,
)
from measured_book.measuring.readings import LastLoss, Scores, solving

PLACEMENTS = ("pre", "post")
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
"""The grid of learning rates, the same for every arm of the chapter."""


# Two blocks ---------------------------------------------------------------------------------------

LONG = Reversal(vocab=12, length=12)
RATE_KINDS = ("stated", "tuned")
STATED = 5e-4
STEPS = {"stated": 500, "tuned": 300}


def two_blocks_config(placement: str) -> Config:
    """Two layers of width 64."""
    return Config(vocab=12, placement=placement, activation="relu")  # type: ignore[arg-type]


@grid(
    axes={"placement": PLACEMENTS, "rate": RATE_KINDS},
    seeds=20,
    read=[solving, Scores(names=("loss",))],
    repeat=1,
    tolerance={"loss": 0.02, "steps": 40},
)
def two_blocks(seed: int, placement: str, rate: str) -> Job:
    """Two blocks of width 64 on reversal of 12 tokens: steps to a loss of 0.05, and the loss at the end."""
    config, options = two_blocks_config(placement), {"batch_size": 16}
    arm, steps = f"norm-two-blocks-{placement}-6", STEPS["tuned"]
    search = Search(arm, config, LONG, RATES, tuning_seeds(2), steps, options)
    chosen = STATED if rate == "stated" else tuned(search)
    return job(config, LONG, seed, steps=STEPS[rate], learning_rate=chosen, **options)


# Depth and learning rate --------------------------------------------------------------------------

TASK = Reversal(vocab=5, length=5)
DEPTHS = (2, 6, 12)
DEEP = 12
LIMIT = 400
WARMUP = 100


def deep(placement: str, depth: int = DEEP, **changes: Any) -> Config:
    """Blocks of width 32 with two heads."""
    return Config(
        vocab=5,
        d_model=32,
        n_heads=2,
        n_layers=depth,
        activation="relu",
        placement=placement,  # type: ignore[arg-type]
        **changes,
    )


def until_solved(config: Config, seed: int, rate: float, **options: Any) -> Job:
    """A training that ends when the task is solved, or after `LIMIT` steps."""
    given = {"steps": LIMIT, "batch_size": 16, "schedule": Constant(warmup=WARMUP), **options}
    return job(config, TASK, seed, learning_rate=rate, after_step=WhenSolved(20), **given)


OUTCOMES = (solving, LastLoss(20))


@grid(axes={"placement": PLACEMENTS, "depth": DEPTHS, "rate": RATES}, seeds=24, read=OUTCOMES)
def border(seed: int, placement: str, depth: int, rate: float) -> Job:
    """Steps to a loss of 0.05 on reversal of 5 tokens, by placement, depth and learning rate; 400 at most."""
    return until_solved(deep(placement, depth), seed, rate)


# Twelve blocks of post-norm that do train ---------------------------------------------------------

RECIPES = ("long warm-up", "small weights")


@grid(axes={"recipe": RECIPES, "placement": PLACEMENTS, "rate": RATES}, seeds=3, read=OUTCOMES)
def recipes(seed: int, recipe: str, placement: str, rate: float) -> Job:
    """Twelve blocks with a longer warm-up, or with GPT-2's initial weights: steps to a loss of 0.05."""
    if recipe == "long warm-up":
        return until_solved(deep(placement), seed, rate, schedule=Constant(warmup=300))
    return until_solved(deep(placement, initialisation="gpt2"), seed, rate)


# Elsewhere ----------------------------------------------------------------------------------------

PLACES = ("both sides", "queries and keys", "nowhere")
EXPLODED = 2 * math.log(TASK.vocab)
"""A mean loss of the last steps from which on a run has exploded: twice that of a guess."""


def explosion(one: Trained) -> dict[str, bool]:
    """Return whether losses explode; they may be no number where a run has left those of the machine."""
    return {"exploded": not np.mean(one.run.losses[-20:]) < EXPLODED}


@grid(axes={"place": PLACES, "rate": RATES}, seeds=12, read=[solving, explosion])
def elsewhere(seed: int, place: str, rate: float) -> Job:
    """Twelve blocks with norms in other places: steps to a loss of 0.05, and whether losses explode."""
    if place == "both sides":
        return until_solved(deep("pre"), seed, rate, prepare=sandwich)
    prepare = {"queries and keys": head_norms, "nowhere": None}[place]
    return until_solved(deep("pre", norm="none"), seed, rate, prepare=prepare)


# Before training ----------------------------------------------------------------------------------

UNTRAINED_DEPTHS = (2, 4, 6, 12, 24)
WEIGHTS = ("xavier", "small")


@measurement(
    seeds=60,
    coords={
        "placement": PLACEMENTS,
        "depth": UNTRAINED_DEPTHS,
        "final": ("with", "without"),
        "weights": WEIGHTS,
        "block": tuple(range(1, DEEP + 1)),
    },
)
def untrained(seed: int) -> dict[str, Any]:
    """Before training: logits, size of the stream, gradients, and how much of the stream each block leaves."""
    spread = [
        [
            logit_deviation(
                untrained_model(deep("pre", n, final_norm=final), seed), TASK, seed=seed
            )
            for n in UNTRAINED_DEPTHS
        ]
        for final in (True, False)
    ]
    sizes = {p: block_sizes(untrained_model(deep(p), seed), seed) for p in PLACEMENTS}
    small = {
        p: block_sizes(untrained_model(deep(p, initialisation="gpt2"), seed), seed)
        for p in PLACEMENTS
    }
    gradients = {
        (p, n): gradient_of_last(untrained_model(deep(p, n), seed), seed)
        for p in PLACEMENTS
        for n in UNTRAINED_DEPTHS
    }
    return {
        "logits": (("final", "depth"), spread),
        "stream": (("placement", "block"), [sizes[p][0] for p in PLACEMENTS]),
        "kept": (
            ("weights", "placement", "block"),
            [[each[p][1] for p in PLACEMENTS] for each in (sizes, small)],
        ),
        "last_gradient": (
            ("placement", "depth"),
            [[gradients[p, n] for n in UNTRAINED_DEPTHS] for p in PLACEMENTS],
        ),
    }


def untrained_model(config: Config, seed: int) -> Model:
    """A model with fresh weights, in evaluation mode."""
    return make_model(config, causal=False, seed=seed).eval()


@torch.no_grad()
def logit_deviation(model: Model, task: Task, *, seed: int, size: int = 64) -> float:
    """The standard deviation of the logits, over answers, around the mean of each position; over a batch."""
    device = next(model.parameters()).device
    logits = predict(model, task.batch(make_generator(seed, "evaluation"), size).to(device))
    return float((logits - logits.mean(-1, keepdim=True)).square().mean().sqrt())


@torch.no_grad()
def block_sizes(model: Model, seed: int, size: int = 64) -> tuple[list[float], list[float]]:
    """After each block: the root mean square of the stream, and its cosine with what entered the block."""
    layers = range(model.config.n_layers)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in layers)]
    with capture(model, *names) as seen:
        predict(model, TASK.batch(make_generator(seed, "evaluation"), size))
    states = [seen[name] for name in names]
    rms = [float(state.square().mean().sqrt()) for state in states[1:]]
    kept = [
        float(torch.cosine_similarity(before, after, dim=-1).mean())
        for before, after in pairwise(states)
    ]
    return rms, kept


def gradient_of_last(model: Model, seed: int, size: int = 64) -> float:
    """The length of the loss's gradient with respect to the last block's feed-forward output matrix."""
    batch = TASK.batch(make_generator(seed, "evaluation"), size)
    loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
    weight = model.blocks[-1].feedforward.down.weight  # type: ignore[union-attr,index]
    (gradient,) = torch.autograd.grad(loss, weight)
    return float(gradient.norm())


# Positions that become alike ----------------------------------------------------------------------

STACKS = ("pre", "post", "post, small", "post, wide", "post, as BERT")


def stack_config(stack: str) -> Config:
    """Twelve blocks: of width 32 with Xavier or with small weights, or of BERT's width."""
    if stack in PLACEMENTS:
        return deep(stack)
    if stack == "post, small":
        return deep("post", initialisation="gpt2")
    wide = Config(vocab=5, d_model=768, n_heads=12, n_layers=DEEP, placement="post")
    if stack == "post, wide":
        return wide
    return wide.replace(positions="learned", embedding_norm=True, initialisation="gpt2")


@torch.no_grad()
def draw_as_bert(model: Model) -> None:
    """Draw all matrices and tables anew with a standard deviation of 0.02, those that write too.

    The published code of BERT cuts its normal distribution off at two standard deviations; this does not.
    """
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=0.02)


def untrained_stack(stack: str, seed: int) -> Model:
    """One of `STACKS` before any training."""
    model = untrained_model(stack_config(stack), seed)
    if stack == "post, as BERT":
        with seeded(seed):
            draw_as_bert(model)
    return model


@torch.no_grad()
def states_of(model: Model, seed: int, size: int = 64) -> list[Tensor]:
    """The embedding and the stream after each block, (batch position d_model) each."""
    layers = range(model.config.n_layers)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in layers)]
    with capture(model, *names) as seen:
        predict(model, TASK.batch(make_generator(seed, "evaluation"), size))
    return [seen[name] for name in names]


def between_positions(x: Float[Tensor, "batch position d_model"]) -> float:
    """Mean cosine between the states of two different positions of a sequence.

    >>> between_positions(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]))
    0.0
    """
    unit = torch.nn.functional.normalize(x, dim=-1)
    pairs = unit @ unit.transpose(1, 2)
    n = x.shape[1]
    return float((pairs.sum((1, 2)) - n).mean() / (n * (n - 1)))


@measurement(
    seeds=10,
    coords={"stack": STACKS, "block": tuple(range(DEEP + 1))},
    tolerance={"alike": 1e-3, "kept": 1e-3},
)
def alike(seed: int) -> dict[str, Any]:
    """Before training: cosines between positions, and with the embedding, after each block."""
    states = [states_of(untrained_stack(stack, seed), seed) for stack in STACKS]
    kept = [
        [float(torch.cosine_similarity(x[0], after, dim=-1).mean()) for after in x] for x in states
    ]
    return {
        "alike": (("stack", "block"), [[between_positions(after) for after in x] for x in states]),
        "kept": (("stack", "block"), kept),
    }
