"""What single blocks of a model have otherwise than its config says."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from measured_transformer.parts.attention_schemes import AttentionScheme
from measured_transformer.parts.feedforward import Activation
from measured_transformer.parts.networks import Network
from measured_transformer.parts.rotary_scaling import RotaryScaling


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one block has otherwise than the config says; None: as it says.

    Attributes:
        positions: 'none' for a block that does not turn queries and keys of a rotary model.
        rotary_base, rotary_share, rotary_scaling: of this block's angles.
        window, attention_scale, attention_norm, d_ff, activation: as in `Config`.
        network, attention: as in `Config`; `Plain()` and `MultiHead()` are the usual ones.
    """

    positions: Literal["rotary", "none"] | None = None
    rotary_base: float | None = None
    rotary_share: float | None = None
    rotary_scaling: RotaryScaling | None = None
    window: int | None = None
    attention_scale: float | None = None
    attention_norm: bool | None = None
    d_ff: int | None = None
    activation: Activation | None = None
    network: Network | None = None
    attention: AttentionScheme | None = None

    def __repr__(self) -> str:
        return told(self)


def turns(layer: Layer) -> bool:
    """Return whether a layer has settings of rotary positions."""
    return any(
        getattr(layer, name) is not None
        for name in ("positions", "rotary_base", "rotary_share", "rotary_scaling")
    )


def told(made: Any) -> str:
    """The call that makes it again: what differs from the defaults."""
    told = [
        f"{field.name}={value!r}"
        for field in fields(made)
        if (value := getattr(made, field.name)) != field.default
    ]
    return f"{type(made).__name__}({', '.join(told)})"
