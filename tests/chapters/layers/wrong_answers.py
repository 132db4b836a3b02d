"""Mistakes in the exercises on the order of layers."""

import math

import numpy as np


def _ends(scores):
    gained = np.diff(np.maximum.accumulate(scores))
    return float(gained @ (np.arange(len(gained)) + 1) / len(gained) / gained.sum())


def _numbered(scores):
    gained = np.diff(np.maximum.accumulate(scores))
    return float(gained @ (np.arange(len(gained)) + 0.5) / gained.sum())


def _falling(scores):
    gained = np.diff(scores)
    return float(gained @ (np.arange(len(gained)) + 0.5) / len(gained) / gained.sum())


WRONG = {
    "layers.idle": {
        "all positions": ((6.0, 0.5, 0.8), "first position is left out"),
        "the last position": ((12.0, 0.5, 0.8), "last position"),
        "the whole length": ((25.0, 0.5, 0.8), "all earlier tokens"),
        "nats": ((6.25, math.log(4), 0.8), "nats"),
        "bits": ((6.25, 2.0, 0.8), "bits"),
        "the usual coefficient": ((6.25, 0.5, 0.75), "m / (m - 1)"),
        "what is missing": ((6.25, 0.5, 0.2), "missing to 1"),
    },
    "layers.centre": {
        "ends of the blocks": (_ends, "middle of block"),
        "a number of layers": (_numbered, "share of the depth"),
        "falls count": (_falling, "only comes back"),
    },
    "layers.control": {
        "examples shuffled": (
            lambda labels, words, order: labels[::-1],
            "deal to words",
        ),
        "nothing dealt": (lambda labels, words, order: labels, "kept its own"),
        "dealt the other way": (
            lambda labels, words, order: [
                dict(zip(words, labels, strict=True))[order.index(word)] for word in words
            ],
            "label of word order",
        ),
    },
}
