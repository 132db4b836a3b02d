"""Exercises of *Thirty blocks*."""

from __future__ import annotations

import math

import torch
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

_CHAPTER = "book/real-language-model/thirty-blocks"


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: (a) how many times longer a stream gets that grows by {percent} % in each of {blocks} "
        "blocks; (b) the cosine between a stream before and after a write of {write} of its length at a "
        "right angle.",
        lambda chance: {
            "percent": chance.choice((2, 3, 5.5, 7)),
            "blocks": chance.choice((10, 16, 24)),
            "write": chance.choice((0.4, 0.5, 0.7)),
        },
    ),
)
def growth(answer: Answer, percent: float = 4.5, blocks: int = 28, write: float = 0.3) -> None:
    """Two numbers: how many times longer a stream gets in 28 blocks, and a cosine before and after a write."""
    longer, turned = answer.numbers("(a)", "(b)")
    way = "each block multiplies the length by the same factor"
    slips = {
        1
        + blocks * percent / 100: "that adds the percents; growth of a length in percent multiplies"
    }
    demand_number(
        longer, (1 + percent / 100) ** blocks, way=way, name="(a)", within=0.01, slips=slips
    )
    way = "two legs at a right angle: the tangent of the angle is the one over the other"
    slips = {
        write: "that is the ratio of the lengths; asked for is a cosine",
        math.atan(write): "that is the angle; asked for is its cosine",
    }
    demand_number(turned, 1 / math.hypot(1, write), way=way, name="(b)", within=0.003, slips=slips)


@exercise(_CHAPTER)
def angle(answer: Answer) -> None:
    """Write `angle(before, after)`: the mean angle of states (text, d_model), as a share of half a turn."""
    for texts, width, seed in ((4, 6, 0), (7, 3, 1), (1, 5, 2)):
        before, after = normal(texts, width, seed=seed), 3 * normal(texts, width, seed=seed + 10)
        cosine = torch.nn.functional.cosine_similarity(before, after, dim=-1)
        right = cosine.clamp(-1, 1).arccos().mean() / math.pi
        found = number(answer(before.clone(), after.clone()))
        whole = torch.nn.functional.cosine_similarity(before.flatten(), after.flatten(), dim=0)
        for slip, text in (
            (cosine.mean(), "that is the cosine; the angle is its arccosine"),
            (1 - cosine.mean(), "one minus the cosine is no angle; take the arccosine"),
            (right * math.pi, "as a share of half a turn: divide by pi"),
            (right * 180, "as a share of half a turn, not in degrees"),
            (whole.arccos() / math.pi, "one angle for each text, and then their mean"),
        ):
            demand(close(slip, float(right)) or not close(found, float(slip)), text)
        demand(close(found, float(right)), f"expected {float(right):.4f}, got {found:.4f}")


@exercise(_CHAPTER)
def repaired(answer: Answer) -> None:
    """Write `repaired(direct, frozen, total)`: shares that later sublayers and the norm make up."""
    for blocks, seed in ((5, 0), (29, 1)):
        direct = -normal(blocks, seed=seed).abs() - 0.1
        later = 0.4 * normal(blocks, seed=seed + 1).abs()
        norm = 0.2 * normal(blocks, seed=seed + 2).abs() + 0.01
        frozen, total = direct + later, direct + later + norm
        right = torch.stack((-later.sum() / direct.sum(), -norm.sum() / frozen.sum()))
        found = tensor(answer(direct.clone(), frozen.clone(), total.clone()), (2,))
        for slip, text in _slips(direct, frozen, total):
            demand(not close(found, slip), text)
        demand(close(found, right), f"expected {right.tolist()}, got {found.tolist()}")


def _slips(direct: Tensor, frozen: Tensor, total: Tensor) -> list[tuple[Tensor, str]]:
    """Answers that are likely and wrong."""
    later, norm = frozen - direct, total - frozen
    return [
        (
            torch.stack((later.sum() / direct.sum(), norm.sum() / frozen.sum())),
            "what is made up counts above zero: mind the sign",
        ),
        (
            torch.stack((-(later / direct).mean(), -(norm / frozen).mean())),
            "sum over the blocks first; a mean of ratios is ruled by those that lose next to nothing",
        ),
        (
            torch.stack((-later.sum() / direct.sum(), -norm.sum() / direct.sum())),
            "the norm gives back a share of what is lost at a frozen norm, not of the direct part",
        ),
    ]
