"""Mistakes in the exercises on stacks without skip connections."""

import math

import torch


def norm_backward(z, g, *, mean=True, along=True, divide=True, biased=True):
    sigma = z.std(dim=1, correction=0 if biased else 1, keepdim=True)
    hat = (z - z.mean(1, keepdim=True)) / sigma
    found = g
    if mean:
        found = found - g.mean(1, keepdim=True)
    if along:
        found = found - hat * (g * hat).mean(1, keepdim=True)
    return found / sigma if divide else found


def backward(**slip):
    return lambda z, g: norm_backward(z, g, **slip)


def silent(model, *, biases=True, inner=False, everything=False):
    with torch.no_grad():
        for name, weight in model.blocks.named_parameters():
            last = ".attention.output." in name or ".feedforward.down." in name
            if everything or (last and (biases or "weight" in name)) or (inner and ".up." in name):
                weight.zero_()
    return model


def silenced(**slip):
    return lambda model: silent(model, **slip)


def nothing(model):
    silent(model)


def collapsed(step):
    def collapse(e, layers, skip):
        for _ in range(layers):
            e = (e if skip else 0.0) + step(e)
        return e

    return collapse


def without_skip(e, layers, skip):
    return collapsed(lambda x: x * math.tanh(x * x))(e, layers, False)


WRONG = {
    "skips.collapse": {
        "cubed": (collapsed(lambda e: e**3), "only the first term"),
        "averaged": (collapsed(lambda e: 0.0), "one half only when"),
        "half the difference": (collapsed(lambda e: e * math.tanh(e * e / 2)), "differ by twice"),
        "no skip": (without_skip, "the input is added"),
        "one layer": (
            lambda e, layers, skip: e * skip + e * math.tanh(e * e),
            "follow one token by hand",
        ),
    },
    "skips.norm_backward": {
        "the mean stays": (backward(mean=False), "sums to zero"),
        "the direction stays": (backward(along=False), "no part along z"),
        "not divided": (backward(divide=False), "what does the norm divide by"),
        "another deviation": (backward(biased=False), "no part along z"),
        "g itself": (lambda z, g: g, "sums to zero"),
        "squared deviation": (
            lambda z, g: norm_backward(z, g) / z.std(1, correction=0, keepdim=True),
            "another length",
        ),
    },
    "skips.paths": {
        "blocks for sublayers": (math.comb, "two sublayers"),
        "in order": (lambda n, k: math.perm(2 * n, k), "makes no new path"),
        "all": (lambda n, k: 2 ** (2 * n), "count those of one or two blocks"),
        "with repetition": (lambda n, k: (2 * n) ** k, "through one branch twice"),
    },
    "skips.straight_share": {
        "blocks for sublayers": (lambda n, a: (1 + a * a) ** -n, "two sublayers"),
        "lengths added": (lambda n, a: (1 + a) ** (-2 * n), "their squares do"),
        "the whole": (lambda n, a: (1 + a * a) ** (2 * n), "between 0 and 1"),
        "one path of two": (lambda n, a: 1 / (1 + 2 * n * a * a), "do not sum to the whole"),
    },
    "skips.silence": {
        "biases forgotten": (silenced(biases=False), "still writes"),
        "all of a block": (silenced(everything=True), "too much is zero"),
        "nothing returned": (nothing, "returns None"),
        "the first matrix too": (silenced(inner=True), "is changed as well"),
        "nothing done": (lambda model: model, "still writes"),
    },
}
