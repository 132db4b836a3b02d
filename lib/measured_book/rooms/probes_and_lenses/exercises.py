"""Exercises of the chapter `book/inside/probes-and-lenses`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
)
from measured_book.exercises.registry import exercise

SUBJECT = "probes"
"""The first word of the exercises' names."""
_PAGE = "book/inside/probes-and-lenses"


@exercise(_PAGE)
def by_heart(answer: Answer) -> None:
    """Three numbers: accuracy and selectivity for known words, and the accuracy for words never seen."""
    accuracy, selectivity, others = answer.numbers("(a)", "(b)", "(c)")
    demand_number(
        accuracy, 1.0, name="(a)", within=1e-3,
        way="which scores can a linear map give to linearly independent vectors?",
        slips={0.5: "that is chance; the probe knows which word it is"},
    )  # fmt: skip
    demand_number(
        selectivity, 0.0, name="(b)", within=1e-3,
        way="how well does it learn random labels of these words?",
        slips={0.5: "the control task is not at chance: its labels belong to words that the probe knows"},
    )  # fmt: skip
    demand_number(
        others, 0.5, name="(c)", within=1e-3,
        way="what do the vectors of the known words say about those of the others?",
        slips={1.0: "it knows the number of words that it has seen, and these it has not"},
    )  # fmt: skip


def _states(seed: int, width: int) -> tuple[Tensor, Tensor]:
    """Correlated states of two classes of unequal size."""
    random = torch.Generator().manual_seed(seed)
    labels = (torch.rand(200, generator=random) < 0.3).long()
    mix = torch.randn(width, width, generator=random, dtype=torch.float64)
    means = 2 * torch.randn(2, width, generator=random, dtype=torch.float64)
    noise = torch.randn(200, width, generator=random, dtype=torch.float64)
    return noise @ mix + means[labels] + 3, labels


def _leace(states: Tensor, labels: Tensor) -> Tensor:
    x = states - states.mean(0)
    c = states[labels == 1].mean(0) - states[labels == 0].mean(0)
    reader = torch.linalg.solve(x.T @ x / len(x), c)
    return states - (x @ reader)[:, None] * c / (c @ reader)


@exercise(_PAGE)
def leace(answer: Answer) -> None:
    """Write `leace(states, labels)` for two classes: the states without what a linear probe could read."""
    for seed, width in ((1, 2), (2, 6)):
        states, labels = _states(seed, width)
        found = answer(states.clone(), labels.clone())
        demand(
            isinstance(found, Tensor) and found.shape == states.shape,
            f"expected a tensor of shape {tuple(states.shape)}, got "
            f"{tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__}",
        )
        demand(
            close(found[labels == 0].mean(0), found[labels == 1].mean(0), 1e-6),
            "the means of the classes still differ, so a linear probe still reads them",
        )
        demand(
            close(found.mean(0), states.mean(0), 1e-6),
            "the mean of all states has moved: take away from x less the mean, not from x",
        )
        right = _leace(states, labels)
        far, least = ((one - states).square().sum(-1).mean() for one in (found, right))
        demand(
            float(far) < float(least) * (1 + 1e-6),
            f"the means are equal, but the states have moved by {float(far):.4g} on average (squared) where "
            f"{float(least):.4g} are enough; which vector reads the class in correlated states?",
        )
        demand(
            close(found, right, 1e-6), "the means are equal, but these are not the states of LEACE"
        )


Fit = Callable[[int], Sequence[float]]


def _code(labels: Sequence[int], fit: Fit, portions: Sequence[int]) -> float:
    bits = float(portions[0])
    for known, end in pairwise(portions):
        ones = fit(known)
        bits -= sum(math.log2(ones[i] if labels[i] else 1 - ones[i]) for i in range(known, end))
    return bits


@exercise(_PAGE)
def online_code(answer: Answer) -> None:
    """Write `online_code(labels, fit, portions)`: the bits that it takes to send labels in portions."""
    random = torch.Generator().manual_seed(5)
    labels = torch.randint(2, (40,), generator=random).tolist()
    noise = torch.rand(40, generator=random).tolist()

    def fit(known: int) -> list[float]:
        sure = known / (known + 4)
        return [
            0.5 + (0.45 if label else -0.45) * sure * u
            for label, u in zip(labels, noise, strict=True)
        ]

    for portions in ([4, 10, 20, 40], [1, 2, 40], [40]):
        found = number(answer(list(labels), fit, list(portions)))
        right = _code(labels, fit, portions)
        demand(
            not close(found, right * math.log(2), 1e-6),
            "that is in nats; a bit is a logarithm to the base two",
        )
        demand(
            close(found, right, 1e-6),
            f"with portions {portions} the code has {right:.4f} bits, got {found:.4f}; is each portion coded "
            "with the probe that was fitted on the labels before it, and the first with one bit a label?",
        )
