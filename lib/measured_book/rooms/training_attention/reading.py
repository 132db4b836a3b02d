"""Readings of the chapter on training attention that no expression says: crossings, areas, predictions."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.training_attention.looking import (
    normalised_entropy,
    predicted_entropy,
    score_variance,
)
from measured_book.rooms.training_attention.measure import (
    KINDS,
    LENGTHS,
    RECALL,
    WATCHED_RATES,
    failed,
)
from measured_book.rooms.training_attention.watching import area

# Before the first step --------------------------------------------------------------------------------


@number
def by_hand(*, size: float) -> float:
    """Normalised entropy of scores of a size, of 0 and of minus that size."""
    return float(normalised_entropy(torch.tensor([[size, 0.0, -size]]).softmax(-1)))


@number
def variance(*, width: int) -> float:
    """Variance of the scores of GPT-2's rule at a width."""
    return score_variance("small", width)


@number
def predicted() -> DataArray:
    """Normalised entropy by the formula for small scores, by kind and number of tokens."""
    rows = [[predicted_entropy(score_variance(*of), n) for n in LENGTHS] for of in KINDS.values()]
    return DataArray(rows, {"kind": list(KINDS), "tokens": list(LENGTHS)})


# When a curve gets somewhere --------------------------------------------------------------------------


def crossing(
    steps: ndarray, curve: Float[ndarray, "step"], level: float, *, falls: bool = False
) -> float:
    """The step at which a curve first reaches a level, between its points on a straight line.

    The last step where it never does.

    >>> crossing(np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.4, 0.8]), 0.6)
    15.0
    """
    sign = -1.0 if falls else 1.0
    above = sign * curve >= sign * level
    if above[0] or not above.any():
        return float(steps[0] if above[0] else steps[-1])
    place = int(above.argmax())
    share = (level - curve[place - 1]) / (curve[place] - curve[place - 1])
    return float(steps[place - 1] + share * (steps[place] - steps[place - 1]))


def _crossings(
    curves: DataArray, levels: float | Float[ndarray, "seed"], *, falls: bool = False
) -> DataArray:
    """The `crossing` of each seed's curve, along the axis that is not the seeds'."""
    (axis,) = (one for one in curves.dims if one != "seed")
    rows = curves.transpose("seed", axis).values
    pairs = zip(rows, np.broadcast_to(levels, len(rows)), strict=True)
    found = [crossing(curves[axis].values, row, float(at), falls=falls) for row, at in pairs]
    return DataArray(found, {"seed": curves.seed.values})


@number
def half_way(values_first: Dataset, induction: Dataset, *, what: str) -> DataArray:
    """Step at which a curve is half-way between its ends.

    'values' or 'scores' of one head; the weight 'before' or 'copied' of two layers that learn together.
    """
    if what in values_first:
        curves, axis = values_first[what], "step"
    else:
        curves, axis = induction[what].sel(arm="two layers", drop=True), "looked"
    return _crossings(curves, curves.isel({axis: [0, -1]}).mean(axis).values)


@number
def solves(forbidden: Dataset, *, arm: str) -> DataArray:
    """Steps until recall's loss is that of a model that knows the values left."""
    return _crossings(forbidden.curve.sel(arm=arm, drop=True), RECALL.bag_loss(), falls=True)


@number
def falls_to(induction: Dataset, *, arm: str, level: float) -> DataArray:
    """The step at which the loss on strings that repeat has fallen to a level, by arm."""
    return _crossings(induction.loss.sel(arm=arm, drop=True), level, falls=True)


# Signs of a training that is going to fail ------------------------------------------------------------

_READ = {
    "low": ("entropy", -1),
    "high": ("entropy", 1),
    "first": ("first_entropy", -1),
    "gradient": ("gradient", -1),
    "loss": ("loss", 1),
}
"""Sign -> the value that is read, and whether a high one (1) or a low one (-1) tells that a training fails."""


@number
def twins(one_rate: Dataset, *, end: str, sign: str) -> Float[ndarray, "seed"]:
    """Area under the curve among trainings at one learning rate, one a seed; half where all end alike.

    Args:
        one_rate: the result.
        end: which of `ENDS`.
        sign: 'low' or 'high' entropy, a short 'gradient', a high 'loss'.
    """
    name, way = _READ[sign]
    at = one_rate.sel(end=end).transpose("seed", "twin")
    rows = zip(way * at[name].values, failed(at).values, strict=True)
    return np.array([area(scores, lost) for scores, lost in rows])


@number
def sided(
    signals: Dataset, *, side: Literal["low", "high"], factor: float
) -> Float[ndarray, "seed"]:
    """How well entropy tells the failed trainings on one side of the usual, at the same initial weights.

    The usual is the median of the trainings of all *other* seeds that succeeded. For each seed, of its failed
    trainings on that side and the succeeding ones of the others there: how often the failed one lies farther
    out, ties half. One half where there are none.
    """
    at = signals.sel(factor=factor)
    entropy, bad = at.entropy.values, failed(at).values
    sign = -1.0 if side == "low" else 1.0
    found = []
    for place in range(len(entropy)):
        others = np.arange(len(entropy)) != place
        good = entropy[others][~bad[others]]
        middle = np.median(good)
        good_out, bad_out = (
            out[out >= 0]
            for out in (sign * (good - middle), sign * (entropy[place][bad[place]] - middle))
        )
        scores = np.concatenate([bad_out, good_out])
        found.append(area(scores, np.arange(len(scores)) < len(bad_out)))
    return np.array(found)


@number
def areas(signals: Dataset, *, sign: str, factor: str) -> Float[ndarray, "seed"]:
    """Area under the curve of a sign, one a seed: over all initial weights, or at one size of them.

    Args:
        signals: the result.
        sign: 'low' entropy, low entropy before the 'first' step, 'unusual' entropy (far from the median of
            the trainings of other seeds that succeeded), a short 'gradient', a high 'loss'.
        factor: on the initial weights, or 'all' of them.
    """
    at = signals if factor == "all" else signals.sel(factor=[float(factor)])
    rows = at.stack(run=("factor", "rate")).transpose("seed", "run")
    bad = failed(rows).values
    if sign == "unusual":
        entropy = rows.entropy.values
        scores = np.array(
            [
                np.abs(row - np.median(np.delete(entropy, i, 0)[~np.delete(bad, i, 0)]))
                for i, row in enumerate(entropy)
            ]
        )
    else:
        name, way = _READ[sign]
        scores = way * rows[name].values
    return np.array([area(score, row) for score, row in zip(scores, bad, strict=True)])


def _matched(signals: Dataset, sign: str, factor: float) -> tuple[float, int]:
    """Area over the pairs of `matched`, and their number."""
    name, way = _READ[sign]
    won, pairs = 0.0, 0
    at = signals.sel(factor=factor)
    bad = failed(at)
    for rate in WATCHED_RATES:
        lost = bad.sel(rate=rate).values
        count = int(lost.sum() * (~lost).sum())
        if count:
            won += count * area(way * at[name].sel(rate=rate).values, lost)
            pairs += count
    return (won / pairs if pairs else 0.5), pairs


@number
def matched(signals: Dataset, *, sign: str, factor: float) -> float:
    """Area under the curve over pairs of trainings that differ in the seed alone, one failed and one not.

    Same learning rate, same factor on the initial weights; one half where there are no such pairs.
    """
    return _matched(signals, sign, factor)[0]


@number
def matched_pairs(signals: Dataset, *, factor: float) -> int:
    """The number of these pairs."""
    return _matched(signals, "low", factor)[1]
