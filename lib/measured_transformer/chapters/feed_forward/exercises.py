"""Exercises of the chapter on the feed-forward network."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from measured_transformer.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/feed-forward/feed-forward"


@exercise(_CHAPTER)
def by_hand(answer: Answer) -> None:
    """The two numbers that the network of three neurons writes for the token (1, 3)."""
    first, second = answer.numbers("first", "second")
    way = "one neuron at a time: weighted sum, bias, ReLU; then its row of W2"
    added = "the network's own two numbers are asked for, before they are added to the stream"
    slips = {
        -3.0: added,
        -6.0: "neuron 1 has a negative sum; what does ReLU make of it?",
        -8.0: "neuron 2 has a bias, which comes before the ReLU",
        -5.0: "neuron 3 has a negative sum; what does ReLU make of it?",
    }
    demand_number(first, -4.0, way=way, name="the first number", within=0.001, slips=slips)
    slips = {
        5.0: added,
        4.0: "neuron 2 has a bias, which comes before the ReLU",
        -1.0: "neuron 3 has a negative sum; what does ReLU make of it?",
    }
    demand_number(second, 2.0, way=way, name="the second number", within=0.001, slips=slips)


@exercise(_CHAPTER)
def parameters(answer: Answer) -> None:
    """Write `parameters(d, m, gated, bias)`: numbers in a network of m neurons on a stream of width d."""
    for d, m, gated, bias in (
        (2, 3, False, False), (2, 3, False, True), (2, 3, True, False), (2, 3, True, True),
        (768, 3072, False, True), (4096, 11008, True, False),
    ):  # fmt: skip
        found = number(answer(d, m, gated, bias))
        matrices = 3 if gated else 2
        weights = matrices * d * m
        biases = (matrices - 1) * m + d
        right = float(weights + biases * bias)
        shown = f"for d={d}, m={m}, gated={gated} and bias={bias} it gives {found:g}"
        if gated:
            plain = 2 * d * m + (m + d) * bias
            demand(not close(found, float(plain)), f"{shown}: the gate has a matrix of its own")
        if bias:
            demand(not close(found, float(weights)), f"{shown}: where are the biases?")
            demand(
                not close(found, float(weights + matrices * m)),
                f"{shown}: the last bias is added to the stream's width",
            )
            demand(
                not gated or not close(found, float(weights + m + d)),
                f"{shown}: the gate's neurons have biases as well",
            )
        demand(close(found, right), f"{shown}; draw the boxes of a small one and count")


@exercise(_CHAPTER)
def equal_width(answer: Answer) -> None:
    """Write `equal_width(d, m)`: neurons of a gated network with the weights of a plain one of m, no biases."""
    for d, m in ((6, 24), (768, 3072), (4096, 16384), (10, 30)):
        given: Any = answer(d, m)
        found = number(float(given) if isinstance(given, Fraction) else given)
        right = 2 * m / 3
        shown = f"for d={d} and m={m} it gives {found:g}"
        demand(not close(found, float(m)), f"{shown}: then the gated one is larger by half")
        demand(not close(found, m / 3), f"{shown}: one matrix of the plain network is lost")
        demand(not close(found, m / 2), f"{shown}: three matrices against two, not two to one")
        allowed = (right, float(2 * m // 3), float(-(-2 * m // 3)))
        demand(any(close(found, one) for one in allowed), f"{shown}; set 3 d m' equal to 2 d m")


@exercise(_CHAPTER)
def merged(answer: Answer) -> None:
    """Write `merged(w1, b1, w2, b2)`: one matrix and one bias for both layers without activation."""
    for seed, (d, m, out) in enumerate(((2, 3, 2), (3, 5, 4), (4, 1, 4))):
        w1, b1 = normal(d, m, seed=seed), normal(m, seed=seed + 10)
        w2, b2 = normal(m, out, seed=seed + 20), normal(out, seed=seed + 30)
        pair: Any = answer(w1, b1, w2, b2)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise Fault("the function shall return two things, the matrix and the bias")
        weight = tensor(pair[0], (d, out), name="the matrix")
        bias = tensor(pair[1], (out,), name="the bias")
        demand(close(weight, w1 @ w2), "the matrix is not that of one layer after the other")
        demand(
            not close(bias, b2), "the bias of the first layer passes through the second one as well"
        )
        demand(not close(bias, b1 @ w2), "the bias of the second layer is missing")
        demand(close(bias, b1 @ w2 + b2), "the matrix fits, the bias does not: what becomes of b1?")


@exercise(_CHAPTER)
def exclusive_or(answer: Answer) -> None:
    """Weights (w1, b1, w2, b2) of two ReLU neurons that give 1 where exactly one of two bits is 1."""
    given: Any = answer.value
    if not isinstance(given, (list, tuple)) or len(given) != 4:
        raise Fault("expected four things: w1, b1, w2 and b2")
    demand(not any(one is ... or one is None for one in given), "there is nothing to check yet")
    w1 = tensor(given[0], (2, 2), name="w1, a column a neuron,")
    b1 = tensor(given[1], (2,), name="b1")
    w2 = tensor(given[2], name="w2")
    if tuple(w2.shape) != (2, 1):
        w2 = tensor(w2, (2,), name="w2")
    b2 = tensor(given[3], name="b2")
    demand(b2.numel() == 1, f"b2 shall be one number, got {b2.numel()} of them")
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    found = (bits @ w1 + b1).relu() @ w2.flatten() + b2.item()
    right = (bits[:, 0] != bits[:, 1]).double()
    wrong = [
        f"{tuple(map(int, pair))} gives {value:.3g}"
        for pair, value, wanted in zip(bits.tolist(), found.tolist(), right.tolist(), strict=True)
        if not close(value, wanted)
    ]
    before = bits @ w1 + b1
    bent = ((before > 1e-9).any(0) & (before < -1e-9).any(0)).any()
    if wrong and not bent:
        raise Fault(f"{', '.join(wrong)}: no neuron changes its side between the four inputs")
    demand(not wrong, ", ".join(wrong))


@exercise(_CHAPTER)
def shapes(answer: Answer) -> None:
    """Write `network(x, w_in, w_out)` with ReLU and no biases, where both matrices are d by m."""
    for seed, (n, d, m) in enumerate(((3, 2, 5), (1, 4, 4), (6, 3, 12))):
        x, w_in, w_out = (
            normal(n, d, seed=seed),
            normal(d, m, seed=seed + 7),
            normal(d, m, seed=seed + 9),
        )
        found: Tensor = tensor(answer(x, w_in, w_out), (n, d))
        right = (x @ w_in).relu() @ w_out.T
        demand(
            not close(found, x @ w_in @ w_out.T),
            "the shapes fit, but nothing bends: where is the ReLU?",
        )
        if d == m:
            demand(
                not close(found, (x @ w_in).relu() @ w_out),
                "where d and m are equal the product works out either way, and this is the other one",
            )
        demand(close(found, right), "the values differ: which matrix comes first, which is turned?")
