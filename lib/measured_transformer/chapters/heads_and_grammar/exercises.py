"""Exercises of the chapter on heads and the grammar."""

from __future__ import annotations

from measured_transformer.exercises.answers import Answer, close, demand, demand_number, number
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/heads-and-grammar"


@exercise(_CHAPTER)
def offset(answer: Answer) -> None:
    """Four numbers: F1 of two offsets and of a head, and the lead over the best offset."""
    near, far, head, lead = answer.numbers("(a)", "(b)", "(c)", "(d)")
    slips = {3.0: "that is how many are right", 6 / 7: "all four verbs have a word before them"}
    way = "twice what is right over what is predicted plus what is there"
    demand_number(near, 0.75, way=way, name="(a)", within=0.005, slips=slips)
    slips = {
        0.25: "the verb at place 2 has no word four places back: nothing is predicted there",
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
        found = answer(list(ends))
        demand(
            isinstance(found, list) and len(found) == len(ends),
            f"expected a list of {len(ends)} places",
        )
        demand(found != [-1, *ends[:-1]], "shifted the wrong way: arrows now start one place later")
        ahead = any(end > start for start, end in enumerate(found))
        demand(not ahead, "an arrow points ahead of its start; a decoder cannot look there")
        demand(found == right, f"with {what}, expected {right}, got {found}")


@exercise(_CHAPTER)
def ceiling(answer: Answer) -> None:
    """Write `ceiling(distances)`: the best F1 of any head that sees nothing ahead."""
    for distances in ([-1, -4, -1], [1, 1, 2], [-1, 2, 1, -3, 0]):
        share = sum(d <= 0 for d in distances) / len(distances)
        found = number(answer(list(distances)))
        demand(
            close(found, share) or not close(found, sum(d < 0 for d in distances) / len(distances)),
            "a head may look at its own place: the distance 0 counts",
        )
        demand(
            close(found, share) or not close(found, 2 * share / (1 + share)),
            "the head predicts at every start, also where the arrow points ahead",
        )
        demand(close(found, share), f"distances {distances}: expected {share:.3f}, got {found:.3f}")
