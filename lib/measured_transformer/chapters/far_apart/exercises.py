"""Exercises of the chapter on recall over a distance."""

from __future__ import annotations

import math

from measured_transformer.exercises.answers import Answer, close, demand, demand_number, number
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/far-apart"


@exercise(_CHAPTER)
def forget(answer: Answer) -> None:
    """Two numbers: the half-life in tokens at a bias of 1, and the bias that keeps 1/e over 256 tokens."""
    half, bias = answer.numbers("(a)", "(b)")
    gate = 1 / (1 + math.exp(-1))
    right = math.log(2) / -math.log(gate)
    slips = {
        1 / -math.log(gate): "that is until 1/e is left, not a half",
        math.log(2)
        / (1 - gate): "what is lost in each step is a share of what is left; use logarithms",
        0.5 / (1 - gate): "what is lost in each step is a share of what is left; use logarithms",
        math.log(2): "the gate is the sigmoid of its bias, not its exponential",
    }
    way = "the gate is the sigmoid of 1; how often can you multiply by it?"
    demand_number(half, right, way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        256.0: "that is the number of tokens",
        math.exp(-1 / 256): "that is the gate; which bias gives it?",
        math.log2(256): "the logarithm is the natural one",
    }
    way = "the 256th power of the gate shall be 1/e; invert the sigmoid"
    right = -math.log(math.expm1(1 / 256))
    demand_number(bias, right, way=way, name="(b)", within=0.002, slips=slips)


@exercise(_CHAPTER)
def paths(answer: Answer) -> None:
    """Four numbers: steps from a token to one 255 places later, for each kind of layer."""
    names = ("attention", "recurrence", "convolution", "dilated convolution")
    found = answer.numbers(*names)
    hints = (
        "every token is seen by every later one directly",
        "one step a token",
        "a causal kernel of width 3 reaches 2 places back; how many layers until 255?",
        "layer l reaches 2^(l-1) further; the reaches add up to 2^l - 1",
    )
    for value, right, name, hint in zip(found, (1.0, 255.0, 128.0, 8.0), names, hints, strict=True):
        demand_number(value, right, way=hint, name=name, within=0.001)


@exercise(_CHAPTER)
def bits(answer: Answer) -> None:
    """Write `bits(pairs, keys, values)`: what must be stored to answer every question, in bits."""
    for m, keys, values in ((3, 6, 6), (1, 4, 2), (8, 32, 32)):
        found = number(answer(m, keys, values))
        right = math.log2(math.comb(keys, m)) + m * math.log2(values)
        ordered = math.log2(math.perm(keys, m)) + m * math.log2(values)
        given = f"{m} pairs, {keys} keys and {values} values"
        demand(not close(found, right * math.log(2), 1e-4), "that is in nats: the base is to be 2")
        demand(
            m == 1 or not close(found, ordered, 1e-4),
            "the order of the pairs need not be stored, no answer depends on it",
        )
        demand(
            not close(found, m * math.log2(values), 1e-4),
            "those are the values; whose they are must be stored too",
        )
        demand(
            m == 1 or not close(found, m * math.log2(keys * values), 1e-4),
            "no key comes twice among the pairs",
        )
        demand(close(found, right, 1e-4), f"for {given}, {found:.4g} bits is not it")
