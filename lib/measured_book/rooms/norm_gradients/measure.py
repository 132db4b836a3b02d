"""What the chapter on gradients measures: their lengths, block by block, and whether these make models slow.

Definitions that all of it shares. The *loss* is cross-entropy in nats. The gradient of a *weight* is that of
the mean loss over all positions of a batch; its length is the Frobenius norm, and that of a block, or of a kind
of parameters, is the root of the sum of squares over all of them, biases included. The gradient of a *state* of
the stream is that of the loss summed over positions; its length is the root mean square over tokens. The *size*
of a state is the root of the mean, over tokens, of the variance of its entries: what a norm divides by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.early_stopping import WhenSolved
from measured_transformer.analysis.gradients import jacobian, sublayers
from measured_transformer.analysis.residual import ledger, random_model, token_spread
from measured_transformer.analysis.solving import solved
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.gradients import (
    EqualRates,
    Watched,
    equal_by_kind,
    equal_gradients,
    gradient_lengths,
    trains_alone,
)
from measured_transformer.variants.norms import deep_norm, zero_branches
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

PLACEMENTS = ("pre", "post")
TASK = Reversal(vocab=5, length=5)
"""What all but the remedies are measured on."""


def encoder(placement: str, depth: int, **changes: Any) -> Config:
    """Blocks of width 32 with two heads, Xavier weights and sinusoidal positions."""
    given: dict[str, Any] = {"vocab": TASK.vocab, "d_model": 32, "n_heads": 2, "activation": "relu"}
    return Config(placement=placement, n_layers=depth, **(given | changes))  # type: ignore[arg-type]


# The algebra --------------------------------------------------------------------------------------


@measurement(
    seeds=100,
    coords={"placement": PLACEMENTS},
    tolerance={"left_over": 1e-12},
)
def algebra(seed: int) -> dict[str, Any]:
    """A random sublayer's Jacobian, less the identity and the branch's own: its largest entry."""
    return {"left_over": (("placement",), [left_over(seed, where) for where in PLACEMENTS])}


def left_over(seed: int, placement: str) -> float:
    """The largest entry of d(stream after) / d(stream before) - I - d(branch) / d(stream before)."""
    model, tokens = random_model(seed, placement=placement, n_layers=1)
    x = ledger(model, tokens[:1]).states[0]
    branch, norm = sublayers(model)[0]
    whole = jacobian(lambda x: norm(x + branch(x)), x)
    identity = torch.eye(len(whole), dtype=whole.dtype)
    return float((whole - identity - jacobian(branch, x)).abs().max())


# Before training ----------------------------------------------------------------------------------

DEPTHS = (2, 4, 8, 16, 32)
AFTER = (0, 1, 2, 4, 8, 16, 32)
"""Numbers of blocks passed at which the stream is looked at; 0 is the embedding."""
WIDTHS = (16, 32, 64, 128)
WIDTH_DEPTH = 6
DEEP = 12
JUDGED = (2, 6, 12, 24)
STARTS = ("xavier", "zero", "gpt2")
"""Initial weights: Xavier; the same with what writes to the stream zero; GPT-2's, smaller with depth."""
KINDS = ("query", "key", "value", "output", "up", "down", "norm")
"""The types of a block's parameters, as `by_kind` tells them apart; biases count with their matrix."""


@dataclass(frozen=True)
class Passage:
    """What a gradient is on its way down the stream, at the embedding and after each block.

    Attributes:
        size: of the state, see the head of this module.
        gradient: length of the gradient there.
        own: length of that part of it which differs from its mean over the positions of the sequence, over the
            length of the whole.
        cosine: with the gradient at the last state, over all tokens and entries at once.
    """

    size: Float[ndarray, "state"]
    gradient: Float[ndarray, "state"]
    own: Float[ndarray, "state"]
    cosine: Float[ndarray, "state"]


def passage(model: Decoder | Encoder, batch: Batch) -> Passage:
    """Follow the gradient of the summed loss down the stream of a model."""
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        mean = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        found = torch.autograd.grad(mean * batch.scored.sum(), [seen[name] for name in names])
    states = torch.stack([seen[name].detach() for name in names]).double()
    gradients = torch.stack(found).double()
    flat = gradients.flatten(1)
    return Passage(
        states.var(-1, correction=0).mean((1, 2)).sqrt().cpu().numpy(),
        _rms_length(gradients),
        _rms_length(gradients - gradients.mean(2, keepdim=True)) / _rms_length(gradients),
        torch.cosine_similarity(flat, flat[-1:], dim=1).cpu().numpy(),
    )


