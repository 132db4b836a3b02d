"""How the results of the chapter on training attention are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.training_attention.measure import (
    CURVE,
    FACTORS,
    FIRST_AT,
    INDUCTION_AT,
    INDUCTION_STEPS,
    KINDS,
    LAG,
    LENGTHS,
    MIRROR,
    RECALL,
    SPENT_AT,
    TASKS,
    WATCHED_RATES,
    area,
    failed,
    normalised_entropy,
    predicted_entropy,
    score_variance,
)

# What the claims are judged by --------------------------------------------------------------------------


def _pair(treatment: DataArray, baseline: DataArray) -> dict[str, Any]:
    return {"treatment": treatment, "baseline": baseline}


@evidence("DD-9.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return {kind: {"value": drawn.entropy.sel(kind=kind, tokens=64)} for kind in KINDS}


@evidence("DD-9.2")
def _(fresh: Dataset, forbidden: Dataset) -> dict[str, Any]:
    chance = fresh.accuracy.copy(data=np.full(fresh.accuracy.shape, 1 / MIRROR.vocab))
    return {
        "even": {"value": forbidden.before.sel(task="reversal")},
        "accuracy": {
            **_pair(fresh.accuracy, chance),
            "control": forbidden.accuracy.sel(task="reversal", arm="trained"),
        },
        "loss": {"value": fresh.loss - math.log(MIRROR.vocab)},
    }


@evidence("DD-9.3")
def _(forbidden: Dataset) -> dict[str, Any]:
    loss = forbidden.loss
    parts = {
        f"cut_{task}": _pair(loss.sel(task=task, arm="cut"), loss.sel(task=task, arm="trained"))
        for task in TASKS
    }
    entropy = forbidden.entropy.sel(arm="trained").mean("task")
    return {**parts, "sharper": _pair(entropy, forbidden.before.mean("task"))}


def _moved(values: DataArray, kind: str) -> DataArray:
    """By how much a share of the second block's attention has changed in training."""
    of = values.sel(block=2, kind=kind)
    return of.sel(step=SPENT_AT[-1]) - of.sel(step=0)


@evidence("DD-2.7")
def _(spending: Dataset) -> dict[str, Any]:
    def ends(values: DataArray) -> dict[str, Any]:
        of = values.sel(block=2, kind="distractors")
        return _pair(of.sel(step=SPENT_AT[-1]), of.sel(step=0))

    return {"mass": ends(spending.share), "written": ends(spending.written)}


@evidence("IW-4.1")
def _(readers: Dataset) -> dict[str, Any]:
    def steps(model: str) -> DataArray:
        return readers.similarity.sel(model=model).diff("state")

    own, silent = steps("trained"), steps("without attention")
    return {f"block_{i}": _pair(own.sel(state=i), silent.sel(state=i)) for i in range(1, 5)}


@evidence("DD-14.7")
def _(signals: Dataset, one_rate: Dataset) -> dict[str, Any]:
    pooled = {side: {"value": sided(signals, side, 1.0)} for side in ("low", "high")}
    return {
        **pooled,
        "low_one_rate": {"value": twin_areas(one_rate, "fast", "entropy", -1.0)},
        "high_one_rate": {"value": twin_areas(one_rate, "slow", "entropy", 1.0)},
    }


def twin_areas(one_rate: Dataset, end: str, name: str, way: float) -> Float[ndarray, "seed"]:
    """Area under the curve among trainings at one learning rate, one a seed; half where all end alike.

    Args:
        one_rate: the result.
        end: which of `ENDS`.
        name: which of its values.
        way: 1 where a high value is the sign, -1 where a low one is.
    """
    at = one_rate.sel(end=end).transpose("seed", "twin")
    rows = zip(way * at[name].values, failed(at).values, strict=True)
    return np.array([area(scores, lost) for scores, lost in rows])


def sided(signals: Dataset, side: Literal["low", "high"], factor: float) -> Float[ndarray, "seed"]:
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


# Numbers that the prose names ---------------------------------------------------------------------------


def _seeds(values: Sequence[float] | Float[ndarray, "seed"]) -> DataArray:
    return DataArray(np.asarray(values, dtype=float), dims="seed")


SIGNS = ("low", "first", "unusual", "gradient", "loss")


