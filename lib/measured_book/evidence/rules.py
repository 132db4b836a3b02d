"""From measured values and a rule declared beforehand to a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from measured_book.evidence import statistics
from measured_book.evidence.bootstrap import bootstrap_difference, bootstrap_interval
from measured_book.evidence.effect_sizes import hedges_g
from measured_book.evidence.registry import (
    Bound,
    Difference,
    Equivalence,
    Identity,
    Number,
    Proportion,
    Rule,
    Threshold,
)
from measured_book.evidence.verdicts import Verdict

Array = Float[np.ndarray, " _"]


@dataclass(frozen=True)
class Judgement:
    """The outcome of applying a rule to values.

    ``effect`` is in the unit and with the sign of the values (what it is for each rule stands at
    `judge`); ``interval`` and ``p`` are None for exact rules. ``details`` holds what a reader may
    want to know besides: numbers and short words.
    """

    verdict: Verdict
    effect: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def numbers(name: str, value: object) -> Array:
    """Return a number or a 1-d array of them, from Python, numpy or torch, as float64.

    Raises:
        ValueError: more than one axis, no value at all, values that are no real numbers, or a
            value that is not finite; the message starts with ``name``.
    """
    array = plain(name, value)
    if array.ndim > 1:
        raise ValueError(
            f"{name}: expected a number or a 1-d array, got shape {array.shape}; "
            "reduce it first, for example to the largest value of each draw"
        )
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one value, got none")
    result = np.atleast_1d(array).astype(np.float64)
    if not np.isfinite(result).all():
        index = int(np.flatnonzero(~np.isfinite(result))[0])
        raise ValueError(f"{name}: expected finite values, got {result[index]} at index {index}")
    return result


def plain(name: str, value: object) -> np.ndarray[Any, np.dtype[Any]]:
    """Return values from Python, numpy or torch as a numpy array of booleans, integers or floats.

    Raises:
        ValueError: values that are no real numbers; the message starts with ``name``.
    """
    if hasattr(value, "detach"):  # a torch tensor, which may be on a device or in bfloat16
        tensor: Any = value.detach().cpu()
        value = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    if isinstance(value, (list, tuple)):
        value = [plain(name, item) if hasattr(item, "detach") else item for item in value]
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: expected numbers in equal rows, got {value!r}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected real numbers, got {array.dtype} in {value!r}")
    return array


def judge(rule: Rule, values: Mapping[str, object]) -> Judgement:
    """Judge values by a rule; each rule's class in `registry` documents what it demands.

    The effect is: for an identity the largest ``|error|``; for a number value - stated where they
    differ most; for a bound the value nearest to it, or farthest beyond it; for a difference or an
    equivalence the mean of treatment - baseline; for a proportion the share; for a threshold the
    mean.

    Args:
        rule: a rule of the registry.
        values: numbers or 1-d arrays by the names that the rule asks for.

    Raises:
        ValueError: other names than the rule asks for, empty or non-finite values, pairs of
            different length, too few values for an interval.
    """
    if set(values) != set(rule.value_names):
        raise ValueError(
            f"expected the values {', '.join(rule.value_names)} for a rule of type {rule.type}, "
            f"got {', '.join(values) or 'none'}"
        )
    arrays = {name: numbers(name, values[name]) for name in rule.value_names}
    match rule:
        case Identity():
            return _identity(rule, arrays)
        case Number():
            return _number(rule, arrays["value"])
        case Bound():
            return _bound(rule, arrays)
        case Difference():
            return _difference(rule, arrays)
        case Equivalence():
            return _equivalence(rule, arrays)
        case Proportion():
            return _proportion(rule, arrays["successes"], arrays["trials"])
        case Threshold():
            return _threshold(rule, arrays["value"])
    raise ValueError(f"expected a rule of the registry, got {type(rule).__name__}")


def further_details(rule: Rule, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the details reported beside a judgement, which do not affect it.

    For means of seeds a ``bootstrap`` interval of the rule's confidence, for two arms that spread
    ``hedges_g`` too; for other rules nothing.

    Raises:
        ValueError: values that `judge` does not take either.
    """
    match rule:
        case Threshold():
            value = numbers("value", values["value"])
            resampled = bootstrap_interval(value, confidence=rule.confidence)
            return {"bootstrap": list(resampled.interval)}
        case Difference() | Equivalence():
            arms = (
                numbers("treatment", values["treatment"]),
                numbers("baseline", values["baseline"]),
            )
            resampled = bootstrap_difference(*arms, paired=rule.paired, confidence=rule.confidence)
            details: dict[str, Any] = {"bootstrap": list(resampled.interval)}
            spread = [arms[0] - arms[1]] if rule.paired else arms
            if any(np.ptp(sample) > 0 for sample in spread):
                details["hedges_g"] = hedges_g(*arms, paired=rule.paired).value
            return details
    return {}


