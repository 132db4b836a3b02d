"""Bit pairs: a map of each token by itself, of which no linear map of its bits knows anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, check_sizes


@dataclass(frozen=True)
class BitPairs:
    """A token is a number of `bits` bits; the answer at its position is the exclusive-or of each pair of bits.

    Bits are counted from the lowest. The token 6 has the bits 0, 1, 1, 0; its pairs are (0, 1) and (1, 0), both
    of different bits, and the answer is the number with the bits 1, 1, which is 3. Tokens are independent and
    uniform, and all positions are scored, so that no position can help another. Used where a chapter asks what
    a layer can compute within a token.

    Who looks the token up in a table loses nothing. So does who combines its bits; but a linear map from the
    bits to the logits can do no better than `linear_loss`, as if it saw nothing.

    Attributes:
        bits: of a token, an even number; there are 2^bits tokens and 2^(bits / 2) answers.
        length: number of tokens.

    >>> batch = BitPairs(bits=4, length=5).batch(torch.Generator().manual_seed(0), 1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[12, 15, 5, 0, 3]], [[0, 0, 3, 0, 0]])

    Raises:
        ValueError: when a size is not a positive whole number or the number of bits is odd.
    """

    bits: int = 6
    length: int = 8
    causal = False

    def __post_init__(self) -> None:
        check_sizes(bits=self.bits, length=self.length)
        if self.bits % 2:
            raise ValueError(f"expected bits in pairs, an even number, got bits={self.bits}")

    @property
    def vocab(self) -> int:
        """One token for each combination of bits."""
        return 2**self.bits

    def signs(self) -> Float[Tensor, "vocab bit"]:
        """The bits of each token, lowest first: 1 for a bit that is set and -1 for one that is not."""
        set_bits = (torch.arange(self.vocab)[:, None] >> torch.arange(self.bits)) & 1
        return 2.0 * set_bits - 1.0

    def answers(self) -> Int[Tensor, "vocab"]:
        """The right answer to each token."""
        set_bits = (torch.arange(self.vocab)[:, None] >> torch.arange(self.bits)) & 1
        return ((set_bits[:, 0::2] ^ set_bits[:, 1::2]) << torch.arange(self.bits // 2)).sum(1)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when `size` or `length` is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        inputs = torch.randint(self.vocab, (size, n), generator=generator)
        return Batch(inputs, self.answers()[inputs], torch.ones_like(inputs, dtype=torch.bool))

    def linear_loss(self) -> float:
        r"""Smallest expected loss, in nats, of logits that are a linear map of the bits: $\ln 2$ for each pair.

        Every single bit is independent of the answer. So the derivative of the loss vanishes where all weights
        are zero, and since the loss is convex in them, no other weights do better.
        """
        return self.bits / 2 * math.log(2)
