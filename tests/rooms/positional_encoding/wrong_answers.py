"""Mistakes in the exercises on vectors that stand for positions."""

import math

import torch


def by_batch(x, table):
    return x + table[: x.size(0)].unsqueeze(1)  # right for (position, batch, d)


def in_place(x, table):
    x += table[: x.size(1)]
    return x


WRONG = {
    "positions.similarity": {
        "one pair": ((math.cos(1), math.cos(2), 6), "fast pair alone"),
        "degrees": ((1.99985, 1.9994, 6), "radians"),
        "the exponent of a pair": ((1.53531, 0.5639, 6), "exponent"),
        "normalised": ((0.770, 0.2918, 6), "not divided"),
        "no distance": ((1.5403, 0.58365, 0), "at least 1"),
        "the neighbour": ((1.5403, 0.58365, 1), "nearly where it began"),
    },
    "positions.add_positions": {
        "the axis of the batch": (by_batch, "which axis"),
        "in place": (in_place, "writes into its argument `x`"),
        "one row for all": (lambda x, table: x + table[0], "same is added at every position"),
        "counted from one": (lambda x, table: x + table[1 : x.size(1) + 1], "first row"),
        "counted backwards after the first": (
            lambda x, table: x + table[[0, *range(x.size(1), 1, -1)]],
            "row of its own position",
        ),
        "the whole table": (lambda x, table: x + table, "the function raises RuntimeError"),
        "concatenated": (
            lambda x, table: torch.cat([x, table[: x.size(1)].expand_as(x)], -1),
            "shall have the shape",
        ),
    },
    "positions.base": {
        "the exponent forgotten": (lambda n, d: n / (2 * math.pi), "which exponent"),
        "one radian": (lambda n, d: n ** (d / (d - 2)), "one radian"),
        "half a turn": (lambda n, d: (n / math.pi) ** (d / (d - 2)), "turns 0.5 times"),
        "the inverse": (lambda n, d: (2 * math.pi / n) ** (d / (d - 2)), "larger than 1"),
    },
}
