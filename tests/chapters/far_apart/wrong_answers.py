"""Mistakes in the exercises on recall over a distance."""

import math

GATE = 1 / (1 + math.exp(-1))
HALF = math.log(2) / -math.log(GATE)
BIAS = -math.log(math.expm1(1 / 256))

WRONG = {
    "far_apart.forget": {
        "until 1/e": ((1 / -math.log(GATE), BIAS), "until 1/e"),
        "in a straight line": ((0.5 / (1 - GATE), BIAS), "use logarithms"),
        "exponential": ((math.log(2), BIAS), "sigmoid"),
        "the gate": ((HALF, math.exp(-1 / 256)), "which bias"),
        "base two": ((HALF, 8.0), "natural"),
        "tokens": ((HALF, 256), "number of tokens"),
    },
    "far_apart.paths": {
        "attention step by step": ((255, 255, 128, 8), "directly"),
        "recurrence at once": ((1, 1, 128, 8), "one step a token"),
        "the width of the kernel": ((1, 255, 85, 8), "2 places back"),
        "one layer more": ((1, 255, 128, 9), "add up"),
    },
    "far_apart.bits": {
        "nats": (lambda m, k, v: math.log(math.comb(k, m) * v**m), "nats"),
        "in order": (lambda m, k, v: math.log2(math.perm(k, m) * v**m), "order"),
        "values alone": (lambda m, k, v: m * math.log2(v), "whose"),
        "keys twice": (lambda m, k, v: m * math.log2(k * v), "comes twice"),
        "a number of states": (lambda m, k, v: math.comb(k, m) * v**m, "is not it"),
    },
}
