"""What pages print, and whether a number or a verdict changes by more than another draw of a seed explains.

A printed number is a reading of all kept seeds. Where one of them is measured again on another kind of
processor, rounding may lead its training elsewhere, to what another seed could have given. A number's own
interval is what it could be then: its values when that seed's place is taken by seeds as far from the mean as
the others, and some times farther. What rounding can do lies inside; a number outside means that something else
is computed. So it is with verdicts: one that another draw of a seed can change is *fragile*, and rounding alone
may change it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from measured_transformer.training.folders import build_folder

from measured_book.evidence.grammar import split_format
from measured_book.evidence.registry import claims
from measured_book.evidence.results import Result
from measured_book.evidence.verdicts import Verdict
from measured_book.measuring.dependencies import readings_in, results_of
from measured_book.measuring.judged import Judged
from measured_book.measuring.judging import judge_again, value_of

ROLE = re.compile(r"\{measured\}`([^`]+)`")
_ROOM = re.compile(r"^measured:\s*(?:\{\s*room:\s*|\n\s+room:\s*)(\w+)", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|inf|nan)")
FARTHER = 3.0
"""How many times as far from the mean as the kept seeds another one may lie."""
FEW = 60.0
"""How much farther where seeds are few: by so many times, over the square of the seeds less one."""
NOISE = 1e-5
"""What may be rounding itself, such as the error of an identity."""
CLOSE = 1e-5
"""By what share of itself a number may differ whose seeds do not spread."""
_EXACT = ("identity", "arithmetic")  # kinds of claims that rounding does not touch
_TRIED = 8  # how many of the kept seeds take the place of the one that is measured again


@dataclass(frozen=True)
class Left:
    """A printed number that left its interval.

    Attributes:
        expression: what stands in the text.
        before, after: as it is printed, and as it would be with what was measured now.
        interval: what it could be.
    """

    expression: str
    before: str
    after: str
    interval: tuple[float, float]

    def __str__(self) -> str:
        """In words."""
        low, high = self.interval
        return (
            f"{self.expression} reads {self.before} and would read {self.after}, outside its interval "
            f"({low:.6g} to {high:.6g})"
        )


def expressions(room: str) -> list[str]:
    """What pages print of a room, each expression once, in the order of the text; nothing outside a book.

    The room's own page names no room; any other page does, as in ``scale/floor``.
    """
    build = build_folder()
    return [] if build is None else list(_printed(build.parent / "book").get(room, ()))


@lru_cache(maxsize=4)
def _printed(book: Path) -> Mapping[str, Mapping[str, None]]:
    """Room -> the expressions that pages print of it."""
    found: dict[str, dict[str, None]] = {}
    for path in sorted(book.rglob("*.md")):
        text = path.read_text("utf-8")
        own = _ROOM.search(text[:2000])
        for expression in ROLE.findall(text):
            room, sign, rest = expression.partition("/")
            if sign and room.isidentifier():
                found.setdefault(room, {})[rest] = None
            elif own:
                found.setdefault(own[1], {})[expression] = None
    return found


def left(
    kept: Judged, measured: Mapping[str, Result], repeated: Mapping[str, Sequence[int]]
) -> list[Left]:
    """The printed numbers of a room that leave their intervals with what was measured again.

    Args:
        kept: the room, judged by what is kept.
        measured: results with the values measured now in the place of the kept ones, by name.
        repeated: the places of the seeds that were measured again, by name of the measurement.
    """
    asked = [one for one in expressions(kept.room) if set(results_of(kept, one)) & set(measured)]
    needed = {name for one in asked for name in readings_in(kept, one)}
    now = judge_again(kept, measured, only=needed)
    found = []
    for one in asked:
        before, after = _text(kept, one), _text(now, one)
        if before is None or before == after or _is_significance(one):
            continue
        interval = _interval(kept, one, repeated)
        values = _numbers(now, one)
        if interval is not None and not all(
            low <= value <= high for value, (low, high) in zip(values, interval, strict=False)
        ):
            worst = next(
                ends
                for value, ends in zip(values, interval, strict=False)
                if not ends[0] <= value <= ends[1]
            )
            found.append(Left(one, before, after or "nothing", worst))
    return found


def fragile(
    kept: Judged, changed: Mapping[str, str], repeated: Mapping[str, Sequence[int]]
) -> set[str]:
    """The claims whose changed verdicts other draws of the repeated seeds alone could give, too.

    Never one of an identity or of arithmetic, nor one that turns from confirmed to refuted or back.

    Args:
        kept: the room, judged by what is kept.
        changed: the claims whose verdicts changed, and their new ones.
        repeated: the places of the seeds that were measured again, by name of the measurement.
    """
    known = {
        name: shown.result
        for name, shown in kept.results.items()
        if name in repeated and shown.result is not None and len(shown.result.seeds) > 1
    }
    asked = {
        claim: verdict
        for claim, verdict in changed.items()
        if claims()[claim].kind not in _EXACT
        and {verdict, kept.records[claim]["verdict"]} != {Verdict.CONFIRMED, Verdict.REFUTED}
    }
    found: set[str] = set()
    if not asked:
        return found
    one_by_one = [{name: result} for name, result in known.items()]
    for drawn in (one for group in [known, *one_by_one] for one in _draws(group, repeated)):
        if len(found) == len(asked):
            break
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                records = judge_again(kept, drawn).records
            except (ValueError, ArithmeticError, IndexError):
                continue  # as in `_interval`
        found |= {claim for claim, new in asked.items() if records[claim]["verdict"] == new}
    return found


def _is_significance(expression: str) -> bool:
    """Return whether it is a p-value: what that decides is the verdict, which is compared itself."""
    return re.split(r"[|:]", expression)[0].strip().endswith((".p", ".p_holm"))


def _text(judged: Judged, expression: str) -> str | None:
    try:
        return value_of(judged, expression)
    except (KeyError, ValueError):
        return None


def _numbers(judged: Judged, expression: str) -> list[float]:
    """The numbers behind what is printed, with all their digits; NaN where there is none."""
    path, _ = split_format(expression)
    text = _text(judged, f"{path}:.12g")
    if text is None:
        return [float("nan")]
    return [float(one.replace(",", "")) for one in _NUMBER.findall(text)]


def _interval(
    kept: Judged, expression: str, repeated: Mapping[str, Sequence[int]]
) -> list[tuple[float, float]] | None:
    """What a number could be with other draws in the place of the seeds that were measured again.

    None where only one seed is kept, so that nobody knows how far another would lie.
    """
    names = [name for name in results_of(kept, expression) if name in repeated]
    results = {name: kept.results[name].result for name in names}
    known = {name: one for name, one in results.items() if one is not None and len(one.seeds) > 1}
    if not known:
        return None
    only = readings_in(kept, expression)
    own = _numbers(kept, expression)
    found = [own]
    for drawn in _draws(known, repeated):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                judged = judge_again(kept, drawn, only=only)
            except (ValueError, ArithmeticError, IndexError):
                continue  # a draw that the reading refuses, such as a share above one
        numbers = _numbers(judged, expression)
        if len(numbers) == len(own):
            found.append(numbers)
    ends = []
    for value, each in zip(own, zip(*found, strict=True), strict=True):
        room_for = NOISE + CLOSE * abs(value)
        finite = [one for one in each if np.isfinite(one)] or [value]
        ends.append((min(finite) - room_for, max(finite) + room_for))
    return ends


def _draws(
    known: Mapping[str, Result], repeated: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, Result]]:
    """Results in which other draws take the place of the seeds measured again: kept ones, and farther ones."""
    most = max(len(one.seeds) for one in known.values())
    places = np.unique(np.linspace(0, most - 1, min(most, _TRIED)).round().astype(int))
    for place in places:
        for far in (False, True):
            found = {}
            for name, result in known.items():
                count = len(result.seeds)
                factor = FARTHER + FEW / (count - 1) ** 2 if far else 1.0
                variables = {}
                for variable, (axes, values) in result.variables.items():
                    changed = values.copy()
                    for index in repeated[name]:
                        changed[index] = _farther(values, place % count, factor)
                    variables[variable] = (axes, changed)
                found[name] = replace(result, variables=variables)
            yield found


def _farther(values: np.ndarray, place: int, factor: float) -> np.ndarray:
    """A seed's values, so many times as far from the mean of all; of what is true or false, they themselves."""
    row = values[place]
    if factor == 1.0 or values.dtype.kind == "b":
        return row
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        middle = np.nanmean(values.astype(np.float64), 0)
        drawn = middle + factor * (row - middle)
    return drawn.round().astype(values.dtype) if values.dtype.kind in "iu" else drawn
