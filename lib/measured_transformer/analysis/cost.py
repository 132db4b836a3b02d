r"""What the two sublayers of a block cost: multiply-adds by formula.

A multiplication with the addition that follows it counts as two operations. For n tokens and a stream of
width d, attention has $8nd^2$ of them in its four projections and $4n^2d$ in scores and mixing, and a
feed-forward network with hidden width 4d has $16nd^2$. Norms, softmax, activations and biases are left
out: next to these they are few.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operations:
    """Operations of a block's forward pass over n tokens at width d, hidden width `wider` times d.

    >>> Operations(3, 2).attention, Operations(3, 2).network
    (168, 192)
    """

    n: int
    d: int
    wider: int = 4

    @property
    def projections(self) -> int:
        """Queries, keys, values and output: four maps from d to d for every token."""
        return 8 * self.n * self.d**2

    @property
    def pairs(self) -> int:
        """Scores and mixing: for every pair of tokens d multiply-adds each."""
        return 4 * self.n**2 * self.d

    @property
    def attention(self) -> int:
        """Projections and pairs."""
        return self.projections + self.pairs

    @property
    def network(self) -> int:
        """Two maps, from d to the hidden width and back, for every token."""
        return 4 * self.wider * self.n * self.d**2

    @property
    def share(self) -> float:
        """Attention's part of all operations; a function of n / d alone."""
        return self.attention / (self.attention + self.network)
