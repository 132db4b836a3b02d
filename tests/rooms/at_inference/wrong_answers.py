"""Mistakes in the exercises on attention at inference."""

CACHE = 2 * 32 * 4096 * 4096 * 2 / 1e9


def decided(p, q, x, u, *, rest=None, likely=None):
    chance = p[x] / q[x] if likely is None else likely(p, q, x)
    if u < chance:
        return True
    missing = (p - q).clamp(min=0)
    return missing / missing.sum() if rest is None else rest(p, q, missing)


WRONG = {
    "at_inference.memory": {
        "one vector": ((CACHE / 2 * 1.0, 30, 123), "two vectors"),
        "one layer": ((CACHE / 32, 30, 123), "cache of its own"),
        "no weights": ((CACHE, 37, 123), "their share of the memory"),
        "rounded up": ((CACHE, 31, 123), "fit altogether"),
        "four times thirty": ((CACHE, 30, 120), "anew"),
        "the same": ((CACHE, 30, 30), "instead of 32"),
        "something else": ((7.0, 30, 123), "each layer and token"),
    },
    "at_inference.slot": {
        "no sinks": (lambda t, window, sinks: t % (window + sinks), "first tokens should stay"),
        "no ring": (lambda t, window, sinks: t, "counted from 0"),
        "always the last": (
            lambda t, window, sinks: min(t, window + sinks - 1),
            "the oldest of the window",
        ),
        "halves": (lambda t, window, sinks: t + 0.5, "whole numbers"),
    },
    "at_inference.place": {
        "the entry": (lambda table, size, t: (t // size, t % size), "which page is it"),
        "in the request": (lambda table, size, t: (table[t // size], t), "not the place"),
        "the first page": (lambda table, size, t: (table[0], t % size), "not the page"),
        "one number": (lambda table, size, t: table[t // size] * size + t % size, "2 numbers"),
    },
    "at_inference.decide": {
        "the target after all": (
            lambda *given: decided(*given, rest=lambda p, q, missing: p),
            "given already",
        ),
        "the draft again": (
            lambda *given: decided(*given, rest=lambda p, q, missing: q),
            "just been refused",
        ),
        "not normalised": (
            lambda *given: decided(*given, rest=lambda p, q, missing: missing),
            "add up to one",
        ),
        "negative": (
            lambda *given: decided(*given, rest=lambda p, q, missing: p - q),
            "no probability is negative",
        ),
        "the target's share": (
            lambda *given: decided(*given, likely=lambda p, q, x: p[x]),
            "the token stands",
        ),
        "always": (lambda p, q, x, u: True, "does not stand"),
        "no distribution": (lambda p, q, x, u: bool(u < p[x] / q[x]), "drawn from instead"),
    },
    "at_inference.worth": {
        "a free draft": (
            lambda alpha, ahead, cost: sum(alpha**i for i in range(ahead + 1)),
            "takes time",
        ),
        "run once": (
            lambda alpha, ahead, cost: sum(alpha**i for i in range(ahead + 1)) / (1 + cost),
            "once for each proposal",
        ),
        "accepted ones alone": (
            lambda alpha, ahead, cost: (
                sum(alpha**i for i in range(1, ahead + 1)) / (1 + cost * ahead)
            ),
            "ends in a token",
        ),
        "a free target": (
            lambda alpha, ahead, cost: sum(alpha**i for i in range(ahead + 1)) / (cost * ahead),
            "runs once, too",
        ),
        "the share": (lambda alpha, ahead, cost: alpha, "over the time of a round"),
    },
    "at_inference.checkpoints": {
        "inputs alone": (lambda layers, every: -(-layers // every), "its own states"),
        "rounded down": (lambda layers, every: layers // every + every, "may be shorter"),
        "all again": (lambda layers, every: layers + every, "only one stretch"),
        "something else": (lambda layers, every: layers * every, "count inputs kept"),
    },
}
