r"""Rotary positions on the fastest pairs of a head alone; the slow ones are compared as if they stood together.

The pairs that turn keep the frequencies that they would have if all turned. A partial rotation as in GPT-NeoX
(`Config.rotary_share`) has fewer pairs, too, but spreads them over all frequencies.

Source: Barbero et al. (2025), "Round and Round We Go! What makes Rotary Positional Encodings useful?", p-RoPE.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from measured_transformer.parts.positions import frequencies
from measured_transformer.parts.rotary_scaling import Frequencies, RotaryScaling


@dataclass(frozen=True)
class FastPairs(RotaryScaling):
    """A setting for `Config.rotary_scaling`: pairs below the fastest ones do not turn.

    Attributes:
        share: of the pairs that turn, above 0 and at most 1; a part of a pair counts for nothing.

    >>> FastPairs(0.5).frequencies(8, 10000.0, 1)
    tensor([1.0000, 0.1000, 0.0000, 0.0000], dtype=torch.float64)

    Raises:
        ValueError: when the share is out of range.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"the share must be above 0 and at most 1, got {self.share}")

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64."""
        omega = frequencies(d, base=base)
        turning = torch.arange(len(omega)) < int(self.share * len(omega))
        return omega * turning
