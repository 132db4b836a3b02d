"""Mistakes in the exercises on the size of a step."""

import math

import torch


def _angle(opposite: float, adjacent: float) -> float:
    return math.degrees(math.atan2(opposite, adjacent))


def _before(factor: float, writes: int) -> float:
    return math.sqrt(1 + writes * factor**2)


def _one_by_one(moves, join):
    results = [moves[:1]]
    for place in range(1, len(moves)):
        results.append(join(results[-1], moves[place : place + 1]))
    return torch.cat(results)


def _scan(moves, joined):
    shift = 1
    while shift < len(moves):
        moves = torch.cat([moves[:shift], joined(moves[:-shift], moves[shift:])])
        shift *= 2
    return moves


def _backwards(moves, join):
    return _scan(moves, lambda first, then: join(then, first))


def _pairs_alone(moves, join):
    return torch.cat([moves[:1], join(moves[:-1], moves[1:])]) if len(moves) > 1 else moves


def _nothing_moves(x, up, gradient):
    return torch.zeros_like(up), torch.zeros_like(up).T


def _before_the_relu(x, up, gradient):
    return torch.zeros_like(up), (x @ up).T @ gradient


def _exchanged(x, up, gradient):
    return x.T @ gradient @ torch.ones(3, 5, dtype=x.dtype), (x @ up).relu().T @ gradient


def _of_the_sum(x, up, gradient):
    return torch.zeros_like(up), (x @ up).relu().T @ (x + gradient)


WRONG = {
    "step_size.growth": {
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
    "step_size.branch_size": {
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
    "step_size.first_gradients": {
        "nothing moves": (_nothing_moves, "nothing would ever move"),
        "before the ReLU": (_before_the_relu, "before the ReLU"),
        "through something": (_exchanged, "through which matrix"),
        "of the sum": (_of_the_sum, "gradient of what is written"),
        "one": (lambda x, up, gradient: torch.zeros_like(up), "two tensors"),
    },
    "step_size.turn": {
        "radians": (lambda f, k: math.atan(f / _before(f, k - 1)), "radians"),
        "one write too many": (lambda f, k: _angle(f, _before(f, k)), "before number k"),
        "lengths added": (lambda f, k: _angle(f, 1 + (k - 1) * f), "do not add up"),
        "no root": (lambda f, k: _angle(f, 1 + (k - 1) * f**2), "squared"),
        "the other angle": (lambda f, k: _angle(_before(f, k - 1), f), "angle to the write"),
        "the first": (lambda f, k: _angle(f, 1), "has grown"),
        "arcsine": (
            lambda f, k: math.degrees(math.asin(min(1.0, f / _before(f, k - 1)))),
            "long side",
        ),
        "half": (lambda f, k: _angle(f, _before(f, k - 1)) / 2, "triangle"),
    },
    "step_size.prefix": {
        "one by one": (_one_by_one, "calls of `join` where"),
        "backwards": (_backwards, "other order"),
        "pairs alone": (_pairs_alone, "each row stand for"),
        "the moves themselves": (lambda moves, join: moves, "is another one"),
    },
}
