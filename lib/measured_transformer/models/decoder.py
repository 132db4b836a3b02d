"""Decoder-only language model: every position predicts what comes next, and none sees ahead."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.config import Config
from measured_transformer.models.head import HeadedStack


class Decoder(HeadedStack):
    """A causal language model (GPT- or Llama-style): tokens in, for each position the next token's logits out.

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: Config) -> None:
        """Draw fresh weights. Raises ValueError when the config asks for an encoder's pooler."""
        if config.pooler:
            raise ValueError("a pooler is for Encoder, got config.pooler=True for a Decoder")
        super().__init__(config, causal=True)

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position vocab"]:
        """Logits of the next token at each position.

        Args:
            tokens: token numbers below `config.vocab`; with a cache, those that come next.
            padding_mask: (batch, position), True for real tokens, False for padding.
            positions: (batch, position), where they should not be counted from the real tokens.
            cache: from `make_cache`; gives the same logits as one call with all tokens.

        Raises:
            ValueError: when shapes, kinds or values do not fit; see `Stack.stream`.

        >>> import torch
        >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2)).double()
        >>> tokens = torch.tensor([[1, 2, 3, 4]])
        >>> cache = model.make_cache()
        >>> first, rest = model(tokens[:, :2], cache=cache), model(tokens[:, 2:], cache=cache)
        >>> bool(torch.allclose(torch.cat((first, rest), dim=1), model(tokens)))
        True
        """
        x = self.stream(tokens, padding_mask=padding_mask, positions=positions, cache=cache)
        return self.read(x)
