r"""Rotary models that read sequences longer than those of their training: slower angles, windows and sinks.

A rotary model compares a query with a key at distance $m$ by turning pair $i$ by the angle $m \omega_i$. For
longer sequences it is given other frequencies $\omega_i$, and here each method is a function that gives them.
With $s$ for the factor by which sequences grow, and $L$ for the trained length:

- position interpolation: $\omega_i / s$ for all pairs (Chen et al. 2023);
- NTK-aware: a larger base, so that the slowest pair is slowed by $s$ and the fastest not at all;
- NTK by parts: $\omega_i / s$ for pairs that make less than one turn within $L$, $\omega_i$ for those that make
  many, and a mixture between (Peng et al. 2024, section 3.2);
- YaRN: NTK by parts, with queries and keys made longer by $0.1 \ln s + 1$ (section 3.4 there).

>>> from measured_transformer.parts.positions import frequencies
>>> interpolation(frequencies(4), 8.0)
tensor([0.1250, 0.0013], dtype=torch.float64)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import RotaryPositions, Rotation, frequencies

Model = Decoder | Encoder
Frequencies = Float[Tensor, "pair"]
Ramp = Literal["turns", "pairs"]


def turns(omega: Frequencies, length: float) -> Frequencies:
    """The number of turns of each pair within a length.

    >>> turns(torch.tensor([2 * math.pi], dtype=torch.float64), 32.0)
    tensor([32.], dtype=torch.float64)
    """
    return omega * length / (2 * math.pi)


def interpolation(omega: Frequencies, factor: float) -> Frequencies:
    """Position interpolation: every pair turns more slowly by the factor.

    Raises:
        ValueError: when the factor is below one.
    """
    return omega / _checked(factor)


def ntk_aware(d: int, factor: float, *, base: float = 10000.0) -> Frequencies:
    r"""Frequencies of a base larger by $s^{d/(d-2)}$: the slowest pair is slowed by $s$, the fastest not.

    Described by Peng et al. (2024), section 3.1, after a note by the user bloc97.

    Raises:
        ValueError: when the factor is below one, or a head of width 2 has one pair only.

    >>> ntk_aware(4, 8.0)
    tensor([1.0000, 0.0013], dtype=torch.float64)
    """
    _checked(factor)
    if d == 2:
        raise ValueError("a head of width 2 has one pair: its fastest is its slowest")
    return frequencies(d, base=base * factor ** (d / (d - 2)))


def dynamic_factor(length: int, trained: int) -> float:
    """The factor of dynamic scaling: one up to the trained length, and then what the sequence has grown to.

    >>> dynamic_factor(32, 64), dynamic_factor(96, 64)
    (1.0, 1.5)
    """
    return max(1.0, length / trained)


def ntk_by_parts(
    d: int,
    factor: float,
    trained: float,
    *,
    base: float = 10000.0,
    slow: float = 1.0,
    fast: float = 32.0,
    ramp: Ramp = "turns",
) -> Frequencies:
    """Interpolate pairs that turn fewer than `slow` times within the trained length, and leave the fast.

    Args:
        d: width of a head.
        factor: how many times longer sequences become.
        trained: the length of training.
        base: of the frequencies of training.
        slow, fast: turns within the trained length, the paper's alpha and beta; 1 and 32 there, for Llama.
        ramp: what the share of the old frequency grows linearly in, between these two: the number of turns, as
            the paper has it, or the number of the pair, as its released code and Hugging Face's have it.

    Raises:
        ValueError: when the factor is below one, not 0 < slow < fast, or the ramp is unknown.
    """
    omega = frequencies(d, base=base)
    if not 0 < slow < fast:
        raise ValueError(f"expected 0 < slow < fast, got slow={slow} and fast={fast}")
    if ramp == "turns":
        kept = (turns(omega, trained) - slow) / (fast - slow)
    elif ramp == "pairs":
        first, last = (
            d / 2 * math.log(trained / (2 * math.pi * n)) / math.log(base) for n in (fast, slow)
        )
        first, last = max(math.floor(first), 0), min(math.ceil(last), d - 1)
        pair = torch.arange(d // 2, dtype=torch.float64)
        kept = 1 - (pair - first) / max(last - first, 0.001)
    else:
        raise ValueError(f"ramp must be 'turns' or 'pairs', got {ramp!r}")
    kept = kept.clamp(0, 1)
    return kept * omega + (1 - kept) * omega / _checked(factor)


def yarn_stretch(factor: float) -> float:
    r"""YaRN's factor for queries and keys, $\sqrt{1/t} = 0.1 \ln s + 1$: scores grow by its square.

    >>> round(yarn_stretch(8.0), 3)
    1.208

    Raises:
        ValueError: for a factor below one.
    """
    return 0.1 * math.log(_checked(factor)) + 1


def _checked(factor: float) -> float:
    if factor < 1:
        raise ValueError(
            f"sequences become longer: expected a factor of at least one, got {factor}"
        )
    return factor


# In a trained model -------------------------------------------------------------------------------


@contextmanager
def with_frequencies(model: Model, omega: Frequencies, *, stretch: float = 1.0) -> Iterator[None]:
    """Inside the block, a rotary model turns its pairs with these frequencies.

    Args:
        model: with rotary positions.
        omega: radians a position, one number for each pair.
        stretch: what queries and keys are multiplied by.

    Raises:
        ValueError: when the model has no rotary positions, or another number of pairs.
    """
    own = _rotary(model)
    if len(omega) != own.d_head // 2:
        raise ValueError(f"expected {own.d_head // 2} frequencies, got {len(omega)}")
    model.rotary = _Given(own, omega, stretch).to(next(model.parameters()))
    try:
        yield
    finally:
        model.rotary = own


class _Given(RotaryPositions):
    """Rotary angles of given frequencies."""

    def __init__(self, own: RotaryPositions, omega: Frequencies, stretch: float) -> None:
        self.omega, self.stretch = omega.to("cpu", torch.float64), stretch
        super().__init__(own.d_head, base=own.base, pairing=own.pairing)

    def make(self, n: int, dtype: torch.dtype) -> Float[Tensor, "position width"]:
        """Cosines, then sines, of positions 0 to n - 1."""
        angles = torch.arange(n, dtype=torch.float64)[:, None] * self.omega
        return (self.stretch * torch.cat((angles.cos(), angles.sin()), dim=-1)).to(dtype)


@contextmanager
def windowed(model: Model, window: int, *, sinks: int = 0) -> Iterator[None]:
    """While the block runs, a query of a rotary model sees `window` keys: the first `sinks`, and the last.

    The first ones are seen as StreamingLLM shows them (Xiao et al. 2024): at their places in a cache of
    `window` keys, so that no distance is larger than `window` - 1 however long the sequence is.

    Args:
        model: causal, with rotary positions.
        window: number of keys in all.
        sinks: how many of them are the first keys of the sequence.

    Raises:
        ValueError: when the model has no rotary positions, or not 0 <= sinks < window.
    """
    own = _rotary(model)
    if not 0 <= sinks < window:
        raise ValueError(f"expected 0 <= sinks < window, got sinks={sinks} and window={window}")
    changes: dict[str, Any] = {}
    for i, block in enumerate(model.blocks):
        attention: Any = block.attention
        changes |= _Cache(own, attention.scale, window, sinks).changes(f"blocks.{i}.attention")
    with intervene(model, changes):
        yield


class _Cache:
    """One layer's scores, as they are in a cache of its first keys and its last ones."""

    def __init__(self, rotary: RotaryPositions, scale: float | None, window: int, sinks: int):
        self.rotary, self.scale, self.window, self.sinks = rotary, scale, window, sinks
        self.seen: dict[str, Tensor] = {}

    def changes(self, name: str) -> Mapping[str, Any]:
        """The changes for `intervene`."""
        return {
            f"{name}.queries": lambda x: self.note("queries", x),
            f"{name}.keys": lambda x: self.note("keys", x),
            f"{name}.scores": self.scores,
        }

    def note(self, name: str, x: Tensor) -> Tensor:
        """Remember queries or keys, which have not been turned yet."""
        self.seen[name] = x
        return x

    def scores(self, scores: Tensor) -> Tensor:
        """Hide what the cache has dropped, and compare with its first keys as if they stood before the rest."""
        n = scores.shape[-1]
        key = torch.arange(n, device=scores.device)
        distance = key[:, None] - key
        dropped = (distance >= self.window - self.sinks) & (key >= self.sinks)
        scores = scores.masked_fill(dropped, -math.inf)
        if not self.sinks or n <= self.window:
            return scores
        queries, keys = self.seen["queries"], self.seen["keys"][:, :, : self.sinks]
        all_places = self.rotary(self.window)
        last = Rotation(
            all_places.cos[-1:].expand(n, -1), all_places.sin[-1:].expand(n, -1), all_places.pairing
        )
        first = Rotation(
            all_places.cos[: self.sinks], all_places.sin[: self.sinks], all_places.pairing
        )
        scale = 1 / math.sqrt(queries.shape[-1]) if self.scale is None else self.scale
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        moved = scale * last.apply(queries) @ first.apply(keys).transpose(-2, -1)
        late = (key >= self.window)[:, None]
        return torch.cat(
            (torch.where(late, moved, scores[..., : self.sinks]), scores[..., self.sinks :]), dim=-1
        )


def _rotary(model: Model) -> RotaryPositions:
    if model.rotary is None:
        raise ValueError(
            f"expected a model with rotary positions, got {model.config.positions} positions"
        )
    return model.rotary
