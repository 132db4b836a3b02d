"""What the models share: embedding, a stack of blocks, a final norm, and how weights are drawn."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.config import Config
from measured_transformer.models.places import Places, find_places
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm, RMSNorm, make_norm
from measured_transformer.parts.positions import (
    LearnedPositions,
    RelativeBias,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    alibi_bias_between,
    alibi_slopes,
)
from measured_transformer.parts.tap import Tap


class Stack(nn.Module):
    """Tokens in, residual stream out; the models add what they read from it.

    Taps: `embedding` (batch position d_model), the stream before the first block: tokens plus, where the
    scheme adds them, positions; those of each block under `blocks.{i}`; `final_norm.scale`; `final_state`
    (batch position d_model), the stream after the final norm.
    """

    def __init__(
        self,
        config: Config,
        *,
        causal: bool,
        n_layers: int | None = None,
        cross_attention: bool = False,
    ) -> None:
        """Make embedding, blocks and final norm.

        Args:
            config: sizes and choices.
            causal: whether no position sees a later one.
            n_layers: number of blocks; `config.n_layers` when not given.
            cross_attention: whether the blocks read a memory as well.
        """
        super().__init__()
        self.config, self.causal = config, causal
        self.token_embedding = nn.Embedding(config.vocab, config.d_model)
        self.embedding_scale = config.embedding_factor
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        self.rotary: RotaryPositions | None = None
        self.relative: RelativeBias | None = None
        if config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.d_model, base=config.rotary_base)
        elif config.positions == "learned":
            self.positions = LearnedPositions(config.max_length, config.d_model)
        elif config.positions == "rotary":
            self.rotary = RotaryPositions(
                config.head_width, base=config.rotary_base, pairing=config.rotary_pairing
            )
        elif config.positions == "relative":
            self.relative = RelativeBias(
                config.n_heads,
                n_buckets=config.relative_buckets,
                max_distance=config.relative_max_distance,
                bidirectional=not causal,
            )
        self.token_type_embedding = (
            nn.Embedding(config.token_types, config.d_model) if config.token_types else None
        )
        self.embedding_norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.embedding = Tap()
        self.blocks = nn.ModuleList(
            make_block(config, cross_attention=cross_attention)
            for _ in range(config.n_layers if n_layers is None else n_layers)
        )
        self.final_norm = _norm(config) if config.has_final_norm else nn.Identity()
        self.final_state = Tap()

    def stream(
        self,
        tokens: Int[Tensor, "batch position"],
        *,
        padding_mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "..."] | None = None,
        memory: Float[Tensor, "batch memory d_model"] | None = None,
        memory_padding_mask: Bool[Tensor, "batch memory"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch position d_model"]:
        """The residual stream after the last block, before the final norm.

        Args:
            tokens: token numbers below `config.vocab`.
            padding_mask: (batch, position), True for real tokens, False for padding. A token's position is
                the number of real tokens before it.
            positions: (batch, position), the tokens' positions, where they should be others.
            token_types: (batch, position), each token's type below `config.token_types`; all 0 when None.
            memory, memory_padding_mask: what cross-attention reads, and where its tokens are real.
            cache: what earlier calls left of the same sequences, which these tokens continue.

        Raises:
            ValueError: when tokens are not whole numbers of shape (batch, position), lie outside the
                vocabulary, or are more than learned positions reach; when another argument does not fit.
        """
        self._check(tokens, token_types, cache)
        if cache is not None:
            cache.drop_unfinished()
        places = find_places(
            tokens,
            padding_mask=padding_mask,
            positions=positions,
            earlier=None if cache is None else cache.places,
        )
        x, turn, bias = self.enter(tokens, places, token_types)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                memory,
                causal=self.causal,
                padding_mask=places.real,
                memory_padding_mask=memory_padding_mask,
                rotation=turn,
                score_bias=bias,
                cache=None if cache is None else cache.layers[i],
                cross_cache=None if cache is None or memory is None else cache.cross_layers[i],
            )
        if cache is not None:
            cache.places = places
        return x

    def enter(
        self,
        tokens: Int[Tensor, "batch position"],
        places: Places,
        token_types: Int[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "batch position d_model"], Rotation | None, Tensor | None]:
        """What the first block reads: the embedded tokens; and the rotation and score bias of their places."""
        x = self._embed(tokens, token_types, places)
        turn = None if self.rotary is None else _look_up(self.rotary, places)
        return x, turn, self._score_bias(places, x)

    def finish(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position d_model"]:
        """The final state: the stream after the final norm, where there is one."""
        return self.final_state(self.final_norm(x))

    def make_cache(self, capacity: int = 0) -> KeyValueCache:
        """An empty cache for this stack, with room for `capacity` positions at first."""
        crossed = any(block.cross_attention is not None for block in self.blocks)
        return KeyValueCache(len(self.blocks), cross_attention=crossed, capacity=capacity)

    def _embed(self, tokens: Tensor, token_types: Tensor | None, places: Places) -> Tensor:
        x = self.embedding_scale * self.token_embedding(tokens)
        if self.positions is not None:
            x = x + _look_up(self.positions, places)
        if self.token_type_embedding is not None:
            types = torch.zeros_like(tokens) if token_types is None else token_types
            x = x + self.token_type_embedding(types)
        return self.embedding(self.embedding_dropout(self.embedding_norm(x)))

    def _score_bias(self, places: Places, x: Tensor) -> Tensor | None:
        if self.relative is not None:
            return self.relative(places.queries, places.keys)
        if self.config.positions != "alibi":
            return None
        slopes = alibi_slopes(self.config.n_heads).to(device=x.device, dtype=x.dtype)
        return alibi_bias_between(slopes, places.queries, places.keys)

    def _check(
        self, tokens: Tensor, token_types: Tensor | None, cache: KeyValueCache | None
    ) -> None:
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
        _check_range("tokens", tokens, "vocab", self.config.vocab)
        if token_types is not None:
            if token_types.shape != tokens.shape or not self.config.token_types:
                raise ValueError(
                    f"token_types must have the shape of the tokens, {tuple(tokens.shape)}, and the model "
                    f"must know some; got shape {tuple(token_types.shape)} and "
                    f"config.token_types={self.config.token_types}"
                )
            _check_range("token_types", token_types, "token_types", self.config.token_types)
        if cache is not None and not self.causal:
            raise ValueError(
                "a cache is for causal models: without a causal mask, earlier positions change when later "
                "tokens come"
            )
        if cache is not None and len(cache.layers) != len(self.blocks):
            raise ValueError(
                f"this model has {len(self.blocks)} blocks, got a cache of {len(cache.layers)} layers; "
                "make one with model.make_cache()"
            )


def make_block(config: Config, *, cross_attention: bool = False) -> Block:
    """One block with the sizes and choices of the config."""
    return Block(
        _attention(config),
        FeedForward(
            config.d_model, config.neurons, activation=config.activation, bias=config.ffn_has_bias
        ),
        _norm(config),
        _norm(config),
        cross_attention=_attention(config) if cross_attention else None,
        cross_attention_norm=_norm(config) if cross_attention else None,
        placement=config.placement,
        residual=config.residual,
        dropout=config.dropout,
    )


@torch.no_grad()
def initialise(model: nn.Module, config: Config) -> None:
    """Draw all weights anew from PyTorch's generator, as `config.initialisation` says; biases are zero."""
    for name, parameter in model.named_parameters():
        path = name.split(".")
        if "norm" in name:
            parameter.fill_(1.0 if path[-1] == "weight" else 0.0)
        elif path[-1] == "bias":
            parameter.zero_()
        elif config.initialisation == "gpt2":
            writes = name.endswith(("attention.output.weight", "feedforward.down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layers if writes else 1))
        elif "positions" in path or "token_type_embedding" in path:
            nn.init.normal_(parameter, std=math.sqrt(0.5))  # the size of a sinusoidal entry
        elif {"token_embedding", "unembedding", "relative"} & set(path):
            nn.init.normal_(parameter, std=config.d_model**-0.5)
        else:
            nn.init.xavier_uniform_(parameter)


def _attention(config: Config) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        n_kv_heads=config.kv_heads,
        d_head=config.head_width,
        bias=config.attention_has_bias,
        dropout=config.dropout,
        scale=config.attention_scale,
    )


def _norm(config: Config) -> LayerNorm | RMSNorm | nn.Identity:
    return make_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias)


def _look_up(table: nn.Module, places: Places) -> Any:
    if places.queries.ndim == 1:
        n, length = len(places.queries), len(places.keys)
        return table(n, offset=length - n)
    return table(places.queries, below=places.below)


def _check_range(name: str, numbers: Tensor, field: str, below: int) -> None:
    # Looking would wait for an accelerator, and cannot be compiled.
    if not numbers.numel() or numbers.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= below:
        raise ValueError(
            f"{name} must lie in 0..{below - 1} ({field}={below}), got values from {low} to {high}"
        )
