"""Exercises of the chapter on small steps."""

from __future__ import annotations

import math

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/residual/small-steps"


@exercise(_CHAPTER)
def turn(answer: Answer) -> None:
    """Write `turn(factor, k)`: by how many degrees write number k turns the stream, counted from 1."""
    for factor, k in ((0.1, 96), (1.0, 1), (2.0, 5), (0.3, 2), (10.0, 40)):
        found = number(answer(factor, k))
        before = math.sqrt(1 + (k - 1) * factor**2)
        right = math.degrees(math.atan(factor / before))
        shown = f"for a factor of {factor:g} and k={k} {found:.4g} is not it"
        slips = {
            math.atan(factor / before): "that is in radians",
            math.degrees(math.atan(factor / math.sqrt(1 + k * factor**2))): (
                "how many writes have there been before number k?"
            ),
            math.degrees(math.atan(factor / (1 + (k - 1) * factor))): (
                "at right angles the lengths do not add up, but their squares"
            ),
            math.degrees(math.atan(factor / before**2)): "that divides by a *squared* length",
            math.degrees(math.atan(before / factor)): "that is the angle to the write",
            math.degrees(math.atan(factor)): "that is the first write; the stream has grown since",
            math.degrees(math.asin(min(1.0, factor / before))): (
                "the sum is the long side of the triangle, not the stream"
            ),
        }
        near = close(found, right, 1e-4)
        for value, words in slips.items():
            demand(near or not close(found, value, 1e-4), f"{shown}: {words}")
        demand(near, f"{shown}: draw the triangle of the stream, the write and their sum")


@exercise(_CHAPTER)
def factor_for(answer: Answer) -> None:
    """Write `factor_for(blocks, share)`: the factor that leaves this share of the squared length."""
    for blocks, share in ((48, 0.25), (1, 0.5), (12, 0.9), (6, 0.01)):
        found = number(answer(blocks, share))
        squared = (1 / share - 1) / (2 * blocks)
        right = math.sqrt(squared)
        shown = f"for {blocks} blocks and a share of {share:g} {found:.4g} is not it"
        slips = {
            squared: "that is the square of the factor",
            math.sqrt(1 / (share * 2 * blocks)): (
                "then the writes alone would be the whole; the embedding is a part of it"
            ),
            math.sqrt(2) * right: "how often does a block write?",
            math.sqrt((1 / share**2 - 1) / (2 * blocks)): (
                "that leaves this share of the length, not of the squared length"
            ),
            math.sqrt((1 / (1 - share) - 1) / (2 * blocks)): "that leaves the writes this share",
        }
        near = abs(found - right) <= 1e-6 * right
        for value, words in slips.items():
            demand(near or abs(found - value) > 1e-6 * value, f"{shown}: {words}")
        demand(near, f"{shown}: what is the squared length of the last state, with this factor?")


@exercise(_CHAPTER)
def split(answer: Answer) -> None:
    """Write `split(up, down, factor)`: both times one number, so that factor times as much is written."""
    for seed, factor in enumerate((0.25, 0.1, 2.0)):
        up, down, x = normal(3, 5, seed=seed), normal(5, 3, seed=seed + 9), normal(4, 3, seed=seed)
        found = answer(up, down, factor)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two matrices, the new `up` and the new `down`",
        )
        new_up = tensor(found[0], shape=(3, 5), name="the new `up`")
        new_down = tensor(found[1], shape=(5, 3), name="the new `down`")
        written = (x @ up).relu() @ down
        times = float(((x @ new_up).relu() @ new_down).norm() / written.norm())
        demand(
            abs(times - factor) <= 1e-6 * factor,
            f"for a factor of {factor:g} the network writes {times:.4g} times as much; "
            "what becomes of a number in front of both matrices?",
        )
        shares = [
            float((new * old).sum() / old.square().sum())
            for new, old in ((new_up, up), (new_down, down))
        ]
        demand(
            torch.allclose(new_up, shares[0] * up) and torch.allclose(new_down, shares[1] * down),
            "it writes as much as it should, but each matrix shall be multiplied by *one* number",
        )
        demand(
            abs(shares[0] - shares[1]) <= 1e-6 * factor,
            f"it writes as much as it should, but `up` is multiplied by {shares[0]:.4g} and `down` by "
            f"{shares[1]:.4g}; both shall get the same number",
        )


@exercise(_CHAPTER)
def shift(answer: Answer) -> None:
    """Write `shift(blocks, factor, move)`: change of the last state by a step, over its length before."""
    for blocks, factor, move in ((48, 0.1, 0.01), (3, 2.0, 0.01), (12, 1.0, 0.1), (1, 0.5, 0.2)):
        found = number(answer(blocks, factor, move))
        writes = 2 * blocks
        whole = math.sqrt(1 + writes * factor**2)
        right = writes * move / whole
        shown = f"for {blocks} blocks, a factor of {factor:g} and a move of {move:g} {found:.4g} is not it"
        slips = {
            writes * move: "that is the change itself; divide it by the length of the last state",
            writes * move / whole**2: "that divides by the *squared* length",
            math.sqrt(writes) * move / whole: (
                "the moves all point the same way, so their lengths add up"
            ),
            blocks * move / math.sqrt(1 + blocks * factor**2): "how often does a block write?",
            writes * move / (1 + writes * factor): (
                "the parts of the stream stand at right angles to one another"
            ),
            writes * move / math.sqrt(1 + writes * (factor + move) ** 2): (
                "that is the length after the step, and not even that for moves in one direction"
            ),
            writes * factor * move / whole: (
                "the move is a length already; the factor is no part of it"
            ),
        }
        near = abs(found - right) <= 1e-6 * right
        for value, words in slips.items():
            demand(near or abs(found - value) > 1e-6 * value, f"{shown}: {words}")
        demand(near, f"{shown}: by how much is the sum of all writes changed, and how long was it?")
