"""Exercises of the chapter on the feed-forward network."""

from __future__ import annotations

from typing import Any

import torch

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/feed-forward/feed-forward"


@exercise(
    _CHAPTER,
    Drawing(
        "The two numbers that the chapter's network of three neurons writes for the token ({one}, {two}).",
        lambda chance: {"one": chance.randint(-5, 5), "two": chance.randint(4, 8)},
    ),
)
def by_hand(answer: Answer, one: int = 1, two: int = 3) -> None:
    """The two numbers that the network of three neurons writes for the token (1, 3)."""
    found = answer.numbers("first", "second")
    sums, biases = (one - two, one + two - 2, -one), (0, -2, 0)
    writes = ((1, 0), (-2, 1), (1, 3))
    way = "one neuron at a time: weighted sum, bias, ReLU; then its row of W2"
    for i, name in enumerate(("the first number", "the second number")):
        right = sum(max(each, 0) * write[i] for each, write in zip(sums, writes, strict=True))
        slips = {
            float(right + (one, two)[i]): (
                "the network's own two numbers are asked for, before they are added to the stream"
            )
        }
        for n in range(3):
            if sums[n] < 0:
                told = f"neuron {n + 1} has a negative sum; what does ReLU make of it?"
                slips.setdefault(float(right + sums[n] * writes[n][i]), told)
            free = max(sums[n] - biases[n], 0) - max(sums[n], 0)
            told = f"neuron {n + 1} has a bias, which comes before the ReLU"
            slips.setdefault(float(right + free * writes[n][i]), told)
        demand_number(found[i], float(right), way=way, name=name, within=0.001, slips=slips)


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
    demand(b2.numel() == 1, f"b2 should be one number, got {b2.numel()} of them")
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
def lookup(answer: Answer) -> None:
    """Write `lookup(signs, writes)`: a ReLU network that writes a row of its own for each token."""
    for seed, (bits, some) in enumerate(((2, 4), (3, 8), (4, 5), (1, 2))):
        signs = 2.0 * ((torch.arange(2**bits)[:, None] >> torch.arange(bits)) & 1).double() - 1
        signs = signs[torch.randperm(2**bits, generator=torch.Generator().manual_seed(seed))[:some]]
        writes = normal(some, 3, seed=seed + 40)
        given: Any = answer(signs, writes)
        if not isinstance(given, (list, tuple)) or len(given) != 3:
            raise Fault("the function shall return three things: w1, b1 and w2")
        w1, b1, w2 = (tensor(one, name=n) for one, n in zip(given, ("w1", "b1", "w2"), strict=True))
        demand(
            w1.ndim == 2 and w1.shape[0] == bits,
            f"w1 has a row for each of the {bits} signs, got the shape {tuple(w1.shape)}",
        )
        m = w1.shape[1]
        demand(tuple(w2.shape) == (m, 3), f"w2 has a row for each of the {m} neurons and 3 columns")
        demand(b1.numel() in (1, m), f"b1 has a number for each of the {m} neurons")
        neurons = (signs @ w1 + b1).relu()
        found = neurons @ w2
        demand(
            bits == 1 or not close(found, (signs @ w1).relu() @ w2) or close(found, writes),
            "without a bias a neuron answers to tokens that share most of its signs",
        )
        demand(
            not close(found, neurons.sum(1, keepdim=True) * writes) or close(found, writes),
            "each token is told apart, but its neuron says too much or too little: mend the bias",
        )
        demand(
            close(found, writes),
            f"for {some} tokens of {bits} bits something else is written; how large is the sum of a "
            "neuron whose weights are the token's own signs, and of one that differs in one sign?",
        )


@exercise(_CHAPTER)
def both(answer: Answer) -> None:
    """Write `both(looks, mean)`: 1 where both bits are set and 0 elsewhere, from what two heads hand over."""
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).double()
    looks, mean = bits.amax(1), bits.mean(1)
    found = tensor(answer(looks, mean), (4,))
    demand(not close(found, looks), "that is 1 where any of the bits is set")
    demand(not close(found, 2 * (looks - mean)), "that is 1 where the bits differ")
    demand(not close(found, mean), "one bit alone gives one half, and should give nothing")
    demand(close(found, bits.prod(1)), "it is wrong for a pair; subtract one from twice the other?")
    looks, mean = normal(5, seed=1), normal(5, seed=2)
    demand(
        close(tensor(answer(looks, mean), (5,)), 2 * mean - looks),
        "it is right for exact bits; what follows has only weighted sums, so write it as one",
    )
