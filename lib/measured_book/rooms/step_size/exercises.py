"""Exercises of the chapter on the size of a step."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    first,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/norms/step-size"


@exercise(_CHAPTER)
def growth(answer: Answer) -> None:
    """Write `growth(write, k)`: the stream's length after k writes, two numbers: with norms, without."""
    for write, k in ((0.75, 2), (0.75, 1), (0.5, 24), (1.0, 6), (0.2, 48)):
        found = answer(write, k)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two numbers, with norms and without",
        )
        normed, bare = number(found[0], "with norms"), number(found[1], "without")
        shown = f"for write={write:g} and k={k} it gives {normed:.4g} and {bare:.4g}"
        right = math.sqrt(1 + k * write**2), (1 + write**2) ** (k / 2)
        if k > 1:
            demand(
                not (close(normed, right[1]) and close(bare, right[0])),
                f"{shown}: the two are exchanged; whose writes grow with the stream?",
            )
            demand(not close(normed, right[0] ** 2), f"{shown}: the first is a *squared* length")
            demand(not close(bare, right[1] ** 2), f"{shown}: the second is a *squared* length")
            demand(
                not close(bare, (1 + write) ** k),
                f"{shown}: the second adds lengths as if all writes pointed along the stream",
            )
            demand(
                not close(normed, 1 + k * write),
                f"{shown}: the first adds lengths as if all writes pointed along the stream",
            )
            demand(
                not close(bare, right[0]),
                f"{shown}: without norms, how long is the second write?",
            )
        demand(
            close(normed, right[0]), f"{shown}; with norms, add up squared lengths, one at a time"
        )
        demand(
            close(bare, right[1]),
            f"{shown}; without norms, by which factor does each write stretch?",
        )


@exercise(_CHAPTER)
def branch_size(answer: Answer) -> None:
    """Write `branch_size(n_layers)`: how long writes may be, over the stream's length, for it to double."""
    for layers in (2, 1, 6, 12, 48):
        found = number(answer(layers))
        shown = f"for {layers} blocks it gives {found:.4g}"
        right = math.sqrt(2 ** (1 / layers) - 1)
        demand(
            not close(found, 2 ** (1 / layers) - 1) or layers == 1,
            f"{shown}: that is the square of a length",
        )
        demand(
            not close(found, 2 ** (1 / (2 * layers)) - 1),
            f"{shown}: at right angles, squared lengths are added and not lengths",
        )
        demand(
            not close(found, math.sqrt(4 ** (1 / layers) - 1)),
            f"{shown}: how often does a block write?",
        )
        demand(
            not close(found, math.sqrt(2 ** (1 / (2 * layers)) - 1)),
            f"{shown}: then the *squared* length doubles, not the length",
        )
        demand(
            not close(found, math.sqrt(3 / (2 * layers))),
            f"{shown}: that is for writes of one length; here each is measured against a stream that grew",
        )
        demand(
            close(found, right),
            f"{shown}; each write multiplies the squared length by the same factor: by which?",
        )


@exercise(_CHAPTER)
def first_gradients(answer: Answer) -> None:
    """Write `first_gradients(x, up, gradient)`: of `up` and `down` in x + relu(x @ up) @ down, down = 0."""
    for seed in range(3):
        x, gradient = normal(4, 3, seed=seed), normal(4, 3, seed=seed + 10)
        up = normal(3, 5, seed=seed + 20)
        found = answer(x, up, gradient)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two tensors, the gradient of `up` and that of `down`",
        )
        of_up = tensor(found[0], shape=(3, 5), name="the gradient of `up`")
        of_down = tensor(found[1], shape=(5, 3), name="the gradient of `down`")
        hidden = (x @ up).relu()
        demand(
            not close(of_down, torch.zeros(5, 3)),
            "the gradient of `down` is zero: then nothing would ever move; what does `down` multiply?",
        )
        demand(
            not close(of_down, (x @ up).T @ gradient),
            "the gradient of `down` uses what comes before the ReLU",
        )
        right = hidden.T @ gradient
        demand(
            close(of_down, right),
            f"the gradient of `down` is another one, first at {first((of_down - right).abs() > 1e-6)}; "
            "it is the hidden row's transpose times the gradient of what is written",
        )
        demand(
            close(of_up, torch.zeros(3, 5)),
            "the gradient of `up` is not what autograd finds; through which matrix must it come back?",
        )


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
def prefix(answer: Answer) -> None:
    """Write `prefix(moves, join)`: all results of the shell game, in as few calls of `join` as can be."""
    for length in (2, 3, 8, 6, 1, 13):
        generator = torch.Generator().manual_seed(length)
        moves = torch.stack([torch.randperm(3, generator=generator) for _ in range(length)])
        calls: list[int] = []

        def join(first: torch.Tensor, then: torch.Tensor, calls: list[int] = calls) -> torch.Tensor:
            calls.append(len(first))
            joined: torch.Tensor = then.gather(-1, first)
            return joined

        found = tensor(answer(moves.clone(), join), shape=(length, 3)).long()
        right = [moves[0]]
        for move in moves[1:]:
            right.append(move[right[-1]])
        shown = f"for {length} moves"
        backwards = [moves[0]]
        for move in moves[1:]:
            backwards.append(backwards[-1][move])
        demand(
            torch.equal(found, torch.stack(right))
            or not torch.equal(found, torch.stack(backwards)),
            f"{shown} the results are those of the moves in the other order: first what came first",
        )
        wrong = (found != torch.stack(right)).any(-1)
        demand(
            not bool(wrong.any()),
            f"{shown} result {int(wrong.int().argmax()) + 1} is another one; after each call, how many "
            "moves does each row stand for?",
        )
        rounds = math.ceil(math.log2(length)) if length > 1 else 0
        demand(
            len(calls) <= rounds,
            f"{shown} the results are right, but it took {len(calls)} calls of `join` where {rounds} do; "
            "join results that each stand for several moves already",
        )
