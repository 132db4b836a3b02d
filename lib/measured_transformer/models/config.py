"""The one description of a model: every size and choice, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from measured_transformer.parts.block import Placement
from measured_transformer.parts.feedforward import Activation
from measured_transformer.parts.norms import NormName
from measured_transformer.parts.positions import Pairing

Positions = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]
"""How order is told, see `measured_transformer.parts.positions`."""
Initialisation = Literal["xavier", "gpt2"]
"""How fresh weights are drawn, see `Config`."""
HeadName = Literal["linear", "mlm", "none"]
"""What a model reads from its final state, see `Config`."""

_SIZES = (
    *("vocab", "d_model", "n_layers", "n_heads", "max_length"),
    *("relative_buckets", "relative_max_distance", "token_types"),
)
_SIZES_OR_NONE = ("n_decoder_layers", "n_kv_heads", "d_head", "d_ff")
_CHOICES: dict[str, tuple[str, ...]] = {
    "positions": get_args(Positions),
    "norm": get_args(NormName),
    "placement": get_args(Placement),
    "activation": get_args(Activation),
    "rotary_pairing": get_args(Pairing),
    "initialisation": get_args(Initialisation),
    "head": get_args(HeadName),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and choices of a model. Frozen: make a variant with `config.replace(n_layers=4)`.

    Attributes:
        vocab: number of different tokens.
        d_model: width of the residual stream.
        n_layers: number of blocks; of the encoder's in an encoder-decoder.
        n_decoder_layers: number of the decoder's blocks in an encoder-decoder; `n_layers` when None.
        n_heads: attention heads per block.
        n_kv_heads: key-value heads per block (a divisor of `n_heads`); as many as `n_heads` when None.
        d_head: width of a head; `d_model / n_heads` when None.
        d_ff: neurons per block; `4 * d_model` when None.
        max_length: longest sequence of *learned* positions; the other schemes know no limit.
        positions: 'sinusoidal', 'learned', 'rotary', 'alibi', 'relative' (T5's bias) or 'none'.
        rotary_base: base of the rotary and the sinusoidal frequencies.
        rotary_pairing: 'interleaved' or 'halves', see `parts.positions.Rotation`.
        relative_buckets, relative_max_distance: see `parts.positions.relative_buckets`.
        attention_scale: factor on the dot products; 1/sqrt(width of a head) when None (T5: 1).
        norm: 'layer', 'rms' or 'none'.
        norm_eps: what is added to the variance under the root.
        placement: 'pre' or 'post'.
        final_norm: whether one more norm stands after the last block; with pre-norm when None.
        residual: whether the blocks have their residual connections.
        activation: see `parts.feedforward.FeedForward`.
        bias: whether projections and LayerNorms have biases.
        attention_bias, ffn_bias: the same for the projections of one of the sublayers; `bias` when None.
        dropout: probability of dropping, in training, an attention weight, an entry of a sublayer's
            output or of the embedding.
        token_types: number of kinds of tokens, each with a vector of its own (BERT's segments); 0: none.
        embedding_norm: whether the embedding is normalised before it enters the stream (BERT).
        embedding_scale: factor on the token's vector as it enters the stream; 'auto': sqrt(d_model) with
            'xavier' initialisation, else 1.
        head: what the model reads from its final state: logits by one matrix ('linear'), by BERT's layer and
            then that matrix ('mlm'), or nothing ('none': the final state itself).
        head_bias: whether the logits have a bias.
        logit_scale: factor on the final state before the unembedding (tied T5: 1/sqrt(d_model)).
        pooler: whether an `Encoder` has BERT's layer that sums up a sequence from its first position.
        tie_embeddings: whether the unembedding is the embedding matrix itself.
        initialisation: 'xavier' (uniform Xavier weights; embeddings of variance 1/d_model, multiplied by
            sqrt(d_model) when they enter the stream, as in Vaswani et al.) or 'gpt2' (normal, standard
            deviation 0.02; matrices that write to the stream divided by sqrt(2 n_layers)).

    Raises:
        ValueError: when a size is not positive, a choice is unknown or sizes do not divide.
    """

    vocab: int
    d_model: int = 64
    n_layers: int = 2
    n_decoder_layers: int | None = None
    n_heads: int = 4
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_ff: int | None = None
    max_length: int = 256
    positions: Positions = "sinusoidal"
    rotary_base: float = 10000.0
    rotary_pairing: Pairing = "interleaved"
    relative_buckets: int = 32
    relative_max_distance: int = 128
    attention_scale: float | None = None
    norm: NormName = "layer"
    norm_eps: float = 1e-5
    placement: Placement = "pre"
    final_norm: bool | None = None
    residual: bool = True
    activation: Activation = "gelu"
    bias: bool = True
    attention_bias: bool | None = None
    ffn_bias: bool | None = None
    dropout: float = 0.0
    token_types: int = 0
    embedding_norm: bool = False
    embedding_scale: float | Literal["auto"] = "auto"
    head: HeadName = "linear"
    head_bias: bool = False
    logit_scale: float = 1.0
    pooler: bool = False
    tie_embeddings: bool = False
    initialisation: Initialisation = "xavier"

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_flags()
        self._check_choices()
        self._check_widths()
        self._check_ranges()
        if self.head == "none" and (self.tie_embeddings or self.head_bias):
            raise ValueError(
                "head='none' has no unembedding: tie_embeddings and head_bias must be False, got "
                f"tie_embeddings={self.tie_embeddings} and head_bias={self.head_bias}"
            )

    def _check_numbers(self) -> None:
        for name in (*_SIZES, *_SIZES_OR_NONE):
            if name in _SIZES or getattr(self, name) is not None:
                self._whole(name, least=0 if name == "token_types" else 1)
        for name in ("dropout", "norm_eps", "rotary_base", "logit_scale"):
            self._number(name)
        if self.attention_scale is not None:
            self._number("attention_scale")
        if self.embedding_scale != "auto":
            self._number("embedding_scale", other=" or 'auto'")

    def _check_flags(self) -> None:
        for name in ("residual", "bias", "tie_embeddings", "embedding_norm", "head_bias", "pooler"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("final_norm", "attention_bias", "ffn_bias"):
            if not isinstance(getattr(self, name), bool | None):
                raise ValueError(f"{name} must be True, False or None, got {getattr(self, name)!r}")

    def _check_choices(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")

    def _check_widths(self) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got d_model={self.d_model} and n_heads={self.n_heads}; "
                "choose another number of heads or give d_head"
            )
        if self.n_heads % self.kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads, got n_heads={self.n_heads} and "
                f"n_kv_heads={self.kv_heads}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {self.d_model}")
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even width of heads, got {self.head_width}")

    def _check_ranges(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.norm_eps < 0:
            raise ValueError(f"norm_eps must not be negative, got {self.norm_eps}")
        if self.rotary_base <= 1:
            raise ValueError(f"rotary_base must be greater than one, got {self.rotary_base}")
        if self.relative_buckets < 4 or self.relative_max_distance <= self.relative_buckets // 2:
            raise ValueError(
                "relative positions need at least 4 buckets and a relative_max_distance beyond half of "
                f"them, got relative_buckets={self.relative_buckets} and "
                f"relative_max_distance={self.relative_max_distance}"
            )

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            kind = "a positive whole number" if least else "0 or a positive whole number"
            raise ValueError(f"{name} must be {kind}, got {value!r}")
        object.__setattr__(self, name, int(value))  # NumPy's whole numbers are kept as Python's

    def _number(self, name: str, *, other: str = "") -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number{other}, got {value!r}")
        object.__setattr__(self, name, value if isinstance(value, int) else float(value))

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def neurons(self) -> int:
        """Number of neurons of each feed-forward network."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def decoder_layers(self) -> int:
        """Number of the decoder's blocks in an encoder-decoder."""
        return self.n_layers if self.n_decoder_layers is None else self.n_decoder_layers

    @property
    def attention_has_bias(self) -> bool:
        """Whether the projections of attention have biases."""
        return self.bias if self.attention_bias is None else self.attention_bias

    @property
    def ffn_has_bias(self) -> bool:
        """Whether the projections of the feed-forward networks have biases."""
        return self.bias if self.ffn_bias is None else self.ffn_bias

    @property
    def embedding_factor(self) -> float:
        """What a token's vector is multiplied by as it enters the stream."""
        if self.embedding_scale != "auto":
            return self.embedding_scale
        return math.sqrt(self.d_model) if self.initialisation == "xavier" else 1.0

    @property
    def has_final_norm(self) -> bool:
        """Whether one more norm stands after the last block."""
        return self.placement == "pre" if self.final_norm is None else self.final_norm

    def replace(self, **changes: Any) -> Config:
        """The same config with some fields changed, checked again.

        Raises:
            ValueError: when a field is unknown or the result does not pass the checks.

        >>> Config(vocab=10).replace(n_layers=6).n_layers
        6
        """
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"unknown fields {unknown}; Config has {sorted(known)}")
        return dataclasses.replace(self, **changes)
