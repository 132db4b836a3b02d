"""Encoder-only model: every position sees the whole sequence."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.config import Config
from measured_transformer.models.head import HeadedStack


class Encoder(HeadedStack):
    """A bidirectional model (BERT-style): tokens in, for each position logits over the vocabulary out.

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = Encoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config, causal=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of each position's answer, or with `config.head == "none"` its final state.

        Args:
            tokens: token numbers below `config.vocab`.
            padding_mask: (batch, position), True for real tokens, False for padding.
            positions: (batch, position), where they should not be counted from the real tokens.
            token_types: (batch, position), each token's type below `config.token_types`.

        Raises:
            ValueError: when shapes, kinds or values do not fit; see `Stack.stream`.
        """
        x = self.stream(
            tokens, padding_mask=padding_mask, positions=positions, token_types=token_types
        )
        return self.read(x)

    def pool(
        self, final_state: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch d_model"]:
        """One vector for each sequence, from its final state at the first position.

        The final state is what the tap `final_state` shows, and what the model returns when it has no head.

        Raises:
            ValueError: when the model has no pooler.
        """
        if self.pooler is None:
            raise ValueError("this model has no pooler: make it with Config(pooler=True)")
        return self.pooler(final_state)
