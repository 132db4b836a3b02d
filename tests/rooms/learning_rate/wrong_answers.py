"""Mistakes in the exercises on the learning rate."""

import math

import numpy as np


def variance_of_deviations(signs):
    def parts(table):
        mean = table.mean()
        rate = table.mean(axis=1, keepdims=True)
        width = table.mean(axis=0, keepdims=True)
        both = table - rate - width + signs * mean
        return [float(np.square(part).mean()) for part in (rate - mean, width - mean, both)]

    return parts


def parts_along_the_wrong_axes(table):
    rate, width, both = variance_of_deviations(1)(table)
    return width, rate, both


def parts_without_squares(table):
    mean = table.mean()
    rate, width = table.mean(axis=1) - mean, table.mean(axis=0) - mean
    return rate[0], width[0], 0.0


def parts_that_share_what_is_left(table):
    rate, width, both = variance_of_deviations(1)(table)
    return rate + both / 2, width + both / 2, 0.0


def parts_in_place(table):
    table -= table.mean()
    return variance_of_deviations(1)(table)


def adam(w, g, m, v, t, rate, decay, decoupled, *, corrected=True, timed=True, pull=True):
    if not decoupled and pull:
        g = g + decay * w
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    first, second = (1 - 0.9**t, 1 - 0.98**t) if corrected else (1, 1)
    new = w - rate * (m / first) / ((v / second) ** 0.5 + 1e-8)
    return (new - (rate if timed else 1) * decay * w if decoupled and pull else new), m, v


def l2_always(w, g, m, v, t, rate, decay, decoupled):
    return adam(w, g, m, v, t, rate, decay, False)


def rounds(count, start=lambda x: x / x.norm(), product=lambda x: x @ x.T @ x):
    def orthogonal(matrix):
        x = start(matrix)
        for _ in range(count):
            x = 1.5 * x - 0.5 * product(x)
        return x

    return orthogonal


WRONG = {
    "learning_rate.edge": {
        "the inverse curvature as the limit": ((0.01, 0.01), "overshoot without diverging"),
        "the flattest direction decides": ((2.0, 0.0198), "steepest direction decides"),
        "the limit as the best rate": ((0.02, 0.02), "never shrinks"),
        "the best for one direction": ((0.02, 0.01), "better for the slowest"),
        "no second number": ((0.02, ...), "nothing to check yet"),
        "one number": (0.02, "expected 2 numbers"),
    },
    "learning_rate.parts": {
        "axes exchanged": (parts_along_the_wrong_axes, "right axis"),
        "deviations, not variances": (parts_without_squares, "negative"),
        "the mean taken off twice": (variance_of_deviations(0), "how often is the mean"),
        "what is left is shared": (parts_that_share_what_is_left, "row means"),
        "the table is changed": (parts_in_place, "writes into its argument `table`"),
        "two parts": (lambda table: variance_of_deviations(1)(table)[:2], "shape (3,)"),
    },
    "learning_rate.half_life": {
        "the reach": (lambda beta: 1 / (1 - beta), "how far the average reaches"),
        "the approximation": (lambda beta: math.log(2) / (1 - beta), "shall be halved"),
        "the sign": (lambda beta: math.log(2) / math.log(beta), "positive"),
        "the variable forgotten": (lambda: 34, "can be called with (0.5)"),
    },
    "learning_rate.rare_step": {
        "no root": (lambda b, n: (1 - b**n) / (1 - b), "the root of v"),
        "only the last": (lambda b, n: (1 - b) ** -0.5, "earlier ones are still in v"),
        "v and not its inverse": (lambda b, n: ((1 - b) / (1 - b**n)) ** 0.5, "is divided"),
        "before the gradient is added": (
            lambda b, n: ((1 - b) * b ** (n - 1) / (1 - b**n)) ** -0.5,
            "first adds the new gradient",
        ),
        "always one": (lambda b, n: 1.0, "geometric series"),
    },
    "learning_rate.noise_scale": {
        "the sign": (lambda b, x, c, y: (x - y) / (1 / c - 1 / b) / y, "positive"),
        "not divided": (lambda b, x, c, y: (x - y) / (1 / b - 1 / c), "still to be divided"),
        "the noise left in": (
            lambda b, x, c, y: (x - y) / (1 / b - 1 / c) / y,
            "still has the noise",
        ),
        "its inverse": (
            lambda b, x, c, y: (y - (x - y) / (1 / b - 1 / c) / c) / ((x - y) / (1 / b - 1 / c)),
            "one over",
        ),
        "a ratio": (lambda b, x, c, y: x / y, "two unknowns"),
    },
    "learning_rate.adam_step": {
        "always decoupled": (
            lambda w, g, m, v, t, r, d, a: adam(w, g, m, v, t, r, d, True),
            "belongs to the gradient",
        ),
        "always in the gradient": (l2_always, "stay out of the gradient"),
        "no correction": (lambda *given: adam(*given, corrected=False), "begun at zero"),
        "no rate in the decay": (lambda *given: adam(*given, timed=False), "contain the rate"),
        "no decay": (lambda *given: adam(*given, pull=False), "not pulled"),
        "w alone": (lambda *given: adam(*given)[0], "return the new w, m and v"),
    },
    "learning_rate.orthogonal": {
        "too few rounds": (rounds(5), "more rounds"),
        "no division": (rounds(40, start=lambda x: x), "runs away"),
        "entries, not directions": (lambda matrix: matrix.sign(), "directions"),
        "one at a time": (lambda matrix: matrix / matrix.norm(), "more rounds"),
    },
}