def _identity(rule: Identity, arrays: Mapping[str, Array]) -> Judgement:
    errors = np.abs(arrays["error"])
    worst = float(errors.max())
    details: dict[str, Any] = {
        "draws": errors.size,
        "above_tolerance": int((errors > rule.tolerance).sum()),
    }
    control_fails = True
    if rule.control_above is not None:
        smallest = float(np.abs(arrays["control"]).min())
        details["smallest_control"] = smallest
        control_fails = smallest > rule.control_above
    if worst > rule.tolerance:
        return Judgement(Verdict.REFUTED, worst, details=details)
    if not control_fails:
        details["why"] = "the negative control passed too, so this test could not have failed"
        return Judgement(Verdict.INCONCLUSIVE, worst, details=details)
    return Judgement(Verdict.CONFIRMED, worst, details=details)


def _number(rule: Number, value: Array) -> Judgement:
    stated = np.asarray(rule.stated, dtype=np.float64)
    if value.shape != stated.shape:
        raise ValueError(
            f"value: expected {stated.size} numbers, one for each stated, got {value.size}"
        )
    difference = value - stated
    # A hair of slack, so that decimal halves are not decided by their binary rounding.
    rounded = np.abs(difference) <= rule.tolerated_share * np.abs(stated) * (1 + 1e-9)
    agrees = np.zeros_like(rounded)
    if rule.digits is not None:
        agrees = np.abs(difference) <= 0.5 * 10.0**-rule.digits * (1 + 1e-9)
    if rule.digits is not None and agrees.all():
        relation = "agrees"
    elif (agrees | rounded).all():
        relation = "rounded"
    else:
        relation = "differs"
    worst = int(np.argmax(np.where(agrees, 0.0, np.abs(difference))))
    if agrees.all():
        worst = int(np.argmax(np.abs(difference)))
    details = {
        "relation": relation,
        "stated": float(stated[worst]),
        "computed": float(value[worst]),
    }
    verdict = Verdict.REFUTED if relation == "differs" else Verdict.CONFIRMED
    return Judgement(verdict, float(difference[worst]), details=details)