def _rms_length(x: Float[Tensor, "state batch position d_model"]) -> Float[ndarray, "state"]:
    found: ndarray = x.square().sum(-1).mean((1, 2)).sqrt().cpu().numpy()
    return found


def first_gradients(model: Decoder | Encoder, batch: Batch) -> dict[str, Float[ndarray, "at"]]:
    """The length of each parameter's gradient on one batch, in the form of `gradient_lengths`.

    The model is left without gradients.
    """
    model.zero_grad()
    with torch.enable_grad():
        cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    named = model.named_parameters()
    found = {n: np.array([float(w.grad.norm())]) for n, w in named if w.grad is not None}
    model.zero_grad()
    return found


def fresh(config: Config, seed: int, change: Callable[[Model], None] | None = None) -> Any:
    """An untrained model in double precision, so that small gradients are no rounding."""
    model = make_model(config, causal=False, seed=seed).double()
    if change is not None:
        change(model)
    return model.eval()


def held_out(seed: int) -> Batch:
    """The 64 sequences that untrained models are looked at with."""
    return TASK.batch(make_generator(seed, "evaluation"), 64)


@measurement(
    seeds=30,
    coords={"placement": PLACEMENTS, "depth": DEPTHS, "after": AFTER, "width": WIDTHS},
)
def depths(seed: int) -> dict[str, Any]:
    """Untrained models of 2 to 32 blocks: size of the stream, its gradient, and that of what writes to it."""
    axes = ("placement", "depth", "after")
    found = [[_by_depth(encoder(p, depth), seed) for depth in DEPTHS] for p in PLACEMENTS]
    wide = [
        [last_matrix(encoder(p, WIDTH_DEPTH, d_model=width), seed) for width in WIDTHS]
        for p in PLACEMENTS
    ]
    return {
        **{name: (axes, [[one[name] for one in row] for row in found]) for name in found[0][0]},
        "by_width": (("placement", "width"), wide),
    }


def _by_depth(config: Config, seed: int) -> dict[str, ndarray]:
    """After so many blocks as `AFTER` says, NaN where there are fewer: size, gradient, and writing matrix."""
    model, batch = fresh(config, seed), held_out(seed)
    seen, lengths = passage(model, batch), first_gradients(model, batch)
    matrix = np.array([math.nan, *(_written(lengths, i) for i in range(config.n_layers))])
    found = {"size": seen.size, "gradient": seen.gradient, "matrix": matrix}
    there = [after for after in AFTER if after <= config.n_layers]
    missing = np.full(len(AFTER) - len(there), math.nan)
    return {name: np.concatenate([values[there], missing]) for name, values in found.items()}


def _written(lengths: Mapping[str, ndarray], block: int) -> float:
    return float(lengths[f"blocks.{block}.feedforward.down.weight"][0])


def last_matrix(config: Config, seed: int) -> float:
    """Length of the gradient of the last block's second feed-forward matrix: what Xiong et al. bound."""
    lengths = first_gradients(fresh(config, seed), held_out(seed))
    return _written(lengths, config.n_layers - 1)


@measurement(
    seeds=30,
    coords={
        "placement": PLACEMENTS,
        "depth": JUDGED,
        "start": STARTS,
        "kind": KINDS,
        "block": tuple(range(1, DEEP + 1)),
        "state": tuple(range(DEEP + 1)),
    },
)
def untrained(seed: int) -> dict[str, Any]:
    """Untrained models: gradients of blocks and of kinds of parameters, and what is left of them on the way."""
    batch = held_out(seed)
    ratios = [
        [_of_fresh(encoder(p, depth), seed, first_over_last) for depth in JUDGED]
        for p in PLACEMENTS
    ]
    spreads = [
        [_of_fresh(encoder("pre", depth, **changes), seed, spread, change) for depth in JUDGED]
        for changes, change in map(start_of, STARTS)
    ]
    twelve = [fresh(encoder(p, DEEP), seed) for p in PLACEMENTS]
    lengths = [first_gradients(model, batch) for model in twelve]
    ways = [passage(model, batch) for model in twelve]
    return {
        "ratio": (("placement", "depth"), ratios),
        "spread": (("start", "depth"), spreads),
        "kinds": (
            ("placement", "kind", "block"),
            [[by_kind(each, kind)[0] for kind in KINDS] for each in lengths],
        ),
        "cosine": (("placement", "state"), [way.cosine for way in ways]),
        "own": (("placement", "state"), [way.own for way in ways]),
        "apart": (
            ("placement", "state"),
            [token_spread(ledger(model, batch.inputs).blocks) for model in twelve],
        ),
    }


