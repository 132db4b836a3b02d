"""Mistakes in the exercises on models without norms."""

import math
from statistics import NormalDist

import torch

_NORMAL = NormalDist()


def _nothing_moves(x, up, gradient):
    return torch.zeros_like(up), torch.zeros_like(up).T


def _before_the_relu(x, up, gradient):
    return torch.zeros_like(up), (x @ up).T @ gradient


def _exchanged(x, up, gradient):
    return x.T @ gradient @ torch.ones(3, 5, dtype=x.dtype), (x @ up).relu().T @ gradient


def _of_the_sum(x, up, gradient):
    return torch.zeros_like(up), (x @ up).relu().T @ (x + gradient)


WRONG = {
    "without_norms.growth": {
        "exchanged": (
            lambda write, k: ((1 + write**2) ** (k / 2), math.sqrt(1 + k * write**2)),
            "exchanged",
        ),
        "squared": (
            lambda write, k: (1 + k * write**2, (1 + write**2) ** (k / 2)),
            "first is a *squared* length",
        ),
        "squared without": (
            lambda write, k: (math.sqrt(1 + k * write**2), (1 + write**2) ** k),
            "second is a *squared* length",
        ),
        "along the stream": (
            lambda write, k: (math.sqrt(1 + k * write**2), (1 + write) ** k),
            "pointed along",
        ),
        "sum of lengths": (
            lambda write, k: (1 + k * write, (1 + write**2) ** (k / 2)),
            "pointed along",
        ),
        "the same": (lambda write, k: (math.sqrt(1 + k * write**2),) * 2, "second write"),
        "one number": (lambda write, k: math.sqrt(1 + k * write**2), "two numbers"),
        "late": (
            lambda write, k: (math.sqrt(1 + k * write**2), (1 + write**2) ** ((k + 1) / 2)),
            "stretch",
        ),
    },
    "without_norms.branch_size": {
        "squared": (lambda n_layers: 2 ** (1 / n_layers) - 1, "square"),
        "lengths": (lambda n_layers: 2 ** (1 / (2 * n_layers)) - 1, "not lengths"),
        "once a block": (lambda n_layers: math.sqrt(4 ** (1 / n_layers) - 1), "how often"),
        "square doubles": (
            lambda n_layers: math.sqrt(2 ** (1 / (2 * n_layers)) - 1),
            "*squared* length doubles",
        ),
        "of one length": (lambda n_layers: math.sqrt(3 / (2 * n_layers)), "of one length"),
        "the rule of GPT-2": (lambda n_layers: (2 * n_layers) ** -0.5, "same factor"),
    },
    "without_norms.first_gradients": {
        "nothing moves": (_nothing_moves, "nothing would ever move"),
        "before the ReLU": (_before_the_relu, "before the ReLU"),
        "through something": (_exchanged, "through which matrix"),
        "of the sum": (_of_the_sum, "gradient of what is written"),
        "one": (lambda x, up, gradient: torch.zeros_like(up), "two tensors"),
    },
    "without_norms.smallest": {
        "largest": (
            lambda d: _NORMAL.inv_cdf((1 + 2 ** (-1 / d)) / 2),
            "the largest",
        ),
        "one tail": (lambda d: _NORMAL.inv_cdf(1 - 2 ** (-1 / d)) if d > 1 else 0.0, "two tails"),
        "one over d": (lambda d: 0.6744897501960817 / d, "one half"),
        "the mean": (lambda d: math.sqrt(2 / math.pi) / d, "one half"),
    },
}
