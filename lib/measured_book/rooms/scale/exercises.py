"""Exercises of the chapter on the scale."""

from __future__ import annotations

import math
import random

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise


@exercise(
    "book/attention/scale",
    Drawing(
        "Three variances, all entries independent: (a) of undivided scores where query entries have mean 0 and "
        "variance {query}, key entries mean 0 and variance {key}, in a head of width {width}; "
        "(b) the same head, "
        "query entries of mean 0 and variance 1, key entries of mean 1 and variance 1; (c) of "
        "scores divided by "
        "sqrt({stream}), entries of mean 0 and variance 1, a stream of width {stream} with {heads} heads.",
        lambda chance: {
            "query": chance.choice((2, 3, 9)),
            "key": chance.choice((0.5, 0.2, 1.5)),
            "width": chance.choice((32, 64, 96)),
            "stream": 64 * chance.choice((8, 12, 16)),
            "heads": chance.choice((4, 16)),
        },
    ),
)
def variance(
    answer: Answer,
    query: int = 4,
    key: float = 0.25,
    width: int = 128,
    stream: int = 512,
    heads: int = 8,
) -> None:
    """Three variances: of scores with entries of variance 4 and 1/4; keys of mean 1; by d instead of d_h."""
    first, second, third = answer.numbers("(a)", "(b)", "(c)")
    demand_number(
        first,
        query * key * width,
        name="(a)",
        way="each product has the product of the variances, and there are d of them",
        slips={
            (query + key) * width: (
                "variances of independent factors of mean zero are multiplied, not added"
            ),
            math.sqrt(query * key * width): "this is the standard deviation",
            query * key: "the score is not divided by anything here",
        },
    )
    demand_number(
        second,
        2.0 * width,
        name="(b)",
        way="find the variance of a single product first",
        slips={
            1.0 * width: "a key of mean one has a second moment that is larger than its variance",
            1.5 * width: "count the mean of the query too: it is zero",
        },
    )
    demand_number(
        third,
        1 / heads,
        name="(c)",
        way="start from the variance of the undivided score of one head",
        slips={
            1.0 * heads: (
                "the heads are narrower than the stream, so the divisor is too large, not too small"
            ),
            math.sqrt(1 / heads): "this is the standard deviation",
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


@exercise("book/attention/scale")
def qk_norm(answer: Answer) -> None:
    """Write `qk_norm(queries, keys, gain_q, gain_k)`: scores of queries and keys that were normalised first."""
    for shape, n_keys in (((2, 3, 8), 4), ((5, 16), 7)):
        queries, gain_q = normal(*shape, seed=1), 1 + normal(shape[-1], seed=3) / 4
        keys = normal(*shape[:-2], n_keys, shape[-1], seed=2)
        gain_k = 1 + normal(shape[-1], seed=4) / 4
        expected = _normed(queries, gain_q) @ _normed(keys, gain_k).transpose(-2, -1)
        expected = expected / math.sqrt(shape[-1])
        found = tensor(answer(queries, keys, gain_q, gain_k), tuple(expected.shape))
        demand(
            not close(found, expected * math.sqrt(shape[-1]), 1e-4),
            "normalised entries have size one, so scores still spread by the root of the width: divide",
        )
        demand(
            not close(found * math.sqrt(shape[-1]), expected, 1e-4),
            "these vectors have length one: RMSNorm leaves a length of the root of the width",
        )
        longer = tensor(answer(10 * queries, keys, gain_q, gain_k), tuple(expected.shape))
        demand(close(longer, found, 1e-4), "a query ten times as long gets other scores")
        demand(close(found, expected, 1e-4), "scores differ from those of normalised vectors")


def _normed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return gain * x / x.square().mean(-1, keepdim=True).sqrt()


@exercise("book/attention/scale")
def plus_one(answer: Answer) -> None:
    """Write `plus_one(scores)`: a softmax with a one in the denominator, for scores of any size."""
    for shape, spread in (((3,), 1), ((2, 5), 4), ((2, 3, 4, 6), 1)):
        scores = spread * normal(*shape, seed=len(shape))
        expected = scores.exp() / (1 + scores.exp().sum(-1, keepdim=True))
        found = tensor(answer(scores), shape)
        demand(
            not close(found, scores.softmax(-1), 1e-6), "this is the softmax: each row sums to one"
        )
        demand(close(found, expected, 1e-6), "the weights differ from e^s / (1 + sum of e^s)")
    large = torch.tensor([1000.0, 999.0], dtype=torch.float64)
    found = tensor(answer(large), (2,))
    demand(close(found, large.softmax(-1), 1e-6), "with huge scores the one should hardly matter")
    nothing = tensor(answer(-large), (2,))
    demand(
        close(nothing, torch.zeros(2), 1e-9),
        "where all scores are far below zero, the row should sum to nothing: if you subtract the largest "
        "score, subtract it from the score of the one too",
    )


def _scores(chance: random.Random) -> dict[str, float]:
    highest = chance.randint(11, 19)
    return {
        "highest": highest / 10,
        "second": (highest - chance.choice((2, 3, 4, 6, 7, 8))) / 10,
        "lowest": -chance.randint(2, 9) / 10,
    }


@exercise(
    "book/attention/scale",
    Drawing(
        "Sparsemax by hand: weights of the scores {highest}, {second} and {lowest}, and where the third joins.",
        _scores,
    ),
)
def sparsemax(
    answer: Answer, highest: float = 1.2, second: float = 0.8, lowest: float = -0.5
) -> None:
    """Sparsemax by hand: weights of the scores 1.2, 0.8 and -0.5, and where the third joins."""
    weight_1, weight_2, weight_3, joins = answer.numbers(
        "first", "second", "third", "the third joins at"
    )
    threshold = (highest + second - 1) / 2
    for name, value, wanted in (
        ("first", weight_1, highest - threshold),
        ("second", weight_2, second - threshold),
    ):
        demand_number(
            value,
            wanted,
            name=f"the {name} weight",
            way="two scores stay; lower both by the same number until they sum to one",
            slips={
                0.5: "lowering by one number keeps the difference of the two scores",
            },
        )
    demand_number(
        weight_3,
        0.0,
        name="the third weight",
        way="what lies below the threshold has no weight at all",
        slips={-1.0: "a weight is never negative: cut it off at zero"},
    )
    demand_number(
        joins,
        threshold,
        name="the score at which the third joins",
        way="it joins when it rises above the threshold of the other two",
        slips={
            second: "it need not be as large as the second score",
            0.0: "the threshold need not be zero",
            lowest: "there it has no weight yet",
        },
    )