def start_of(start: str) -> tuple[dict[str, Any], Callable[[Model], None] | None]:
    """What one of `STARTS` changes in the config, and what it does to a new model."""
    return {
        "xavier": ({}, None),
        "zero": ({}, zero_branches),
        "gpt2": ({"initialisation": "gpt2"}, None),
    }[start]


def _of_fresh(
    config: Config,
    seed: int,
    what: Callable[[ndarray], ndarray],
    change: Callable[[Model], None] | None = None,
) -> float:
    """A number of the blocks' gradient lengths, of an untrained model."""
    return float(what(by_block(first_gradients(fresh(config, seed, change), held_out(seed))))[0])


def first_over_last(lengths: Float[ndarray, "*at block"]) -> Float[ndarray, "*at"]:
    """The first block's gradient over the last one's."""
    ratio: ndarray = lengths[..., 0] / lengths[..., -1]
    return ratio


def spread(lengths: Float[ndarray, "*at block"]) -> Float[ndarray, "*at"]:
    """The longest block's gradient over the shortest one's.

    Raises:
        ValueError: when a block has no gradient at all, so that there is no ratio.
    """
    if not (np.asarray(lengths) > 0).all():
        raise ValueError(f"expected gradients in every block, got lengths {lengths}")
    ratio: ndarray = lengths.max(-1) / lengths.min(-1)
    return ratio


def by_block(lengths: Mapping[str, Float[ndarray, "at"]]) -> Float[ndarray, "at block"]:
    """The gradient's length in each block, all its parameters together."""
    blocks: dict[int, list[ndarray]] = {}
    for name, values in lengths.items():
        if name.startswith("blocks."):
            blocks.setdefault(int(name.split(".")[1]), []).append(values)
    return np.stack([np.sqrt(np.square(blocks[i]).sum(0)) for i in sorted(blocks)], axis=1)


def by_kind(lengths: Mapping[str, Float[ndarray, "at"]], kind: str) -> Float[ndarray, "at block"]:
    """The gradient's length in each block's parameters of one kind alone; see `KINDS`.

    Raises:
        ValueError: when there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    chosen = {name: values for name, values in lengths.items() if kind in name.split(".")[-2]}
    return by_block(chosen)


# In training --------------------------------------------------------------------------------------

MOMENTS = (0, 10, 30, 100, 300)
"""Steps that have been taken when the gradient of the next one is looked at."""
RATE = 2e-3
FOLLOWED: Mapping[str, tuple[str, str, int]] = {
    "xavier 2": ("pre", "xavier", 2),
    "xavier 6": ("pre", "xavier", 6),
    "xavier 12": ("pre", "xavier", 12),
    "zero 2": ("pre", "zero", 2),
    "zero 6": ("pre", "zero", 6),
    "gpt2 2": ("pre", "gpt2", 2),
    "gpt2 6": ("pre", "gpt2", 6),
    "post 6": ("post", "xavier", 6),
    "post 12": ("post", "xavier", 12),
}
"""Models that are followed: placement, initial weights, depth."""


def followed_trainings(seed: int) -> dict[str, Job]:
    """Every model of `FOLLOWED`, all at one learning rate with one warm-up."""
    jobs = {}
    for name, (placement, start, depth) in FOLLOWED.items():
        changes, change = start_of(start)
        jobs[name] = job(
            encoder(placement, depth, **changes),
            TASK,
            seed,
            steps=MOMENTS[-1] + 1,
            learning_rate=RATE,
            batch_size=16,
            schedule=Constant(warmup=100),
            prepare=Watched(MOMENTS, change),
            after_step=trains_alone,
        )
    return jobs


@measurement(
    seeds=10,
    coords={"arm": tuple(FOLLOWED), "moment": MOMENTS},
    trainings=followed_trainings,
    repeat="opening",
)
def followed(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Reversal of 5 tokens: gradients of blocks before training and after 10, 30, 100 and 300 steps."""
    lengths = [gradient_lengths(runs[name].model) for name in FOLLOWED]
    axes = ("arm", "moment")
    return {
        "ratio": (axes, [first_over_last(by_block(each)) for each in lengths]),
        "spread": (axes, [spread(by_block(each)) for each in lengths]),
        "queries": (axes, [first_over_last(by_kind(each, "query")) for each in lengths]),
        "loss": (axes, [[last_loss(runs[name], at) for at in MOMENTS] for name in FOLLOWED]),
    }


AFRESH, MORE = 2000, 12
"""What is added to a seed of `followed_afresh`, which nothing else is measured on; how many there are."""
PRE = tuple(name for name, (placement, *_) in FOLLOWED.items() if placement == "pre")


