"""Decoder-only language model: every position predicts what comes next, and none sees ahead."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.stack import Stack


class Decoder(Stack):
    """A causal language model (GPT-style): tokens in, for each position the logits of the next token out.

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "batch position"] | None = None,
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position.

        Args:
            tokens: token numbers below `config.vocab`.
            padding_mask: True for real tokens, False for padding.

        Raises:
            ValueError: when shapes, kinds or values do not fit; see `Stack.stream`.
        """
        return self.read(self.stream(tokens, causal=True, padding_mask=padding_mask))
