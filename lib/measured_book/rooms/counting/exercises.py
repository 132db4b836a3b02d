"""Exercises of the chapter on counting parameters and operations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from measured_book.exercises.answers import Answer, Fault, close, demand, number
from measured_book.exercises.registry import exercise

_CHAPTER = "book/feed-forward/counting"


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
