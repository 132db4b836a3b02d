r"""Linear attention: a fixed number of sums takes the place of all keys and values.

With a feature map in the place of the exponential, $e^{q \cdot k} \to \phi(q) \cdot \phi(k)$, the sum over
keys can be taken before the query is known: $S = \sum_j \phi(k_j) v_j^\top$ and $z = \sum_j \phi(k_j)$ are all
that a query needs, however many keys there were. The price is that what $d_k$ features cannot tell apart is
mixed up.

Source: Katharopoulos et al. (2020), "Transformers are RNNs", whose feature map this is.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model


def features(x: Float[Tensor, "*batch d_head"]) -> Float[Tensor, "*batch d_head"]:
    r"""What stands for a query or a key: $\text{elu}(x) + 1$, entry by entry, so that no weight is negative."""
    return F.elu(x) + 1


def linear_attention(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
) -> Float[Tensor, "*batch position d_value"]:
    """Causal linear attention, one position after another, with a state that does not grow.

    Args:
        queries, keys: of which `features` are taken here.
        values: what is mixed.
    """
    asking, asked = features(queries), features(keys)
    state = values.new_zeros(*values.shape[:-2], keys.shape[-1], values.shape[-1])
    total = values.new_zeros(*values.shape[:-2], keys.shape[-1])
    mixed = []
    for t in range(values.shape[-2]):
        state = state + asked[..., t, :, None] * values[..., t, None, :]
        total = total + asked[..., t, :]
        weight = (asking[..., t, :] * total).sum(-1, keepdim=True)
        mixed.append((asking[..., t, None, :] @ state).squeeze(-2) / weight)
    return torch.stack(mixed, dim=-2)


def linear_attention_by_pairs(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
) -> Float[Tensor, "*batch position d_value"]:
    """The same by all pairs: more operations and fewer steps, so faster for short sequences."""
    weights = (features(queries) @ features(keys).transpose(-2, -1)).tril()
    return weights @ values / weights.sum(-1, keepdim=True)


class LinearAttention(nn.Module):
    """Linear attention in the place of `MultiHeadAttention`, with the same projections.

    Taps: `out` (batch position d_model).
    """

    def __init__(self, old: MultiHeadAttention) -> None:
        """Take over the projections of an attention sublayer.

        Raises:
            ValueError: when it has fewer key-value heads than query heads.
        """
        super().__init__()
        if old.n_kv_heads != old.n_heads:
            raise ValueError(
                f"expected as many key-value heads as heads, got {old.n_kv_heads} and {old.n_heads}"
            )
        self.n_heads = old.n_heads
        self.query, self.key, self.value, self.output = old.query, old.key, old.value, old.output
        self.out = Tap()

    def forward(
        self, x: Float[Tensor, "batch position d_model"], *, causal: bool = False, **other: Any
    ) -> Float[Tensor, "batch position d_model"]:
        """What the sublayer writes to the stream.

        Raises:
            ValueError: when it is not causal, or anything else is given that attention can take.
        """
        if given := [name for name, value in other.items() if value is not None]:
            raise ValueError(f"linear attention takes the stream alone, got {', '.join(given)}")
        if not causal:
            raise ValueError("expected a causal model, got causal=False")
        asking, asked, told = (
            layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = linear_attention_by_pairs(asking, asked, told)
        return self.out(self.output(mixed.transpose(1, 2).flatten(2)))


def linear(model: Model) -> None:
    """Preparation for training: put linear attention in the place of all self-attention of a decoder.

    Raises:
        ValueError: when the model is an encoder-decoder.
    """
    if isinstance(model, EncoderDecoder):
        raise ValueError("expected a Decoder, got an EncoderDecoder")
    for block in model.blocks:
        assert isinstance(block, Block)
        block.attention = LinearAttention(block.attention)  # type: ignore[assignment]
