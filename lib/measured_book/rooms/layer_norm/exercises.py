"""Exercises of the chapter on layer norm."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/norms/layer-norm"


def _vector(chance: random.Random) -> dict[str, list[int]]:
    entries = [
        chance.randint(9, 20),
        *(chance.randint(-4, 4) for _ in range(chance.choice((2, 4)))),
    ]
    return {"entries": entries}


@exercise(
    _CHAPTER,
    Drawing(
        "Three numbers on the vector {entries}: the largest normalised entry, the length, the factor by d - 1.",
        _vector,
    ),
)
def by_hand(answer: Answer, entries: Sequence[int] = (7, 1, 3, 1)) -> None:
    """Three numbers on (7, 1, 3, 1): the largest normalised entry, the length, the factor by d - 1."""
    largest, length, factor = answer.numbers("(a)", "(b)", "(c)")
    d, mean = len(entries), sum(entries) / len(entries)
    top, squares = max(entries) - mean, sum((one - mean) ** 2 for one in entries)
    whole = sum(one**2 for one in entries)
    slips = {
        top / math.sqrt(squares / (d - 1)): (
            "divide the sum of squares by the number of entries, not by one less"
        ),
        top / (squares / d): "the divisor is a deviation, so the root of the variance",
        max(entries) / math.sqrt(squares / d): "the mean comes off first",
        top / math.sqrt(whole / d): "the squares are those of the centred entries",
        top: "that is centred; the division is still to come",
    }
    way = "take the mean off, then divide by the root of the mean square of what is left"
    right = top / math.sqrt(squares / d)
    demand_number(largest, right, way=way, name="(a)", within=0.005, slips=slips)
    slips = {
        math.sqrt(d - 1): "that is the length with d - 1 in the deviation",
        float(d): "that is the square of the length",
        1.0: "the mean square of the entries is one, not the sum of squares",
        math.sqrt(whole): "that is the length before",
    }
    way = "the mean square of the entries is one; how many are there?"
    demand_number(length, math.sqrt(d), way=way, name="(b)", within=0.005, slips=slips)
    slips = {
        math.sqrt(d / (d - 1)): "with d - 1 the divisor is larger; what comes out is shorter",
        (d - 1) / d: "that is the ratio of the variances",
    }
    way = "only the divisor differs: compare the root of a sum over d - 1 with one over d"
    demand_number(factor, math.sqrt((d - 1) / d), way=way, name="(c)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def normalise(answer: Answer) -> None:
    """Write `normalise(x, gamma, beta, eps)`: LayerNorm as PyTorch has it, tiny inputs too."""
    cases = ((0.0, (3, 6)), (1.0, (7,)), (1.0, (2, 3, 8)), (1e-4, (5, 16)))
    for seed, (size, shape) in enumerate(cases):
        x = 3.0 * bool(size) + size * normal(*shape, seed=seed)
        gamma, beta = 1 + normal(shape[-1], seed=10 + seed).abs(), normal(shape[-1], seed=20 + seed)
        x = x + 1.0 if size == 0 else x
        eps = 1e-5
        right = F.layer_norm(x, shape[-1:], gamma, beta, eps)
        found = tensor(answer(x, gamma, beta, eps), shape, finite=False)
        demand(
            found.isfinite().all(),
            "entries that are all the same give what is no finite number: where does epsilon go?",
        )
        if close(found, right, 1e-9):
            continue
        demand(
            not close(found, F.layer_norm(x, shape[-1:], gamma, None, eps), 1e-9),
            "beta is missing",
        )
        demand(
            not close(found, F.layer_norm(x, shape[-1:], None, beta, eps), 1e-9),
            "gamma is missing",
        )
        centred = x - x.mean(-1, keepdim=True)
        rms = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma + beta
        demand(not close(found, rms, 1e-9), "the mean is still in it")
        unbiased = centred / (x.var(-1, keepdim=True) + eps).sqrt() * gamma + beta
        outside = centred / (x.std(-1, keepdim=True) + eps) * gamma + beta
        biased = centred / (x.std(-1, correction=0, keepdim=True) + eps) * gamma + beta
        demand(
            not close(found, unbiased, 1e-9) and not close(found, outside, 1e-9),
            "what comes out is too short by a factor that depends on the width: which deviation is it?",
        )
        demand(
            not close(found, biased, 1e-9),
            "what comes out has another size, the more so the smaller the input: what is epsilon added to?",
        )
        bare = centred / x.std(-1, correction=0, keepdim=True) * gamma + beta
        demand(not close(found, bare, 1e-9), "epsilon is not used")
        if x.ndim > 1:
            whole = (x - x.mean()) / (x.var(correction=0) + eps).sqrt() * gamma + beta
            demand(
                not close(found, whole, 1e-9), "each vector has a mean and a deviation of its own"
            )
        raise Fault(f"for entries of size {size:g} the result is not PyTorch's")


@exercise(_CHAPTER)
def rms_norm(answer: Answer) -> None:
    """Write `rms_norm(x, gamma, eps, gradient)`: RMSNorm's output and the gradient at its input."""
    for seed, (shape, size) in enumerate((((4,), 1.0), ((3, 6), 2.0), ((2, 3, 8), 0.01))):
        x = size * (normal(*shape, seed=seed) + 0.5)
        gamma = 1 + normal(shape[-1], seed=10 + seed).abs()
        gradient, eps = normal(*shape, seed=20 + seed), 1e-4
        came = answer(x, gamma, eps, gradient)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected a pair: the output and the gradient at x")
        output = tensor(came[0], shape, name="the output")
        back = tensor(came[1], shape, name="the gradient")
        _check_rms_output(output, x, gamma, eps)
        _check_rms_gradient(back, x, gamma, eps, gradient)


