"""Exercises of the chapters on positions."""

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
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise
from measured_transformer.parts.positions import Pairing, rotation, sinusoidal_encoding

_VECTORS = "book/positions/positional-encoding"
_RELATIVE = "book/positions/rotary-and-alibi"
_LONGER = "book/positions/extrapolation"
_LAYERS = "book/positions/surviving"


@exercise(_VECTORS)
def similarity(answer: Answer) -> None:
    """Three numbers for d = 4 and base 10000: s(1), s(2), and the whole distance below 10 of the largest s."""
    one, two, largest = answer.numbers("s(1)", "s(2)", "the distance")
    way = "a pair of frequency w adds cos(w k); with d = 4 there are two pairs"
    for k, found in ((1, one), (2, two)):
        fast, slow = math.cos(k), math.cos(k / 100)
        slips = {
            fast: "that is the fast pair alone",
            (fast + slow) / 2: "similarity is the dot product, not divided by its largest value",
            fast + math.cos(k / 10): "the second pair is too fast: its exponent is 2i / d",
            math.cos(math.radians(k))
            + math.cos(math.radians(k / 100)): "the angles are in radians",
            math.sin(k) + math.sin(k / 100): "sine times sine plus cosine times cosine is a cosine",
        }
        demand_number(found, fast + slow, way=way, name=f"s({k})", within=0.001, slips=slips)
    text = "the distance: s(0) is the largest of all, but asked for is a distance of at least 1"
    demand(largest >= 1, text)
    text = f"the distance: s({largest:.0f}) is not the largest; when is the fast pair nearly where it began?"
    demand(largest == 6, text)


@exercise(_VECTORS)
def add_positions(answer: Answer) -> None:
    """Write `add_positions(x, table)`: x, of shape (batch, position, d), plus the first rows of the table."""
    for batch, n, d in ((3, 4, 6), (1, 3, 4), (5, 2, 4), (2, 7, 6)):
        table = sinusoidal_encoding(9, d, dtype=torch.float64)
        x = normal(1, n, d, seed=n).expand(batch, n, d).clone()
        found = tensor(answer(x, table), (batch, n, d))
        added = found - x
        text = "two equal sequences of one batch come out different: a position counts along which axis?"
        demand(close(added, added[:1].expand_as(added)), text)
        text = "the same is added at every position of a sequence"
        demand(n == 1 or not close(added[:, 0], added[:, 1]), text)
        demand(close(added[0, 0], table[0]), "the first token does not get the table's first row")
        demand(close(added[0], table[:n]), "a later token does not get the row of its own position")


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


@exercise(_VECTORS)
def base(answer: Answer) -> None:
    """Write `base(n, d)`: the base with which the slowest pair turns exactly once in n positions."""
    for n, d in ((100, 64), (1000, 8), (50, 4)):
        found = number(answer(n, d))
        demand(found > 1, "a base is larger than 1: the later pairs turn more slowly")
        turns = n * found ** (-(d - 2) / d) / (2 * math.pi)
        text = "with your base the slowest pair goes through one radian; a turn has more"
        demand(not close(turns * 2 * math.pi, 1.0, 1e-4), text)
        text = "the slowest pair is not of frequency 1 / base: which exponent has the last of the d / 2 pairs?"
        demand(not close(found, n / (2 * math.pi), 1e-4), text)
        text = f"with your base the slowest pair turns {turns:.4g} times in {n} positions"
        demand(close(turns, 1.0, 1e-6), text)


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


@exercise(_LONGER)
def turned_pairs(answer: Answer) -> None:
    """How many of 32 rotary pairs make a full turn within 2048 positions, base 10000."""
    found = answer.number()
    slips = {
        20.0: "pairs are counted from i = 0",
        27.0: "a full turn is more than one radian",
        11.0: "the exponent of pair i is 2i / d, and d is the width, not the number of pairs",
    }
    demand(found == round(found), "a number of pairs is whole")
    way = "compare the positions that pair i needs for one turn with the trained length"
    demand_number(found, 21.0, way=way, within=1e-6, slips=slips)


@exercise(_LONGER)
def gaps(answer: Answer) -> None:
    """Two numbers: the mean distance of neighbours among n ordered positions drawn from 512, n = 32 and 256."""
    way = "the positions drawn leave gaps before, between and after them, all alike on average"
    for n, found, name in zip((32, 256), answer.numbers("(a)", "(b)"), ("(a)", "(b)"), strict=True):
        slips = {
            512 / n: "nearly: before the first and after the last there is a gap as well",
            511 / (n - 1): "the first need not be position 0, nor the last position 511",
            512 / n - 1: "a neighbour is at least one away",
        }
        demand_number(found, 513 / (n + 1), name=name, within=0.003, way=way, slips=slips)


@exercise(_LAYERS)
def diluted(answer: Answer) -> None:
    """Two numbers: (a) the variance each of 24 sublayers writes; (b) what 24 norms leave of an amplitude."""
    variance, amplitude = answer.numbers("(a)", "(b)")
    slips = {
        1 / 24: "the position has not variance one",
        0.5: "there are 24 sublayers",
        1 / 96: "half of the sum is the position's, so the other half is as large as it",
        math.sqrt(1 / 48): "asked for is a variance; of independent numbers variances add",
    }
    demand_number(variance, 1 / 48, name="(a)", within=1e-3, way="variances add", slips=slips)
    slips = {
        2**-24: "a norm divides by the standard deviation, not by the variance",
        1
        / 25: "without the norms it would be so, of the variance; each norm shrinks what is there",
        1 / 5: "without the norms it would be so; each norm shrinks what is there",
    }
    way = "what does one norm divide by, and how often?"
    demand_number(amplitude, 2**-12, name="(b)", within=1e-3, way=way, slips=slips)
