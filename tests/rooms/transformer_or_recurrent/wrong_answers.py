"""Mistakes in the exercises on Transformers and recurrent networks."""

import math

GATE = 1 / (1 + math.exp(-1))
HALF = math.log(2) / -math.log(GATE)
BIAS = -math.log(math.expm1(1 / 64))


def stepped(x, output, state, read, recur, bias, *, order=(0, 1, 2, 3), how="right"):
    parts = (read @ x + recur @ output + bias).chunk(4)
    write, keep, new, show = (parts[i] for i in order)
    old = state if how == "kept" else keep.sigmoid() * state
    kept = old + write.sigmoid() * (new if how == "raw" else new.tanh())
    said = show.sigmoid() * (kept if how == "shown" else kept.tanh())
    if how == "turned":
        return kept, said
    if how == "wrong output":
        return said + 1, kept
    return said, kept


def scanned(keep, new, *, rounds=99, gates=True):
    reach = 1
    while reach < len(new) and rounds:
        joined = new[reach:] + keep[reach:] * new[:-reach]
        multiplied = keep[reach:] * keep[:-reach]
        new = new.clone()
        new[reach:] = joined
        if gates:
            keep = keep.clone()
            keep[reach:] = multiplied
        reach, rounds = 2 * reach, rounds - 1
    return new


WRONG = {
    "recurrent.forget": {
        "until 1/e": ((1 / -math.log(GATE), BIAS), "until 1/e"),
        "in a straight line": ((0.5 / (1 - GATE), BIAS), "use logarithms"),
        "exponential": ((math.log(2), BIAS), "sigmoid"),
        "the gate": ((HALF, math.exp(-1 / 64)), "which bias"),
        "base two": ((HALF, 6.0), "natural"),
        "tokens": ((HALF, 64), "number of tokens"),
    },
    "recurrent.step": {
        "one thing": (lambda *given: stepped(*given)[0], "two things"),
        "turned round": (lambda *given: stepped(*given, how="turned"), "wrong order"),
        "nothing forgotten": (lambda *given: stepped(*given, how="kept"), "forget gate"),
        "no tanh for the new": (lambda *given: stepped(*given, how="raw"), "goes through a tanh"),
        "gates swapped": (lambda *given: stepped(*given, order=(1, 0, 2, 3)), "order of the gates"),
        "another order": (lambda *given: stepped(*given, order=(2, 1, 0, 3)), "not that of the"),
        "no tanh for the output": (
            lambda *given: stepped(*given, how="shown"),
            "before it is shown",
        ),
        "another output": (lambda *given: stepped(*given, how="wrong output"), "the output is not"),
    },
    "recurrent.scan": {
        "what was written": (lambda keep, new: new, "were written"),
        "a sum": (lambda keep, new: new.cumsum(0), "forgotten"),
        "one round": (lambda keep, new: scanned(keep, new, rounds=1), "twice as far"),
        "gates as they were": (lambda keep, new: scanned(keep, new, gates=False), "multiplied up"),
        "something else": (lambda keep, new: 2 * new + 1, "not those of the loop"),
    },
    "recurrent.bits": {
        "nats": (lambda m, k, v: math.log(math.comb(k, m) * v**m), "nats"),
        "in order": (lambda m, k, v: math.log2(math.perm(k, m) * v**m), "order"),
        "values alone": (lambda m, k, v: m * math.log2(v), "whose"),
        "keys twice": (lambda m, k, v: m * math.log2(k * v), "comes twice"),
        "a number of states": (lambda m, k, v: math.comb(k, m) * v**m, "is not it"),
    },
}
