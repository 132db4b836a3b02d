"""Exercises of the chapter on attribution."""

from __future__ import annotations

import math

import torch
from measured_transformer.analysis.attribution import rollout as true_rollout
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

SUBJECT = "attribution"
"""The first word of the exercises' names."""
_CHAPTER = "book/inside/attribution"


@exercise(_CHAPTER)
def counted(answer: Answer) -> None:
    """Three numbers: (a) an area under the curve; (b) a token spoilt and (c) one restored in an 'or'."""
    area, spoilt, restored = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        0.25: "that is how often the others win",
        0.5: "count pairs of one that matters and one that does not: there are four",
        1.0: "one of the others has a higher score than one that matters",
    }
    way = "of the four pairs of a token that matters and one that does not, in how many is the first one ahead?"
    demand_number(area, 0.75, name="(a)", within=1e-3, way=way, slips=slips)
    way = "the other token is still there"
    demand_number(spoilt, 0.0, name="(b)", within=1e-3, way=way, slips={1.0: way})
    way = "one is enough"
    demand_number(restored, 1.0, name="(c)", within=1e-3, way=way, slips={0.0: way})


def _patterns(seed: int, layers: int, n: int) -> Tensor:
    scores = normal(layers, n, n, seed=seed)
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -math.inf).softmax(-1)


@exercise(_CHAPTER)
def rollout(answer: Answer) -> None:
    """Write `rollout(patterns)`: from (layer, query, key) to (query, key), half of each layer being kept."""
    for seed, layers in ((0, 1), (1, 2), (2, 4)):
        patterns = _patterns(seed, layers, 5)
        found = tensor(answer(patterns.clone()), (5, 5))
        expected = true_rollout(patterns[:, None])[0]
        eye = torch.eye(5).to(patterns)
        bare, turned, added = eye, eye, eye
        for layer in patterns:
            bare = layer @ bare
            turned = turned @ (eye + layer) / 2
            added = (eye + layer) @ added
        for value, words in (
            (bare, "there the residual connections are missing"),
            (turned, "the last layer stands on the left: a query of its reads the layer below"),
            (added, "rows sum to one when each layer keeps half and passes on half"),
        ):
            demand(not close(found, value) or close(found, expected), words)
        demand(
            close(found, expected),
            f"with {layers} layers the rows should sum to one and be the product of (I + A) / 2",
        )


def _bend(x: Tensor) -> Tensor:
    """A function that saturates, of which the slope at 1 says little."""
    return torch.tanh(3 * x[0]) + x[0] * x[1] + x[2] ** 3


@exercise(_CHAPTER)
def integrated(answer: Answer) -> None:
    """Write `integrated(f, x, baseline, steps)`: the integrated gradients of each entry of `x`."""
    for seed in range(3):
        x, baseline = normal(3, seed=seed), normal(3, seed=seed + 10)
        found = tensor(answer(_bend, x.clone(), baseline.clone(), 400), (3,))
        leaf = x.clone().requires_grad_()
        slope = torch.autograd.grad(_bend(leaf), leaf)[0]
        change = _bend(x) - _bend(baseline)
        total = torch.zeros_like(x)
        for k in range(400):
            leaf = (baseline + (k + 0.5) / 400 * (x - baseline)).requires_grad_()
            total += torch.autograd.grad(_bend(leaf), leaf)[0] / 400
        for value, words in (
            (slope * (x - baseline), "the slope is needed all along the way, not at its end alone"),
            (total, "the mean slope is to be multiplied by how far the entry moves"),
            (total * x, "the way starts at the baseline: multiply by x - baseline"),
        ):
            demand(not close(found, value, 1e-3), words)
        demand(
            abs(number(found.sum()) - float(change)) < 2e-2,
            f"they should add up to {float(change):.4g}, the change of f, not to {float(found.sum()):.4g}",
        )
        demand(
            close(found, total * (x - baseline), 2e-2),
            "they add up, but not entry by entry; is the path a straight line from baseline to x?",
        )


@exercise(_CHAPTER)
def direct(answer: Answer) -> None:
    """Write `direct(writes, gain, unembedding)`: what each adds to the logits through a frozen RMSNorm."""
    for seed in range(3):
        writes, gain = normal(4, 6, seed=seed), normal(6, seed=seed + 10)
        unembedding = normal(5, 6, seed=seed + 20)
        found = tensor(answer(writes.clone(), gain.clone(), unembedding.clone()), (4, 5))
        scale = writes.sum(0).square().mean().sqrt()
        own = writes.square().mean(-1, keepdim=True).sqrt()
        expected = writes / scale * gain @ unembedding.T
        for value, words in (
            (
                writes / own * gain @ unembedding.T,
                "there is one norm, of the sum: its scale is held and is the same for all writes",
            ),
            (writes * gain @ unembedding.T, "the norm divides by its scale"),
            (writes / scale @ unembedding.T, "the norm multiplies by its weights"),
        ):
            demand(not close(found, value, 1e-4) or close(found, expected, 1e-4), words)
        demand(
            close(found, expected, 1e-4),
            "the rows should add up to the logits of the sum of all writes",
        )
