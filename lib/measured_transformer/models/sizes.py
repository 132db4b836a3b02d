"""Counts a config's parameters and the arithmetic of a forward pass, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from measured_transformer.models.config import Config
from measured_transformer.models.factorised import FactorisedConfig
from measured_transformer.parts.attention_schemes import MULTI_HEAD
from measured_transformer.parts.position_schemes import SCHEMES

Kind = Literal["decoder", "encoder", "encoder-decoder"]
"""Which model a config is counted for."""


@dataclass(frozen=True)
class Count:
    """A number for each part of a model, and their sum.

    Attributes:
        embedding: vectors of tokens and token types, and the map that widens narrow ones (`FactorisedConfig`).
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
    """The number of parameters of each part; tied parameters count once, as do blocks that share theirs.

    Args:
        config: sizes and choices.
        kind: 'decoder', 'encoder' or 'encoder-decoder'.

    Raises:
        ValueError: when the kind is another one, or not that of a factorised embedding.

    >>> count_parameters(Config(vocab=10, d_model=16, n_layers=1, n_heads=2), "decoder").total
    3632
    """
    c, d = config, config.d_model
    stacks, crossed = _stacks(config, kind)
    narrow = _embedding_width(c)
    norm = _norm(c, d)
    blocks = [side.of_layer(i) for side in stacks for i in _own_blocks(side)]
    own = {"post": 2, "pre": 2, "branch": 2, "sandwich": 4}[c.placement] - c.shared_norm
    bare = sum(not one.attention_norm for one in blocks)
    norms = len(blocks) * own - bare + crossed + len(stacks) * c.has_final_norm
    scheme = SCHEMES[c.positions]
    positions = len(stacks) * c.max_length * narrow if scheme.limited else 0
    if c.positions in ("relative", "learned_and_relative"):
        positions += sum(c.relative_buckets * side.n_heads for side in stacks)
    head = 0
    if c.predicts_tokens:
        head += c.vocab * (narrow * (not c.tie_embeddings) + c.head_bias)
    if c.head == "mlm":
        head += d * narrow + narrow + 2 * narrow * c.head_layer_bias
    head += (d + 1) * c.labels
    if c.pooler:
        head += d * d + d
    widening = (narrow + 1) * d if isinstance(c, FactorisedConfig) else 0
    tables = len(stacks) if kind == "encoder-decoder" and not c.shared_embedding else 1
    return Count(
        embedding=(tables * c.vocab + len(stacks) * c.token_types) * narrow + widening,
        positions=positions,
        attention=sum(one.attention.parameters(one) for one in blocks),
        cross_attention=crossed * MULTI_HEAD.parameters(stacks[-1]),
        feedforward=sum(one.network.parameters(one) for one in blocks),
        norms=norms * norm + len(stacks) * c.embedding_norm * _norm(c, narrow),
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
        ValueError: when the kind is another one, or not that of a factorised embedding, or when
            `source_length` or `cached` does not fit it.

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
    source = 0 if source_length is None or cached else source_length
    read = (source, length) if kind == "encoder-decoder" else (length,)
    self_attention = feedforward = cross_attention = 0
    before = (0, cached) if kind == "encoder-decoder" else (cached,)
    for n, past, side in zip(read, before, stacks, strict=True):
        for one in map(side.of_layer, range(side.n_layers)):
            self_attention += 2 * one.attention.products(one, n, past + n, n)
            feedforward += 2 * n * one.network.products(one)
    if source_length is not None:
        products = MULTI_HEAD.products(stacks[-1], length, source_length, source)
        cross_attention = 2 * crossed * products
    narrow = _embedding_width(c)
    widening = length * 2 * narrow * d if isinstance(c, FactorisedConfig) else 0
    head = length * 2 * narrow * c.vocab if c.predicts_tokens else 0
    if c.head == "mlm":
        head += length * 2 * d * narrow
    if c.head == "tokens":
        head += length * 2 * d * c.labels
    if c.head == "sequence":
        head += 2 * d * (d + c.labels)
    return Count(
        embedding=batch * widening,
        attention=batch * self_attention,
        cross_attention=batch * cross_attention,
        feedforward=batch * feedforward,
        head=batch * head,
    )


def _embedding_width(c: Config) -> int:
    """The width of the vectors of tokens, positions and token types."""
    return c.d_embedding if isinstance(c, FactorisedConfig) else c.d_model


def _own_blocks(c: Config) -> list[int]:
    """The blocks that have weights of their own."""
    places = c.weights_of if isinstance(c, FactorisedConfig) else range(c.n_layers)
    return sorted(set(places))


def _norm(c: Config, width: int) -> int:
    """Parameters of a norm of such vectors."""
    return {"layer": width + width * c.norm_has_bias, "rms": width}.get(c.norm, 0)


def _stacks(config: Config, kind: Kind) -> tuple[list[Config], int]:
    """The config of each stack, and the number of blocks with cross-attention."""
    if isinstance(config, FactorisedConfig) and kind in ("decoder", "encoder-decoder"):
        raise ValueError(
            f"a FactorisedConfig is one of an encoder: expected kind='encoder', got {kind!r}"
        )
    if kind == "encoder-decoder":
        return [config, config.of_decoder()], config.decoder_layers
    if kind in ("decoder", "encoder"):
        return [config], 0
    raise ValueError(f"kind must be 'decoder', 'encoder' or 'encoder-decoder', got {kind!r}")
