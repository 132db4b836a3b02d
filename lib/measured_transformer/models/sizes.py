"""Counts a config's parameters and the arithmetic of a forward pass, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from measured_transformer.models.config import Config
from measured_transformer.parts.feedforward import is_gated
from measured_transformer.parts.position_schemes import SCHEMES

Kind = Literal["decoder", "encoder", "encoder-decoder"]
"""Which model a config is counted for."""


@dataclass(frozen=True)
class Count:
    """A number for each part of a model, and their sum.

    Attributes:
        embedding: vectors of tokens and token types.
        positions: learned positions or relative biases.
        attention, cross_attention, feedforward: of all blocks.
        norms: all of them, but not that of the masked-token layer and those of queries and keys.
        head: unembedding where it is not tied, masked-token layer, pooler, map to classes.
    """

    embedding: int = 0
    positions: int = 0
    attention: int = 0
    cross_attention: int = 0
    feedforward: int = 0
    norms: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


def count_parameters(config: Config, kind: Kind) -> Count:
    """The number of parameters of each part; tied parameters count once.

    Args:
        config: sizes and choices.
        kind: 'decoder', 'encoder' or 'encoder-decoder'.

    Raises:
        ValueError: when the kind is another one.

    >>> count_parameters(Config(vocab=10, d_model=16, n_layers=1, n_heads=2), "decoder").total
    3632
    """
    c, d = config, config.d_model
    stacks, crossed = _stacks(config, kind)
    norm = _norm(c, d)
    blocks = [side.of_layer(i) for side in stacks for i in range(side.n_layers)]
    own = {"post": 2, "pre": 2, "branch": 2, "sandwich": 4}[c.placement] - c.shared_norm
    bare = sum(not one.attention_norm for one in blocks)
    norms = len(blocks) * own - bare + crossed + len(stacks) * (c.embedding_norm + c.has_final_norm)
    scheme = SCHEMES[c.positions]
    positions = len(stacks) * c.max_length * d if scheme.limited else 0
    if c.positions in ("relative", "learned_and_relative"):
        positions += sum(c.relative_buckets * side.n_heads for side in stacks)
    head = 0
    if c.predicts_tokens:
        head += c.vocab * (d * (not c.tie_embeddings) + c.head_bias)
    if c.head == "mlm":
        head += d * d + d + 2 * d * c.head_layer_bias
    head += (d + 1) * c.labels
    if c.pooler:
        head += d * d + d
    tables = len(stacks) if kind == "encoder-decoder" and not c.shared_embedding else 1
    return Count(
        embedding=(tables * c.vocab + len(stacks) * c.token_types) * d,
        positions=positions,
        attention=sum(_attention(one) for one in blocks),
        cross_attention=crossed * _attention(stacks[-1]),
        feedforward=sum(_feedforward(one) for one in blocks),
        norms=norms * norm,
        head=head,
    )


def count_flops(
    config: Config,
    kind: Kind,
    *,
    length: int,
    source_length: int | None = None,
    batch: int = 1,
    cached: int = 0,
) -> Count:
    """Floating-point operations of a forward pass in matrix products, two for each multiplication and addition.

    All that a mask hides is counted too: that is what a dense kernel computes. Norms, softmax, activations,
    look-ups and a pooler that the answer does not need are not counted. `torch.utils.flop_counter` finds the
    same number where it knows the attention kernel; on a CPU it misses the fused one, and sees the products
    under `capture(model, "*.pattern")`.

    Args:
        config: sizes and choices.
        kind: 'decoder', 'encoder' or 'encoder-decoder'.
        length: positions of the call; of the target in an encoder-decoder.
        source_length: positions of the source in an encoder-decoder, and only there.
        batch: sequences.
        cached: positions that a cache holds before the call; the source is then not read again.

    Raises:
        ValueError: when the kind is another one, or `source_length` or `cached` does not fit it.

    >>> config = Config(vocab=10, d_model=16, n_layers=1, n_heads=2)
    >>> count_flops(config, "decoder", length=1).head
    320
    """
    if (source_length is None) == (kind == "encoder-decoder"):
        raise ValueError(
            f"source_length is for an encoder-decoder, which needs it; got kind={kind!r} and "
            f"source_length={source_length}"
        )
    if cached and kind == "encoder":
        raise ValueError(f"an encoder has no cache, got cached={cached}")
    c, d = config, config.d_model
    stacks, crossed = _stacks(config, kind)

    def attention(side: Config, n_query: int, n_key: int, n_projected: int) -> int:
        queries, keys = side.n_heads * side.head_width, side.kv_heads * side.head_width
        projections = n_query * 2 * d * queries + n_projected * (2 - c.shared_kv) * d * keys
        return 2 * (projections + 2 * n_query * n_key * queries)

    source = 0 if source_length is None or cached else source_length
    writer = stacks[-1]
    self_attention = writer.n_layers * attention(writer, length, cached + length, length)
    cross_attention = 0
    if source_length is not None:
        self_attention += c.n_layers * attention(c, source, source, source)
        cross_attention = crossed * attention(writer, length, source_length, source)
    read = (source, length) if kind == "encoder-decoder" else (length,)
    feedforward = sum(
        n * 2 * (3 if is_gated(one.activation) else 2) * d * one.neurons
        for n, side in zip(read, stacks, strict=True)
        for one in map(side.of_layer, range(side.n_layers))
    )
    head = length * 2 * d * c.vocab if c.predicts_tokens else 0
    if c.head == "mlm":
        head += length * 2 * d * d
    if c.head == "tokens":
        head += length * 2 * d * c.labels
    if c.head == "sequence":
        head += 2 * d * (d + c.labels)
    return Count(
        attention=batch * self_attention,
        cross_attention=batch * cross_attention,
        feedforward=batch * feedforward,
        head=batch * head,
    )


def _norm(c: Config, width: int) -> int:
    """Parameters of a norm of such vectors."""
    return {"layer": width + width * c.norm_has_bias, "rms": width}.get(c.norm, 0)


def _attention(c: Config) -> int:
    """Parameters of an attention layer."""
    queries, keys = c.n_heads * c.head_width, c.kv_heads * c.head_width
    inner = queries + (2 - c.shared_kv) * keys
    count = c.d_model * (queries + inner) + inner * c.qkv_has_bias
    count += c.d_model * c.attention_has_bias + c.n_heads * c.sinks
    if c.norm not in ("layer", "rms") and c.qk_norm != "heads":
        return count
    return count + {"none": 0, "head": 2 * c.head_width}.get(c.qk_norm, queries + keys)


def _feedforward(c: Config) -> int:
    """Parameters of a feed-forward network."""
    gates = 2 if is_gated(c.activation) else 1
    count = (gates + 1) * c.d_model * c.neurons
    return count + (gates * c.neurons + c.d_model) * c.ffn_has_bias


def _stacks(config: Config, kind: Kind) -> tuple[list[Config], int]:
    """The config of each stack, and the number of blocks with cross-attention."""
    if kind == "encoder-decoder":
        return [config, config.of_decoder()], config.decoder_layers
    if kind in ("decoder", "encoder"):
        return [config], 0
    raise ValueError(f"kind must be 'decoder', 'encoder' or 'encoder-decoder', got {kind!r}")
