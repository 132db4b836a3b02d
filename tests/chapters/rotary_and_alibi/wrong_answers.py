"""Mistakes in the exercises on rotary positions and ALiBi."""

import math

import torch
from measured_transformer.analysis.sinusoids import shift_matrix


def turned(k):
    def matrices(d):
        return shift_matrix(k, d), torch.eye(d, dtype=torch.float64)

    return matrices


WRONG = {
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
}