def _check_rms_output(output: Tensor, x: Tensor, gamma: Tensor, eps: float) -> None:
    mean_square = x.square().mean(-1, keepdim=True)
    wrong = (
        (F.layer_norm(x, x.shape[-1:], gamma, eps=eps), "RMSNorm leaves the mean where it is"),
        (x / (mean_square + eps).sqrt(), "gamma is missing"),
        (x / mean_square.sqrt() * gamma, "epsilon is not used"),
        (x / (mean_square.sqrt() + eps) * gamma, "epsilon stands under the root"),
        (
            x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * gamma,
            "the root is that of the *mean* square, not of the sum",
        ),
    )
    for other, hint in wrong:
        demand(not close(output, other, 1e-9), f"the output: {hint}")
    right = F.rms_norm(x, x.shape[-1:], gamma, eps)
    demand(close(output, right, 1e-9), "the output is not x over the root of its mean square")


def _check_rms_gradient(
    back: Tensor, x: Tensor, gamma: Tensor, eps: float, gradient: Tensor
) -> None:
    root = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    unit, at_unit = x / root, gradient * gamma
    along = (at_unit * unit).mean(-1, keepdim=True)
    forgotten = (gradient * unit).mean(-1, keepdim=True)
    wrong = (
        (at_unit / root, "the root depends on x, too: what becomes of the part along x?"),
        (at_unit - unit * along, "the division by the root comes back as a division"),
        ((gradient - unit * forgotten) / root, "gamma multiplies the gradient on its way back"),
        (
            (at_unit - unit * along * x.shape[-1]) / root,
            "the part along x is too large: the mean square divides by d",
        ),
    )
    for other, hint in wrong:
        demand(not close(back, other, 1e-9), f"the gradient: {hint}")
    right = (at_unit - unit * along) / root
    demand(close(back, right, 1e-9), "the gradient is another one: compare with finite differences")


