"""Exercises of the chapter on mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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

_CHAPTER = "book/feed-forward/mixture-of-experts"


@exercise(
    _CHAPTER,
    Drawing(
        "Three tokens give the first of two experts the probabilities {first}, {second} and {third}, the "
        "second expert the rest, and each uses one expert. Two numbers: the weight by which the output for "
        "the third token is multiplied, and the balancing loss without its factor.",
        lambda chance: {
            "first": chance.choice((0.95, 0.85, 0.75)),
            "second": chance.choice((0.6, 0.65, 0.7)),
            "third": chance.choice((0.1, 0.2, 0.3)),
        },
    ),
)
def by_hand(answer: Answer, first: float = 0.9, second: float = 0.8, third: float = 0.4) -> None:
    """The weight of the third of three tokens (0.9, 0.1), (0.8, 0.2), (0.4, 0.6), and the balancing loss."""
    weight, found = answer.numbers("the weight", "the balancing loss")
    mean = (first + second + third) / 3
    right = 2 * (2 / 3 * mean + 1 / 3 * (1 - mean))
    slips = {
        third: "the third token asks the expert that it gives more to",
        1.0: "the probabilities are not divided by the sum of those that were chosen",
    }
    way = "the weight is the router's probability of the expert that is asked"
    demand_number(weight, 1 - third, way=way, name="the weight", within=0.002, slips=slips)
    slips = {
        right / 2: "the sum is multiplied by the number of experts",
        2 * (mean**2 + (1 - mean) ** 2): "shares are counted: how many tokens chose each expert",
    }
    way = f"two of three tokens choose the first expert, whose mean probability is {mean:.3g}"
    demand_number(found, right, way=way, name="the loss", within=0.002, slips=slips)


@exercise(_CHAPTER)
def routed(answer: Answer) -> None:
    """Write `routed(x, probabilities, experts, k)`: a layer that asks each expert for its own tokens alone."""
    for seed, (tokens, count, k) in enumerate(((6, 3, 1), (8, 4, 2), (5, 5, 5), (3, 6, 1))):
        x = normal(tokens, 4, seed=seed)
        p = (2 * normal(tokens, count, seed=seed + 20)).softmax(-1)
        matrices = [normal(4, 4, seed=100 + 10 * seed + e) for e in range(count)]
        asked: list[int] = [0] * count

        def expert(e: int, matrices: list[Tensor] = matrices, asked: list[int] = asked) -> Any:
            def call(rows: Tensor) -> Tensor:
                if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] != 4:
                    raise Fault("an expert takes rows of x: (some tokens, 4)")
                asked[e] += len(rows)
                written: Tensor = (rows @ matrices[e]).tanh()
                return written

            return call

        experts: list[Callable[[Tensor], Tensor]] = [expert(e) for e in range(count)]
        found = tensor(answer(x, p, experts, k), (tokens, 4))
        top = p.topk(k, dim=-1)
        every = torch.stack([(x @ m).tanh() for m in matrices], dim=1)
        picked = every.gather(1, top.indices[..., None].expand(-1, -1, 4))
        right = (top.values[..., None] * picked).sum(1)
        shown = f"for {tokens} tokens, {count} experts and k={k}"
        if k < count:
            demand(
                not close(found, (p[..., None] * every).sum(1)), f"{shown}: only k experts count"
            )
        demand(
            not close(found, picked.sum(1)) or close(found, right),
            f"{shown}: what an expert answers is multiplied by its probability",
        )
        if k > 1:
            even = (top.values / top.values.sum(-1, keepdim=True))[..., None] * picked
            demand(
                not close(found, even.sum(1)) or close(found, right),
                f"{shown}: here the probabilities are not divided by their sum",
            )
        demand(close(found, right), f"{shown} something else is written; do one token by hand")
        needed = [int((top.indices == e).sum()) for e in range(count)]
        demand(
            asked == needed,
            f"{shown} the values are right, but experts computed {sum(asked)} rows where "
            f"{sum(needed)} were asked for",
        )


@exercise(_CHAPTER)
def dropped(answer: Answer) -> None:
    """Write `dropped(choices, experts, factor)`: how many tokens find no place, one expert for each token."""
    for choices, experts, factor in (
        ([0, 0, 0, 1], 2, 1.0), ([0, 0, 0, 1], 2, 1.5), ([0, 1, 2, 0, 0, 0, 1], 3, 1.0),
        ([2, 2, 2, 2], 4, 1.25), ([0, 1, 2, 3], 4, 1.0),
    ):  # fmt: skip
        places = -(-factor * len(choices) // experts)
        counts = torch.bincount(torch.tensor(choices), minlength=experts)
        right = float((counts - places).clamp_min(0).sum())
        found = number(answer(torch.tensor(choices), experts, factor))
        shown = f"for the choices {choices}, {experts} experts and a factor of {factor} it gives {found:g}"
        down = factor * len(choices) // experts
        if down != places:
            lower = float((counts - down).clamp_min(0).sum())
            demand(
                not close(found, lower) or close(lower, right), f"{shown}: places are rounded up"
            )
        demand(
            not close(found, float(len(choices)) - right) or close(found, right),
            f"{shown}: those are the tokens that are served",
        )
        demand(close(found, right), f"{shown}; each expert has places of its own: {places:g}")


@exercise(_CHAPTER)
def pushed(answer: Answer) -> None:
    """Write `pushed(bias, chosen, step)`: the biases after one step of balancing without a loss."""
    for seed, (tokens, experts) in enumerate(((6, 3), (12, 4), (4, 2))):
        bias = normal(experts, seed=seed)
        chosen = torch.zeros(tokens, experts, dtype=torch.bool)
        chosen[torch.arange(tokens), torch.arange(tokens) // 2 % experts] = True
        chosen[0] = False
        chosen[0, -1] = True
        load = chosen.double().mean(0)
        way = (load.mean() - load).sign()
        found = tensor(answer(bias.clone(), chosen, 0.1), (experts,))
        demand(not close(found, bias - 0.1 * way), "that makes the busy ones still busier: a sign")
        demand(
            not close(found, bias + 0.1 * (load.mean() - load)),
            "the step has one size: only the sign of the difference counts",
        )
        demand(not close(found, 0.1 * way), "the step is added to the biases that there are")
        demand(
            close(found, bias + 0.1 * way),
            "compare each expert's load with the mean load, and move its bias by one step",
        )


@exercise(_CHAPTER)
def sizes(answer: Answer) -> None:
    """Write `sizes(d, m, layers, experts, active, rest)`: all parameters, and those that a token uses."""
    for d, m, layers, experts, active, rest in (
        (4, 8, 1, 4, 1, 100), (4, 6, 2, 8, 2, 10), (4096, 14336, 32, 8, 2, 1_604_587_520),
    ):  # fmt: skip
        given: Any = answer(d, m, layers, experts, active, rest)
        if not isinstance(given, (list, tuple)) or len(given) != 2:
            raise Fault("the function returns two numbers: all parameters, and those in use")
        total, used = number(given[0]), number(given[1])
        one, router = 3 * d * m, d * experts
        right = rest + layers * (experts * one + router), rest + layers * (active * one + router)
        shown = f"for d={d}, m={m}, layers={layers}, experts={experts}, active={active}"
        demand(
            not close(total, float(rest + layers * (experts * 2 * d * m + router))),
            f"{shown}: experts have a gate, so three matrices",
        )
        demand(
            not close(total, float(rest + layers * experts * one), 1e-12),
            f"{shown}: the router has a matrix, too",
        )
        demand(not close(total, float(right[1])), f"{shown}: all of them come first")
        demand(close(total, float(right[0]), 1e-12), f"{shown} there are {right[0]:,} parameters")
        demand(
            not close(used, float(rest + layers * active * one), 1e-12),
            f"{shown}: the router is used by every token",
        )
        demand(close(used, float(right[1]), 1e-12), f"{shown} a token uses {right[1]:,}")
