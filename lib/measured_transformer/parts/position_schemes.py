"""Which parts a position scheme consists of: vectors that are added, angles that turn, a bias on scores.

`Config.positions` names one of `SCHEMES`. A scheme of one's own is one more entry, made of any of the three:

>>> SCHEMES["rotary_and_alibi"] = PositionScheme(turned=SCHEMES["rotary"].turned, bias=SCHEMES["alibi"].bias)
>>> from measured_transformer.models.config import Config
>>> from measured_transformer.models.decoder import Decoder
>>> model = Decoder(Config(vocab=10, positions="rotary_and_alibi"))
>>> model.rotary is not None, model.relative is not None
(True, True)
>>> del SCHEMES["rotary_and_alibi"]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from measured_transformer.parts.positions import (
    AlibiBias,
    LearnedPositions,
    RelativeBias,
    RotaryPositions,
    SinusoidalPositions,
)


@dataclass(frozen=True)
class PositionScheme:
    """The parts of a scheme, each made from a `Config`; None where the scheme has no such part.

    Attributes:
        added: makes a module from positions to vectors that are added to the embeddings, called like
            `SinusoidalPositions`.
        turned: makes the rotary angles of queries and keys.
        bias: makes a module from positions of queries and of keys to what is added to the scores, called like
            `RelativeBias`; its second argument says whether no position sees a later one.
        limited: whether positions end at `Config.max_length`.
    """

    added: Callable[[Any], nn.Module] | None = None
    turned: Callable[[Any], RotaryPositions] | None = None
    bias: Callable[[Any, bool], nn.Module] | None = None
    limited: bool = False


def _sinusoidal(config: Any) -> SinusoidalPositions:
    return SinusoidalPositions(config.d_model, base=config.rotary_base)


def _sinusoidal_halves(config: Any) -> SinusoidalPositions:
    return SinusoidalPositions(config.d_model, base=config.rotary_base, pairing="halves")


def _learned(config: Any) -> LearnedPositions:
    return LearnedPositions(config.max_length, config.d_model)


def _rotary(config: Any) -> RotaryPositions:
    return RotaryPositions(
        config.turned_width,
        base=config.rotary_base,
        pairing=config.rotary_pairing,
        turned=config.rotary_width,
        scaling=config.rotary_scaling,
    )


def _relative(config: Any, causal: bool) -> RelativeBias:
    return RelativeBias(
        config.n_heads,
        n_buckets=config.relative_buckets,
        max_distance=config.relative_max_distance,
        bidirectional=not causal,
    )


def _alibi(config: Any, causal: bool) -> AlibiBias:
    return AlibiBias(config.n_heads)


SCHEMES: dict[str, PositionScheme] = {
    "sinusoidal": PositionScheme(added=_sinusoidal),
    "learned": PositionScheme(added=_learned, limited=True),
    "rotary": PositionScheme(turned=_rotary),
    "alibi": PositionScheme(bias=_alibi),
    "relative": PositionScheme(bias=_relative),
    "learned_and_relative": PositionScheme(added=_learned, bias=_relative, limited=True),
    "sinusoidal_halves": PositionScheme(added=_sinusoidal_halves),
    "none": PositionScheme(),
}
