"""Mistakes in the exercises on the roles of heads."""

import torch


def of_the_diagonal(patterns):
    return patterns.diagonal(dim1=-2, dim2=-1).mean((0, 2))


def of_one_sequence(patterns):
    return patterns[0].flip(-1).diagonal(dim1=-2, dim2=-1).mean(-1)


def summed(patterns):
    return patterns.flip(-1).diagonal(dim1=-2, dim2=-1).sum(-1).mean(0)


def from_zero(patterns):
    return patterns.mean(0).square().sum() / patterns.square().sum((1, 2)).mean()


def upside_down(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.square().sum((1, 2)).mean() / deviations.mean(0).square().sum()


def what_is_left(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    mean = deviations.mean(0)
    return ((deviations - mean).square().sum() / deviations.square().sum()).clamp(0, 1)


def of_absolute_values(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.mean(0).abs().sum() / deviations.abs().sum((1, 2)).mean()


def of_sums(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.mean(0).square().sum() / deviations.square().sum()


WRONG = {
    "head_roles.mirror_weight": {
        "the own position": (of_the_diagonal, "a head that reverses"),
        "a sum over the queries": (summed, "a head that reverses"),
        "the first sequence alone": (of_one_sequence, "mean over sequences"),
        "a number for all heads": (lambda p: p.flip(-1).diagonal(dim1=-2, dim2=-1).mean(), "shape"),
    },
    "head_roles.place_share": {
        "weights instead of deviations": (from_zero, "explains nothing"),
        "the fraction upside down": (upside_down, "infinite"),
        "what the place does not explain": (what_is_left, "explained in full"),
        "no squares": (of_absolute_values, "squares"),
        "a sum below instead of a mean": (of_sums, "explained in full"),
        "a number for each head": (lambda p: torch.ones(len(p)), "shape"),
    },
    "head_roles.seeds": {
        "one test alone": (6, "single test"),
        "a single tail": (10, "doubles"),
        "one more": (12, "not the smallest"),
    },
}