def areas(signals: Dataset, sign: str, *, factor: float | None = None) -> Float[ndarray, "seed"]:
    """Area under the curve of a sign, one a seed: over all initial weights, or at one size of them.

    Args:
        signals: the result.
        sign: 'low' entropy, low entropy before the 'first' step, 'unusual' entropy (far from the median of
            the trainings of other seeds that succeeded), a short 'gradient', a high 'loss'.
        factor: on the initial weights; all of them when None.
    """
    at = signals if factor is None else signals.sel(factor=[factor])
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
        name, way = {
            "low": ("entropy", -1),
            "first": ("first_entropy", -1),
            "gradient": ("gradient", -1),
            "loss": ("loss", 1),
        }[sign]
        scores = way * rows[name].values
    return np.array([area(score, row) for score, row in zip(scores, bad, strict=True)])


def matched_area(
    signals: Dataset, name: str, way: float, *, factor: float | None = None
) -> tuple[float, int]:
    """Area under the curve over pairs of trainings that differ in the seed alone, and the number of pairs.

    Same learning rate, same factor on the initial weights; one failed and one did not.

    Args:
        signals: the result.
        name: which of its values.
        way: 1 where a high value is the sign, -1 where a low one is.
        factor: on the initial weights; all of them, each by itself, when None.
    """
    won, pairs = 0.0, 0
    bad = failed(signals)
    for size in FACTORS if factor is None else (factor,):
        for rate in WATCHED_RATES:
            scores = way * signals[name].sel(factor=size, rate=rate).values
            lost = bad.sel(factor=size, rate=rate).values
            count = int(lost.sum() * (~lost).sum())
            if count:
                won += count * area(scores, lost)
                pairs += count
    return (won / pairs if pairs else 0.5), pairs


@number
def small_by_hand() -> float:
    """Normalised entropy of scores of 0.1, 0 and -0.1."""
    return float(normalised_entropy(torch.tensor([[0.1, 0.0, -0.1]]).softmax(-1)))


@number
def large_by_hand() -> float:
    """Normalised entropy of scores of 1, 0 and -1."""
    return float(normalised_entropy(torch.tensor([[1.0, 0.0, -1.0]]).softmax(-1)))


@number
def variance_64() -> float:
    """Variance of the scores of GPT-2's rule at width 64."""
    return score_variance("small", 64)


@number
def variance_768() -> float:
    """The same at width 768."""
    return score_variance("small", 768)


def _off(drawn: Dataset, lengths: Sequence[int], *, xavier: bool) -> float:
    mean = drawn.entropy.mean("seed")
    return max(
        abs(
            float(mean.sel(kind=kind, tokens=n))
            - predicted_entropy(score_variance(*KINDS[kind]), n)
        )
        for kind in KINDS
        if kind.startswith("xavier") == xavier
        for n in lengths
    )


@number
def formula_off(drawn: Dataset) -> float:
    """Largest error of the formula for small scores, but for Xavier's, which are not small."""
    return _off(drawn, LENGTHS, xavier=False)


@number
def xavier_off_8(drawn: Dataset) -> float:
    """The same for Xavier's scores, eight tokens."""
    return _off(drawn, [8], xavier=True)


@number
def xavier_off_256(drawn: Dataset) -> float:
    """The same for 256 tokens."""
    return _off(drawn, [256], xavier=True)


@number
def guess_recall() -> float:
    """Loss of guessing a value of recall."""
    return math.log(RECALL.values)


@number
def guess_eight() -> float:
    """Loss of guessing one of eight tokens, in the lag task and in reversal."""
    return math.log(MIRROR.vocab)


@number
def excess(fresh: Dataset) -> DataArray:
    """By how much an untrained model's loss exceeds that of one that knows nothing."""
    return fresh.loss - math.log(MIRROR.vocab)


def crossing(
    steps: Sequence[float] | Sequence[int] | ndarray,
    curve: Float[ndarray, "step"],
    level: float,
    *,
    falls: bool = False,
) -> float:
    """The step at which a curve first reaches a level, between its points on a straight line.

    The last step where it never does.

    >>> crossing([0.0, 10.0, 20.0], np.array([0.0, 0.4, 0.8]), 0.6)
    15.0
    """
    sign = -1.0 if falls else 1.0
    above = sign * curve >= sign * level
    if above[0] or not above.any():
        return float(steps[0] if above[0] else steps[-1])
    place = int(above.argmax())
    share = (level - curve[place - 1]) / (curve[place] - curve[place - 1])
    return float(steps[place - 1] + share * (steps[place] - steps[place - 1]))


def _half_way(values_first: Dataset, name: str) -> DataArray:
    rows = values_first[name].transpose("seed", "step").values
    return _seeds([crossing(FIRST_AT, row, float(row[0] + row[-1]) / 2) for row in rows])


@number
def values_half(values_first: Dataset) -> DataArray:
    """Step at which values have come half of their way."""
    return _half_way(values_first, "values")


@number
def scores_half(values_first: Dataset) -> DataArray:
    """Step at which scores have come half of theirs."""
    return _half_way(values_first, "scores")


