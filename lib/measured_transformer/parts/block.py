r"""One layer: attention and feed-forward, each with a residual connection and a norm.

The layer of a decoder that reads an encoder has a third part between the two, cross-attention.

Pre-norm: $x \leftarrow x + \text{Sublayer}(\text{Norm}(x))$ (the stream itself is never normalised).
Post-norm: $x \leftarrow \text{Norm}(x + \text{Sublayer}(x))$ (Vaswani et al. 2017). With no norm, both are
$x \leftarrow x + \text{Sublayer}(x)$. Without the residual connection the addition of $x$ is left out.
Sandwich: $x \leftarrow x + \text{Norm}'(\text{Sublayer}(\text{Norm}(x)))$ (Ding et al. 2021; Gemma 2). Branch:
$x \leftarrow x + \text{Norm}(\text{Sublayer}(x))$ (OLMo 2). A parallel block adds both sublayers of what enters
(GPT-J): $x \leftarrow x + \text{Attention}(\text{Norm}(x)) + \text{FeedForward}(\text{Norm}'(x))$.
Compared by Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.cache import KeyValues
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.part import Part
from measured_transformer.parts.positions import Rotation
from measured_transformer.parts.tap import Tap

Placement = Literal["pre", "post", "sandwich", "branch"]
"""Where the norm stands: before the sublayer; after the addition; on both sides of the sublayer; after it."""


class Block(Part):
    """Attention, then cross-attention where there is one, then feed-forward, each added to the stream.

    Taps: `residual_pre` (what enters), `residual_mid` (after attention), `residual_cross` (after
    cross-attention), `residual_post` (what leaves), all (batch position d_model); those of its parts under
    `attention`, `cross_attention`, `feedforward` and the norms `attention_norm`, `cross_attention_norm`,
    `feedforward_norm`. In a parallel block `residual_mid` is the stream with what attention adds, which the
    network does not read.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feedforward: nn.Module,
        attention_norm: nn.Module,
        feedforward_norm: nn.Module,
        *,
        cross_attention: MultiHeadAttention | None = None,
        cross_attention_norm: nn.Module | None = None,
        placement: Placement = "pre",
        residual: bool = True,
        dropout: float = 0.0,
        written_norms: Sequence[nn.Module] = (),
        parallel: bool = False,
        shared_norm: bool = False,
        residual_scale: float = 1.0,
        wide: bool = False,
    ) -> None:
        """Wire ready-made parts.

        Args:
            attention, feedforward: the two sublayers that every block has; the latter a `FeedForward`, or what
                else `Config.network` makes.
            attention_norm, feedforward_norm: their norms, from `make_norm`.
            cross_attention, cross_attention_norm: the sublayer that reads a memory, and its norm.
            placement: 'pre' (norm before the sublayer), 'post' (norm after the addition), 'sandwich' (before
                the sublayer and after it) or 'branch' (after the sublayer).
            residual: whether the sublayer's input is added to its output.
            dropout: probability of dropping an entry of a sublayer's output before the addition.
            written_norms: with 'sandwich', the norms of what attention and network write.
            parallel: whether the network reads what enters the block, as attention does.
            shared_norm: whether it then reads what `attention_norm` gives; `feedforward_norm` does nothing.
            residual_scale: factor on what each sublayer adds.
            wide: whether the stream may be float32 while the weights are float16; the sublayers then read it in
                the precision of their weights.

        Raises:
            ValueError: when the placement is another one, the dropout lies outside [0, 1), or
                cross-attention and its norm do not come together, or a sandwich has no two norms more.
        """
        super().__init__()
        if placement not in get_args(Placement):
            raise ValueError(
                f"placement must be one of {', '.join(get_args(Placement))}; got {placement!r}"
            )
        if len(written_norms) != (2 if placement == "sandwich" else 0):
            raise ValueError(
                "a sandwich needs two norms of what is written, and only a sandwich; got "
                f"{len(written_norms)} with placement={placement!r}"
            )
        if parallel and (cross_attention is not None or placement == "post"):
            raise ValueError("a parallel block has no cross-attention and no post-norm")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        if (cross_attention is None) != (cross_attention_norm is None):
            raise ValueError(
                "cross_attention and cross_attention_norm come together, got only one of them; "
                "make_norm('none', d_model) is a norm that does nothing"
            )
        self.placement, self.residual, self.dropout = placement, residual, dropout
        self.parallel, self.shared_norm = parallel, shared_norm
        self.residual_scale, self.wide = residual_scale, wide
        self.attention_norm, self.attention = attention_norm, attention
        self.cross_attention_norm, self.cross_attention = cross_attention_norm, cross_attention
        self.feedforward_norm = feedforward_norm
        # What reads weights is written for the usual one; `Config.network` says which it is.
        self.feedforward = cast(FeedForward, feedforward)
        if written_norms:
            self.attention_written_norm, self.feedforward_written_norm = written_norms
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

        read = self._before(self.attention_norm, x)
        branch = self.attention(
            read,
            causal=causal,
            padding_mask=padding_mask,
            rotation=rotation,
            score_bias=score_bias,
            cache=cache,
        )
        if self.placement == "sandwich":
            branch = self.attention_written_norm(branch)
        if self.parallel:
            return self._parallel(x, read, branch)
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

        branch = self._network(self._before(self.feedforward_norm, x))
        x = self._add(self.feedforward_norm, x, branch)
        return self.residual_post(x)

    def _parallel(self, x: Tensor, read: Tensor, branch: Tensor) -> Tensor:
        """The stream after a block whose network reads what attention reads, or the stream before both."""
        own = read if self.shared_norm else self._before(self.feedforward_norm, x)
        second = self._network(own)
        x = self.residual_mid(self._add(self.attention_norm, x, branch))
        return self.residual_post(self._add(self.feedforward_norm, x, second))

    def _network(self, read: Tensor) -> Tensor:
        written = self.feedforward(read)
        if self.placement == "sandwich":
            written = self.feedforward_written_norm(written)
        return written

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        read = norm(x) if self.placement in ("pre", "sandwich") else x
        return read.to(next(self.feedforward.parameters()).dtype) if self.wide else read

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        if self.placement == "branch":
            branch = norm(branch)
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        if self.residual_scale != 1:
            branch = self.residual_scale * branch
        total = x + branch if self.residual else branch
        return norm(total) if self.placement == "post" else total
