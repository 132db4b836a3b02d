"""The output head: logits by one matrix, with or without BERT's layer before it, and classes."""

from __future__ import annotations

from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.parts.heads import MaskedTokenLayer
from measured_transformer.parts.kernels.linear import Linear


def make_head_layer(config: Config) -> MaskedTokenLayer | None:
    """BERT's layer before the unembedding, for a config that asks for it."""
    if config.head != "mlm":
        return None
    return MaskedTokenLayer(
        config.d_model,
        activation=config.head_activation or config.activation,
        eps=config.norm_eps,
        bias=config.head_layer_bias,
    )


def make_unembedding(config: Config) -> nn.Linear | None:
    """The matrix from a state to logits; None when the config has no head."""
    if not config.predicts_tokens:
        return None
    return Linear(config.d_model, config.vocab, bias=config.head_bias)


def make_classifier(config: Config) -> nn.Linear | None:
    """The map to the logits of classes; None when the config has no `labels`."""
    return Linear(config.d_model, config.labels) if config.labels else None


def refuse_classes(config: Config, model: str) -> None:
    """Raise ValueError for a config with classes, which only an encoder answers with."""
    if config.labels:
        raise ValueError(f"classes are for Encoder, got config.labels={config.labels} for {model}")


def scaled(state: Tensor, factor: float) -> Tensor:
    """The state times the factor; the state itself when that is one."""
    return state if factor == 1 else state * factor


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """The logits squeezed below the cap; the logits themselves when there is none."""
    return logits if cap is None else cap * (logits / cap).tanh()
