"""Mistakes in the exercises on rotary positions and ALiBi."""

import math

import torch
from measured_transformer.parts.positions import rotation


def at_rates(x, rates, sign=1):
    angle = sign * torch.arange(len(x), dtype=x.dtype)[:, None] * rates
    a, b = x[:, 0::2], x[:, 1::2]
    out = torch.empty_like(x)
    out[:, 0::2] = a * angle.cos() - b * angle.sin()
    out[:, 1::2] = a * angle.sin() + b * angle.cos()
    return out


def rates(x, base):
    return base ** (-torch.arange(0, x.shape[1], 2, dtype=x.dtype) / x.shape[1])


def halves(x, base):
    n, d = x.shape
    return rotation(n, d, base=base, pairing="halves", dtype=x.dtype).apply(x[None, None])[0, 0]


def from_one(x, base):
    return at_rates(torch.cat((x[:1], x)), rates(x, base))[1:]


def one_sine(x, base):
    turned = at_rates(x, rates(x, base))
    turned[:, 0] = x[:, 0]
    return turned


def in_place(x, base):
    x[:] = at_rates(x, rates(x, base))
    return x


def reordered(order):
    def convert(weight, n_heads):
        heads = weight.unflatten(0, (n_heads, -1))
        return heads[:, order(heads.shape[1])].flatten(0, 1)

    return convert


def right_order(d):
    return torch.arange(d).view(-1, 2).T.flatten()


def across_heads(weight, n_heads):
    return weight[right_order(len(weight))]


def pointing(offset, factor):
    def previous(d):
        k = torch.zeros(d, dtype=torch.float64)
        k[0::2] = factor
        back = rotation(torch.tensor([offset]), d, dtype=torch.float64)
        return back.apply(k[None, None, None])[0, 0, 0], k

    return previous


WRONG = {
    "positions.turn": {
        "nothing": (lambda x, base: x, "by which angle"),
        "halves": (halves, "paired with entry i + d/2"),
        "backwards": (lambda x, base: at_rates(x, rates(x, base), -1), "the wrong way"),
        "counted from one": (from_one, "position 0 has turned"),
        "one entry left": (one_sine, "lengths have changed"),
        "half the exponent": (
            lambda x, base: at_rates(
                x, base ** (-torch.arange(x.shape[1] // 2, dtype=x.dtype) / x.shape[1])
            ),
            "not i/d",
        ),
        "one rate": (lambda x, base: at_rates(x, torch.ones(x.shape[1] // 2)), "the same rate"),
        "in place": (in_place, "writes into its argument"),
    },
    "positions.convert": {
        "no change": (lambda weight, n_heads: weight, "which were no pair"),
        "the other direction": (
            reordered(lambda d: torch.arange(d).view(2, -1).T.flatten()),
            "which were no pair",
        ),
        "a pair exchanged": (
            reordered(lambda d: torch.arange(d).view(-1, 2).flip(1).T.flatten()),
            "turns the other way",
        ),
        "pairs backwards": (
            reordered(lambda d: torch.arange(d).view(-1, 2).flip(0).T.flatten()),
            "another rate",
        ),
        "columns": (lambda weight, n_heads: weight[:, torch.randperm(5)], "no reordering"),
        "across heads": (across_heads, "one head to another"),
    },
    "positions.previous": {
        "one vector": (lambda d: torch.ones(d), "expected two vectors"),
        "zero": (lambda d: (torch.zeros(d), torch.zeros(d)), "the same weight"),
        "its own place": (pointing(0, 20.0), "its own position"),
        "ahead": (pointing(1, 20.0), "its own position"),
        "two back": (pointing(-2, 20.0), "looks at key"),
        "too flat": (pointing(-1, 1.0), "sharper"),
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
