"""A raffle: tokens are drawn without being put back, some of them with many more tickets than others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class Raffle:
    """Name the next token of a drawing without replacement; token i has 1/(i + 1) of the first one's tickets.

    Without a look back the best guess is always the token with the most tickets. Once it has been drawn it
    cannot come again, so a model has to lower what it would have said, and by nothing but what stands in the
    context: a small task that rewards *copy suppression* (McDougall et al. 2023).

    A model that keeps account of what is gone has the loss of `best_logits`.

    Attributes:
        vocab: number of different tokens.
        length: positions of a sequence; one token more is drawn for the last answer.

    >>> batch = Raffle(vocab=6, length=4).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 3, 1, 5]], [[3, 1, 5, 4]])

    Raises:
        ValueError: when a size is no positive whole number, or there are not more tokens than positions.
    """

    vocab: int = 16
    length: int = 10
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        if self.vocab <= self.length:
            raise ValueError(
                f"expected more tokens than positions, got vocab={self.vocab} and length={self.length}"
            )

    def weights(self) -> Float[Tensor, "vocab"]:
        """Tickets of each token, the first one's as 1."""
        return 1 / torch.arange(1, self.vocab + 1, dtype=torch.float64)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; every position is scored.

        Raises:
            ValueError: when a size is no positive whole number, or the sequence is as long as there are tokens.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        if n >= self.vocab:
            raise ValueError(f"expected fewer positions than the {self.vocab} tokens, got {n}")
        # Exponential arrival times: the order of arrival is a drawing without replacement.
        uniform = torch.rand(size, self.vocab, generator=generator, dtype=torch.float64)
        times = -torch.log(uniform.clamp_min(1e-300)) / self.weights()
        drawn = times.argsort(dim=1)[:, : n + 1]
        scored = torch.ones(size, n, dtype=torch.bool)
        return Batch(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous(), scored)

    def best_logits(self, batch: Batch) -> Float[Tensor, "batch position vocab"]:
        """Logits of one who knows the tickets and what is gone; minus infinity for the latter."""
        gone = torch.nn.functional.one_hot(batch.inputs, self.vocab).cumsum(1) > 0
        logits: Tensor = self.weights().log().expand(gone.shape).masked_fill(gone, -torch.inf)
        return logits