@number
def values_lead(values_first: Dataset) -> float:
    """Seeds in which values are half way before scores."""
    return float((values_half(values_first) < scores_half(values_first)).sum())


@number
def pull_peak(values_first: Dataset) -> float:
    """Largest mean pull towards the right pair."""
    return float(values_first.pull.mean("seed").max())


@number
def pull_peak_at(values_first: Dataset) -> float:
    """The step at which it is largest."""
    return float(values_first.pull.mean("seed").idxmax("step"))


def _solved(forbidden: Dataset, arm: str) -> DataArray:
    rows = forbidden.curve.sel(arm=arm).transpose("seed", "step").values
    return _seeds([crossing(CURVE, row, RECALL.bag_loss(), falls=True) for row in rows])


@number
def trained_solved(forbidden: Dataset) -> DataArray:
    """Steps until recall's loss is that of a model that knows the values left, everything trained."""
    return _solved(forbidden, "trained")


@number
def frozen_solved(forbidden: Dataset) -> DataArray:
    """The same with frozen queries and keys."""
    return _solved(forbidden, "frozen")


@number
def frozen_later(forbidden: Dataset) -> float:
    """Seeds in which the frozen model is there later."""
    return float((frozen_solved(forbidden) > trained_solved(forbidden)).sum())


@number
def stuck(forbidden: Dataset) -> float:
    """Trained models that have not come down to that loss at the end."""
    return float((forbidden.loss.sel(task="recall", arm="trained") > RECALL.bag_loss()).sum())


@number
def lag_floor() -> float:
    """The best loss that there can be on the lag task."""
    return LAG.bayes_loss()


@number
def even_before(forbidden: Dataset) -> DataArray:
    """Normalised entropy before training, mean of the three tasks."""
    return forbidden.before.mean("task")


def _entropy(forbidden: Dataset, arm: str) -> DataArray:
    return forbidden.entropy.sel(arm=arm).mean("task")


@number
def normal_entropy(forbidden: Dataset, *, arm: str) -> DataArray:
    """Normalised entropy of an arm of the models with forbidden paths."""
    return _entropy(forbidden, arm)


@number
def slow_fall(induction: Dataset) -> DataArray:
    """By how much the loss of two layers falls from step 50 until it reaches 2.5 nats, per hundred steps."""
    rows = induction.loss.sel(arm="two layers")
    start = rows.sel(step=50)
    return 100 * (start - 2.5) / (falls_to(induction, arm="two layers", level=2.5) - 50)


@number
def falls_to(induction: Dataset, *, arm: str, level: float) -> DataArray:
    """The step at which the loss has fallen to a level, by arm."""
    rows = induction.loss.sel(arm=arm).transpose("seed", "step").values
    steps = induction.step.values
    return _seeds([crossing(steps, row, level, falls=True) for row in rows])


@number
def cliff_length(induction: Dataset) -> DataArray:
    """Steps from 2.5 nats to a quarter of a nat, two layers that learn together."""
    start = falls_to(induction, arm="two layers", level=2.5)
    return falls_to(induction, arm="two layers", level=0.25) - start


@number
def given_length(induction: Dataset) -> DataArray:
    """Steps from 2.5 nats to a quarter of a nat, where the first layer is given."""
    start = falls_to(induction, arm="first layer given", level=2.5)
    return falls_to(induction, arm="first layer given", level=0.25) - start


@number
def one_layer_end(induction: Dataset) -> DataArray:
    """The loss of one layer at the end."""
    return induction.loss.sel(arm="one layer", step=slice(INDUCTION_STEPS - 40, None)).mean("step")


def _cliff(induction: Dataset, name: str, level: float) -> DataArray:
    rows = induction[name].sel(arm="two layers").transpose("seed", "looked").values
    return _seeds(
        [crossing(INDUCTION_AT, row, float(level * (row[-1] - row[0]) + row[0])) for row in rows]
    )


@number
def before_half(induction: Dataset) -> DataArray:
    """Step at which the first layer's best head has come half of its way to the token before."""
    return _cliff(induction, "before", 0.5)


@number
def copied_half(induction: Dataset) -> DataArray:
    """The same for the second layer and the token to be copied."""
    return _cliff(induction, "copied", 0.5)


def _share(spending: Dataset, name: str, block: int, kind: str, step: int) -> DataArray:
    return spending[name].sel(block=block, kind=kind, step=step)


@number
def others_before(spending: Dataset) -> DataArray:
    """Share of the second block's attention on the other pairs, before training."""
    return _share(spending, "share", 2, "distractors", 0)


