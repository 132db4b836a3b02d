"""Exercises of the chapter `book/positions/rotary-and-alibi`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from measured_transformer.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    first,
    normal,
    tensor,
)
from measured_transformer.exercises.registry import exercise
from measured_transformer.parts.positions import Pairing, rotation, sinusoidal_encoding

SUBJECT = "positions"
"""The first word of the exercises' names."""
_RELATIVE = "book/positions/rotary-and-alibi"


@exercise(_RELATIVE)
def pairing(answer: Answer) -> None:
    """Write `pairing(d)`: which old column (pairs made of halves) comes to stand at each place of a head."""
    for d in (2, 8, 4, 12):
        found = tensor(answer(d), (d,))
        order = found.round().long()
        demand(close(found, order.double()), "an order consists of whole numbers")
        text = f"each of the columns 0 to {d - 1} has to be taken once"
        demand(torch.equal(order.sort().values, torch.arange(d)), text)
        _check_pairs(order, d)
        q, k = normal(2, 2, 3, 7, d, seed=d)
        same = _scores(q[..., order], k[..., order], "interleaved")
        demand(close(same, _scores(q, k, "halves")), "the scores of the two codes differ")


def _check_pairs(order: Tensor, d: int) -> None:
    for i in range(d // 2):
        left, right = order[2 * i : 2 * i + 2].tolist()
        text = f"your code turns columns {2 * i} and {2 * i + 1} together, the old ones {left} and {right}"
        demand(abs(left - right) == d // 2, f"{text}, which were no pair")
        demand(
            left < right,
            f"{text}: a pair, but its two numbers are exchanged, so it turns the other way",
        )
        demand(left == i, f"{text}: a pair, but one that turned at another speed")


def _scores(queries: Tensor, keys: Tensor, pairs: Pairing) -> Tensor:
    turn = rotation(queries.shape[-2], queries.shape[-1], pairing=pairs, dtype=torch.float64)
    return turn.apply(queries) @ turn.apply(keys).transpose(-2, -1)


@exercise(_RELATIVE)
def two_back(answer: Answer) -> None:
    """Write `two_back(d)`: W_Q and W_K, each d by d, of a head that looks at the position two before its own.

    Positions are sinusoidal rows of width d, without tokens; queries are rows @ W_Q.
    """
    for d, n in ((64, 40), (16, 20)):
        came = answer(d)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected two matrices, W_Q and W_K")
        w_q, w_k = tensor(came[0], (d, d), name="W_Q"), tensor(came[1], (d, d), name="W_K")
        rows = sinusoidal_encoding(n, d, dtype=torch.float64)
        scores = (rows @ w_q) @ (rows @ w_k).T
        demand(not close(scores.std(), 0.0), "all scores are equal")
        best = scores.argmax(dim=-1)
        where = torch.arange(n)
        inner = slice(2, n - 2)
        text = "each query scores its own position highest: these two matrices turn no hand"
        demand((best != where)[inner].any(), text)
        text = (
            "each query scores the position two AFTER its own highest: a hand turns the wrong way"
        )
        demand((best != where + 2)[inner].any(), text)
        wrong = best[2:] != where[2:] - 2
        at = first(wrong)
        text = f"query {at[0] + 2} scores key {int(best[at[0] + 2])} highest" if at else ""
        demand(not at, text)


@exercise(_RELATIVE)
def slopes(answer: Answer) -> None:
    """Two numbers: (a) which of eight ALiBi heads, counted from one; (b) a share in the steepest head."""
    head, share = answer.numbers("(a)", "(b)")
    demand(1 <= head <= 8 and head == round(head), "(a): the heads are numbered from 1 to 8")
    text = "(a): with that head the key 64 back gets a factor of"
    demand(head == 5, f"{text} {math.exp(-64 * 2**-head):.2g}; another one is closer to a tenth")
    slips = {
        1.0: "the keys before it get a share too",
        math.exp(-0.5): "that is the weight of the next key beside its own",
        1 - math.exp(-1): "the steepest of eight heads has not the slope one",
    }
    way = "each key's weight is that of the one after it times the same factor"
    demand_number(share, 1 - math.exp(-0.5), name="(b)", within=0.005, way=way, slips=slips)
