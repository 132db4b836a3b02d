"""Exercises of the chapter on Transformers and recurrent networks."""

from __future__ import annotations

import math

import torch
from measured_transformer.variants.recurrent import recurrence
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
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "recurrent"
"""The first word of the exercises' names."""
_CHAPTER = "book/translation/transformer-or-recurrent"


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: the half-life in tokens at a bias of {bias}, and the bias that keeps 1/e over {tokens} "
        "tokens.",
        lambda chance: {
            "bias": chance.choice((0.5, 1.5, 2.0, 2.5, 3.0)),
            "tokens": chance.choice((16, 28, 48, 100, 128, 200)),
        },
    ),
)
def forget(answer: Answer, bias: float = 1, tokens: int = 64) -> None:
    """Two numbers: the half-life in tokens at a bias of 1, and the bias that keeps 1/e over 64 tokens."""
    half, long = answer.numbers("(a)", "(b)")
    gate = 1 / (1 + math.exp(-bias))
    right = math.log(2) / -math.log(gate)
    slips = {
        1 / -math.log(gate): "that is until 1/e is left, not a half",
        math.log(2)
        / (1 - gate): "what is lost in each step is a share of what is left; use logarithms",
        0.5 / (1 - gate): "what is lost in each step is a share of what is left; use logarithms",
        math.log(2) / bias: "the gate is the sigmoid of its bias, not its exponential",
    }
    way = f"the gate is the sigmoid of {bias}; how often can you multiply by it?"
    demand_number(half, right, way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        float(tokens): "that is the number of tokens",
        math.exp(-1 / tokens): "that is the gate; which bias gives it?",
        math.log2(tokens): "the logarithm is the natural one",
    }
    way = f"the {tokens}th power of the gate is to be 1/e; invert the sigmoid"
    right = -math.log(math.expm1(1 / tokens))
    demand_number(long, right, way=way, name="(b)", within=0.002, slips=slips)


def _one_step(
    x: Tensor, output: Tensor, state: Tensor, read: Tensor, recur: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    write, keep, new, show = (read @ x + recur @ output + bias).chunk(4)
    state = keep.sigmoid() * state + write.sigmoid() * new.tanh()
    return show.sigmoid() * state.tanh(), state


@exercise(_CHAPTER)
def step(answer: Answer) -> None:
    """Write `step(x, output, state, read, recur, bias)`: the next output and state of an LSTM, as a pair."""
    for seed, d_input, d_state in ((0, 3, 2), (1, 2, 5)):
        x, output, state = (
            normal(n, seed=seed + i) for i, n in enumerate((d_input, d_state, d_state))
        )
        read, recur = (normal(4 * d_state, n, seed=seed + 5 + n) for n in (d_input, d_state))
        bias = normal(4 * d_state, seed=seed + 9)
        given = (x, output, state, read, recur, bias)
        found = answer(*given)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "the function shall return two things, the output and the state",
        )
        right_output, right_state = _one_step(*given)
        said, kept = (
            tensor(one, (d_state,), name=name)
            for one, name in zip(found, ("the output", "the state"), strict=True)
        )
        demand(
            not close(kept, right_output) or close(said, right_output),
            "these are the output and the state in the wrong order",
        )
        gates = (read @ x + recur @ output + bias).chunk(4)
        unkept = state + gates[0].sigmoid() * gates[2].tanh()
        demand(not close(kept, unkept), "the old state is multiplied by the forget gate")
        unsquashed = gates[1].sigmoid() * state + gates[0].sigmoid() * gates[2]
        demand(not close(kept, unsquashed), "what is new goes through a tanh")
        swapped = gates[0].sigmoid() * state + gates[1].sigmoid() * gates[2].tanh()
        demand(not close(kept, swapped), "the order of the gates is input, forget, new, output")
        demand(close(kept, right_state), "the state is not that of the formula")
        demand(
            not close(said, gates[3].sigmoid() * right_state),
            "the state goes through a tanh before it is shown",
        )
        demand(close(said, right_output), "the state is right, the output is not")


@exercise(_CHAPTER)
def scan(answer: Answer) -> None:
    """Write `scan(keep, new)`: all states of h = keep * h + new, in steps that grow with log2 of the length."""
    for n in (1, 2, 5, 8, 13):
        keep = torch.sigmoid(normal(n, 3, seed=n))
        new = normal(n, 3, seed=n + 50)
        found = tensor(answer(keep.clone(), new.clone()), (n, 3))
        right = recurrence(keep, new)
        if close(found, right):
            continue
        shown = f"for {n} positions the states are not those of the loop"
        demand(not close(found, new), f"{shown}: these are the numbers that were written")
        demand(not close(found, new.cumsum(0)), f"{shown}: nothing has been forgotten")
        once = new.clone()
        once[1:] += keep[1:] * new[:-1]
        demand(
            not close(found, once), f"{shown}: each holds two tokens; go on, twice as far each time"
        )
        wrong_gates, reach = new.clone(), 1
        while reach < n:
            earlier = wrong_gates[:-reach].clone()
            wrong_gates[reach:] += keep[reach:] * earlier
            reach *= 2
        demand(
            not close(found, wrong_gates), f"{shown}: the gates have to be multiplied up as well"
        )
        demand(False, shown)


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
