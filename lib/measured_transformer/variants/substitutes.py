"""Replacements for a sublayer: linear networks, attention with a fixed pattern, or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import is_gated
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model

Network = Literal["whole", "linear", "none"]
Attention = Literal["whole", "fixed", "none"]


class Silent(nn.Module):
    """Replaces a sublayer and writes zeros: the stream passes unchanged.

    Taps: `out` (batch position d_model), as the sublayers have it.
    """

    def __init__(self) -> None:
        """Make the tap; there is nothing to learn."""
        super().__init__()
        self.out = Tap()

    def forward(self, x: Float[Tensor, "batch position d_model"], **_: Any) -> Tensor:
        """Zeros like the stream, whatever else a sublayer would be told."""
        return self.out(torch.zeros_like(x))


class FixedPattern(nn.Module):
    """Attention with one learned pattern a head, the same for every sequence.

    Values and output are those of attention. Queries and keys are gone: the scores are a table of numbers, one
    for each pair of positions, that is trained. It moves information between positions, but never asks what
    stands there. After Tay et al. (2021), "Synthesizer: Rethinking Self-Attention for Transformer Models".
    """

    def __init__(self, value: nn.Linear, output: nn.Linear, *, n_heads: int, length: int) -> None:
        """Make the tables, all zero: at first every position attends uniformly to all it may see.

        Args:
            value, output: the projections, taken over as they are.
            n_heads: number of heads, a divisor of the width of the values.
            length: the longest sequence.

        Raises:
            ValueError: when the number of heads does not divide that width.
        """
        super().__init__()
        if value.out_features % n_heads:
            raise ValueError(
                f"n_heads must divide the width of the values, got {value.out_features} and {n_heads}"
            )
        self.scores = nn.Parameter(torch.zeros(n_heads, length, length, device=value.weight.device))
        self.value, self.output = value, output

    def pattern(self, length: int, *, causal: bool) -> Float[Tensor, "head query key"]:
        """The weights for sequences of a length."""
        scores = self.scores[:, :length, :length]
        if causal:
            ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(ahead, -math.inf)
        return scores.softmax(-1)

    def forward(
        self,
        x: Float[Tensor, "batch position d_model"],
        *,
        causal: bool = False,
        padding_mask: Bool[Tensor, "batch key"] | None = None,
        **unused: Any,
    ) -> Float[Tensor, "batch position d_model"]:
        """What the sublayer writes to the stream.

        Raises:
            ValueError: when the sequence is longer than the tables, or has padding.
        """
        if padding_mask is not None:
            raise ValueError("fixed patterns know no padding, got a padding_mask")
        heads, longest, _ = self.scores.shape
        if x.shape[1] > longest:
            raise ValueError(f"the patterns reach {longest} positions, got {x.shape[1]}")
        values = self.value(x).unflatten(-1, (heads, -1))
        weights = self.pattern(x.shape[1], causal=causal)
        mixed = torch.einsum("hqk,bkhd->bqhd", weights, values).flatten(2)
        return self.output(mixed)


@dataclass(frozen=True)
class Instead:
    """A preparation for training: put something else in the place of all networks, all attention, or both.

    Attributes:
        network: 'whole' leaves it; 'linear' takes the bend out, so that its two matrices are one linear map;
            with 'none' nothing stands there, and its norm goes too.
        attention: 'whole' leaves it; 'fixed' puts a `FixedPattern` there; 'none' as for the network.

    >>> from measured_transformer.models.encoder import Encoder
    >>> model = Encoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
    >>> Instead(attention="none")(model)
    >>> [name for name, _ in model.blocks[0].attention.named_parameters()]
    []

    Raises:
        ValueError: when something else is asked for.
    """

    network: Network = "whole"
    attention: Attention = "whole"

    def __post_init__(self) -> None:
        for name, asked, known in (
            ("network", self.network, get_args(Network)),
            ("attention", self.attention, get_args(Attention)),
        ):
            if asked not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {asked!r}")

    def __call__(self, model: Model) -> None:
        """Change the fresh model in place.

        Raises:
            ValueError: when the model is an encoder-decoder, or a network that shall be linear has a gate.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder or an Encoder, got an EncoderDecoder")
        config = model.config
        if self.network == "linear" and is_gated(config.activation):
            raise ValueError(
                f"a network with a gate is not linear without its bend, got {config.activation!r}"
            )
        for block in model.blocks:
            assert isinstance(block, Block)
            if self.network == "linear":
                block.feedforward.activate = _straight
            if self.network == "none":
                block.feedforward = Silent()  # type: ignore[assignment]
                block.feedforward_norm = nn.Identity()
            if self.attention == "fixed":
                old = block.attention
                block.attention = FixedPattern(  # type: ignore[assignment]
                    old.value, old.output, n_heads=config.n_heads, length=config.max_length
                )
            if self.attention == "none":
                block.attention = Silent()  # type: ignore[assignment]
                block.attention_norm = nn.Identity()


def _straight(x: Tensor) -> Tensor:
    return x


def network_made_up(config: Config) -> Config:
    """The config of a model without attention with nearly as many parameters, by more neurons.

    The other way round, a model without networks with more heads, is `variants.feedforward.without_network`.

    >>> network_made_up(Config(vocab=10, d_model=32, n_heads=4)).neurons
    192

    Raises:
        ValueError: when the weights of attention are not a whole number of neurons.
    """
    weights = 4 * config.d_model * config.n_heads * config.head_width
    each = (3 if is_gated(config.activation) else 2) * config.d_model
    more, rest = divmod(weights, each)
    if rest:
        raise ValueError(
            f"{config.n_heads} heads of width {config.head_width} are no whole number of neurons"
        )
    return config.replace(d_ff=config.neurons + more)
