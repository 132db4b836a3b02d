"""The one description of a model: every size and choice, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from measured_transformer.models.layer import Layer as Layer
from measured_transformer.models.layer import told, turns
from measured_transformer.parts.attention import QueryKeyNorm
from measured_transformer.parts.attention_schemes import MULTI_HEAD, AttentionScheme
from measured_transformer.parts.block import Placement
from measured_transformer.parts.feedforward import Activation, activation_names
from measured_transformer.parts.heads import PoolerActivation
from measured_transformer.parts.networks import PLAIN, Network
from measured_transformer.parts.norms import NORMS
from measured_transformer.parts.position_schemes import SCHEMES
from measured_transformer.parts.positions import Pairing
from measured_transformer.parts.rotary_scaling import RotaryScaling

Positions = str
"""Name of a position scheme, one of `parts.position_schemes.SCHEMES`."""
Initialisation = Literal["xavier", "gpt2"]
"""How fresh weights are drawn, see `Config`."""
HeadName = Literal["linear", "mlm", "tokens", "sequence", "none"]
"""What a model reads from its final state, see `Config`."""

_SIZES = (
    *("vocab", "d_model", "n_layers", "n_heads", "max_length"),
    *("relative_buckets", "relative_max_distance", "token_types", "labels"),
)
_SIZES_OR_NONE = (
    *("n_decoder_layers", "n_decoder_heads", "d_decoder_ff"),
    *("n_kv_heads", "d_head", "d_ff", "window"),
)
_NUMBERS = (
    *("dropout", "norm_eps", "norm_offset", "rotary_base", "rotary_share"),
    *("residual_scale", "logit_scale"),
)
_NUMBERS_OR_NONE = ("attention_scale", "score_cap", "logit_cap")
_FLAGS = (
    *("residual", "parallel", "shared_norm", "bias", "tie_embeddings", "embedding_norm"),
    *("head_bias", "head_layer_bias", "pooler", "sinks", "shared_kv", "attention_norm"),
    *("shared_embedding", "wide_stream"),
)
_FLAGS_OR_NONE = ("final_norm", "norm_bias", "attention_bias", "qkv_bias", "ffn_bias")
_CHOICES: dict[str, Callable[[], Iterable[str | None]]] = {
    "positions": lambda: SCHEMES,
    "norm": lambda: NORMS,
    "placement": lambda: get_args(Placement),
    "activation": activation_names,
    "rotary_pairing": lambda: get_args(Pairing),
    "qk_norm": lambda: get_args(QueryKeyNorm),
    "initialisation": lambda: get_args(Initialisation),
    "head": lambda: get_args(HeadName),
    "head_activation": lambda: (None, *activation_names()),
    "pooler_activation": lambda: get_args(PoolerActivation),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and choices of a model. Frozen: make a variant with `config.replace(n_layers=4)`.

    It is shown as the call that makes it: what differs from the defaults.

    >>> Config(vocab=10, n_layers=6, norm="layer", layers=(Layer(window=8), Layer()))
    Config(vocab=10, n_layers=6, layers=(Layer(window=8), Layer()))

    Attributes:
        vocab: number of different tokens.
        d_model: width of the residual stream.
        n_layers: number of blocks; of the encoder's in an encoder-decoder.
        n_decoder_layers: number of the decoder's blocks in an encoder-decoder; `n_layers` when None.
        n_heads: attention heads per block.
        n_decoder_heads: attention heads per block of the decoder in an encoder-decoder; `n_heads` when None.
        n_kv_heads: key-value heads per block (a divisor of `n_heads`); as many as `n_heads` when None.
        d_head: width of a head; `d_model / n_heads` when None.
        d_ff: neurons per block; `4 * d_model` when None.
        d_decoder_ff: neurons per block of the decoder in an encoder-decoder; as `d_ff` when None.
        max_length: longest sequence of *learned* positions; the other schemes know no limit.
        positions: 'sinusoidal', 'sinusoidal_halves' (sines first, then cosines), 'learned', 'rotary', 'alibi',
            'relative' (T5's bias), 'learned_and_relative' or 'none'; what each consists of stands in
            `parts.position_schemes`, and a new one is defined there.
        rotary_base: base of the rotary and the sinusoidal frequencies.
        rotary_pairing: 'interleaved' or 'halves', see `parts.positions.Rotation`.
        rotary_share: share of a head's entries that are turned, the first ones.
        rotary_scaling: what changes the rotary frequencies for long sequences, see `parts.rotary_scaling`.
        relative_buckets, relative_max_distance: see `parts.positions.relative_buckets`.
        attention_scale: factor on the dot products; 1/sqrt(width of a head) when None (T5: 1).
        score_cap: scores are squeezed below this by a tanh before the softmax (Gemma 2); None: they are not.
        qk_norm: whether queries and keys are normalised before they are turned and multiplied: 'none'; each
            head by the same weights ('head': Qwen 3, Gemma 3), each by its own ('heads': StableLM), or all
            heads of a position together ('width': OLMo 2).
        window: number of keys that a token sees, itself and those before it; in an encoder as many on either
            side. None: all.
        sinks: whether each head has a learned score for attending to nothing (gpt-oss).
        shared_kv: whether values are the keys before their rotation, by one projection.
        norm: 'layer', 'rms', 'layer_plain' (without weights), 'none', or what was added to `parts.norms.NORMS`.
        norm_eps: what is added to the variance under the root.
        norm_bias: whether LayerNorms have biases; `bias` when None.
        norm_offset: added to the stored weight of RMS norms (Gemma: 1).
        placement: 'pre', 'post', 'sandwich' (before the sublayer and after it, before the addition: Gemma 2) or
            'branch' (after the sublayer alone: OLMo 2).
        parallel: whether attention and network both read what enters the block, and are added together.
        shared_norm: whether the two branches of a parallel block read the same norm (GPT-J), not each its own.
        attention_norm: whether attention reads the norm of the stream, and not the stream (the first block of
            ModernBERT, which finds it normalised).
        final_norm: whether one more norm stands after the last block; with all but post-norm when None.
        residual: whether the blocks have their residual connections.
        residual_scale: factor on what each sublayer adds (Granite).
        activation: see `parts.feedforward.FeedForward`.
        network: `parts.networks.Plain()`, one network for all positions, or `parts.experts.Experts`.
        attention: `parts.attention_schemes.MultiHead()` or `parts.latent.Latent`.
        bias: whether projections and LayerNorms have biases.
        attention_bias, ffn_bias: the same for the projections of one of the sublayers; `bias` when None.
        qkv_bias: the same for queries, keys and values alone (Qwen 2); as the output projection when None.
        dropout: probability of dropping, in training, an attention weight, an entry of a sublayer's
            output or of the embedding.
        token_types: number of kinds of tokens, each with a vector of its own (BERT's segments); 0: none.
        embedding_norm: whether the embedding is normalised before it enters the stream (BERT).
        embedding_scale: factor on the token's vector as it enters the stream; 'auto': sqrt(d_model) with
            'xavier' initialisation, else 1.
        head: what the model reads from its final state: logits by one matrix ('linear'), by BERT's layer and
            then that matrix ('mlm'), in an `Encoder` logits of classes for each position ('tokens') or for the
            sequence ('sequence', by the pooler), or nothing ('none': the final state itself).
        head_bias: whether the logits have a bias.
        head_activation: of BERT's layer; `activation`, or what stands on its gate, when None.
        head_layer_bias: whether BERT's layer has biases.
        labels: number of classes with the heads 'tokens' and 'sequence'; with 'mlm' and a pooler, of classes of
            the sequence beside the logits (BERT's next sentence: 2).
        logit_scale: factor on the final state before the unembedding (tied T5: 1/sqrt(d_model)).
        logit_cap: logits are squeezed below this by a tanh (Gemma 2); None: they are not.
        pooler: whether an `Encoder` has BERT's layer that sums up a sequence from its first position.
        pooler_activation: 'tanh', 'relu' (DistilBERT) or 'gelu' (ELECTRA).
        tie_embeddings: whether the unembedding is the embedding matrix itself; the decoder's where each side of
            an encoder-decoder has one of its own.
        shared_embedding: whether the two sides of an encoder-decoder have one embedding matrix.
        wide_stream: whether in float16 the stream and what the sublayers add to it are float32: some models
            outgrow float16 there (T5). The weights stay float16, and other precisions are as without it.
        initialisation: 'xavier' (uniform Xavier weights; embeddings of variance 1/d_model, multiplied by
            sqrt(d_model) when they enter the stream, as in Vaswani et al.) or 'gpt2' (normal, standard
            deviation 0.02; matrices that write to the stream divided by sqrt(2 n_layers)).
        layers: what single blocks have otherwise, repeated over the depth: five times `Layer(window=512)` and
            one `Layer()` make every sixth block see everything. Empty: all blocks are alike.

    Raises:
        ValueError: when a size is not positive, a choice is unknown or sizes do not divide.
    """

    vocab: int
    d_model: int = 64
    n_layers: int = 2
    n_decoder_layers: int | None = None
    n_heads: int = 4
    n_decoder_heads: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_ff: int | None = None
    d_decoder_ff: int | None = None
    max_length: int = 256
    positions: Positions = "sinusoidal"
    rotary_base: float = 10000.0
    rotary_pairing: Pairing = "interleaved"
    rotary_share: float = 1.0
    rotary_scaling: RotaryScaling | None = None
    relative_buckets: int = 32
    relative_max_distance: int = 128
    attention_scale: float | None = None
    score_cap: float | None = None
    qk_norm: QueryKeyNorm = "none"
    window: int | None = None
    sinks: bool = False
    shared_kv: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_bias: bool | None = None
    norm_offset: float = 0.0
    placement: Placement = "pre"
    parallel: bool = False
    shared_norm: bool = False
    attention_norm: bool = True
    final_norm: bool | None = None
    residual: bool = True
    residual_scale: float = 1.0
    activation: Activation = "gelu"
    network: Network = PLAIN
    attention: AttentionScheme = MULTI_HEAD
    bias: bool = True
    attention_bias: bool | None = None
    qkv_bias: bool | None = None
    ffn_bias: bool | None = None
    dropout: float = 0.0
    token_types: int = 0
    embedding_norm: bool = False
    embedding_scale: float | Literal["auto"] = "auto"
    head: HeadName = "linear"
    head_bias: bool = False
    head_activation: Activation | None = None
    head_layer_bias: bool = True
    labels: int = 0
    logit_scale: float = 1.0
    logit_cap: float | None = None
    pooler: bool = False
    pooler_activation: PoolerActivation = "tanh"
    tie_embeddings: bool = False
    shared_embedding: bool = True
    wide_stream: bool = False
    initialisation: Initialisation = "xavier"
    layers: tuple[Layer, ...] = ()

    def __repr__(self) -> str:
        return told(self)

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_flags()
        self._check_choices()
        self._check_sublayers()
        self._check_widths()
        self._check_ranges()
        self._check_parts()
        self._check_head()

    def _check_numbers(self) -> None:
        for name in (*_SIZES, *_SIZES_OR_NONE):
            if name in _SIZES or getattr(self, name) is not None:
                self._whole(name, least=0 if name in ("token_types", "labels") else 1)
        for name in _NUMBERS:
            self._number(name)
        for name in _NUMBERS_OR_NONE:
            if getattr(self, name) is not None:
                self._number(name)
        if self.embedding_scale != "auto":
            self._number("embedding_scale", other=" or 'auto'")

    def _check_flags(self) -> None:
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in _FLAGS_OR_NONE:
            if not isinstance(getattr(self, name), bool | None):
                raise ValueError(f"{name} must be True, False or None, got {getattr(self, name)!r}")

    def _check_choices(self) -> None:
        for name, choices in _CHOICES.items():
            value, allowed = getattr(self, name), list(choices())
            if value not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}"
                )

    def _check_sublayers(self) -> None:
        for name, kind in (("network", Network), ("attention", AttentionScheme)):
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(
                    f"{name} must be an object of a class derived from {kind.__name__}, got "
                    f"{type(value).__name__}"
                )
            value.check(self)

    def _check_head(self) -> None:
        if not self.predicts_tokens and (self.tie_embeddings or self.head_bias):
            raise ValueError(
                f"head={self.head!r} has no unembedding: tie_embeddings and head_bias must be False, got "
                f"tie_embeddings={self.tie_embeddings} and head_bias={self.head_bias}"
            )
        if self.head in ("tokens", "sequence") and not self.labels:
            raise ValueError(f"head={self.head!r} needs a number of labels, got labels=0")
        if self.labels and self.head in ("linear", "none"):
            raise ValueError(
                "labels are for the heads 'tokens', 'sequence' and 'mlm', got "
                f"head={self.head!r} and labels={self.labels}"
            )
        if self.labels and self.head != "tokens" and not self.pooler:
            raise ValueError("classes of a sequence are read by a pooler, got pooler=False")

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
        if self.n_decoder_heads is not None:
            self._check_decoder_heads(self.n_decoder_heads)
        if self.positions in ("sinusoidal", "sinusoidal_halves") and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {self.d_model}")
        if self.positions == "rotary" and (self.turned_width % 2 or not self.turned_width):
            raise ValueError(
                f"rotary positions need an even width of heads, got {self.turned_width}"
            )
        if self.rotary_share != 1 and (self.rotary_width % 2 or not self.rotary_width):
            raise ValueError(
                f"rotary_share must turn an even number of the {self.turned_width} entries of a head, got "
                f"{self.rotary_share}, which turns {self.rotary_width}"
            )

    def _check_decoder_heads(self, n: int) -> None:
        if self.d_head is None and self.d_model % n:
            raise ValueError(
                f"n_decoder_heads must divide d_model, got d_model={self.d_model} and "
                f"n_decoder_heads={n}; choose another number of heads or give d_head"
            )
        if self.n_kv_heads is not None and n % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_decoder_heads, got n_decoder_heads={n} and "
                f"n_kv_heads={self.n_kv_heads}"
            )

    def _check_ranges(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.norm_eps < 0:
            raise ValueError(f"norm_eps must not be negative, got {self.norm_eps}")
        if not 0 < self.rotary_share <= 1:
            raise ValueError(f"rotary_share must lie in (0, 1], got {self.rotary_share}")
        for name in ("score_cap", "logit_cap"):
            if (cap := getattr(self, name)) is not None and cap <= 0:
                raise ValueError(f"{name} must be positive or None, got {cap}")
        if self.rotary_base <= 1:
            raise ValueError(f"rotary_base must be greater than one, got {self.rotary_base}")
        if self.relative_buckets < 4 or self.relative_max_distance <= self.relative_buckets // 2:
            raise ValueError(
                "relative positions need at least 4 buckets and a relative_max_distance beyond half of "
                f"them, got relative_buckets={self.relative_buckets} and "
                f"relative_max_distance={self.relative_max_distance}"
            )

    def _check_parts(self) -> None:
        if self.rotary_scaling is not None and not isinstance(self.rotary_scaling, RotaryScaling):
            raise ValueError(
                "rotary_scaling must be one of the classes of parts.rotary_scaling or None, got "
                f"{type(self.rotary_scaling).__name__}"
            )
        if self.shared_norm and not (self.parallel and self.placement == "pre"):
            raise ValueError(
                "shared_norm is for parallel blocks with pre-norm, got "
                f"parallel={self.parallel} and placement={self.placement!r}"
            )
        if self.parallel and self.placement == "post":
            raise ValueError("a parallel block has no post-norm: choose another placement")
        if self.norm_offset and self.norm != "rms":
            raise ValueError(f"norm_offset is for norm='rms', got norm={self.norm!r}")
        if self.qk_norm != "none" and self.norm == "none":
            raise ValueError("qk_norm needs a norm, got norm='none'")
        if not isinstance(self.layers, list | tuple):
            raise ValueError(
                f"layers must be a tuple of objects of the class Layer, got {self.layers!r}"
            )
        layers = tuple(self.layers)
        if wrong := [type(one).__name__ for one in layers if not isinstance(one, Layer)]:
            raise ValueError(f"layers must hold objects of the class Layer, got {wrong[0]}")
        object.__setattr__(self, "layers", layers)
        if layers:
            if self.positions != "rotary" and any(turns(one) for one in layers):
                raise ValueError(
                    "layers with rotary settings are for positions='rotary', got "
                    f"positions={self.positions!r}"
                )
            for i in range(len(layers)):
                self.of_layer(i)  # each block's settings pass the same checks

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
    def decoder_heads(self) -> int:
        """Number of attention heads of the decoder's blocks in an encoder-decoder."""
        return self.n_heads if self.n_decoder_heads is None else self.n_decoder_heads

    @property
    def decoder_neurons(self) -> int:
        """Number of neurons of the decoder's feed-forward networks in an encoder-decoder."""
        return self.neurons if self.d_decoder_ff is None else self.d_decoder_ff

    @property
    def attention_has_bias(self) -> bool:
        """True if the projections of attention have biases."""
        return self.bias if self.attention_bias is None else self.attention_bias

    @property
    def qkv_has_bias(self) -> bool:
        """True if the projections to queries, keys and values have biases."""
        return self.attention_has_bias if self.qkv_bias is None else self.qkv_bias

    @property
    def norm_has_bias(self) -> bool:
        """True if LayerNorms have biases."""
        return self.bias if self.norm_bias is None else self.norm_bias

    @property
    def predicts_tokens(self) -> bool:
        """True if the head gives logits over the vocabulary."""
        return self.head in ("linear", "mlm")

    @property
    def rotary_width(self) -> int:
        """Number of entries of each head that are turned."""
        return int(self.turned_width * self.rotary_share)

    @property
    def turned_width(self) -> int:
        """Width of the vectors of which rotary positions turn a share."""
        return self.attention.turned_width(self)

    @property
    def ffn_has_bias(self) -> bool:
        """True if the projections of the feed-forward networks have biases."""
        return self.bias if self.ffn_bias is None else self.ffn_bias

    @property
    def embedding_factor(self) -> float:
        """What a token's vector is multiplied by as it enters the stream."""
        if self.embedding_scale != "auto":
            return self.embedding_scale
        return math.sqrt(self.d_model) if self.initialisation == "xavier" else 1.0

    @property
    def has_final_norm(self) -> bool:
        """True if one more norm stands after the last block."""
        return self.placement != "post" if self.final_norm is None else self.final_norm

    def of_decoder(self) -> Config:
        """The config of the decoder's stack in an encoder-decoder.

        >>> config = Config(vocab=10, n_heads=4, n_decoder_layers=3, n_decoder_heads=2)
        >>> config.of_decoder().n_layers, config.of_decoder().n_heads
        (3, 2)
        """
        return self.replace(
            n_layers=self.decoder_layers,
            n_heads=self.decoder_heads,
            d_ff=self.d_ff if self.d_decoder_ff is None else self.d_decoder_ff,
            n_decoder_layers=None,
            n_decoder_heads=None,
            d_decoder_ff=None,
        )

    def of_layer(self, i: int) -> Config:
        """The config of block `i`, in which `layers` is empty.

        >>> config = Config(vocab=10, layers=(Layer(window=8), Layer()))
        >>> [config.of_layer(i).window for i in range(4)]
        [8, None, 8, None]
        """
        if not self.layers:
            return self
        given = self.layers[i % len(self.layers)]
        changes = {
            field.name: value
            for field in fields(given)
            if (value := getattr(given, field.name)) is not None
        }
        return self.replace(layers=(), **changes)

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
