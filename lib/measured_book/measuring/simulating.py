"""How long processes that share one device take for what waits in a queue: a small simulation of events.

What is ready begins in a fixed order, as soon as a process is free. A piece of work uses the device for a part
of its time; where all that run together want more than the whole device, they slow one another down alike.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Something that one process does.

    Attributes:
        seconds: how long it takes with the device for itself.
        device: for which part of that it uses the device.
        order: among what is ready, the smallest begins first, and of those the longest.
        part_of: a name; it is done when all pieces with this name are done.
        after: names that must be done before it begins; of several sets one is enough.
    """

    seconds: float
    device: float = 0.0
    order: int = 0
    part_of: str = ""
    after: tuple[frozenset[str], ...] = ()


def simulate(
    pieces: Sequence[Piece], processes: int, most: Mapping[int, int] | None = None
) -> float:
    """Seconds until all is done.

    Args:
        pieces: what there is to do.
        processes: how many there are.
        most: order -> how many pieces of it are at work at once while one of another order is ready.

    Raises:
        ValueError: no process, or pieces that wait for one another or for a name that no piece has.

    >>> simulate([Piece(3.0), Piece(1.0), Piece(1.0), Piece(1.0)], 2)
    3.0
    >>> simulate([Piece(3.0, device=1.0), Piece(3.0, device=1.0)], 2)
    6.0
    """
    if processes < 1:
        raise ValueError(f"expected at least one process, got {processes}")
    left = Counter(piece.part_of for piece in pieces)
    missing = {(i, a): len(names) for i, p in enumerate(pieces) for a, names in enumerate(p.after)}
    asking: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, piece in enumerate(pieces):
        for number, names in enumerate(piece.after):
            for name in names:
                asking[name].append((place, number))
    ready: dict[int, list[tuple[float, int]]] = {
        one: [] for one in sorted({p.order for p in pieces})
    }
    begun: set[int] = set()

    def offer(place: int) -> None:
        if place not in begun:
            begun.add(place)
            heapq.heappush(ready[pieces[place].order], (-pieces[place].seconds, place))

    def next_one() -> int | None:
        orders = [order for order, heap in ready.items() if heap]
        at_work = Counter(pieces[place].order for place in running)
        for order in orders:
            if len(orders) == 1 or at_work[order] < (most or {}).get(order, processes):
                return heapq.heappop(ready[order])[1]
        return heapq.heappop(ready[orders[0]])[1] if orders else None

    for place, piece in enumerate(pieces):
        if not piece.after or not all(piece.after):
            offer(place)
    running: dict[int, float] = {}
    now, done = 0.0, 0
    while any(ready.values()) or running:
        while len(running) < processes and (begins := next_one()) is not None:
            running[begins] = pieces[begins].seconds
        wanted = max(1.0, math.fsum(pieces[place].device for place in running))
        slower = {place: wanted if pieces[place].device else 1.0 for place in running}
        passed = min(rest * slower[place] for place, rest in running.items())
        now += passed
        for place in list(running):
            running[place] -= passed / slower[place]
            if running[place] > 1e-9 * pieces[place].seconds:
                continue
            del running[place]
            done += 1
            name = pieces[place].part_of
            left[name] -= 1
            for waiting in asking[name] if not left[name] else ():
                missing[waiting] -= 1
                if not missing[waiting]:
                    offer(waiting[0])
    if done < len(pieces):
        raise ValueError(f"{len(pieces) - done} pieces wait for what never comes")
    return now
