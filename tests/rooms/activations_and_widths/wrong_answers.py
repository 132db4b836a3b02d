"""Mistakes in the exercises on what networks bend with and how wide they are."""

import math

import torch

C = math.sqrt(2 / math.pi)


def gate(x):
    return (1 + torch.tanh(C * (x + 0.044715 * x**3))) / 2


def bell(x):
    return x * (1 - (2 * gate(x) - 1).square()) * C / 2


def exact_slope(x):
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * density


def product(i, j, sign):
    """Columns and numbers with which four neurons write the product of two inputs."""
    columns = []
    for a, b in ((1, 1), (-1, -1), (1, -1), (-1, 1)):
        column = [0.0] * 4
        column[i], column[j] = float(a), float(b)
        columns.append(column)
    return columns, [0.25 * sign, 0.25 * sign, -0.25 * sign, -0.25 * sign]


def network(*terms, factor=1.0):
    columns, numbers = [], []
    for i, j, sign in terms:
        more, signs = product(i, j, sign)
        columns += more
        numbers += signs
    return torch.tensor(columns).T, factor * torch.tensor(numbers)


def logistic(s):
    return s / (1 + math.exp(-s))


SILU = ((logistic(1) + logistic(-1)) - (logistic(5) + logistic(-5))) / 2

WRONG = {
    "activations_and_widths.four_neurons": {
        "a sign": ((2.0, -6.0, SILU), "which neurons are awake"),
        "no half": ((-4.0, -6.0, SILU), "one half"),
        "the product": ((-6.0, -6.0, SILU), "cannot give it"),
        "no quarter": ((-2.0, -24.0, SILU), "a quarter"),
        "not squared": ((-2.0, -2.0, SILU), "the square of ReLU"),
        "squared with a sign": ((-2.0, 6.0, SILU), "signs"),
        "SiLU as ReLU": ((-2.0, -6.0, -2.0), "ReLU again"),
        "half of SiLU": ((-2.0, -6.0, (logistic(1) - logistic(5)) / 2), "do not vanish"),
        "SiLU without the half": ((-2.0, -6.0, 2 * SILU), "one half"),
        "nowhere near": ((-2.0, -6.0, 40.0), "both neurons of a pair"),
    },
    "activations_and_widths.cosine_of_sum": {
        "one thing": (torch.ones(4, 8), "expected two things"),
        "three rows": ((torch.ones(3, 8), torch.ones(8)), "four rows"),
        "too few numbers": ((torch.ones(4, 8), torch.ones(7)), "shape"),
        "the difference": (network((0, 2, 1), (1, 3, 1)), "cos(s - t)"),
        "the sine": (network((0, 3, 1), (1, 2, 1)), "sin(s + t)"),
        "one product": (network((0, 2, 1)), "the other product"),
        "no quarter": (network((0, 2, 1), (1, 3, -1), factor=4.0), "a factor"),
        "the negative": (network((0, 2, -1), (1, 3, 1)), "negative"),
        "half the neurons": (
            tuple(x[..., ::2] for x in network((0, 2, 1), (1, 3, -1))),
            "four neurons",
        ),
    },
    "activations_and_widths.gelu_slope": {
        "the function": (lambda x: x * gate(x), "not its derivative"),
        "the gate": (gate, "second term"),
        "no cube": (lambda x: gate(x) + bell(x), "its cube"),
        "no factor": (
            lambda x: gate(x) + bell(x) * (1 + 3 * 0.044715 * x.square()) / C,
            "its factor",
        ),
        "the exact one": (exact_slope, "exact GELU"),
        "of ReLU": (lambda x: (x > 0).double(), "difference quotient"),
    },
    "activations_and_widths.narrower": {
        "no attention": (lambda d, r: d * (4 / r) ** 0.5, "attention has weights"),
        "no root": (lambda d, r: d * 12 / (4 + 2 * r), "the square of the width"),
        "one matrix each": (lambda d, r: d * (5 / (1 + r)) ** 0.5, "four matrices, the network"),
        "no output": (lambda d, r: d * (11 / (3 + 2 * r)) ** 0.5, "not three"),
        "turned": (lambda d, r: d * ((4 + 2 * r) / 12) ** 0.5, "other way round"),
        "the same": (lambda d, r: d, "count a block's matrices"),
    },
    "activations_and_widths.seeds_for_equality": {
        "a fraction": (lambda s, m: (1.96 * s / m) ** 2, "a fraction of a seed"),
        "no square": (lambda s, m: 1.96 * s / m, "root of the number"),
        "rounded down": (lambda s, m: math.floor((1.96 * s / m) ** 2), "one seed fewer"),
        "one error": (lambda s, m: math.ceil((s / m) ** 2), "not one"),
        "no square, rounded": (lambda s, m: math.ceil(1.96 * s / m), "the root again"),
        "always ten": (lambda s, m: 10, "solve for"),
    },
}
