"""What an expression stands on: the measurements whose results it reads, the claims and functions it asks for.

An expression mentions results, functions of the room, values that the room's file of claims names, and
statistics of claims. The last three stand on further ones, so each of them is followed to its end.
"""

from __future__ import annotations

import re

from measured_book.evidence.expressions import names_in
from measured_book.evidence.functions import FUNCTIONS
from measured_book.evidence.grammar import ExpressionError, nearest, split_format
from measured_book.evidence.registry import Written, claims
from measured_book.measuring.judged import Judged

_STATISTIC = re.compile(r"[A-Z]{2}-\d+\.\d+[a-z]?(?:\.\w+)*")


def statistic_in(expression: str) -> str | None:
    """The path to a claim's statistic, such as ``DA-2.8.random.effect``, that an expression begins with."""
    path = expression.partition("|")[0].strip()
    return path if _STATISTIC.fullmatch(path) else None


def reads_of(judged: Judged, written: Written) -> tuple[str, ...]:
    """The measurements that an expression stands on, also through names that it mentions.

    Args:
        judged: the room.
        written: the expression, and where it stands.

    Raises:
        ValueError: it mentions a name that is not there; the message gives file and line.
    """
    found: dict[str, None] = {}
    waiting, seen = [(written.text, written.where)], {written.text}
    while waiting:
        text, where = waiting.pop()
        try:
            paths = list(names_in(text))
        except ExpressionError as error:
            raise ValueError(f"{where}: {error}") from None
        for path in paths:
            if path.statistic or path.is_constant:
                continue
            if path.variable:
                if path.name not in judged.results:
                    near = nearest(path.name, judged.results)
                    raise ValueError(f"{where}: no result {path.name!r}; {near}")
                found[path.name] = None
            elif path.name in judged.scope.declared:
                declared = judged.scope.declared[path.name]
                place = judged.scope.written_at.get(path.name, where)
                waiting += [] if declared in seen else [(declared, place)]
                seen.add(declared)
            elif path.name in judged.reads:
                found |= dict.fromkeys(judged.reads[path.name])
            elif path.name in judged.results:
                result = judged.results[path.name].result
                known = [] if result is None else list(result.variables)
                raise ValueError(
                    f"{where}: expected a variable of {path.name} ({', '.join(known)}), got none"
                )
            else:
                scope = judged.scope
                known = [*scope.declared, *scope.numbers, *judged.results, *FUNCTIONS]
                near = nearest(path.name, known)
                raise ValueError(f"{where}: no value or function {path.name!r}; {near}")
    return tuple(name for name in judged.results if name in found)


def results_of(judged: Judged, text: str) -> tuple[str, ...]:
    """The measurements whose results an expression stands on; none for one that names what is not there."""
    expression, _ = split_format(text)
    if statistic := statistic_in(expression):
        return judged.reads.get(claim_of(judged, statistic) or "", ())
    try:
        return reads_of(judged, Written(expression, "here"))
    except ValueError:
        return ()


def readings_in(judged: Judged, text: str) -> set[str]:
    """The claim and the functions of a room that an expression asks for, also through other names."""
    expression, _ = split_format(text)
    statistic = statistic_in(expression)
    found: set[str] = set()
    waiting = [] if statistic else [expression]
    seen = set(waiting)

    def asks_for(path: str) -> None:
        """Add a claim, and what its evidence mentions."""
        claim = claim_of(judged, path)
        if claim is not None and claim not in found:
            found.add(claim)
            waiting.extend(_evidence_of(claim))

    if statistic:
        asks_for(statistic)
    while waiting:
        for one in names_in(waiting.pop()):
            if one.name in judged.scope.declared and not one.variable:
                declared = judged.scope.declared[one.name]
                waiting += [] if declared in seen else [declared]
                seen.add(declared)
            elif one.name in judged.scope.numbers:
                found.add(one.name)
            elif one.statistic:
                asks_for(str(one))
    return found


def claim_of(judged: Judged, path: str) -> str | None:
    """The claim whose statistic a path leads to; None where the room judges none of that name."""
    names = [name for name in judged.reads if path == name or path.startswith(f"{name}.")]
    return max(names, key=len, default=None)


def _evidence_of(claim_id: str) -> list[str]:
    """The expressions of a claim whose evidence stands in the file of claims."""
    claim = claims().get(claim_id)
    if claim is None:
        return []
    every = [claim.evidence, *(part.evidence for part in claim.parts)]
    return [one.text for evidence in every for many in evidence.values() for one in many]
