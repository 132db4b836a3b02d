"""Mistakes in the exercises on removing heads."""

import math

SINGLE, DOUBLE, NONE = math.log1p(4 * math.exp(-5)), math.log1p(4 * math.exp(-10)), math.log(5)
ONE, BOTH, OWN = 0.75 * (SINGLE - DOUBLE), 0.75 * (NONE - DOUBLE), 0.25 * (NONE - SINGLE)


def one_by_one(loss, n):
    return sorted(range(n), key=lambda head: loss(frozenset({head})))


def greedy(loss, n, choose):
    gone = []
    while len(gone) < n:
        left = [head for head in range(n) if head not in gone]
        gone.append(choose(left, key=lambda head: loss(frozenset({*gone, head}))))
    return gone


WRONG = {
    "pruning.spare": {
        "at the twins' places": ((SINGLE - DOUBLE, BOTH, OWN), "what of the mean"),
        "a loss": ((0.75 * SINGLE, BOTH, OWN), "what it rises by"),
        "twice one": ((ONE, 2 * ONE, OWN), "what is left when both are gone"),
        "all places": ((ONE, NONE - DOUBLE, OWN), "what of the mean"),
        "a twin for the third": ((ONE, BOTH, 0.25 * (NONE - DOUBLE)), "has no twin"),
        "nothing lost": ((ONE, BOTH, 0.0), "only head that serves it"),
    },
    "pruning.reranked": {
        "one by one": (one_by_one, "removed from what is left"),
        "the dearest first": (lambda loss, n: greedy(loss, n, min)[::-1], "cheapest go first"),
        "dearest each time": (lambda loss, n: greedy(loss, n, max), "cheapest head that is left"),
        "one is missing": (lambda loss, n: greedy(loss, n, min)[:-1], "each of 4 heads once"),
    },
    "pruning.survives": {
        "one copy": (lambda n, removed, copies: 1 - removed / n, "as if there were one"),
        "with putting back": (
            lambda n, removed, copies: 1 - (removed / n) ** copies,
            "without putting back",
        ),
        "all are gone": (
            lambda n, removed, copies: (
                math.comb(n - copies, removed - copies) / math.comb(n, removed)
                if copies <= removed
                else 0.0
            ),
            "all copies are gone",
        ),
    },
}
