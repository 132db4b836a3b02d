"""Exercises of the chapter on the roles of heads."""

from __future__ import annotations

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    first,
    normal,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/one-head"


@exercise(_CHAPTER)
def mirror_weight(answer: Answer) -> None:
    """Write `mirror_weight(patterns)`: for each head its mean weight on the mirrored position."""
    n = 6
    mirror = torch.eye(n, dtype=torch.float64).flip(0)
    clear = torch.stack([mirror, torch.eye(n, dtype=torch.float64)])[None].repeat(3, 1, 1, 1)
    found = tensor(answer(clear), (2,), name="what `mirror_weight` returns")
    demand(
        close(found[0], 1.0), f"a head that reverses has all its weight there, not {found[0]:.3g}"
    )
    demand(close(found[1], 0.0), f"a head that looks at itself has none there, not {found[1]:.3g}")
    for n, size, heads in ((5, 4, 3), (1, 2, 1), (8, 1, 2)):
        patterns = normal(size, heads, n, n, seed=n).softmax(-1)
        found = tensor(answer(patterns), (heads,), name="what `mirror_weight` returns")
        expected = torch.zeros(heads, dtype=torch.float64)
        for query in range(n):
            expected += patterns[:, :, query, n - 1 - query].mean(0) / n
        wrong = first((found - expected).abs() > 1e-6)
        demand(
            not wrong,
            f"head {wrong[0]} of {heads} does not have its mean over sequences and queries"
            if wrong
            else "",
        )


@exercise(_CHAPTER)
def place_share(answer: Answer) -> None:
    """Write `place_share(patterns)`: the share of a head's deviations from even that the place explains."""
    name = "what `place_share` returns"
    same = normal(1, 5, 5, seed=1).softmax(-1).repeat(4, 1, 1)
    found = tensor(answer(same), (), name=name)
    demand(close(found, 1.0), f"a pattern that never changes is explained in full, not {found:.3g}")
    one = torch.eye(2, dtype=torch.float64)
    found = tensor(answer(torch.stack([one, one.flip(0)])), (), name=name)
    demand(
        close(found, 0.0),
        f"the mean of these two patterns is even, so the place explains nothing; got {found:.3g}",
    )
    for n, size in ((4, 6), (7, 3)):
        patterns = (2 * normal(size, n, n, seed=n)).softmax(-1)
        found = tensor(answer(patterns), (), name=name)
        demand(-1e-9 < found < 1 + 1e-9, f"a share lies between 0 and 1, got {found:.3g}")
        even = (patterns.mean(0) - 1 / n).square().sum()
        total = sum((each - 1 / n).square().sum() for each in patterns) / size
        about_mean = patterns.mean(0).square().sum() / patterns.square().sum((1, 2)).mean()
        demand(
            not close(found, about_mean),
            "this measures weights from zero; attention that is even deviates from nothing",
        )
        demand(
            close(found, even / total),
            "above: squares of the mean deviation; below: the mean over sequences of the squares",
        )


@exercise(_CHAPTER)
def seeds(answer: Answer) -> None:
    """How many seeds, none with the property, make "in at least half of them" refuted among forty tests."""
    slips = {
        5.0: "five are enough one-sided and alone; here both tails and forty tests count",
        6.0: "six are enough for a single test; forty tests make one such series likely",
        10.0: "the p-value doubles the smaller tail",
        12.0: "so many are enough, but it is not the smallest such number",
    }
    demand_number(
        answer.number(),
        11.0,
        way="double the chance that n fair coins all show tails, times forty, must fall below 0.05",
        within=1e-6,
        slips=slips,
    )
