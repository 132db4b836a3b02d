"""Best losses that several tasks share, computed from their chances; all in nats."""

from __future__ import annotations

import math
from collections.abc import Iterable


def entropy(chances: Iterable[float]) -> float:
    """Expected cost of the best guess at a draw with these chances.

    >>> round(entropy([0.5, 0.25, 0.25]), 4)
    1.0397
    """
    return -math.fsum(p * math.log(p) for p in chances if p > 0)


def noisy_entropy(symbols: int, fidelity: float) -> float:
    """Entropy of a token that follows a known rule with probability `fidelity`, and is uniform otherwise."""
    other = (1 - fidelity) / symbols
    return entropy([fidelity + other, *[other] * (symbols - 1)])


def bag_entropy(symbols: int, candidates: int) -> float:
    """Expected cost of a guess by a predictor that knows a bag of uniform tokens but not which it must name.

    Any of the `candidates` tokens in the bag could be the answer, with equal chances, so it answers with
    their shares: c/m for a token that comes c times among m. The count c of one token is binomial.

    >>> round(bag_entropy(12, 11), 3)
    1.899
    """
    m, p = candidates, 1 / symbols
    expected = math.fsum(
        math.comb(m, c) * p**c * (1 - p) ** (m - c) * (c / m) * math.log(m / c)
        for c in range(1, m + 1)
    )
    return symbols * expected


def bag_accuracy(symbols: int, candidates: int) -> float:
    """Expected accuracy of the same predictor when it names the most frequent token: E[largest count] / m.

    >>> round(bag_accuracy(12, 11), 3)
    0.247
    """
    m, total = candidates, symbols**candidates
    return math.fsum(1 - _sequences(symbols, m, most) / total for most in range(m)) / m


def _sequences(symbols: int, length: int, most: int) -> int:
    """How many sequences there are in which no symbol comes more than `most` times."""
    ways = [1] + [0] * length  # ways[n]: sequences of length n over the symbols seen so far
    for _ in range(symbols):
        ways = [
            sum(math.comb(n, c) * ways[n - c] for c in range(min(n, most) + 1))
            for n in range(length + 1)
        ]
    return ways[length]
