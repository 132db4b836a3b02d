"""Gaps in sequences of a Markov source, for a model that sees both sides of a gap, or one.

What the tokens around a gap say about it is computed exactly: a Markov source is forgotten as soon as its next
token is seen, so the nearest tokens on both sides say all there is to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.tasks.markov import Markov, stationary
from measured_transformer.tasks.task import Batch, check_share, check_sizes

Side = Literal["both", "left", "right"]
"""Which side of a gap may be seen."""


@dataclass(frozen=True)
class MaskedChain:
    """Sequences of a `Markov` source, a share of whose tokens is replaced by a mask; they are to be guessed.

    With four successors a token, one side alone leaves four candidates for a gap; both together leave those
    that may follow the one neighbour and precede the other. Each token is hidden with the chance `share`; where
    a sequence would have no gap, one place becomes one. Scored are the gaps.

    No model can be right more often than `ideal_chances` says.

    Raises:
        ValueError: when the share is not between 0 and 1, or there is no such side.

    Attributes:
        chain: where the sequences come from.
        share: chance of each token to be hidden.
        side: what a model may see; one that sees the right alone gets the sequence from its end.

    >>> task = MaskedChain(Markov(vocab=6, length=8, branching=(2,)), share=0.2)
    >>> batch = task.batch(torch.Generator().manual_seed(1), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 1, 3, 6, 5, 3, 0, 5]], [[0, 1, 3, 0, 5, 3, 0, 5]])
    """

    chain: Markov
    share: float = 0.15
    side: Side = "both"

    def __post_init__(self) -> None:
        check_share(share=self.share)
        if self.side not in (known := get_args(Side)):
            raise ValueError(f"side must be one of {', '.join(known)}, got {self.side!r}")

    @property
    def causal(self) -> bool:
        """True if a model must not look ahead in what it gets."""
        return self.side != "both"

    @property
    def vocab(self) -> int:
        """The chain's tokens and the mask."""
        return self.chain.vocab + 1

    @property
    def mask(self) -> int:
        """The token that stands where one is hidden."""
        return self.chain.vocab

    @property
    def length(self) -> int:
        """Positions of a sequence."""
        return self.chain.length

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences: the same for every side, but for their direction."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = self.chain.batch(generator, size, length=n).inputs
        chances = torch.rand(whole.shape, generator=generator)
        hidden = chances < self.share
        hidden |= (chances == chances.amin(1, keepdim=True)) & ~hidden.any(1, keepdim=True)
        inputs = whole.masked_fill(hidden, self.mask)
        if self.side == "right":
            inputs, whole, hidden = inputs.flip(1), whole.flip(1), hidden.flip(1)
        return Batch(inputs, whole, hidden)

    def constant_loss(self) -> float:
        """Smallest expected loss, in nats, of an answer that looks at nothing."""
        return self.chain.unigram_loss()

    def ideal_chances(self, batch: Batch) -> Float[Tensor, "batch position vocab"]:
        """Chances of each token at each position, of the reader who knows the table and sees what may be seen.

        The token of a position itself does not count. The largest chance at a gap is how often its best guess
        is right.
        """
        inputs = batch.inputs.flip(1) if self.side == "right" else batch.inputs
        table = self.chain.transitions()
        alone = stationary(table)
        size, n = inputs.shape
        before, after = [alone.expand(size, -1)], [torch.ones(size, len(table), dtype=table.dtype)]
        for t in range(n - 1):
            before.append(_seen(before[-1], inputs[:, t]) @ table)
            after.append(_seen(after[-1], inputs[:, n - 1 - t]) @ table.T)
        forward, backward = torch.stack(before, 1), torch.stack(after[::-1], 1)
        chances = {
            "both": forward * backward,
            "left": forward,
            "right": alone * backward,
        }[self.side]
        chances = chances / chances.sum(-1, keepdim=True)
        return chances.flip(1) if self.side == "right" else chances


def _seen(weights: Float[Tensor, "batch state"], tokens: Tensor) -> Float[Tensor, "batch state"]:
    """Weights of the states once a token is seen; a hidden one says nothing."""
    states = weights.shape[1]
    fits = torch.nn.functional.one_hot(tokens, states + 1)[:, :states].to(weights.dtype)
    return weights * torch.where((tokens == states)[:, None], 1.0, fits)
