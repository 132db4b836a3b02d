"""Rooms whose readings were rewritten as expressions are judged by the same values and print the same numbers.

What is compared with was kept before the move, see `moved_rooms`. It holds as long as a room's results do:
where one was measured again, its room is left out here until that is kept anew. Whoever rewrites a page or a
claim keeps its room anew too.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from .moved_rooms import FOLDER, kept, state_of

ROOMS = sorted(path.stem for path in FOLDER.glob("*.json"))
COMPUTED = ("/LT-13.4/",)
"""Claims whose values a kept model computes while they are judged, in single precision, as processors round."""


def differences(then: Any, now: Any, where: str = "") -> list[str]:
    """Where two nested values differ by more than rounding."""
    if isinstance(then, dict) and isinstance(now, dict):
        keys = sorted(then.keys() | now.keys())
        return [x for k in keys for x in differences(then.get(k), now.get(k), f"{where}/{k}")]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = zip(then, now, strict=True)
        return [x for i, (a, b) in enumerate(pairs) for x in differences(a, b, f"{where}[{i}]")]
    if isinstance(then, float) and isinstance(now, int | float):
        rounding = 1e-4 if where.startswith(COMPUTED) else 1e-9
        same = now == pytest.approx(then, rel=rounding, abs=1e-14)
        return [] if same else [f"{where}: {now}, was {then}"]
    return [] if then == now else [f"{where}: {now}, was {then}"]


def test_some_rooms_are_kept():
    assert len(ROOMS) >= 3


@pytest.mark.parametrize("room", ROOMS)
def test_values_judged_and_printed_are_those_before_the_move(room):
    then, now = kept(room), state_of(room)
    if changed := [
        name for name, told in then["results"].items() if now["results"].get(name) != told
    ]:
        pytest.skip(f"{', '.join(changed)}: measured again since the move")
    assert differences(then["claims"], now["claims"]) == []
    # A page that came later may print the room's numbers too.
    pages = {page: shown for page, shown in now["pages"].items() if page in then["pages"]}
    assert differences(then["pages"], pages) == []


def test_a_changed_value_would_be_found():
    then = kept(ROOMS[0])
    now = json.loads(json.dumps(then))
    claim = next(iter(now["claims"].values()))
    part = next(one for one in claim.values() if isinstance(one, dict))
    part["effect"] *= 1 + 1e-6
    assert len(differences(then, now)) == 1
