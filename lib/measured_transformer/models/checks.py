"""Checks of a model's arguments before it computes anything."""

from __future__ import annotations

import torch
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.config import Config


def check_config(config: object) -> None:
    """Raise ValueError unless this is a `Config`."""
    if not isinstance(config, Config):
        raise ValueError(
            f"a model is made from a Config, such as Config(vocab=256), got {type(config).__name__}"
        )


def check_tokens(tokens: Tensor, config: Config) -> None:
    """Raise ValueError unless these are whole numbers (batch, position) within the vocabulary."""
    if not isinstance(tokens, Tensor):
        raise ValueError(
            "tokens must be a tensor of shape (batch, position), got "
            f"{type(tokens).__name__}; make one with torch.tensor(tokens)"
        )
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
        one = "; a single sequence becomes a batch by tokens[None]" if tokens.ndim == 1 else ""
        raise ValueError(
            "tokens must be whole numbers of shape (batch, position), got "
            f"{tokens.dtype} of shape {tuple(tokens.shape)}{one}"
        )
    _check_range("tokens", tokens, "vocab", config.vocab)


def check_token_types(token_types: Tensor, tokens: Tensor, config: Config) -> None:
    """Raise ValueError unless each token has a type that the model knows."""
    if token_types.shape != tokens.shape or not config.token_types:
        raise ValueError(
            f"token_types must have the shape of the tokens, {tuple(tokens.shape)}, and the model "
            f"must know some; got shape {tuple(token_types.shape)} and "
            f"config.token_types={config.token_types}"
        )
    _check_range("token_types", token_types, "token_types", config.token_types)


def check_cache(cache: KeyValueCache, *, causal: bool, n_blocks: int) -> None:
    """Raise ValueError unless such a model can continue from the cache."""
    if not causal:
        raise ValueError(
            "a cache is for causal models: without a causal mask, earlier positions change when later "
            "tokens come"
        )
    if not isinstance(cache, KeyValueCache):
        raise ValueError(f"cache must come from model.make_cache(), got {type(cache).__name__}")
    if len(cache.layers) != n_blocks:
        raise ValueError(
            f"this model has {n_blocks} blocks, got a cache of {len(cache.layers)} layers; "
            "make one with model.make_cache()"
        )


def _check_range(name: str, numbers: Tensor, field: str, below: int) -> None:
    # Looking would wait for an accelerator, and cannot be compiled.
    if not numbers.numel() or numbers.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = (int(one) for one in numbers.aminmax())
    if low < 0 or high >= below:
        raise ValueError(
            f"{name} must lie in 0..{below - 1} ({field}={below}), got values from {low} to {high}"
        )
