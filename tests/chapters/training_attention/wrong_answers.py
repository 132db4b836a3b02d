"""Mistakes in the exercises on how attention learns where to look."""

import math

N = math.exp(12.5)


def without_average(weights, values, upstream):
    return -weights * (values @ upstream)


def gradient(weights, values, upstream):
    agreement = values @ upstream
    return weights * (agreement - weights @ agreement)


def without_weights(weights, values, upstream):
    agreement = values @ upstream
    return -(agreement - weights @ agreement)


def centred(weights, values, upstream):
    agreement = values @ upstream
    return -(agreement - agreement.mean())


def not_centred(weights, values, upstream):
    agreement = values @ upstream
    return -weights * (agreement - agreement.mean())


def only_own(weights, token, rise):
    found = weights.clone()
    found[token] = found[token] * math.exp(rise)
    return found


def taken_evenly(weights, token, rise):
    found = only_own(weights, token, rise)
    surplus = (found.sum() - 1) / (len(weights) - 1)
    found[[j for j in range(len(weights)) if j != token]] -= surplus
    return found


def half_risen(weights, token, rise):
    found = only_own(weights, token, rise / 2)
    return found / found.sum()


WRONG = {
    "training_attention.even": {
        "a query's entry": ((0.5, N, 1250), "multiplies queries"),
        "square": ((1.0, N, 1250), "three times the rows"),
        "divided twice": ((1 / 16, N, 1250), "once"),
        "logarithm": ((0.25, 12.5, 1250), "logarithm"),
        "variance one": ((0.25, math.exp(50), 1250), "variance of one"),
        "not halved": ((0.25, math.exp(25), 1250), "halves"),
        "common logarithm": ((0.25, 10**12.5, 1250), "natural"),
        "twice as wide": ((0.25, N, 2500), "variance of one"),
        "half as wide": ((0.25, N, 625), "sixteenth"),
    },
    "training_attention.nudge": {
        "no average": (without_average, "could rise together"),
        "the gradient": (gradient, "against it"),
        "no weights": (without_weights, "same weight"),
        "an even average": (not_centred, "do not sum to zero"),
        "even": (centred, "not those of the softmax"),
    },
    "training_attention.couple": {
        "only its own": (only_own, "sum to one"),
        "taken evenly": (taken_evenly, "old proportions"),
        "half": (half_risen, "own weight"),
    },
}
