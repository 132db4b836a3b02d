"""Exercises of the chapter `book/positions/rotary-and-alibi`."""

from __future__ import annotations

import math

import torch
from measured_transformer.parts.attention import causal_mask
from measured_transformer.parts.positions import Pairing, rotation
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    first,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""
_RELATIVE = "book/positions/rotary-and-alibi"


@exercise(_RELATIVE)
def turn(answer: Answer) -> None:
    """Write `turn(x, base)`: row p of x turned by position p, neighbours paired, x of shape (position, d)."""
    for n, d, base in ((2, 2, 10000.0), (5, 4, 10000.0), (40, 16, 10000.0), (7, 6, 100.0)):
        x = normal(n, d, seed=n)
        found = tensor(answer(x, base), (n, d))
        demand(close(found[0], x[0]), "the row at position 0 has turned; it should stay as it is")
        right = _turned(x, "interleaved", base)
        if not close(found, right):
            _blame(found, x, base)
            at = first((found - right).abs() > 1e-6)
            raise Fault(
                f"entry {at[1]} at position {at[0]} is off: by which angle does its pair turn?"
            )


def _blame(found: Tensor, x: Tensor, base: float) -> None:
    """Name the mistake that leads to a wrong rotation."""
    d = x.shape[1]
    demand(
        close(found.norm(dim=1), x.norm(dim=1)),
        "lengths have changed: cosine and sine of one and the same angle belong to a pair",
    )
    backwards = _turned(x, "interleaved", base, sign=-1)
    demand(not close(found, backwards), "the pairs turn the wrong way: (1, 0) goes to (cos, sin)")
    demand(not close(found, _turned(x, "halves", base)), "entry i is paired with entry i + d/2")
    for angles, text in (
        (base ** (-torch.arange(0, d // 2, dtype=torch.float64) / d), "exponent is 2i/d, not i/d"),
        (torch.ones(d // 2, dtype=torch.float64), "all pairs turn at the same rate"),
    ):
        demand(d == 2 or not close(found, _at_rates(x, angles)), text)


def _turned(x: Tensor, pairs: Pairing, base: float, sign: int = 1) -> Tensor:
    n, d = x.shape
    return rotation(sign * torch.arange(n), d, base=base, pairing=pairs, dtype=x.dtype).apply(
        x[None, None]
    )[0, 0]


def _at_rates(x: Tensor, rates: Tensor) -> Tensor:
    angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
    pairs = torch.view_as_complex(x.unflatten(1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1)


@exercise(_RELATIVE)
def convert(answer: Answer) -> None:
    """Write `convert(W, n_heads)`: W_Q or W_K, trained with pairs of neighbours, for code that pairs halves.

    W has shape (n_heads * d_head, d_model), the heads below one another, as in `nn.Linear`.
    """
    for heads, d, width in ((1, 8, 5), (3, 4, 8), (2, 2, 4)):
        w_q, w_k = normal(2, heads * d, width, seed=heads)
        shape = (heads * d, width)
        new_q = tensor(answer(w_q, heads), shape)
        new_k = tensor(answer(w_k, heads), shape)
        same_rows = close(new_q.sort(dim=0).values, w_q.sort(dim=0).values)
        demand(same_rows, "the rows are no reordering of the old ones")
        order = (new_q[:, None] - w_q[None]).abs().sum(-1).argmin(dim=1)
        home = (order // d == torch.arange(heads * d) // d).all()
        demand(bool(home), "rows have moved from one head to another")
        _check_order(order[:d], d)
        x = normal(7, width, seed=9)
        was = _scores(x @ w_q.T, x @ w_k.T, heads, "interleaved")
        demand(close(_scores(x @ new_q.T, x @ new_k.T, heads, "halves"), was), "the scores differ")


def _check_order(order: Tensor, d: int) -> None:
    for i in range(d // 2):
        left, right = int(order[i]), int(order[i + d // 2])
        text = (
            f"the other code turns rows {i} and {i + d // 2} of a head together; there now stand the old "
            f"{left} and {right}"
        )
        demand(left // 2 == right // 2, f"{text}, which were no pair")
        demand(left < right, f"{text}: a pair, but exchanged, so it turns the other way")
        demand(left == 2 * i, f"{text}: a pair, but one that turned at another rate")


def _scores(queries: Tensor, keys: Tensor, heads: int, pairs: Pairing) -> Tensor:
    q, k = (x.unflatten(1, (heads, -1)).transpose(0, 1)[None] for x in (queries, keys))
    turned = rotation(len(queries), q.shape[-1], pairing=pairs, dtype=torch.float64)
    return turned.apply(q) @ turned.apply(k).transpose(-2, -1)


@exercise(_RELATIVE)
def previous(answer: Answer) -> None:
    """Write `previous(d)`: q and k, d numbers each, the same for all tokens, of a head that looks one back.

    Rotary positions with neighbours paired, a scale of 1/sqrt(d) and a causal mask; at least nine tenths of
    the weight must go to the position before one's own.
    """
    for d, n in ((16, 40), (64, 200)):
        came = answer(d)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected two vectors, q and k")
        q, k = tensor(came[0], (d,), name="q"), tensor(came[1], (d,), name="k")
        queries, keys = (_turned(x.expand(n, d), "interleaved", 10000.0) for x in (q, k))
        scores = (queries @ keys.T / math.sqrt(d)).masked_fill(~causal_mask(n), -math.inf)
        pattern = scores.softmax(dim=-1)
        best, where = pattern.argmax(dim=-1), torch.arange(n)
        demand(
            not close(pattern[-1], torch.full((n,), 1 / n, dtype=pattern.dtype)),
            "all keys get the same weight: q and k must have some length",
        )
        text = "each query looks at its own position: q and k point the same way"
        demand(not (best == where)[1:].all(), text)
        wrong = best[1:] != where[1:] - 1
        at = first(wrong)
        text = f"query {at[0] + 1} of {n} looks at key {int(best[at[0] + 1])}" if at else ""
        demand(not at, text)
        least = float(pattern[where[1:], where[1:] - 1].min())
        demand(
            least >= 0.9,
            f"the right key, but with d={d} its weight is only {least:.2f}: what makes a softmax sharper?",
        )


@exercise(
    _RELATIVE,
    Drawing(
        "ALiBi's slopes of eight heads are 2^-1, 2^-2, ..., 2^-8; all dot products are equal and the "
        "sequence is long. Two numbers: (a) in which head, counted from one, the key {back} back gets "
        "closest to a tenth of the weight of the key at the query itself; (b) the share of all weight that "
        "goes to the query's own position in the steepest head.",
        lambda chance: {"back": chance.choice((8, 16, 32, 128, 256))},
    ),
)
def slopes(answer: Answer, back: int = 64) -> None:
    """Two numbers: (a) which of eight ALiBi heads, counted from one; (b) a share in the steepest head."""
    head, share = answer.numbers("(a)", "(b)")
    demand(1 <= head <= 8 and head == round(head), "(a): the heads are numbered from 1 to 8")
    text = f"(a): with that head the key {back} back gets a factor of"
    factors = {h: math.exp(-back * 2.0**-h) for h in range(1, 9)}
    right = min(factors, key=lambda h: abs(factors[h] - 0.1))
    demand(head == right, f"{text} {factors[int(head)]:.2g}; another one is closer to a tenth")
    slips = {
        1.0: "the keys before it get a share too",
        math.exp(-0.5): "that is the weight of the next key beside its own",
        1 - math.exp(-1): "the steepest of eight heads has not the slope one",
    }
    way = "each key's weight is that of the one after it times the same factor"
    demand_number(share, 1 - math.exp(-0.5), name="(b)", within=0.005, way=way, slips=slips)
