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


def one_step(cache, x, wq, wk, wv, *, scale=4**0.5, itself=True, keep="kv"):
    key, value, query = (x @ wk)[None], (x @ wv)[None], (x @ wq)[None]
    if cache is not None:
        old_key, old_value = cache[:2] if keep != "x" else (cache @ wk, cache @ wv)
        if not itself:
            scores = old_key @ query[0] / scale
            both = torch.cat((old_key, key)), torch.cat((old_value, value))
            return both, scores.softmax(0) @ old_value
        key, value = torch.cat((old_key, key)), torch.cat((old_value, value))
    output = (key @ query[0] / scale).softmax(0) @ value
    if keep == "x":
        return (x[None] if cache is None else torch.cat((cache, x[None]))), output
    if keep == "qkv":
        return (key, value, query if cache is None else torch.cat((cache[2], query))), output
    if keep == "doubled":
        return (key, value, key, value), output
    return (key, value), output


SHARED = []


def shared_cache(cache, x, wq, wk, wv):
    SHARED.append(one_step(SHARED[-1][0] if SHARED else None, x, wq, wk, wv))
    return SHARED[-1]


WRONG = {
    "cost.cache": {
        "no scale": (lambda *given: one_step(*given, scale=1.0), "root of the head's width"),
        "the model's width": (lambda *given: one_step(*given, scale=6**0.5), "the model's width"),
        "not itself": (lambda *given: one_step(*given, itself=False), "sees itself, too"),
        "tokens kept": (lambda *given: one_step(*given, keep="x"), "computed again"),
        "queries kept": (lambda *given: one_step(*given, keep="qkv"), "an earlier query"),
        "kept twice": (lambda *given: one_step(*given, keep="doubled"), "one key and one value"),
        "one cache for all": (shared_cache, "each with its own cache"),
        "nothing kept": (lambda c, *given: one_step(None, *given), "over all tokens so far"),
        "the output alone": (lambda *given: one_step(*given)[1], "two things"),
    },
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
