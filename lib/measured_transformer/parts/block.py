r"""One layer: attention and feed-forward, each with a residual connection and a norm.

Pre-norm: $x \leftarrow x + \text{Sublayer}(\text{Norm}(x))$ (the stream itself is never normalised).
Post-norm: $x \leftarrow \text{Norm}(x + \text{Sublayer}(x))$ (Vaswani et al. 2017). With no norm, both are
$x \leftarrow x + \text{Sublayer}(x)$. Without the residual connection the addition of $x$ is left out.
Compared by Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

Placement = Literal["pre", "post"]


class Block(nn.Module):
    """Attention, then feed-forward, each added to the residual stream.

    Taps: `residual_pre` (what enters), `residual_mid` (after attention), `residual_post` (what leaves),
    all (batch position d_model); those of its parts under `attention`, `feedforward`, `attention_norm`
    and `feedforward_norm`.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feedforward: FeedForward,
        attention_norm: nn.Module,
        feedforward_norm: nn.Module,
        *,
        placement: Placement = "pre",
        residual: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Wire ready-made parts.

        Args:
            attention, feedforward: the two sublayers.
            attention_norm, feedforward_norm: their norms, from `make_norm`.
            placement: 'pre' (norm before the sublayer) or 'post' (norm after the addition).
            residual: whether the sublayer's input is added to its output.
            dropout: probability of dropping an entry of a sublayer's output before the addition.

        Raises:
            ValueError: when the placement is another one.
        """
        super().__init__()
        if placement not in ("pre", "post"):
            raise ValueError(f"placement must be 'pre' or 'post', got {placement!r}")
        self.placement, self.residual = placement, residual
        self.attention_norm, self.attention = attention_norm, attention
        self.feedforward_norm, self.feedforward = feedforward_norm, feedforward
        self.attention_dropout, self.feedforward_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.residual_pre, self.residual_mid, self.residual_post = Tap(), Tap(), Tap()

    def forward(
        self,
        x: Float[Tensor, "batch position d_model"],
        *,
        causal: bool = False,
        padding_mask: Bool[Tensor, "batch position"] | None = None,
        rotation: Rotation | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """The stream after this layer. The arguments are those of `MultiHeadAttention`."""
        x = self.residual_pre(x)

        branch = self.attention(
            self._before(self.attention_norm, x),
            causal=causal,
            padding_mask=padding_mask,
            rotation=rotation,
            score_bias=score_bias,
        )
        x = self._add(self.attention_norm, x, self.attention_dropout(branch))
        x = self.residual_mid(x)

        branch = self.feedforward(self._before(self.feedforward_norm, x))
        x = self._add(self.feedforward_norm, x, self.feedforward_dropout(branch))
        return self.residual_post(x)

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.placement == "pre" else x

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        total = x + branch if self.residual else branch
        return norm(total) if self.placement == "post" else total
