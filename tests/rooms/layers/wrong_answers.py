"""Mistakes in the exercises on the order of layers."""

import math

import numpy as np
import torch


def _back(pattern):
    n = pattern.shape[-1]
    return (pattern * (torch.arange(n)[:, None] - torch.arange(n))).sum(-1)


def _instead(change):
    return lambda loss, pattern: loss(change(pattern)) - loss(pattern)


def _even(pattern):
    seen = torch.ones_like(pattern).tril()
    return seen / seen.sum(-1, keepdim=True)


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
    "layers.distance": {
        "the first row too": (lambda p: float(_back(p).mean()), "leave its row out"),
        "forwards": (lambda p: float(-_back(p)[..., 1:].mean()), "looks back"),
        "the last row": (lambda p: float(_back(p)[..., -1].mean()), "all rows but the first"),
        "a sum": (lambda p: float(_back(p)[..., 1:].mean(0).sum()), "not their mean"),
        "squares": (lambda p: float(_back(p)[..., 1:].square().mean()), "expected"),
    },
    "layers.price": {
        "later keys too": (_instead(lambda p: torch.full_like(p, 1 / p.shape[-1])), "may see"),
        "zeros": (_instead(torch.zeros_like), "no attention at all"),
        "not to one": (
            _instead(lambda p: torch.ones_like(p).tril() / p.shape[-1]),
            "rows must sum to one",
        ),
        "the other way": (lambda loss, p: loss(p) - loss(_even(p)), "less the loss before"),
        "no difference": (lambda loss, p: loss(_even(p)), "not its rise"),
        "a single head": (lambda loss, p: loss(_even(p)[0]) - loss(p), "head, query, key"),
        "its square": (_instead(lambda p: p.square()), "expected a rise"),
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
