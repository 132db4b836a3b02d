"""Mistakes in the exercises on small steps."""

import math

from torch import Tensor


def _angle(opposite: float, adjacent: float) -> float:
    return math.degrees(math.atan2(opposite, adjacent))


def _before(factor: float, writes: int) -> float:
    return math.sqrt(1 + writes * factor**2)


def _uneven(up: Tensor, down: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """The right sum, by matrices that are not multiples of the old ones."""
    scale = factor**0.5
    tilt = down.new_ones(len(down))
    tilt[0] = 2.0
    return up * scale * tilt, down * scale / tilt[:, None]


WRONG = {
    "small_steps.turn": {
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
    "small_steps.factor_for": {
        "squared": (lambda n, s: (1 / s - 1) / (2 * n), "square of the factor"),
        "one write a block": (lambda n, s: math.sqrt((1 / s - 1) / n), "how often"),
        "without the embedding": (lambda n, s: math.sqrt(1 / (s * 2 * n)), "alone"),
        "of the length": (lambda n, s: math.sqrt((1 / s**2 - 1) / (2 * n)), "share of the length"),
        "of the writes": (
            lambda n, s: math.sqrt((1 / (1 - s) - 1) / (2 * n)),
            "the writes this share",
        ),
        "GPT-2's rule": (lambda n, s: math.sqrt(1 / (2 * n)), "squared length of the last"),
    },
    "small_steps.split": {
        "all in one": (lambda u, d, f: (u, d * f), "the same number"),
        "twice": (lambda u, d, f: (u * f, d * f), "in front of both"),
        "halves": (lambda u, d, f: (u * f / 2, d * f / 2), "in front of both"),
        "negative": (lambda u, d, f: (-u * f**0.5, -d * f**0.5), "in front of both"),
        "one matrix": (lambda u, d, f: u * f, "two matrices"),
        "not a multiple": (_uneven, "one"),
    },
    "small_steps.shift": {
        "not divided": (lambda n, f, m: 2 * n * m, "divide it"),
        "no root": (lambda n, f, m: 2 * n * m / (1 + 2 * n * f**2), "squared"),
        "at right angles": (
            lambda n, f, m: math.sqrt(2 * n) * m / _before(f, 2 * n),
            "the same way",
        ),
        "one write a block": (lambda n, f, m: n * m / _before(f, n), "how often"),
        "lengths added": (lambda n, f, m: 2 * n * m / (1 + 2 * n * f), "right angles"),
        "after the step": (lambda n, f, m: 2 * n * m / _before(f + m, 2 * n), "after the step"),
        "times the factor": (lambda n, f, m: 2 * n * f * m / _before(f, 2 * n), "no part of it"),
        "one block": (lambda n, f, m: 2 * m / _before(f, 2 * n), "all writes"),
    },
}
