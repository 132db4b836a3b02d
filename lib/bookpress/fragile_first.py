"""Which verdicts could other seeds change? ``python -m bookpress.fragile_first`` asks the likeliest first.

    python -m bookpress.fragile_first                 the experiments without a second set, and their cost
    python -m bookpress.fragile_first --minutes 30    measures half as many other seeds for so long

A verdict is *fragile* when half of the seeds could have given another one. So half as many are drawn, with
replacement, from those of the book, and each part of the claim is judged by its rule once more; the share of
draws with another verdict is the claim's fragility. (Holm's correction is left out on both sides.)

Other seeds are measured in turn, claim by claim: the results that it reads and that a second set has not, with
half as many seeds as the book has. They lie in `_build/seeds-1000`; then ``python -m bookpress.second_seeds``
keeps what they say.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from measured_book.evidence.registry import claims
from measured_book.evidence.rules import judge
from measured_book.evidence.schema import Rule
from measured_book.evidence.verdicts import Verdict, combine, named
from measured_book.measuring.judging import judge_room
from measured_book.measuring.measurement import measurements_of, rooms
from measured_book.measuring.scheduler import measure_all
from measured_book.measuring.state import folder_for

from bookpress.second_seeds import kept_verdicts

OFFSET = 1000
"""The second set of seeds."""
DRAWS = 40
"""How many draws of half the seeds a fragility is a share of."""


@dataclass(frozen=True)
class Fragile:
    """An experiment that a second set of seeds has not been asked.

    Attributes:
        claim, room, verdict: which, and what it comes to.
        fragility: share of draws of half the seeds that give another verdict.
        reads: the measurements that its verdict stands on, of those with more than one seed.
        seconds: what half the seeds of all of them took, at the time.
    """

    claim: str
    room: str
    verdict: str
    fragility: float
    reads: tuple[str, ...]
    seconds: float


def fragility(rules: Mapping[str, Rule], record: Mapping[str, Any], *, draws: int = DRAWS) -> float:
    """Return the share of draws of half the seeds that give a claim another verdict.

    Args:
        rules: of its parts by name; of a claim without parts by the empty name.
        record: of the claim, with the values of its parts; see `measuring.judging`.
        draws: how many.
    """
    parts = record.get("parts", [{"name": "", **record}])
    generator = np.random.default_rng(0)
    other = 0
    for _ in range(draws):
        verdicts = {
            part["name"]: _drawn(rules[part["name"]], part["values"], generator) for part in parts
        }
        whole = named(combine(verdicts, record["combine"]), record)
        other += whole.value != record["verdict_alone"]
    return other / draws


def _drawn(
    rule: Rule, values: Mapping[str, Sequence[float]], generator: np.random.Generator
) -> Verdict:
    """The verdict of one draw: the same seeds in all values that are as many; what has no seeds stays."""
    arrays = {name: np.asarray(each, dtype=np.float64) for name, each in values.items()}
    if set(arrays) == {"successes", "trials"}:
        right, of = int(arrays["successes"].sum()), int(arrays["trials"].sum())
        half = max(2, of // 2)
        drawn = np.array([generator.binomial(half, right / of)])
        return judge(rule, {"successes": drawn, "trials": np.array([half])}).verdict
    if not rule.per_seed:
        return judge(rule, arrays).verdict
    many = max(map(len, arrays.values()))
    chosen = generator.integers(many, size=max(3, many // 2))
    drawn_values = {n: each[chosen] if len(each) == many else each for n, each in arrays.items()}
    return judge(rule, drawn_values).verdict


def plan(chosen: Sequence[str] = ()) -> list[Fragile]:
    """Return the experiments without a second set, the most fragile first, the cheaper of equals first.

    Args:
        chosen: rooms; all when empty.
    """
    known, found = kept_verdicts(), []
    for room in chosen or rooms():
        judged = judge_room(room)
        for name, record in judged.records.items():
            claim = claims()[name]
            reads = tuple(n for n in judged.reads[name] if len(judged.results[n].seeds) > 1)
            if claim.kind != "experiment" or name in known or not reads:
                continue
            rules = {part.name: part.rule for part in claim.parts}
            rules = rules if claim.rule is None else {"": claim.rule}
            seconds = sum(float(judged.results[n].provenance.get("seconds", 0)) for n in reads) / 2
            found.append(
                Fragile(name, room, record["verdict"], fragility(rules, record), reads, seconds)
            )
    return sorted(found, key=lambda one: (-one.fragility, one.seconds))


def measure_first(planned: Sequence[Fragile], minutes: float, most: float = float("inf")) -> int:
    """Measure other seeds for as many experiments as there is time for, in the order given; returns how many.

    Args:
        planned: the experiments.
        minutes: the time that there is. What took longer, at the time, than what is left of it is left out.
        most: experiments that took more seconds than these are left out, too.
    """
    os.environ["MEASURED_SEED_OFFSET"] = str(OFFSET)
    end, asked = time.monotonic() + 60 * minutes, 0
    for one in planned:
        own = measurements_of(one.room)
        lacking = [own[n] for n in one.reads if not (folder_for(one.room) / f"{n}.json").is_file()]
        left = end - time.monotonic()
        if lacking and (one.seconds > min(left, most) or left <= 0):
            continue
        halves = [replace(each, seeds=max(2, (each.seeds + 1) // 2)) for each in lacking]
        report = measure_all(halves)
        for label, why in report.failed.items():
            print(f"{label}: {why}", file=sys.stderr)
        asked += not report.failed
        print(f"{one.claim}: measured with half as many other seeds", flush=True)
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """List what could be asked, or ask it."""
    parser = argparse.ArgumentParser(
        "python -m bookpress.fragile_first", description=__doc__.split("\n")[0]
    )
    parser.add_argument("rooms", nargs="*", help="rooms of chapters (default: all)")
    parser.add_argument("--minutes", type=float, help="measure for so long, the most fragile first")
    parser.add_argument(
        "--most", type=float, default=float("inf"), help="leave out what took more seconds"
    )
    parser.add_argument("--claims", nargs="*", default=(), help="these claims alone")
    options = parser.parse_args(arguments)
    planned = plan([name.replace("-", "_") for name in options.rooms])
    if options.claims:
        planned = [one for one in planned if one.claim in options.claims]
    if options.minutes is None:
        for one in planned:
            cost = f"{one.fragility:4.0%} {one.seconds:7.1f} s"
            print(f"{one.claim:10} {cost}  {one.verdict:20} {one.room}: {', '.join(one.reads)}")
        return 0
    print(
        f"{measure_first(planned, options.minutes, options.most)} experiments have a second set of seeds now"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