def _slack(rule: Bound, value: Array) -> tuple[Array, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return how far each value lies inside the bounds, and whether it keeps them."""
    slack = np.full_like(value, np.inf)
    keeps = np.ones(value.shape, dtype=np.bool_)
    if rule.at_least is not None:
        slack, keeps = np.minimum(slack, value - rule.at_least), keeps & (value >= rule.at_least)
    if rule.above is not None:
        slack, keeps = np.minimum(slack, value - rule.above), keeps & (value > rule.above)
    if rule.at_most is not None:
        slack, keeps = np.minimum(slack, rule.at_most - value), keeps & (value <= rule.at_most)
    if rule.below is not None:
        slack, keeps = np.minimum(slack, rule.below - value), keeps & (value < rule.below)
    return slack, keeps


def _bound(rule: Bound, arrays: Mapping[str, Array]) -> Judgement:
    value = arrays["value"]
    slack, keeps = _slack(rule, value)
    effect = float(value[np.argmin(slack)])
    details: dict[str, Any] = {"numbers": value.size, "violations": int((~keeps).sum())}
    if not keeps.all():
        return Judgement(Verdict.REFUTED, effect, details=details)
    if rule.control and _slack(rule, arrays["control"])[1].any():
        details["why"] = "the negative control keeps the bound too, so this could not have failed"
        return Judgement(Verdict.INCONCLUSIVE, effect, details=details)
    return Judgement(Verdict.CONFIRMED, effect, details=details)


def _difference(rule: Difference, arrays: Mapping[str, Array]) -> Judgement:
    treatment, baseline = arrays["treatment"], arrays["baseline"]
    estimate = statistics.mean_difference(
        treatment, baseline, paired=rule.paired, confidence=rule.confidence
    )
    low, high = estimate.interval
    mean = estimate.effect
    if rule.direction == "less":
        low, high, mean = -high, -low, -mean
    if low > 0 and mean > rule.smallest_effect:
        verdict = Verdict.CONFIRMED
    elif high < 0 and mean < -rule.smallest_effect:
        verdict = Verdict.REFUTED
    elif high < rule.smallest_effect:
        verdict = Verdict.NOT_REPRODUCED
    else:
        verdict = Verdict.INCONCLUSIVE
    details: dict[str, Any] = {
        "confidence": estimate.confidence,
        "values": min(treatment.size, baseline.size),
    }
    if rule.headroom:
        details["headroom"] = room = float(arrays["headroom"].mean())
        if room <= rule.smallest_effect and verdict is Verdict.NOT_REPRODUCED:
            verdict = Verdict.INCONCLUSIVE
            details["why"] = (
                "the baseline leaves no room for the effect, which could not have shown"
            )
    return Judgement(verdict, estimate.effect, estimate.interval, estimate.p, details)


def _equivalence(rule: Equivalence, arrays: Mapping[str, Array]) -> Judgement:
    treatment, baseline = arrays["treatment"], arrays["baseline"]
    estimate = statistics.equivalence(
        treatment, baseline, margin=rule.margin, paired=rule.paired, confidence=rule.confidence
    )
    low, high = estimate.interval
    if -rule.margin < low and high < rule.margin:
        verdict, p = Verdict.CONFIRMED, estimate.p_inside
    elif low > rule.margin or high < -rule.margin:
        verdict, p = Verdict.REFUTED, estimate.p_beyond
    else:
        verdict, p = Verdict.INCONCLUSIVE, estimate.p_inside
    details: dict[str, Any] = {
        "confidence": estimate.confidence,
        "values": min(treatment.size, baseline.size),
    }
    if rule.control and verdict is Verdict.CONFIRMED:
        other = statistics.equivalence(
            arrays["control"],
            baseline,
            margin=rule.margin,
            paired=rule.paired,
            confidence=rule.confidence,
        ).interval
        details["control_interval"] = list(other)
        if not (other[0] > rule.margin or other[1] < -rule.margin):
            verdict = Verdict.INCONCLUSIVE
            details["why"] = (
                "an arm that is known to differ is not told apart, so this test could not have failed"
            )
    return Judgement(verdict, estimate.effect, estimate.interval, p, details)


def _proportion(rule: Proportion, successes: Array, trials: Array) -> Judgement:
    if successes.shape != trials.shape:
        raise ValueError(
            "expected as many numbers of trials as of successes, "
            f"got {trials.size} and {successes.size}"
        )
    for name, counts in (("successes", successes), ("trials", trials)):
        if (counts < 0).any() or (counts != np.round(counts)).any():
            raise ValueError(f"{name}: expected whole numbers from 0 on, got {counts.tolist()}")
    if (successes > trials).any():
        index = int(np.flatnonzero(successes > trials)[0])
        raise ValueError(
            f"expected at most as many successes as trials, got {successes[index]:.0f} of "
            f"{trials[index]:.0f} at index {index}"
        )
    threshold = rule.at_most if rule.at_least is None else rule.at_least
    assert threshold is not None
    estimate = statistics.proportion(
        int(successes.sum()), int(trials.sum()), confidence=rule.confidence, against=threshold
    )
    return _sides(rule, estimate, {"trials": int(trials.sum())})


def _threshold(rule: Threshold, value: Array) -> Judgement:
    if rule.at_least is not None and rule.at_most is not None:
        return _range(rule, rule.at_least, rule.at_most, value)
    threshold = rule.at_most if rule.at_least is None else rule.at_least
    assert threshold is not None
    estimate = statistics.mean_interval(value, confidence=rule.confidence, against=threshold)
    return _sides(rule, estimate, {"values": value.size})


def _range(rule: Threshold, lower: float, upper: float, value: Array) -> Judgement:
    """Judge a mean against both ends of a range.

    To lie inside takes both ends, so the larger of their p-values counts; to lie beyond one end
    takes that end alone.
    """
    below, above = (
        statistics.mean_interval(value, confidence=rule.confidence, against=end)
        for end in (lower, upper)
    )
    low, high = below.interval
    verdict, p = Verdict.INCONCLUSIVE, max(below.p, above.p)
    if lower < low and high < upper:
        verdict = Verdict.CONFIRMED
    elif high < lower:
        verdict, p = Verdict.REFUTED, below.p
    elif low > upper:
        verdict, p = Verdict.REFUTED, above.p
    details = {"confidence": below.confidence, "values": value.size}
    return Judgement(verdict, below.effect, below.interval, p, details)


def _sides(
    rule: Proportion | Threshold, estimate: statistics.Estimate, details: Mapping[str, Any]
) -> Judgement:
    low, high = estimate.interval
    if rule.at_least is not None:
        holds, fails = low > rule.at_least, high < rule.at_least
    else:
        assert rule.at_most is not None
        holds, fails = high < rule.at_most, low > rule.at_most
    verdict = Verdict.INCONCLUSIVE
    if holds or fails:
        verdict = Verdict.CONFIRMED if holds else Verdict.REFUTED
    return Judgement(
        verdict,
        estimate.effect,
        estimate.interval,
        estimate.p,
        {"confidence": estimate.confidence, **details},
    )
