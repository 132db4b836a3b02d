"""Mistakes in the exercises on longer sequences."""

import math


def _turns(omega, trained):
    return omega * trained / (2 * math.pi)


def _mixed(omega, factor, kept):
    return kept * omega + (1 - kept) * omega / factor


def _uncut(omega, factor, trained, slow, fast):
    return _mixed(omega, factor, (_turns(omega, trained) - slow) / (fast - slow))


def _cut_above(omega, factor, trained, slow, fast):
    return _mixed(omega, factor, ((_turns(omega, trained) - slow) / (fast - slow)).clamp(max=1))


def _radians(omega, factor, trained, slow, fast):
    return _mixed(omega, factor, ((omega * trained - slow) / (fast - slow)).clamp(0, 1))


def _step(omega, factor, trained, slow, fast):
    return _mixed(omega, factor, (_turns(omega, trained) > (slow + fast) / 2).double())


def _smooth(omega, factor, trained, slow, fast):
    kept = ((_turns(omega, trained) - slow) / (fast - slow)).clamp(0, 1)
    return _mixed(omega, factor, kept**2)


def _too_many(t, window, sinks):
    keys = [*range(sinks), *range(max(sinks, t + 1 - window), t + 1)]
    return [(key, t - key) for key in keys if key <= t]


def _no_sinks(t, window, sinks):
    return [(key, t - key) for key in range(max(0, t + 1 - window), t + 1)]


def _as_they_are(t, window, sinks):
    keys = list(range(t + 1))
    if len(keys) > window:
        keys = keys[:sinks] + keys[len(keys) - (window - sinks) :]
    return [(key, t - key) for key in keys]


def _places(t, window, sinks):
    return [(key, place) for place, (key, _) in enumerate(_as_they_are(t, window, sinks))]


WRONG = {
    "positions.turned_pairs": {
        "counted from one": (20, "from i = 0"),
        "a radian": (27, "one radian"),
        "the exponent of a dimension": (11, "exponent"),
        "a half": (20.5, "whole"),
        "all": (32, "compare"),
    },
    "positions.gaps": {
        "no gap outside": ((512 / 32, 512 / 256), "as well"),
        "from end to end": ((511 / 31, 511 / 255), "need not be"),
        "between": ((15.0, 1.0), "at least one away"),
        "only the second": ((513 / 33, 1.5), "all alike"),
    },
    "positions.by_parts": {
        "nothing": (lambda omega, factor, trained, slow, fast: omega, "slowed by the factor"),
        "all": (lambda omega, factor, trained, slow, fast: omega / factor, "keep their frequency"),
        "no end": (_uncut, "cut off at one"),
        "no beginning": (_cut_above, "cut off at zero"),
        "radians": (_radians, "two pi"),
        "a step": (_step, "straight line"),
        "a bend": (_smooth, "straight line"),
        "one number": (lambda omega, factor, trained, slow, fast: omega[0], "shape"),
    },
    "positions.seen": {
        "more than fit": (_too_many, "sinks included"),
        "no sinks": (_no_sinks, "expected the keys"),
        "true distances": (_as_they_are, "window - 1"),
        "places": (_places, "expected"),
        "keys alone": (lambda t, window, sinks: list(range(t + 1)), "pairs"),
    },
}
