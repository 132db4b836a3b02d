"""A source whose next token depends on the token a fixed number of steps back, and on nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Lag:
    """Token t is the image of token t - lag with probability `fidelity`, and uniform otherwise.

    The image is a fixed permutation of the tokens. A causal model must learn the permutation and to look
    exactly `lag` - 1 positions back from where it stands (it stands on t - 1 when it predicts t): a purely
    relative rule, the same at every position.

    Attributes:
        vocab: number of different tokens.
        length: number of predictions asked for.
        lag: how many steps back the rule looks.
        fidelity: probability that the rule is followed.
        rule_seed: which permutation.

    Raises:
        ValueError: when a size is not positive, `fidelity` is no probability or `lag` exceeds `length`.
    """

    vocab: int = 32
    length: int = 32
    lag: int = 3
    fidelity: float = 0.8
    rule_seed: int = 0
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length, lag=self.lag)
        if not 0 <= self.fidelity <= 1:
            raise ValueError(f"fidelity is a probability, got {self.fidelity}")
        self._check_length(self.length)

    def permutation(self) -> Int[Tensor, "vocab"]:
        """The image of each token."""
        return torch.randperm(self.vocab, generator=torch.Generator().manual_seed(self.rule_seed))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; the target is the next token, scored where the rule determines it.

        Raises:
            ValueError: when a size is not positive or `length` is less than the lag.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        self._check_length(n)
        image = self.permutation()
        noise = torch.randint(self.vocab, (size, n + 1), generator=generator)
        follows = torch.rand(size, n + 1, generator=generator) < self.fidelity
        tokens = noise.clone()
        for t in range(self.lag, n + 1):
            tokens[:, t] = torch.where(follows[:, t], image[tokens[:, t - self.lag]], noise[:, t])
        scored = (torch.arange(n) >= self.lag - 1).expand(size, n).clone()
        return Batch(tokens[:, :-1], tokens[:, 1:], scored)

    def _check_length(self, length: int) -> None:
        if length < self.lag:
            raise ValueError(
                f"the rule looks {self.lag} steps back: length must be at least lag={self.lag}, got {length}"
            )

    def ideal_loss(self, batch: Batch) -> Float[Tensor, "position"]:
        """Cross-entropy at each position, on this very batch, of the predictor that knows the rule.

        What a model loses beyond this is its own fault and not the luck of the draw. NaN where nothing
        is scored.
        """
        n = batch.inputs.shape[1]
        image = self.permutation()[batch.inputs.cpu()]
        expected = torch.roll(image, self.lag - 1, dims=1)
        other = (1 - self.fidelity) / self.vocab
        chance = torch.where(expected == batch.targets.cpu(), self.fidelity + other, other)
        loss = -chance.double().log().mean(dim=0)
        return loss.masked_fill(torch.arange(n) < self.lag - 1, math.nan)

    def bayes_loss(self) -> float:
        """Cross-entropy, in nats, of a model that knows the rule: nothing can do better.

        >>> round(Lag().bayes_loss(), 3)
        1.157
        """
        other = (1 - self.fidelity) / self.vocab
        right = self.fidelity + other
        return -sum(
            count * p * math.log(p) for count, p in ((1, right), (self.vocab - 1, other)) if p > 0
        )
