"""Mistakes in the exercises on what attention costs."""

WRONG = {
    "cost.equal": {
        "two matrices": ((2 / 3, 2.875, 0.0), "three matrices"),
        "pairs alone": ((4.0, 2.875, 0.0), "projections, too"),
        "all projections": ((2.0, 3.75, 0.0), "not shared"),
        "keys alone": ((2.0, 2.4375, 0.0), "both keys and values"),
        "nothing changed": ((2.0, 2.0, 0.0), "fewer numbers"),
        "pairs shared": ((2.0, 2.875 / 8, 0.0), "still meet all keys"),
        "the quadratic term": ((2.0, 2.875, 2.0), "alone reaches"),
        "the source": ((2.0, 2.875, 1.0), "do not guess"),
    },
    "cost.window": {
        "a rectangle": (lambda n, w: n * w, "first queries see fewer"),
        "no window": (lambda n, w: n * (n + 1) / 2, "whole causal triangle"),
        "not itself": (
            lambda n, w: sum(min(query + 1, w) for query in range(n)) - n,
            "sees itself, too",
        ),
        "half a rectangle": (lambda n, w: n * w / 2, "on your fingers"),
    },
    "cost.writing": {
        "all at once": (lambda n, d: 24 * n * d**2 + 4 * n**2 * d, "meet"),
        "no cache": (
            lambda n, d: sum(24 * t * d**2 + 4 * t**2 * d for t in range(1, n + 1)),
            "anew each time",
        ),
        "attention alone": (lambda n, d: 8 * n * d**2 + 2 * n * (n + 1) * d, "network works"),
        "not itself": (lambda n, d: 24 * n * d**2 + 2 * n * (n - 1) * d, "meets itself"),
    },
}
