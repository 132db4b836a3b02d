"""Exercises of the chapter on networks and attention, one without the other."""

from __future__ import annotations

import math

import numpy as np
import torch

from measured_transformer.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    in_words,
    normal,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/feed-forward/network-or-attention"


@exercise(_CHAPTER)
def neurons(answer: Answer) -> None:
    """Write `neurons(d, h, d_head, m)`: neurons of a model without attention that has as many weights."""
    for d, h, d_head, m in ((32, 4, 8, 128), (8, 1, 4, 0), (16, 2, 16, 10), (12, 5, 3, 7)):
        found = number(answer(d, h, d_head, m))
        shown = f"for d = {d}, {h} heads of width {d_head} and {m} neurons it gives {found:g}"
        more = 2 * h * d_head
        demand(m == 0 or found != more, f"{shown}: those are the new ones; the old ones stay")
        demand(found != m + h * d_head, f"{shown}: attention has four matrices, a network two")
        demand(
            found != m + 4 * d * h * d_head,
            f"{shown}: that is a number of weights; how many does a neuron have?",
        )
        demand(
            h * d_head == d or found != m + 2 * d,
            f"{shown}: the heads together are not as wide as the stream here",
        )
        demand(
            found == m + more,
            f"{shown}; count the weights of four matrices, and what one neuron takes of them",
        )


@exercise(_CHAPTER)
def both(answer: Answer) -> None:
    """Write `both(looks, mean)`: 1 where both bits are set and 0 elsewhere, from what two heads hand over."""
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).double()
    looks, mean = bits.amax(1), bits.mean(1)
    found = tensor(answer(looks, mean), (4,))
    demand(not close(found, looks), "that is 1 where any of the bits is set")
    demand(not close(found, 2 * (looks - mean)), "that is 1 where the bits differ")
    demand(not close(found, mean), "one bit alone gives one half, and shall give nothing")
    demand(
        close(found, bits.prod(1)),
        f"for the pairs 00, 01, 10, 11 it gives {_short(found)}; subtract one from twice the other?",
    )
    looks, mean = normal(5, seed=1), normal(5, seed=2)
    demand(
        close(tensor(answer(looks, mean), (5,)), 2 * mean - looks),
        "it is right for exact bits; what follows has only weighted sums, so write it as one",
    )


@exercise(_CHAPTER)
def blind(answer: Answer) -> None:
    """Write `blind(counts)`: the best loss in nats of a model that sees one token, from counts of pairs."""
    tables = (
        [[1, 1], [1, 1]],
        [[5, 0], [0, 3]],
        [[8, 2], [1, 1]],
        [[4, 0, 4], [1, 2, 1], [0, 9, 0]],
    )
    for table in tables:
        counts = torch.tensor(table).double()
        found = number(answer(counts))
        shown = f"for the counts {table} it gives {found:.4g}"
        joint = counts / counts.sum()
        rows = counts / counts.sum(1, keepdim=True)
        each = -torch.special.xlogy(rows, rows).sum(1)
        right = float(joint.sum(1) @ each)
        shares = joint.sum(0)
        demand(
            close(found, right, 1e-9) or not close(found, float(each.mean()), 1e-9),
            f"{shown}: a token that comes often counts more than one that is rare",
        )
        demand(
            close(found, right, 1e-9)
            or not close(found, float(-torch.special.xlogy(shares, shares).sum()), 1e-9),
            f"{shown}: that is the loss of a model that does not see the token either",
        )
        demand(
            close(found, right, 1e-9)
            or not close(found, float(-torch.special.xlogy(joint, joint).sum()), 1e-9),
            f"{shown}: that is the entropy of the pairs; the token itself is given",
        )
        demand(
            right == 0 or not close(found, right / math.log(2), 1e-9),
            f"{shown}: those are bits, and nats are asked for",
        )
        demand(
            close(found, right, 1e-9),
            f"{shown}; in each row the best guess is by the shares, and its loss their entropy",
        )


@exercise(_CHAPTER)
def equal(answer: Answer) -> None:
    """Write `equal(network, attention, margin, t)`: whether both rises are equal within the margin."""
    cases = (
        ([1.0, 1.02, 0.98, 1.0], [1.0, 1.0, 1.0, 1.02], 0.1, True, "a tiny difference"),
        ([1.0, 1.02, 0.98, 1.0], [0.0, 0.02, 0.0, 0.0], 0.1, False, "a difference of about one"),
        ([0.0, 0.02, 0.0, 0.0], [1.0, 1.02, 0.98, 1.0], 0.1, False, "a difference of minus one"),
        (
            [0.6, 1.4, 0.5, 1.6],
            [1.4, 0.6, 1.6, 0.5],
            0.1,
            False,
            "seeds whose difference has a mean of nearly zero and is all over the place",
        ),
        (
            [0.2, 5.0, 1.0, 9.0],
            [0.21, 5.01, 1.0, 9.01],
            0.1,
            True,
            "rises that are far apart between seeds and nearly equal within each",
        ),
        ([0.5, 0.52, 0.51, 0.5], [0.44, 0.46, 0.44, 0.45], 0.1, True, "a small difference"),
        ([0.5, 0.52, 0.51, 0.5], [0.44, 0.46, 0.44, 0.45], 0.05, False, "the same, less margin"),
        ([1.09, 1.01, 1.09, 1.01], [1.0] * 4, 0.1, False, "an interval that just reaches out"),
        ([1.08, 1.02, 1.08, 1.02], [1.0] * 4, 0.1, True, "an interval that just fits"),
    )
    for network, attention, margin, right, what in cases:
        given = answer(torch.tensor(network), torch.tensor(attention), margin, 2.35)
        if isinstance(given, np.bool_) or (isinstance(given, torch.Tensor) and given.numel() == 1):
            given = given.item()
        if not isinstance(given, bool):
            raise Fault(f"the function shall return True or False, got {in_words(given)}")
        demand(
            given == right,
            f"{what} within {margin} came out as {given}: the whole interval of the paired difference, "
            "mean plus and minus t standard errors, shall lie inside of the margin",
        )


@exercise(_CHAPTER)
def averaged(answer: Answer) -> None:
    """Write `averaged(f, g)`: the logits f + g averaged over all shifts of both numbers, (a, b, answer)."""
    for modulus, seed in ((2, 0), (3, 1), (5, 2)):
        f, g = normal(modulus, modulus, seed=seed), normal(modulus, modulus, seed=seed + 10)
        found = tensor(answer(f, g), (modulus, modulus, modulus))
        right = torch.zeros(modulus, modulus, modulus, dtype=torch.float64)
        place = torch.arange(modulus)
        a, b, c = place[:, None, None], place[None, :, None], place[None, None, :]
        for s in range(modulus):
            for t in range(modulus):
                answers = (c + s + t) % modulus
                right += f[(a + s) % modulus, answers] + g[(b + t) % modulus, answers]
        right /= modulus**2
        plain = f[:, None, :] + g[None, :, :]
        demand(not close(found, plain), "those are the logits themselves; average over the shifts")
        fixed = f.mean(0) + g.mean(0)
        demand(
            not close(found, fixed.expand_as(found)),
            "when the numbers are shifted by s and t, the answer is shifted by s + t as well",
        )
        demand(
            not close(found, modulus**2 * right),
            "that is the sum over all shifts; divide by their number",
        )
        demand(close(found, right), "compare with two loops over the shifts s and t")


def _short(values: torch.Tensor) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values.tolist()) + ")"
