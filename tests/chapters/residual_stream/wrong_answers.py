"""Mistakes in the exercises on the residual stream."""

import math

import torch


def trace(x, writes, *, first=False, late=False, of="after"):
    products, lengths = [], []
    state = x
    for write in writes:
        before, state = state, state + write
        products.append(write @ (x if first else state if late else before))
        lengths.append({"after": state, "before": before, "write": write}[of].norm())
    return products, lengths


def traced(**slip):
    return lambda x, writes: trace(x, writes, **slip)


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


WRONG = {
    "residual.trace": {
        "the first state": (traced(first=True), "the first state"),
        "the state after": (traced(late=True), "the state after it"),
        "lengths before": (traced(of="before"), "last state is missing"),
        "lengths of the writes": (traced(of="write"), "those of the writes"),
        "squares": (
            lambda x, w: (trace(x, w)[0], [n**2 for n in trace(x, w)[1]]),
            "root of a sum",
        ),
        "written to x": (lambda x, w: [x.add_(w[0]), x], "writes into its argument `x`"),
        "the lengths alone": (lambda x, w: torch.stack(trace(x, w)[1]), "expected two results"),
        "started from zero": (lambda x, w: trace(0 * x, w), "the length after write 1"),
    },
    "residual.norm_backward": {
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
    "residual.paths": {
        "blocks for sublayers": (math.comb, "two sublayers"),
        "in order": (lambda n, k: math.perm(2 * n, k), "makes no new path"),
        "all": (lambda n, k: 2 ** (2 * n), "count those of one or two blocks"),
        "with repetition": (lambda n, k: (2 * n) ** k, "through one branch twice"),
    },
    "residual.straight_share": {
        "blocks for sublayers": (lambda n, a: (1 + a * a) ** -n, "two sublayers"),
        "lengths added": (lambda n, a: (1 + a) ** (-2 * n), "their squares do"),
        "the whole": (lambda n, a: (1 + a * a) ** (2 * n), "between 0 and 1"),
        "one path of two": (lambda n, a: 1 / (1 + 2 * n * a * a), "do not sum to the whole"),
    },
    "residual.write_size": {
        "without ReLU": (lambda r: 4 * r / (1 + r) ** 2, "ReLU leave"),
        "the root": (lambda r: (2 * r / (1 + r) ** 2) ** 0.5, "the root"),
        "one matrix": (lambda r: 2 / (1 + r), "the second is missing"),
        "without the first": (lambda r: 2 * r / (1 + r), "without the first matrix"),
        "He's rule": (lambda r: 2.0, "by the rule"),
    },
    "residual.silence": {
        "biases forgotten": (silenced(biases=False), "still writes"),
        "all of a block": (silenced(everything=True), "too much is zero"),
        "nothing returned": (nothing, "returns None"),
        "the first matrix too": (silenced(inner=True), "is changed as well"),
        "nothing done": (lambda model: model, "still writes"),
    },
}
