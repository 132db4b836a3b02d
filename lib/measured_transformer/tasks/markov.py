"""A Markov source: the next token depends on the last one alone, and its entropy rate is known.

What no model can do better than is the entropy rate; its exponential is the smallest perplexity. Where each
token has equally likely successors, that perplexity is a mean number of successors, and the mean is geometric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.floors import entropy
from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Markov:
    """Tokens follow one another by a fixed table of chances; the first has the chances of the long run.

    With three tokens of which each may be followed by the two others, ``0 2 1 0 1``. Every position is scored
    on the next token. Used where a chapter asks what a perplexity means.

    Attributes:
        vocab: number of different tokens, at least as many as successors.
        length: number of predictions asked for.
        branching: numbers of successors, which the tokens take in turns: with (2, 8), tokens with an even
            number have two and the others eight.
        sharpness: 0 makes a token's successors equally likely; 1 draws their chances uniformly among all
            that sum to 1; the more, the more they differ.
        rule_seed: which table.

    >>> task = Markov(vocab=4, length=5, branching=(1,))
    >>> task.batch(torch.Generator().manual_seed(0), 1).inputs.tolist(), task.entropy_rate()
    ([[3, 2, 0, 1, 3]], 0.0)

    Raises:
        ValueError: when a size is not a positive whole number, there are no numbers of successors or one is
            not between 1 and `vocab`, or `sharpness` is negative.
    """

    vocab: int = 16
    length: int = 32
    branching: tuple[int, ...] = (4,)
    sharpness: float = 0.0
    rule_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        if not self.branching or not all(1 <= b <= self.vocab for b in self.branching):
            raise ValueError(
                f"every number of successors must lie between 1 and vocab={self.vocab}, "
                f"got branching={self.branching}"
            )
        if self.sharpness < 0:
            raise ValueError(f"sharpness must not be negative, got {self.sharpness}")

    def transitions(self) -> Float[Tensor, "token successor"]:
        """The chance of every next token after each token.

        One successor of each token is its neighbour on a circle through all tokens, so that every token can
        be reached from every other.
        """
        return _table(self.vocab, self.branching, self.sharpness, self.rule_seed).clone()

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of the stationary source.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        chances = self.transitions()
        draws = torch.rand(size, n + 1, generator=generator, dtype=torch.float64)
        tokens = [chosen(draws[:, 0], stationary(chances).expand(size, -1))]
        for t in range(1, n + 1):
            tokens.append(chosen(draws[:, t], chances[tokens[-1]]))
        whole = torch.stack(tokens, dim=1)
        return Batch(whole[:, :-1], whole[:, 1:], torch.ones(size, n, dtype=torch.bool))

    def ideal_losses(self, batch: Batch) -> Float[Tensor, "batch position"]:
        """Cost of each next token, on this very batch, of the predictor that knows the table."""
        return -self.transitions()[batch.inputs.cpu(), batch.targets.cpu()].log()

    def entropy_rate(self) -> float:
        """Expected cost, in nats, of the predictor that knows the table: nothing can do better.

        The entropy of each token's successors, weighted by how often the token comes (Shannon, 1948).
        """
        chances = self.transitions()
        often = stationary(chances).tolist()
        return math.fsum(p * entropy(row) for p, row in zip(often, chances.tolist(), strict=True))

    def unigram_loss(self) -> float:
        """Expected cost, in nats, of the best predictor that looks at nothing: the entropy of the shares."""
        return entropy(stationary(self.transitions()).tolist())


@cache
def _table(
    vocab: int, branching: tuple[int, ...], sharpness: float, rule_seed: int
) -> Float[Tensor, "token successor"]:
    generator = torch.Generator().manual_seed(rule_seed)
    circle = torch.randperm(vocab, generator=generator)
    chances = torch.zeros(vocab, vocab, dtype=torch.float64)
    for i in range(vocab):
        token, neighbour = circle[i], circle[(i + 1) % vocab]
        others = torch.randperm(vocab, generator=generator)
        successors = torch.cat([neighbour[None], others[others != neighbour]])
        count = branching[int(token) % len(branching)]
        chances[token, successors[:count]] = uneven(generator, 1, count, sharpness)[0]
    return chances


def uneven(
    generator: torch.Generator, rows: int, count: int, sharpness: float
) -> Float[Tensor, "row outcome"]:
    """Rows of random chances: uniform among all that sum to 1 when sharpness is 1, all equal when 0."""
    draws = torch.rand(rows, count, generator=generator, dtype=torch.float64)
    weights = (-(1 - draws).clamp_min(1e-300).log()).clamp_min(1e-12) ** sharpness
    return weights / weights.sum(1, keepdim=True)


def stationary(chances: Float[Tensor, "state next"]) -> Float[Tensor, "state"]:
    """How often each state comes in the long run: the row vector p with p = p @ chances."""
    n = len(chances)
    equations = chances.T - torch.eye(n, dtype=chances.dtype)
    equations[-1] = 1  # one of them follows from the others; instead, the shares sum to 1
    right = torch.zeros(n, dtype=chances.dtype)
    right[-1] = 1
    return torch.linalg.solve(equations, right).clamp_min(0)


def chosen(draws: Float[Tensor, "row"], chances: Float[Tensor, "row outcome"]) -> torch.Tensor:
    """The outcome that a uniform draw stands for in each row of chances; never one without a chance."""
    steps = chances.cumsum(1)
    return (draws[:, None] >= steps / steps[:, -1:]).sum(1)
