"""Mistakes in the exercises on what attention costs."""

import math

import torch


def stepped(maximum, total, mixed, scores, values, *, mixture=True, whole=True, **how):
    new = torch.maximum(maximum, scores.amax(-1)) if whole else scores.amax(-1)
    shrink = (maximum - new).exp()
    weights = (scores - new[:, None]).exp()
    kept = shrink * total if how.get("total", True) else total
    mixed = shrink[:, None] * mixed if mixture else mixed
    return new, kept + weights.sum(-1), mixed + weights @ values


def divided(*given):
    new, total, mixed = stepped(*given)
    return new, total, mixed / total[:, None]


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
    "cost.online": {
        "old terms kept": (lambda m, s, x: (max(m, x), s + math.exp(x - max(m, x))), "old maximum"),
        "the new term forgotten": (
            lambda m, s, x: (max(m, x), s * math.exp(m - max(m, x)) if s else 0.0),
            "own term",
        ),
        "no maximum": (lambda m, s, x: (0.0, s + math.exp(min(x, 700))), "the maximum is 0"),
        "the last score": (lambda m, s, x: (x, s * math.exp(m - x) + 1), "the maximum is 2"),
        "shrunk twice": (
            lambda m, s, x: (
                max(m, x),
                s * math.exp(2 * (m - max(m, x))) + math.exp(x - max(m, x)),
            ),
            "less the maximum",
        ),
        "one number": (lambda m, s, x: max(m, x), "2 numbers"),
    },
    "cost.tile": {
        "divided each time": (lambda *given: divided(*given), "divide once"),
        "mixture not shrunk": (lambda *given: stepped(*given, mixture=False), "mixture is off"),
        "total not shrunk": (lambda *given: stepped(*given, total=False), "total is off"),
        "the tile's own maximum": (lambda *given: stepped(*given, whole=False), "not that of all"),
        "two things": (lambda *given: stepped(*given)[:2], "three tensors"),
    },
    "cost.moved": {
        "the plain form": (lambda n, d, size: 4 * n * n + 4 * n * d, "plain form"),
        "no logarithm": (lambda n, d, size: 2 * n * d * (1 + -(-n // size)), "the logarithm"),
        "keys alone": (lambda n, d, size: 2 * n * d + n + n * d * -(-n // size), "two matrices"),
        "nothing stored": (lambda n, d, size: n * d + n + 2 * n * d * -(-n // size), "stored"),
        "once for all": (lambda n, d, size: 4 * n * d + n, "once for each tile"),
        "no whole tiles": (lambda n, d, size: 2 * n * d + n + 2 * n * d * n / size, "smaller"),
        "something else": (lambda n, d, size: n * d * size, "count what"),
    },
}
