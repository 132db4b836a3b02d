"""Exercises of the chapter on what attention costs."""

from __future__ import annotations

from measured_transformer.exercises.answers import Answer, close, demand, demand_number, number
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/cost"


@exercise(_CHAPTER)
def equal(answer: Answer) -> None:
    """Three lengths in units of d at which attention and network cost the same: gated, shared, narrow."""
    gated, shared, narrow = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        2 / 3: "a gated network has three matrices, not two",
        4.0: "attention has projections, too",
    }
    way = "count the network's three products; then set it equal to all of attention"
    demand_number(gated, 2.0, way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        3.75: "queries and output are not shared; only keys and values become cheaper",
        2.4375: "both keys and values become cheaper",
        2.0: "fewer numbers come out of the projections of keys and values",
        2.875 / 8: "all query heads still meet all keys: the pairs cost what they did",
    }
    way = "what is left of the eight n d d when keys and values have an eighth of the heads?"
    demand_number(shared, 2.875, way=way, name="(b)", within=0.005, slips=slips)
    slips = {
        2.0: "that is where the term in n n alone reaches the network",
        1.0: "solve it, do not guess",
    }
    way = "with a hidden width of 2 d, how do the network and the projections compare?"
    demand_number(narrow, 0.0, way=way, name="(c)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def window(answer: Answer) -> None:
    """Write `useful(n, w)`: pairs of a query and a key under a causal mask with a window of w tokens."""
    for n, w in ((4, 4), (1, 1), (6, 2), (10, 3), (5, 1), (512, 128)):
        found = number(answer(n, w))
        right = sum(min(query + 1, w) for query in range(n))
        shown = f"for n={n} and w={w} the count is {found:g}"
        demand(
            not close(found, float(n * w)) or right == n * w,
            f"{shown}: the first queries see fewer",
        )
        if w < n:
            causal = n * (n + 1) / 2
            demand(not close(found, causal), f"{shown}: that is the whole causal triangle")
        demand(
            not close(found, float(right - n)) or n == 0,
            f"{shown}: a query sees itself, too",
        )
        demand(close(found, float(right)), f"{shown}; count a small one on your fingers")


@exercise(_CHAPTER)
def writing(answer: Answer) -> None:
    """Write `writing(n, d)`: a block's operations for n tokens one by one, keys and values kept."""
    for n, d in ((3, 2), (10, 4), (100, 16), (1, 2)):
        found = number(answer(n, d))
        right = 24 * n * d**2 + 2 * n * (n + 1) * d
        shown = f"for n={n} and d={d} it gives {found:g}"
        if n > 1:
            at_once = 24 * n * d**2 + 4 * n**2 * d
            demand(
                not close(found, float(at_once)),
                f"{shown}: that is reading all at once; how many keys does the first token meet?",
            )
            without = sum(24 * t * d**2 + 4 * t**2 * d for t in range(1, n + 1))
            demand(
                not close(found, float(without)), f"{shown}: that computes all keys anew each time"
            )
            early = 24 * n * d**2 + 2 * n * (n - 1) * d
            demand(not close(found, float(early)), f"{shown}: a token meets itself, too")
            demand(
                not close(found, float(8 * n * d**2 + 2 * n * (n + 1) * d)),
                f"{shown}: the network works for each token as well",
            )
        demand(close(found, float(right)), f"{shown}; write down one token's operations, then sum")
