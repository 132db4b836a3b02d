"""Plausible wrong answers to the exercises on the scale, and words of the message each must get."""

import math

import torch

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
}
