"""Decoder-only language model: every position predicts what comes next, and none sees ahead."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.checks import check_config
from measured_transformer.models.config import Config
from measured_transformer.models.head import (
    capped,
    make_head_layer,
    make_unembedding,
    refuse_classes,
    scaled,
)
from measured_transformer.models.stack import Stack, initialise
from measured_transformer.parts.tap import Tap


class Decoder(Stack):
    """A causal language model (GPT- or Llama-style): tokens in, for each position the next token's logits out.

    Taps: those of `Stack`, and `logits` (batch position vocab).

    >>> from measured_transformer.models.config import Config
    >>> import torch
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def __init__(self, config: Config) -> None:
        """Draw fresh weights. Raises ValueError when the config asks for an encoder's pooler."""
        check_config(config)
        if config.pooler:
            raise ValueError("a pooler is for Encoder, got config.pooler=True for a Decoder")
        refuse_classes(config, "a Decoder")
        super().__init__(config, causal=True)
        self.head_layer = make_head_layer(config)
        self.unembedding = make_unembedding(config)
        self.logits = Tap()
        initialise(self, config)
        if config.tie_embeddings and self.unembedding is not None:
            self.unembedding.weight = self.token_embedding.weight

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
        resolved = self.resolve_positions(
            tokens, padding_mask=padding_mask, positions=positions, cache=cache
        )
        x, rotation, score_bias = self.embed(tokens, resolved)
        x = self.run_blocks(x, resolved, rotation, score_bias, cache=cache)
        return self.unembed(x)

    def unembed(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """The logits of a state of the stream: final norm, head, unembedding.

        With `config.head == "none"` the final state itself.
        """
        state = self.apply_final_norm(x)
        if self.unembedding is None:
            return state
        if self.head_layer is not None:
            state = self.head_layer(state)
        logits = self.unembedding(scaled(state, self.config.logit_scale))
        return self.logits(capped(logits, self.config.logit_cap))

    def save(self, folder: str | Path) -> Path:
        """Write config and weights to a folder, from which `models.saving.load` makes this model again."""
        from measured_transformer.models.saving import save

        return save(self, folder)
