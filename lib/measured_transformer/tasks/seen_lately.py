"""Seen lately: is this token one of the last few? Often it is not, and then there is nothing to find."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class SeenLately:
    """A start token 0, then random tokens; the answer is 1 where the token is one of the `reach` before it.

    What must be found is never more than `reach` places back, in long sequences as in short ones. Where nothing
    is found a head must say so, although its weights sum to one: it can lean on the start token, an attention
    sink. Used where a chapter asks what a window over the last keys takes from a model.

    A model that knows the rule loses nothing.

    Attributes:
        vocab: number of different tokens, the start token included.
        length: number of answers asked for.
        reach: how far back the rule looks.

    >>> batch = SeenLately(vocab=4, length=6, reach=2).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[0, 1, 3, 1, 2, 1]], [[0, 0, 0, 1, 0, 1]])

    Raises:
        ValueError: when a size is no positive whole number, or there are fewer than three tokens.
    """

    vocab: int = 13
    length: int = 32
    reach: int = 6
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length, reach=self.reach)
        if self.vocab < 3:
            raise ValueError(f"expected two tokens besides the start, got vocab={self.vocab}")

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences; scored is every position but the start token's.

        Raises:
            ValueError: when a size is no positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        tokens = torch.randint(1, self.vocab, (size, n), generator=generator)
        tokens[:, 0] = 0
        seen = torch.zeros(size, n, dtype=torch.bool)
        for back in range(1, min(self.reach, n - 1) + 1):
            seen[:, back:] |= tokens[:, back:] == tokens[:, :-back]
        scored = (torch.arange(n) > 0).expand(size, n).clone()
        return Batch(tokens, seen.long(), scored)

    def new_share(self) -> float:
        """How often a token is not among the last `reach`: the accuracy of always saying so.

        >>> round(SeenLately().new_share(), 3)
        0.593
        """
        return (1 - 1 / (self.vocab - 1)) ** self.reach

    def blind_loss(self) -> float:
        """Loss in nats of a model that knows how frequent the answers are, far from the start, and no more.

        >>> round(SeenLately().blind_loss(), 3)
        0.676
        """
        new = self.new_share()
        return -new * math.log(new) - (1 - new) * math.log(1 - new)
