"""Exercises of the chapter on heads and the grammar."""

from __future__ import annotations

import torch
from torch import Tensor

from measured_book.exercises.answers import Answer, close, demand, demand_number, number
from measured_book.exercises.registry import exercise

_CHAPTER = "book/attention/heads-and-grammar"


@exercise(_CHAPTER)
def offset(answer: Answer) -> None:
    """Four numbers: F1 of two offsets and of a head, and the lead over the best offset."""
    near, far, head, lead = answer.numbers("(a)", "(b)", "(c)", "(d)")
    slips = {3.0: "that is how many are right", 6 / 7: "all four verbs have a word before them"}
    way = "twice what is right over what is predicted plus what is there"
    demand_number(near, 0.75, way=way, name="(a)", within=0.005, slips=slips)
    slips = {
        0.25: "the verb at position 2 has no word four positions back: nothing is predicted there",
        1
        / 3: "that is the share of the predictions that are right; the arrows missed count as well",
    }
    demand_number(far, 2 / 7, way=way, name="(b)", within=0.005, slips=slips)
    slips = {1.0: "the last verb's subject stands at 8"}
    demand_number(head, 0.75, way=way, name="(c)", within=0.005, slips=slips)
    slips = {
        0.75 - 2 / 7: "that is the lead over the offset of (b); the best offset is another",
        0.75: "that is its score; asked for is the difference",
    }
    way = "compare with the better of the two offsets"
    demand_number(lead, 0.0, way=way, name="(d)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def earlier(answer: Answer) -> None:
    """Write `earlier(ends)`: the arrows, looked along from one place earlier."""
    cases = (
        ([-1, 0, -1, 1], [0, -1, 1, -1], "the arrows from 1 to 0 and from 3 to 1"),
        ([-1, 2, -1, -1], [-1, -1, -1, -1], "an arrow that points ahead, from 1 to 2"),
        ([1, -1, -1, 0], [-1, -1, 0, -1], "an arrow that starts at the first word"),
    )
    for ends, right, what in cases:
        given = answer(list(ends))
        found = [int(end) for end in given] if hasattr(given, "__len__") else []
        demand(len(found) == len(ends), f"expected a list of {len(ends)} positions")
        demand(
            found != [-1, *ends[:-1]], "shifted the wrong way: arrows now start one position later"
        )
        ahead = any(end > start for start, end in enumerate(found))
        demand(not ahead, "an arrow points ahead of its start; a decoder cannot look there")
        demand(found == right, f"with {what}, expected {right}, got {found}")


def _looked(seed: int, rows: int, heads: int, n: int) -> tuple[Tensor, Tensor]:
    """Where heads look, at random, and where arrows end, a third of which are missing."""
    random = torch.Generator().manual_seed(seed)
    looked = torch.randint(n, (rows, heads, n), generator=random)
    ends = torch.randint(n, (rows, n), generator=random)
    return looked, ends.masked_fill(torch.rand(rows, n, generator=random) < 1 / 3, -1)


def _share(looked: Tensor, ends: Tensor) -> Tensor:
    """The share of arrows that each head finds."""
    there = (ends >= 0)[:, None]
    return ((looked == ends[:, None]) & there).sum((0, 2)) / there.sum()


@exercise(_CHAPTER)
def chosen(answer: Answer) -> None:
    """Write `chosen(looked, ends)`: the best head of the even rows, and its share on the odd ones."""
    for seed in (145, 50):  # the best head of all rows is that of neither half
        looked, ends = _looked(seed, 40, 6, 9)
        found = answer(looked.clone(), ends.clone())
        demand(
            isinstance(found, tuple | list) and len(found) == 2,
            "expected two things: the head and its share",
        )
        head, share = int(number(found[0])), number(found[1])
        even, odd, both = (_share(looked[i], ends[i]) for i in _PARTS)
        right = int(even.argmax())
        demand(
            head != int(odd.argmax()) or head == right,
            "that is the best head of the rows it is scored on; choose on the even ones",
        )
        demand(
            head != int(both.argmax()) or head == right,
            "that is the best head of all rows; choose on the even ones alone",
        )
        demand(head == right, f"expected head {right}, got {head}")
        demand(
            not close(share, float(even[right]), 1e-5) or close(share, float(odd[right]), 1e-5),
            "that is its share on the rows it was chosen on; score it on the odd ones",
        )
        demand(
            close(share, float(odd[right]), 1e-4),
            f"expected a share of {float(odd[right]):.3f} of the arrows, got {share:.3f}; "
            "do words without an arrow count for nothing?",
        )


_PARTS = (slice(0, None, 2), slice(1, None, 2), slice(None))
"""The even rows, the odd ones, and all."""


@exercise(_CHAPTER)
def ceiling(answer: Answer) -> None:
    """Write `ceiling(distances)`: the best F1 of any head that sees nothing ahead."""
    for distances in ([-1, -4, -1], [1, 1, 2], [-1, 2, 1, -3, 0]):
        share = sum(d <= 0 for d in distances) / len(distances)
        found = number(answer(list(distances)))
        demand(
            close(found, share) or not close(found, sum(d < 0 for d in distances) / len(distances)),
            "a head may look at its own position: the distance 0 counts",
        )
        demand(
            close(found, share) or not close(found, 2 * share / (1 + share)),
            "the head predicts at every start, also where the arrow points ahead",
        )
        demand(close(found, share), f"distances {distances}: expected {share:.3f}, got {found:.3f}")
