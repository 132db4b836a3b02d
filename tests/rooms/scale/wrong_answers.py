"""Plausible wrong answers to the exercises on the scale, and words of the message each must get."""

import math

import torch


def normed(x, gain):
    return gain * x / x.square().mean(-1, keepdim=True).sqrt()


def shifted(scores):
    return (scores - scores.amax(-1, keepdim=True)).exp()


WRONG = {
    "scale.variance": {
        "variances added": ((544, 256, 0.125), "multiplied, not added"),
        "a standard deviation": ((math.sqrt(128), 256, 0.125), "standard deviation"),
        "the mean forgotten": ((128, 128, 0.125), "second moment"),
        "the wrong way round": ((128, 256, 8), "too large, not too small"),
        "the spread": ((128, 256, math.sqrt(0.125)), "standard deviation"),
    },
    "scale.softmax_backward": {
        "the diagonal alone": (lambda p, g: p * (1 - p) * g, "sum to zero"),
        "nothing": (lambda p, g: torch.zeros_like(p), "not the derivative"),
        "centred but not weighted": (lambda p, g: g - g.mean(-1, keepdim=True), "derivative"),
        "a sum over everything": (lambda p, g: p * (g - (p * g).sum()), "sum to zero"),
    },
    "scale.fold_scale": {
        "the bias forgotten": (lambda w, b, d: (w / d**0.5, b), "wrong with one"),
        "by the width": (lambda w, b, d: (w / d, b / d), "differ"),
        "by all rows": (lambda w, b, d: (w / len(w) ** 0.5, b / len(w) ** 0.5), "several are not"),
        "only the weight returned": (lambda w, b, d: w / d**0.5, "pair"),
    },
    "scale.qk_norm": {
        "not divided": (lambda q, k, a, b: normed(q, a) @ normed(k, b).mT, "divide"),
        "length one": (
            lambda q, k, a, b: normed(q, a) @ normed(k, b).mT / q.shape[-1] ** 1.0,
            "length one",
        ),
        "no norm": (
            lambda q, k, a, b: (a * q) @ (b * k).mT / q.shape[-1] ** 0.5,
            "ten times as long",
        ),
        "no gain": (
            lambda q, k, a, b: normed(q, 1) @ normed(k, 1).mT / q.shape[-1] ** 0.5,
            "scores differ",
        ),
    },
    "scale.plus_one": {
        "the softmax": (lambda s: s.softmax(-1), "each row sums to one"),
        "it overflows": (lambda s: s.exp() / (1 + s.exp().sum(-1, keepdim=True)), "NaN"),
        "the one is not shifted": (
            lambda s: shifted(s) / (1 + shifted(s).sum(-1, keepdim=True)),
            "differ from",
        ),
        "a one for each key": (lambda s: s.sigmoid(), "differ from"),
    },
    "scale.sparsemax": {
        "the softmax of two": ((0.6, 0.4, 0.0, 0.5), "first weight"),
        "cut in halves": ((0.5, 0.5, 0.0, 0.5), "difference of the two"),
        "negative": ((0.7, 0.3, -1.0, 0.5), "never negative"),
        "at zero": ((0.7, 0.3, 0.0, 0.0), "threshold need not be zero"),
        "as large as the second": ((0.7, 0.3, 0.0, 0.8), "need not be as large"),
    },
}
