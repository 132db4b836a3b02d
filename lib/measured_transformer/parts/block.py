r"""One layer: attention and feed-forward, each with a residual connection and a norm.

The layer of a decoder that reads an encoder has a third part between the two, cross-attention.

Pre-norm: $x \leftarrow x + \text{Sublayer}(\text{Norm}(x))$ (the stream itself is never normalised).
Post-norm: $x \leftarrow \text{Norm}(x + \text{Sublayer}(x))$ (Vaswani et al. 2017). With no norm, both are
$x \leftarrow x + \text{Sublayer}(x)$. Without the residual connection the addition of $x$ is left out.
Compared by Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

Placement = Literal["pre", "post"]
"""Where the norm stands: before the sublayer, or after the addition."""


class Block(nn.Module):
    """Attention, then cross-attention where there is one, then feed-forward, each added to the stream.

    Taps: `residual_pre` (what enters), `residual_mid` (after attention), `residual_cross` (after
    cross-attention), `residual_post` (what leaves), all (batch position d_model); those of its parts under
    `attention`, `cross_attention`, `feedforward` and the norms `attention_norm`, `cross_attention_norm`,
    `feedforward_norm`.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feedforward: FeedForward,
        attention_norm: nn.Module,
        feedforward_norm: nn.Module,
        *,
        cross_attention: MultiHeadAttention | None = None,
        cross_attention_norm: nn.Module | None = None,
        placement: Placement = "pre",
        residual: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Wire ready-made parts.

        Args:
            attention, feedforward: the two sublayers that every block has.
            attention_norm, feedforward_norm: their norms, from `make_norm`.
            cross_attention, cross_attention_norm: the sublayer that reads a memory, and its norm.
            placement: 'pre' (norm before the sublayer) or 'post' (norm after the addition).
            residual: whether the sublayer's input is added to its output.
            dropout: probability of dropping an entry of a sublayer's output before the addition.

        Raises:
            ValueError: when the placement is another one, the dropout lies outside [0, 1), or
                cross-attention and its norm do not come together.
        """
        super().__init__()
        if placement not in ("pre", "post"):
            raise ValueError(f"placement must be 'pre' or 'post', got {placement!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        if (cross_attention is None) != (cross_attention_norm is None):
            raise ValueError(
                "cross_attention and cross_attention_norm come together, got only one of them; "
                "make_norm('none', d_model) is a norm that does nothing"
            )
        self.placement, self.residual, self.dropout = placement, residual, dropout
        self.attention_norm, self.attention = attention_norm, attention
        self.cross_attention_norm, self.cross_attention = cross_attention_norm, cross_attention
        self.feedforward_norm, self.feedforward = feedforward_norm, feedforward
        self.residual_pre, self.residual_mid, self.residual_post = Tap(), Tap(), Tap()
        if cross_attention is not None:
            self.residual_cross = Tap()

    def forward(
        self,
        x: Float[Tensor, "batch position d_model"],
        memory: Float[Tensor, "batch memory d_model"] | None = None,
        *,
        causal: bool = False,
        padding_mask: Bool[Tensor, "batch key"] | None = None,
        memory_padding_mask: Bool[Tensor, "batch memory"] | None = None,
        rotation: Rotation | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        cache: KeyValues | None = None,
        cross_cache: KeyValues | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """The stream after this layer.

        Args:
            x: the stream before it.
            memory, memory_padding_mask, cross_cache: what cross-attention reads, where its tokens are real,
                and its keys and values when they are kept; for a block that has cross-attention.
            causal, padding_mask, rotation, score_bias, cache: of self-attention, as in
                `MultiHeadAttention`.

        Raises:
            ValueError: when a memory is missing or not wanted, or an argument does not fit its part.
        """
        if (memory is None) != (self.cross_attention is None):
            raise ValueError(
                "a block with cross_attention needs a memory to read, and only such a block; got "
                f"{'no' if memory is None else 'a'} memory"
            )
        x = self.residual_pre(x)

        branch = self.attention(
            self._before(self.attention_norm, x),
            causal=causal,
            padding_mask=padding_mask,
            rotation=rotation,
            score_bias=score_bias,
            cache=cache,
        )
        x = self._add(self.attention_norm, x, branch)
        x = self.residual_mid(x)

        if self.cross_attention is not None and self.cross_attention_norm is not None:
            branch = self.cross_attention(
                self._before(self.cross_attention_norm, x),
                memory,
                padding_mask=memory_padding_mask,
                cache=cross_cache,
            )
            x = self._add(self.cross_attention_norm, x, branch)
            x = self.residual_cross(x)

        branch = self.feedforward(self._before(self.feedforward_norm, x))
        x = self._add(self.feedforward_norm, x, branch)
        return self.residual_post(x)

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.placement == "pre" else x

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        total = x + branch if self.residual else branch
        return norm(total) if self.placement == "post" else total
