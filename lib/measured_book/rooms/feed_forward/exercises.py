"""Exercises of the chapter on the feed-forward network."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    number,
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
def operations(answer: Answer) -> None:
    """Write `operations(n, d, h, kv, d_head, m, gated)`: those of attention and of the network for n tokens."""
    for n, d, h, kv, d_head, m, gated in (
        (10, 8, 2, 2, 4, 32, False), (7, 8, 4, 1, 4, 20, True), (512, 768, 12, 12, 64, 3072, False),
        (8192, 4096, 32, 8, 128, 14336, True),
    ):  # fmt: skip
        found: Any = answer(n, d, h, kv, d_head, m, gated)
        if not isinstance(found, (list, tuple)) or len(found) != 2:
            raise Fault("the function shall return two numbers: attention's and the network's")
        attention, network = number(found[0]), number(found[1])
        maps, pairs = 4 * n * d * d_head * (h + kv), 4 * n * n * h * d_head
        shown = f"for n={n}, d={d}, h={h}, kv={kv}, d_head={d_head} it gives {attention:g}"
        demand(not close(2 * attention, float(maps + pairs)), f"{shown}: two for a multiply-add")
        demand(not close(attention, float(maps)), f"{shown}: where are the scores and the mixing?")
        demand(
            h == kv or not close(attention, float(8 * n * d * d_head * h + pairs)),
            f"{shown}: keys and values have fewer heads",
        )
        demand(
            not close(attention, float(maps + pairs / 2)),
            f"{shown}: scores are one product over pairs, mixing is another",
        )
        demand(close(attention, float(maps + pairs)), f"{shown}; go through it product by product")
        right = 2 * n * d * m * (3 if gated else 2)
        shown = f"for n={n}, d={d}, m={m} and gated={gated} it gives {network:g}"
        demand(
            not close(network, 4.0 * n * d * m) or not gated, f"{shown}: the gate is a third map"
        )
        demand(not close(2 * network, float(right)), f"{shown}: two for a multiply-add")
        demand(close(network, float(right)), f"{shown}; each matrix meets each token once")


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