@exercise(_CHAPTER)
def twin(answer: Answer) -> None:
    """Write `twin(x)`: a vector at right angles to x with the same LayerNorm (no epsilon, no weights)."""
    for d, seed in ((3, 0), (4, 1), (9, 2), (64, 3)):
        x = normal(d, seed=seed) + 0.7
        found = tensor(answer(x), (d,), name="the twin")
        demand(found.norm() > 1e-6, "a vector of length zero has no direction, and no norm")
        cosine = float(F.cosine_similarity(found, x, dim=0))
        before, after = _plain_norm(x), _plain_norm(found)
        demand(
            found.std(correction=0) > 1e-9 * found.norm(),
            "entries that are all the same have no deviation to divide by",
        )
        demand(
            not close(after, -before, 1e-6),
            "the norm gives the negative of what it gives for x: a stretch must be by a positive number",
        )
        if not close(after, before, 1e-6):
            raise Fault("the norm tells the two apart: which two changes of x does it not see?")
        demand(
            abs(cosine) < 1e-6,
            f"the norm sees no difference, but the cosine between the two is {cosine:.3f}",
        )


def _plain_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=0.0)


@exercise(_CHAPTER)
def fold(answer: Answer) -> None:
    """Write `fold(weight, bias, gamma, beta)`: weight and bias of a map that needs no gamma and beta before it.

    Stored like those of `nn.Linear`, (output, input) and (output,).
    """
    for d, wide, seed in ((3, 3, 0), (4, 7, 1), (6, 2, 2)):
        weight, bias = normal(wide, d, seed=seed), normal(wide, seed=10 + seed)
        gamma, beta = 1 + normal(d, seed=20 + seed).abs(), normal(d, seed=30 + seed)
        came = answer(weight, bias, gamma, beta)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected a pair: the weight and the bias")
        folded = tensor(came[0], (wide, d), name="the weight")
        added = tensor(came[1], (wide,), name="the bias")
        if wide == d:
            demand(
                not close(folded, weight * gamma[:, None], 1e-9),
                "gamma multiplies what comes out of the map; it belongs to what goes in",
            )
        demand(
            close(folded, weight * gamma, 1e-9),
            "the weight is wrong: try it on the rows of the identity, with beta zero",
        )
        demand(
            not close(added, bias, 1e-9),
            "right where beta is zero: what does the map make of beta?",
        )
        demand(
            not close(added, weight @ beta, 1e-9),
            "the map's own bias is lost",
        )
        demand(
            not close(added, bias + folded @ beta, 1e-9),
            "beta passes the map as it was, without gamma",
        )
        demand(
            close(added, bias + weight @ beta, 1e-9), "the bias is wrong: send zero through both"
        )


@exercise(_CHAPTER)
def centred_writer(answer: Answer) -> None:
    """Write `centred_writer(weight, bias)`: the same map, but the mean of what it writes is always zero.

    Stored like those of `nn.Linear`, (d_model, input) and (d_model,). Nothing else of what is written may
    change.
    """
    for d, wide, seed in ((4, 4, 0), (3, 6, 1), (8, 5, 2)):
        weight, bias = normal(d, wide, seed=seed) + 0.5, normal(d, seed=10 + seed) + 0.3
        x = normal(9, wide, seed=20 + seed)
        came = answer(weight, bias)
        if not isinstance(came, (tuple, list)) or len(came) != 2:
            raise Fault("expected a pair: the weight and the bias")
        found = tensor(came[0], (d, wide), name="the weight")
        added = tensor(came[1], (d,), name="the bias")
        right = F.linear(x, weight, bias)
        right = right - right.mean(-1, keepdim=True)
        written = F.linear(x, found, added)
        if close(written, right, 1e-9):
            continue
        demand(
            not close(found, weight - weight.mean(1, keepdim=True), 1e-9),
            "that takes the mean out of what is read; the mean of what is written stays",
        )
        demand(
            not close(found, weight - weight.mean(), 1e-9),
            "one mean for all: each column of the stored weight has a mean of its own",
        )
        left = written.mean(-1).abs().max()
        of_weight = F.linear(x, found).mean(-1).abs().max()
        demand(
            left < 1e-9 or of_weight > 1e-9,
            "the weight writes no mean any more, but the bias does",
        )
        demand(left < 1e-9, "what is written still has a mean")
        raise Fault("the mean is gone, and something else has changed with it")