def afresh_trainings(seed: int) -> dict[str, Job]:
    """The pre-norm models of `FOLLOWED`, from further seeds."""
    jobs = followed_trainings(AFRESH + seed)
    return {name: jobs[name] for name in PRE}


@measurement(
    seeds=MORE,
    coords={"arm": PRE, "moment": MOMENTS},
    trainings=afresh_trainings,
    repeat="opening",
)
def followed_afresh(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Pre-norm models on twelve fresh seeds: longest gradient of a block over the shortest, at each moment.

    Beside it the same of 24 blocks that are not trained.
    """
    spreads = [spread(by_block(gradient_lengths(runs[name].model))) for name in PRE]
    return {
        "spread": (("arm", "moment"), spreads),
        "untrained": _of_fresh(encoder("pre", JUDGED[-1]), AFRESH + seed, spread),
    }


def last_loss(run: Run, step: int, window: int = 10) -> float:
    """Mean training loss of the last steps before this one; that of the first step where there are none."""
    return float(np.mean(run.losses[max(0, step - window) : max(1, step)]))


# Made equal ---------------------------------------------------------------------------------------


EASY = Reversal(vocab=3, length=3)
"""What the remedies are tried on: plain gradient descent has to learn it within some hundred steps."""
SIX = 6
RATES: Mapping[str, Sequence[float]] = {
    "SGD": (5e-3, 1e-2, 2e-2, 4e-2, 8e-2, 1.6e-1),
    "AdamW": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2),
}
"""The grid of learning rates, the same for every arm of an optimiser."""
LIMITS = {"SGD": 500, "AdamW": 300}
TUNED_AT = {"SGD": 220, "AdamW": 120}
"""Steps of a search: about as many as the slowest arm needs, since long after that all losses are small."""
REMEDIES: Mapping[str, tuple[str, str, Callable[[Model], None] | None]] = {
    "SGD pre": ("SGD", "pre", None),
    "SGD post": ("SGD", "post", None),
    "SGD blocks": ("SGD", "post", equal_gradients),
    "SGD kinds": ("SGD", "post", equal_by_kind),
    "SGD deep": ("SGD", "post", deep_norm),
    "AdamW pre": ("AdamW", "pre", None),
    "AdamW post": ("AdamW", "post", None),
    "AdamW rates": ("AdamW", "post", EqualRates(EASY)),
    "AdamW deep": ("AdamW", "post", deep_norm),
}
"""The arms: optimiser, placement, and what is done to the model."""
UNTREATED = ("SGD post", "AdamW post")
EARLY = (0, 10, 30, 60)


def remedies_trainings(seed: int) -> dict[str, Job]:
    """Six blocks of every arm of `REMEDIES`, each at a learning rate of its own, until the task is solved."""
    jobs = {}
    for name, (optimiser, placement, change) in REMEDIES.items():
        config = encoder(placement, SIX, vocab=EASY.vocab)
        common = {"batch_size": 32, "schedule": Constant(warmup=40), "optimiser": optimiser}
        changed = {} if change is None else {"prepare": change}
        search = Search(
            f"norm-gradients-{name.replace(' ', '-')}-{len(RATES[optimiser])}",
            config,
            EASY,
            RATES[optimiser],
            tuning_seeds(2),
            TUNED_AT[optimiser],
            {**common, **changed, "after_step": trains_alone},
        )
        if name in UNTREATED:
            changed = {"prepare": Watched(EARLY)}
        jobs[name] = job(
            config,
            EASY,
            seed,
            steps=LIMITS[optimiser],
            learning_rate=tuned(search),
            after_step=WhenSolved(20),
            **common,
            **changed,
        )
    return jobs


@measurement(
    seeds=14,
    coords={"arm": tuple(REMEDIES), "untreated": UNTREATED, "moment": EARLY},
    trainings=remedies_trainings,
    repeat="opening",
)
def remedies(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Reversal of 3 tokens, six blocks: steps to a loss of 0.05, with gradients as they are and made equal."""
    found = [solved([runs[name]]) for name in REMEDIES]
    lengths = [gradient_lengths(runs[name].model) for name in UNTREATED]
    axes = ("untreated", "moment")
    return {
        "steps": (("arm",), [float(each.steps[0]) for each in found]),
        "solved": (("arm",), [bool(each.observed[0]) for each in found]),
        "rate": (("arm",), [float(runs[name].rates.max()) for name in REMEDIES]),
        "spread": (axes, [spread(by_block(each)) for each in lengths]),
        "queries": (axes, [spread(by_kind(each, "query")) for each in lengths]),
    }
