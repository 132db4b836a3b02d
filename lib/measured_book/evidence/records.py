"""Formats measured values as text: numbers, and the values and statistics of records.

A record says what came out for one claim: its rule, values, statistics and verdict (`measuring.judging` makes
them). Nothing here imports torch or scipy (one reduction, ``interval``, asks scipy when it is used), so the
pages can be printed without loading either.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from measured_book.evidence.verdicts import parts_of

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_EXPONENT = re.compile(r"e([+-]\d+)")
_ZERO = re.compile(r"-(0(?:\.0*)?%?)")


def number_text(value: float | int, spec: str = "") -> str:
    """Format a number for readers: with a true minus sign and, for ``1e-14``, a power of ten.

    Args:
        value: the number.
        spec: a format specification of Python; ``.4g`` for floats and all digits for integers
            where it is empty.

    The minus sign is U+2212, the spaces around the multiplication sign do not break (U+00A0), a
    power of zero is left out, and a number that rounds to zero has no sign.

    Raises:
        ValueError: a specification that Python does not know for numbers.
    """
    if not spec:
        spec = "d" if isinstance(value, int) else ".4g"
    try:
        text = format(value, spec)
    except ValueError as error:
        raise ValueError(
            f"expected a number format such as .3f, .1e or .0%, got {spec!r} ({error})"
        ) from None
    text = _ZERO.sub(r"\1", text) if _ZERO.fullmatch(text.strip()) else text
    text = _EXPONENT.sub(_power, text)
    return text.replace("-", "\N{MINUS SIGN}")


def _power(match: re.Match[str]) -> str:
    exponent = int(match[1])
    if exponent == 0:
        return ""
    times = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"
    return f"{times}10{str(exponent).translate(_SUPERSCRIPTS)}"


def _share(values: Sequence[float | int]) -> float:
    strange = [value for value in values if value not in (0, 1)]
    if strange:
        raise ValueError(f"expected zeros and ones to take the share of, got {strange[0]!r}")
    return math.fsum(values) / len(values)


def _median(values: Sequence[float | int]) -> float | int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def _interval(values: Sequence[float | int]) -> tuple[float, float]:
    import numpy as np

    from measured_book.evidence.statistics import mean_interval

    return mean_interval(np.asarray(values, dtype=np.float64)).interval


REDUCTIONS: Mapping[str, Callable[[Sequence[float | int]], float | int | tuple[float, float]]] = {
    "mean": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
    "median": _median,
    "count": len,
    "interval": _interval,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "share": _share,
}


def format_value(payload: Mapping[str, Any], expression: str) -> str:
    """Return the text for an expression such as ``CS-1.3.error|max:.1e``.

    An expression is a path, then perhaps ``|`` and a reduction, then perhaps ``:`` and a format of
    Python. Paths:

    - ``min_distance``: a value that has this name;
    - ``CS-1.3.error``, ``DD-7.7.rotary.treatment``: values of a record, or of a part of it;
    - ``CS-1.3.effect``, ``.interval``, ``.p`` and ``.p_holm``: its statistics;
    - ``CS-1.3.rule.tolerance``: a parameter of its declared rule.

    Reductions: mean (also when none is named), min, max, median, count, interval (the 95 % t
    interval of the mean), first, last, share (of ones among zeros and ones). Intervals read
    ``0.12 to 0.34``.

    Args:
        payload: named numbers and lists under ``values``, records by claim under ``records``.
        expression: the expression, as a role of the book holds it.

    Raises:
        KeyError: a path that leads nowhere; the message gives the nearest ones.
        ValueError: an unknown reduction or format, or a path to something that is no number.
    """
    path, _, spec = expression.strip().partition(":")
    path, bar, reduction = (text.strip() for text in path.partition("|"))
    spec = spec.strip()
    known = dict(paths(payload))
    if path not in known:
        near = difflib.get_close_matches(path, known, n=3, cutoff=0.4)
        hint = f"nearest are {', '.join(near)}" if near else "nothing measured is near"
        raise KeyError(f"no measured value {path!r} on this page; {hint}")
    value = known[path]
    if bar and reduction not in REDUCTIONS:
        raise ValueError(f"expected one of {', '.join(REDUCTIONS)} after |, got {reduction!r}")
    if value is None:
        raise ValueError(f"{path}: expected a number, got none: an exact rule has no such value")
    if isinstance(value, (str, bool)):
        raise ValueError(f"{path}: expected a number, got {value!r}")
    is_interval = path.endswith(".interval") and isinstance(value, list)
    if bar:
        if is_interval and reduction not in ("min", "max", "first", "last"):
            raise ValueError(f"{path}: expected min or max of an interval, got {reduction}")
        value = REDUCTIONS[reduction](value if isinstance(value, list) else [value])
    elif isinstance(value, list) and not is_interval:
        value = REDUCTIONS["mean"](value) if len(value) > 1 else value[0]
    if isinstance(value, (list, tuple)):
        return " to ".join(number_text(end, spec) for end in value)
    return number_text(value, spec)


def paths(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All paths of a payload, see `format_value`, each with what it leads to."""
    yield from payload["values"].items()
    for claim_id, record in payload["records"].items():
        for name, part in parts_of(record).items():
            stem = f"{claim_id}.{name}" if name else claim_id
            for statistic in ("effect", "interval", "p", "p_holm"):
                if statistic in part["statistics"]:
                    yield f"{stem}.{statistic}", part["statistics"][statistic]
            for parameter, value in part["rule"].items():
                yield f"{stem}.rule.{parameter}", value
            for key, value in part["values"].items():
                yield f"{stem}.{key}", value
