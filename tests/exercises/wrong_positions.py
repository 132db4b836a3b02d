"""Mistakes in the exercises on positions."""

import math

import torch
from measured_transformer.analysis.sinusoids import shift_matrix


def by_batch(x, table):
    return x + table[: x.size(0)].unsqueeze(1)  # right for (position, batch, d)


def in_place(x, table):
    x += table[: x.size(1)]
    return x


def turned(k):
    def matrices(d):
        return shift_matrix(k, d), torch.eye(d, dtype=torch.float64)

    return matrices


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
    "positions.pairing": {
        "no change": (lambda d: torch.arange(d), "which were no pair"),
        "the other direction": (
            lambda d: torch.arange(d).view(d // 2, 2).T.flatten(),
            "which were no pair",
        ),
        "a pair exchanged": (
            lambda d: torch.arange(d).view(2, d // 2).flip(0).T.flatten(),
            "turns the other way",
        ),
        "pairs backwards": (
            lambda d: torch.arange(d).view(2, d // 2).T.flip(0).flatten(),
            "another speed",
        ),
        "from one": (lambda d: torch.arange(d) + 1, "taken once"),
    },
    "positions.base": {
        "the exponent forgotten": (lambda n, d: n / (2 * math.pi), "which exponent"),
        "one radian": (lambda n, d: n ** (d / (d - 2)), "one radian"),
        "half a turn": (lambda n, d: (n / math.pi) ** (d / (d - 2)), "turns 0.5 times"),
        "the inverse": (lambda n, d: (2 * math.pi / n) ** (d / (d - 2)), "larger than 1"),
    },
    "positions.two_back": {
        "no turn": (turned(0), "own position highest"),
        "two ahead": (turned(2), "AFTER"),
        "one back": (turned(-1), "query 2 scores key 1 highest"),
        "one matrix": (lambda d: torch.eye(d), "expected two matrices"),
        "zero": (lambda d: (torch.zeros(d, d), torch.zeros(d, d)), "all scores are equal"),
    },
    "positions.slopes": {
        "the next head": ((4, 1 - math.exp(-0.5)), "another one is closer"),
        "counted from zero": ((0, 1 - math.exp(-0.5)), "from 1 to 8"),
        "one key": ((5, math.exp(-0.5)), "of the next key"),
        "slope one": ((5, 1 - math.exp(-1)), "not the slope one"),
        "all of it": ((5, 1.0), "get a share too"),
        "a guess": ((5, 0.5), "times the same factor"),
    },
    "positions.turned_pairs": {
        "counted from one": (20, "from i = 0"),
        "a radian": (27, "one radian"),
        "the exponent of a dimension": (11, "exponent"),
        "a half": (20.5, "whole"),
        "all": (32, "compare"),
    },
    "positions.gaps": {
        "no gap outside": ((512 / 32, 512 / 256), "as well"),
        "from end to end": ((511 / 31, 511 / 255), "need not be"),
        "between": ((15.0, 1.0), "at least one away"),
        "only the second": ((513 / 33, 1.5), "all alike"),
    },
    "positions.diluted": {
        "variance one": ((1 / 24, 2**-12), "not variance one"),
        "a quarter": ((1 / 96, 2**-12), "as large as it"),
        "by the variance": ((1 / 48, 2**-24), "standard deviation"),
        "no norm": ((1 / 48, 1 / 5), "each norm shrinks"),
        "one norm": ((1 / 48, 2**-0.5), "how often"),
    },
}
