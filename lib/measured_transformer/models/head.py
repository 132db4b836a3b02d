"""The output head: logits by one matrix, with or without BERT's layer before it."""

from __future__ import annotations

from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.parts.heads import MaskedTokenLayer
from measured_transformer.parts.kernels.linear import Linear


def make_head_layer(config: Config) -> MaskedTokenLayer | None:
    """BERT's layer before the unembedding, for a config that asks for it."""
    if config.head != "mlm":
        return None
    return MaskedTokenLayer(config.d_model, activation=config.activation, eps=config.norm_eps)


def make_unembedding(config: Config) -> nn.Linear | None:
    """The matrix from a state to logits; None when the config has no head."""
    if config.head == "none":
        return None
    return Linear(config.d_model, config.vocab, bias=config.head_bias)


def scaled(state: Tensor, factor: float) -> Tensor:
    """The state times the factor; the state itself when that is one."""
    return state if factor == 1 else state * factor


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """The logits squeezed below the cap; the logits themselves when there is none."""
    return logits if cap is None else cap * (logits / cap).tanh()