@number
def others_after(spending: Dataset) -> DataArray:
    """The same after training."""
    return _share(spending, "share", 2, "distractors", SPENT_AT[-1])


@number
def needed_rise(spending: Dataset) -> DataArray:
    """By how much what the needed pair writes rises."""
    return _moved(spending.written, "needed")


@number
def others_fall(spending: Dataset) -> DataArray:
    """By how much what the other pairs write falls."""
    return -_moved(spending.written, "distractors")


@number
def rest_fall(spending: Dataset) -> DataArray:
    """By how much what the first token and the question itself write falls."""
    return -_moved(spending.written, "spare") - _moved(spending.written, "own")


@number
def idle_end(spending: Dataset) -> DataArray:
    """Normalised entropy of the heads of the first block at the questions, after training."""
    return spending.entropy.sel(block=1, step=SPENT_AT[-1]).stack(one=("seed", "head"))


@number
def failed_share(signals: Dataset) -> float:
    """Share of all trainings that failed."""
    return float(failed(signals).mean())


@number
def trainings_watched(signals: Dataset) -> int:
    """Number of all trainings."""
    return int(signals.final.size)


@number
def failed_large(signals: Dataset) -> float:
    """Share that failed where the initial weights are twice the usual or more."""
    return float(failed(signals).sel(factor=[2.0, 4.0]).mean())


@number
def failed_small(signals: Dataset) -> float:
    """The same where they are usual or smaller."""
    return float(failed(signals).sel(factor=[0.5, 1.0]).mean())


def _areas(signals: Dataset, sign: str, factor: float | None = None) -> DataArray:
    return _seeds(areas(signals, sign, factor=factor))


@number
def low_pooled(signals: Dataset) -> DataArray:
    """Area of low entropy over all initial weights."""
    return _areas(signals, "low")


@number
def first_pooled(signals: Dataset) -> DataArray:
    """Area of low entropy before the first step, over all initial weights."""
    return _areas(signals, "first")


@number
def usual_area(signals: Dataset, *, sign: str) -> DataArray:
    """Area under the curve of a sign of failure, at the usual initial weights."""
    return _areas(signals, sign, 1.0)


@number
def failed_side(signals: Dataset, *, side: Literal["low", "high"], factor: float) -> DataArray:
    """How well entropy tells the failed runs on one side of the usual, by the factor of the initial weights."""
    return _seeds(sided(signals, side, factor))


@number
def matched_pairs(signals: Dataset) -> int:
    """Pairs of trainings with the usual weights that differ in the seed alone, of which one failed."""
    return matched_area(signals, "entropy", -1.0, factor=1.0)[1]


@number
def matched_low(signals: Dataset) -> float:
    """Area of low entropy over these pairs."""
    return matched_area(signals, "entropy", -1.0, factor=1.0)[0]


@number
def matched_loss(signals: Dataset) -> float:
    """Area of a high loss over these pairs."""
    return matched_area(signals, "loss", 1.0, factor=1.0)[0]


@number
def matched_gradient(signals: Dataset) -> float:
    """Area of a short gradient over these pairs."""
    return matched_area(signals, "gradient", -1.0, factor=1.0)[0]


def _twins(one_rate: Dataset, end: str, name: str, way: float) -> DataArray:
    return _seeds(twin_areas(one_rate, end, name, way))


@number
def slow_failed(one_rate: Dataset) -> float:
    """Share of the trainings at the slow rate that failed."""
    return float(failed(one_rate).sel(end="slow").mean())


@number
def fast_failed(one_rate: Dataset) -> float:
    """The same at the fast rate."""
    return float(failed(one_rate).sel(end="fast").mean())


@number
def slow_high(one_rate: Dataset) -> DataArray:
    """Area of high entropy among trainings at the slow rate."""
    return _twins(one_rate, "slow", "entropy", 1.0)


@number
def slow_loss(one_rate: Dataset) -> DataArray:
    """Area of a high loss there."""
    return _twins(one_rate, "slow", "loss", 1.0)


@number
def slow_gradient(one_rate: Dataset) -> DataArray:
    """Area of a short gradient there."""
    return _twins(one_rate, "slow", "gradient", -1.0)


@number
def fast_low(one_rate: Dataset) -> DataArray:
    """Area of low entropy among trainings at the fast rate."""
    return _twins(one_rate, "fast", "entropy", -1.0)


@number
def fast_loss(one_rate: Dataset) -> DataArray:
    """Area of a high loss there."""
    return _twins(one_rate, "fast", "loss", 1.0)


@number
def fast_gradient(one_rate: Dataset) -> DataArray:
    """Area of a short gradient there."""
    return _twins(one_rate, "fast", "gradient", -1.0)
