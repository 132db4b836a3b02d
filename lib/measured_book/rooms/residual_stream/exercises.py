"""Exercises of the chapter on the residual stream as a sum."""

from __future__ import annotations

from typing import Any

import torch
from measured_transformer.analysis.residual import ledger, random_model
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    first,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

SUBJECT = "residual"
"""The first word of the exercises' names."""

_CHAPTER = "book/residual/residual-stream"


@exercise(_CHAPTER)
def trace(answer: Answer) -> None:
    """Write `trace(x, writes)`: each write's dot product with the state it meets, and the length after it.

    Two lists (or vectors), with one number for each row of the writes.
    """
    for d, count, seed in ((2, 3, 2), (5, 7, 3), (2, 1, 1)):
        x, writes = normal(d, seed=seed), normal(count, d, seed=10 + seed)
        came = answer(x, writes)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected two results, the dot products and the lengths")
        products = tensor(came[0], (count,), name="the dot products")
        lengths = tensor(came[1], (count,), name="the lengths")
        after = x + writes.cumsum(0)
        before = after - writes
        text = "the lengths are those of the writes; asked for are those of the stream"
        demand(not close(lengths, writes.norm(dim=1)), text)
        text = "the lengths are those before each write; the stream's last state is missing"
        demand(not close(lengths, before.norm(dim=1)), text)
        demand(
            not close(lengths, after.square().sum(1)), "a length is the root of a sum of squares"
        )
        wrong = (lengths - after.norm(dim=1)).abs() > 1e-6
        at = first(wrong)
        demand(
            not at,
            f"the length after write {at[0] + 1} is not that of the sum so far" if at else "",
        )
        text = "each write is multiplied by the first state; in between the stream has changed"
        demand(count == 1 or not close(products, writes @ x), text)
        text = "each write is multiplied by the state after it, which holds the write itself"
        demand(not close(products, (writes * after).sum(1)), text)
        demand(
            close(products, (writes * before).sum(1)),
            "a dot product with the state it meets is wrong",
        )


@exercise(_CHAPTER)
def logit_ledger(answer: Answer) -> None:
    """Write `logit_ledger(model, tokens)`: what embedding, writes and the last norm's bias add to the logits.

    One row each, in this order, of a pre-norm model with LayerNorms; their sum is the model's logits.
    """
    for seed, layers in ((4, 1), (5, 2)):
        model, tokens = random_model(seed, n_layers=layers)
        with torch.no_grad():
            logits = model(tokens)
            found = tensor(answer(model, tokens), (2 * layers + 2, *logits.shape))
            right, own = (_rows(model, tokens, own=each) for each in (False, True))
        text = (
            "each part is divided by a scale of its own; the model divides the sum, by one number"
        )
        demand(not close(found[:-1], own[:-1], 1e-6), text)
        text = "the last norm centres the sum; nothing of that is taken off the parts"
        demand(
            not close(found[:-1], _rows(model, tokens, own=False, centre=False)[:-1], 1e-6), text
        )
        text = "the last row is not what the bias of the last norm adds to the logits"
        demand(close(found[-1], right[-1], 1e-6), text)
        at = first((found - right).abs().flatten(1).amax(1) > 1e-6)
        text = f"row {at[0]} is not what that part adds to the logits" if at else ""
        if at and close(found.sum(0), logits, 1e-6):
            text = f"the sum is right, and yet {text}"
        demand(not at, text)


@torch.no_grad()
def _rows(model: Any, tokens: Tensor, *, own: bool, centre: bool = True) -> Tensor:
    """What embedding, writes and bias add, with the divisor of the sum or each with its own."""
    account, norm = ledger(model, tokens), model.final_norm
    parts = torch.cat([account.states[:1], account.writes])
    centred = parts - parts.mean(-1, keepdim=True)
    whole = centred if own else centred.sum(0, keepdim=True)
    divisor = (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    rows = (centred if centre else parts) / divisor * norm.weight
    return torch.cat([rows, norm.bias.expand_as(rows[:1])]) @ model.unembedding.weight.T


@exercise(_CHAPTER)
def write_size(answer: Answer) -> None:
    """Write `write_size(r)`: the mean square of the entries that a network with r times the width writes."""
    for r in (0.25, 4.0, 8.0, 1.0):
        found = number(answer(r))
        right = 2 * r / (1 + r) ** 2
        if r == 1.0:  # here some of the mistakes look right
            demand(close(found, right), "for r = 1 it is not right, though it is for others")
            continue
        text = "twice too large for every r: what does ReLU leave of a mean square?"
        demand(not close(found, 2 * right), text)
        demand(
            not close(found, right / 2),
            "half of what it should be for every r; is ReLU counted twice?",
        )
        demand(not close(found, right**0.5), "that is the root of the mean square")
        text = "that is the mean square inside, behind the first matrix or its ReLU; the second is missing"
        demand(not any(close(found, inner / (1 + r)) for inner in (1.0, 2.0)), text)
        text = "without the first matrix: what reaches the second no longer has the mean square 1"
        demand(not close(found, 2 * r / (1 + r)), text)
        text = f"for r = {r:g} weights drawn by the rule write another mean square; follow one entry through"
        demand(close(found, right), text)
