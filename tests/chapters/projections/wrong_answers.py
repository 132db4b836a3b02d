"""Mistakes in the exercises on shared projections."""

import torch


def both_sides(scores):
    prefers = scores > scores.diagonal()[:, None]
    return int((prefers & prefers.T).sum())


def over_the_column(scores):
    prefers = scores > scores.diagonal()[None, :]
    return int((prefers & prefers.T).triu(1).sum())


def with_equals(scores):
    prefers = scores >= scores.diagonal()[:, None]
    return int((prefers & prefers.T).triu(1).sum())


def one_side(scores):
    prefers = scores > scores.diagonal()[:, None]
    return int((prefers | prefers.T).triu(1).sum())


WRONG = {
    "projections.mutual": {
        "both sides counted": (both_sides, "counted once"),
        "the other's own score": (over_the_column, "whose own score"),
        "equal is enough": (with_equals, "no preference"),
        "one side is enough": (one_side, "counted once"),
    },
    "projections.turn": {
        "keys forgotten": (lambda q, k, a: (q @ a, k), "stay as they are"),
        "keys turned too": (lambda q, k, a: (q @ a, k @ a), "second time"),
        "no transpose": (lambda q, k, a: (q @ a, k @ torch.linalg.inv(a)), "transposes"),
        "one matrix": (lambda q, k, a: q @ a, "two matrices"),
    },
    "projections.knobs": {
        "all weights": ((1024, 484), "number of weights"),
        "the hidden ones": ((64, 484), "change nothing"),
        "any matrix for both": ((960, 448), "not every invertible"),
        "half": ((960, 480), "half of the weights"),
    },
}
