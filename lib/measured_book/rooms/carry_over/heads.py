"""Heads that are taken away: one at a time in three ways, in pairs, and in growing sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import FRESH, MORE, number_of, ranks_agree, texts
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import Sweep, begin, heads_of
from measured_book.smollm2.texts import DATA

Head = tuple[int, int]
"""Block and number, both from 0."""
READ, LENGTH = 2, 12
"""Texts of each kind, and their length."""
WAYS = ("zero", "mean", "resample")
PAIRS = {
    "zero and mean": ("zero", "mean"),
    "zero and resample": ("zero", "resample"),
    "mean and resample": ("mean", "resample"),
}
ASKED = 10
"""Heads that are taken away one at a time in a draw: one in every third block."""
TOGETHER = 4
"""Pairs of heads, of each kind."""


def asked(number: int) -> list[Head]:
    """The heads of a draw: one in every third block, another one in each draw."""
    return [(block, (number + block) % 9) for block in range(number % 3, 30, 3)]


@measurement(
    seeds=MORE,
    coords={
        "how": WAYS,
        "asked": tuple(range(ASKED)),
        "pair": tuple(PAIRS),
        "pairs": ("one block", "two blocks"),
    },
    tolerance={"agree": 0.05, "rise": 0.01, "left_over": 0.05},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def heads(seed: int) -> dict[str, Any]:
    """By how much the loss rises without one head, in three ways, and without two."""
    seed += FRESH
    sweep, chosen = begin(texts(seed, READ, LENGTH)), asked(number_of(seed))
    plain = sweep.losses().double().mean()

    def rise(which: Sequence[Head], how: Any = "zero") -> float:
        with sweep.without(heads_of(which), how):
            state = sweep.onward(min(block for block, _ in which))
        return float(sweep.losses(state).double().mean() - plain)

    rises = {how: torch.tensor([rise([one], how) for one in chosen]) for how in WAYS}
    single = {one: float(value) for one, value in zip(chosen, rises["zero"], strict=True)}
    far = [(chosen[i], chosen[i + ASKED // 2]) for i in range(1, 1 + TOGETHER)]
    near = []
    for block, head in chosen[1 : 1 + 2 * TOGETHER : 2]:
        other = (block, (head + 4) % 9)
        single[other] = rise([other])
        near.append(((block, head), other))
    left = []
    for pairs in (near, far):
        joint = np.array([rise(pair) for pair in pairs])
        summed = np.array([single[one] + single[other] for one, other in pairs])
        left.append(float(np.abs(joint - summed).sum() / np.abs(joint).sum()))
    return {
        "rise": (("how", "asked"), torch.stack(list(rises.values())).numpy()),
        "agree": (
            ("pair",),
            [ranks_agree(rises[one], rises[other]) for one, other in PAIRS.values()],
        ),
        "left_over": (("pairs",), left),
    }


# In growing sets ----------------------------------------------------------------------------------

REMOVED = (0, 10, 20, 34, 51, 68, 90, 112, 135, 180, 270)
"""Numbers of heads that are taken away, of 270."""
RANDOM = (68, 135)
WORTH = 0.01
"""Share of what all heads are worth that their going may cost."""
STEEPEST = 8
"""Heads among which the critical one is looked for."""


@measurement(
    seeds=MORE,
    coords={
        "order": ("gradient", "random"),
        "removed": REMOVED,
        "end": ("highest", "lowest"),
    },
    tolerance={"curve": 0.1, "quarter": 0.1, "critical": 0.05, "share": 0.05},
    pretrained=NEEDS,
    data=DATA,
)
def orders(seed: int) -> dict[str, Any]:
    """The loss when heads go in the order of the gradient and in random order, and without the critical one."""
    seed += FRESH
    ranked, sweep = begin(texts(seed, READ, LENGTH)), begin(texts(seed + 5, READ, LENGTH))
    slope = steepness(ranked.tokens)
    order = [divmod(int(i), 9) for i in slope.flatten().argsort()]
    drawn = torch.randperm(len(order), generator=make_generator(seed, "order of heads")).tolist()
    whole = lost(sweep, [])
    curve = [lost(sweep, order[:n]) for n in REMOVED]
    at_random = [
        lost(sweep, [order[i] for i in drawn[:n]]) if n in RANDOM else float("nan") for n in REMOVED
    ]
    allowed = whole + WORTH * (curve[-1] - whole)
    kept = [n for n, loss in zip(REMOVED, curve, strict=True) if loss <= allowed]
    reached = max((n for n in kept if all(m in kept for m in REMOVED if m <= n)), default=0)
    before = lost(ranked, [])
    costly = max(order[-STEEPEST:], key=lambda head: lost(ranked, [head]) - before)
    return {
        "curve": (("order", "removed"), [curve, at_random]),
        "share": reached / len(order),
        "quarter": (("end",), [lost(sweep, order[-68:]), curve[REMOVED.index(68)]]),
        "critical": lost(sweep, [costly]) - whole,
        "slope": (("layer", "head"), slope.double().numpy()),
    }


def steepness(tokens: Int[Tensor, "text position"]) -> Float[Tensor, "block head"]:
    """How steeply the loss would fall or rise if a head were turned down, mean over texts of the size.

    The size of the sum, over positions, of what a head mixes times the loss's gradient at it (Michel et al.,
    2019), over the root of the sum of squares in its block.
    """
    model = smollm2().model
    with (
        torch.enable_grad(),
        capture(model, "blocks.*.attention.mixed", gradients=True) as seen,
    ):
        logits = model(tokens)[:, :-1]
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
        ).backward()
    found = []
    for i in range(len(model.blocks)):
        mixed = seen[f"blocks.{i}.attention.mixed"]
        assert mixed.grad is not None
        size = (mixed.detach() * mixed.grad).sum((-2, -1)).abs().mean(0)
        found.append(size / size.norm().clamp_min(1e-12))
    return torch.stack(found)


@torch.no_grad()
def lost(sweep: Sweep, which: Sequence[Head]) -> float:
    """The loss with some heads set to zero."""
    if not which:
        return float(sweep.losses().double().mean())
    with sweep.without(heads_of(which)):
        state = sweep.onward(min(block for block, _ in which))
    return float(sweep.losses(state).double().mean())
