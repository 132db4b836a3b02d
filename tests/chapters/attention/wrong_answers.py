"""Mistakes in the exercises on attention."""

import math

import torch

E = math.e


def attend(scale=None, late=False, axis=-1, ignore=False):
    def attention(queries, keys, values, mask):
        width = queries.shape[-1]
        scores = queries @ keys.T * (width**-0.5 if scale is None else scale(width))
        if not late and not ignore:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(axis)
        if late:
            weights = weights * mask
        return weights @ values

    return attention


def fill_with_zero(queries, keys, values, mask):
    scores = queries @ keys.T / queries.shape[-1] ** 0.5
    return scores.masked_fill(~mask, 0.0).softmax(-1) @ values


def window(low, high):
    def window_mask(n, w):
        distance = torch.arange(n)[:, None] - torch.arange(n)
        return (distance >= low(w)) & (distance <= high(w))

    return window_mask


WRONG = {
    "attention.row": {
        "without the root": ((1 / (2 + E**2), 0.58, 0.64, 1.5), "root of the width"),
        "a third each": ((1 / 3, 1 / 3, 1.0, 1.5), "does ask for something"),
        "the exponential itself": ((0.21, E, 0.64, 1.5), "share of their sum"),
        "masked too late": ((0.21, 0.58, 0.64, 0.64), "before the softmax"),
        "a weight for a redness": ((0.21, 0.58, 0.21, 1.5), "how red is red"),
        "red alone": ((0.21, 0.58, 0.64, 3.0), "itself too"),
    },
    "attention.masked_attention": {
        "no division": (attend(lambda d: 1.0), "nothing divides"),
        "divided by the width": (attend(lambda d: 1 / d), "not the width"),
        "masked too late": (attend(late=True), "add up to one"),
        "no mask": (attend(ignore=True), "nobody may see"),
        "zero instead of minus infinity": (fill_with_zero, "nobody may see"),
        "softmax over the queries": (attend(axis=0), "something else"),
    },
    "attention.window_mask": {
        "both sides": (window(lambda w: 1 - w, lambda w: w - 1), "comes later"),
        "one too many": (window(lambda w: 0, lambda w: w), "outside"),
        "one too few": (window(lambda w: 0, lambda w: max(w - 2, 0)), "in its window"),
        "not itself": (window(lambda w: 1, lambda w: w), "see itself"),
    },
    "attention.spread": {
        "the variance": (1 / 8, "variance"),
        "as if nothing were wrong": (1.0, "root of the head's width"),
        "undivided": (8.0, "before any division"),
    },
    "attention.padding": {
        "a zero that takes nothing": ((2.0, 0.73), "takes no weight"),
        "one place": ((3 * E**2 / (E**2 + E + 2), 0.62), "two places"),
        "weights": ((E**2 / (E**2 + E + 3), 0.62), "how red"),
        "roundness without padding": ((1.69, 3 * E / (E**2 + E + 1)), "without the padding"),
    },
}
