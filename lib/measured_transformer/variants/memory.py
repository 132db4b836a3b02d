"""Changes what a decoder reads of its source: all encoder states, one vector for all, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.training.loop import Model

MemoryKind = Literal["all", "mean", "last", "none"]
"""What the memory holds, see `Memory`."""


class _MeanMemory(EncoderDecoder):
    """Each place of the memory holds the mean of the encoder's states at real tokens."""

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's final states, averaged."""
        states = super().encode(source, padding_mask=padding_mask, positions=positions)
        if padding_mask is None:
            return states.mean(1, keepdim=True).expand_as(states)
        weights = padding_mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        return mean.expand_as(states)


class _LastMemory(EncoderDecoder):
    """Each place of the memory holds the encoder's state at the last real token, which ends the source."""

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's final state at the last real token."""
        states = super().encode(source, padding_mask=padding_mask, positions=positions)
        if padding_mask is None:
            return states[:, -1:].expand_as(states)
        later = padding_mask.flip(1).long().cumsum(1).flip(1)  # real tokens from here on
        last = (padding_mask & (later == 1)).unsqueeze(-1).to(states.dtype)
        return (states * last).sum(1, keepdim=True).expand_as(states)


class _NoMemory(EncoderDecoder):
    """The memory holds zeros: what cross-attention reads from it is the same for every source."""

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """Zeros in the shape of the encoder's final states."""
        return super().encode(source, padding_mask=padding_mask, positions=positions) * 0.0


_KINDS: dict[str, type[EncoderDecoder]] = {
    "all": EncoderDecoder,
    "mean": _MeanMemory,
    "last": _LastMemory,
    "none": _NoMemory,
}


@dataclass(frozen=True)
class Memory:
    """A preparation for training: an encoder-decoder whose decoder reads less of the source than usual.

    The decoder keeps its cross-attention. Where all places of the memory hold the same vector, every head reads
    that vector whatever its weights are: the source has become one vector, as in the first encoder-decoders,
    except that here each block of the decoder may read it at every step.

    Attributes:
        kind: 'all' states of the encoder; their 'mean' over real tokens; the 'last' real token's; or 'none':
            zeros.

    >>> import torch
    >>> from measured_transformer.models.config import Config
    >>> model = EncoderDecoder(Config(vocab=6, d_model=8, n_heads=2, n_layers=1))
    >>> Memory("mean")(model)
    >>> memory = model.encode(torch.tensor([[1, 2, 3]]))
    >>> bool((memory[:, 0] == memory[:, 2]).all())
    True

    Raises:
        ValueError: when there is no such kind.
    """

    kind: MemoryKind

    def __post_init__(self) -> None:
        if self.kind not in (known := get_args(MemoryKind)):
            raise ValueError(f"kind must be one of {', '.join(known)}, got {self.kind!r}")

    def __call__(self, model: Model) -> None:
        """Change the model in place; its weights stay as they are.

        Raises:
            ValueError: when the model is no encoder-decoder.
        """
        if not isinstance(model, EncoderDecoder):
            raise ValueError(f"expected an EncoderDecoder, got a {type(model).__name__}")
        model.__class__ = _KINDS[self.kind]
