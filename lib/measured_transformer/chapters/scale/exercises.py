"""Exercises of the chapter on the scale."""

from __future__ import annotations

import math

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_transformer.exercises.registry import exercise


@exercise("book/attention/scale")
def variance(answer: Answer) -> None:
    """Three variances: of scores with entries of variance 4 and 1/4; keys of mean 1; by d instead of d_h."""
    first, second, third = answer.numbers("(a)", "(b)", "(c)")
    demand_number(
        first,
        128.0,
        name="(a)",
        way="each product has the product of the variances, and there are d of them",
        slips={
            4.25 * 128: "variances of independent factors of mean zero are multiplied, not added",
            math.sqrt(128): "this is the standard deviation",
            1.0: "the score is not divided by anything here",
        },
    )
    demand_number(
        second,
        256.0,
        name="(b)",
        way="find the variance of a single product first",
        slips={
            128.0: "a key of mean one has a second moment that is larger than its variance",
            192.0: "count the mean of the query too: it is zero",
        },
    )
    demand_number(
        third,
        0.125,
        name="(c)",
        way="start from the variance of the undivided score of one head",
        slips={
            8.0: "the heads are narrower than the stream, so the divisor is too large, not too small",
            math.sqrt(0.125): "this is the standard deviation",
            1.0: "this is the variance after division by the root of a head's width",
        },
    )


@exercise("book/attention/scale")
def softmax_backward(answer: Answer) -> None:
    """Write `softmax_backward(weights, gradient)`: the gradient at the scores, without building a Jacobian."""
    for shape, seed in (((3,), 0), ((5,), 1), ((2, 4), 2), ((2, 3, 4, 7), 3)):
        scores = 2 * normal(*shape, seed=seed)
        arriving = normal(*shape, seed=seed + 10)
        leaf = scores.clone().requires_grad_()
        weights = leaf.softmax(-1)
        (expected,) = torch.autograd.grad(weights, leaf, arriving)
        found = tensor(answer(weights.detach(), arriving), shape)
        demand(
            close(found.sum(-1), torch.zeros(shape[:-1]), 1e-6),
            "the gradient of a row does not sum to zero, although adding one number to all of its "
            "scores changes no weight",
        )
        demand(close(found, expected, 1e-6), "the gradient is not the derivative of the softmax")
    sure = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    found = tensor(answer(sure, normal(3, seed=7)), (3,))
    demand(
        close(found, torch.zeros(3), 1e-9), "a row that is certain still lets a gradient through"
    )


@exercise("book/attention/scale")
def fold_scale(answer: Answer) -> None:
    """Write `fold_scale(query, bias, d_head)`: a weight and a bias that make the scale unnecessary."""
    for n_heads, d_head, d_model in ((1, 4, 6), (3, 5, 7)):
        x = normal(9, d_model, seed=1)
        weight = normal(n_heads * d_head, d_model, seed=2)
        bias = normal(n_heads * d_head, seed=3)
        keys = normal(n_heads, 9, d_head, seed=4)
        found = answer(weight, bias, d_head)
        demand(
            isinstance(found, tuple) and len(found) == 2, "expected a pair: the weight and the bias"
        )
        folded = tensor(found[0], tuple(weight.shape)), tensor(found[1], tuple(bias.shape))

        def scores(
            weight: torch.Tensor,
            bias: torch.Tensor,
            x: torch.Tensor = x,
            keys: torch.Tensor = keys,
        ) -> torch.Tensor:
            queries = (x @ weight.T + bias).unflatten(1, keys.shape[::2]).transpose(0, 1)
            return queries @ keys.transpose(1, 2)

        wanted, got = scores(weight, bias) / math.sqrt(d_head), scores(*folded)
        if not close(got, wanted, 1e-6):
            still = close(
                scores(folded[0], folded[1] * 0), scores(weight, bias * 0) / d_head**0.5, 1e-6
            )
            demand(not still, "scores are right without a bias and wrong with one")
            demand(
                n_heads == 1,
                "scores of a single head are right, those of several are not: mind which width counts",
            )
            demand(False, "undivided scores after folding differ from divided ones before")
