r"""Rotary frequencies for sequences longer than those of training, as functions and as settings of a model.

A rotary model compares a query with a key at distance $m$ by turning pair $i$ by the angle $m \omega_i$. For
longer sequences it is given other frequencies $\omega_i$, and here each method is a function that gives them.
With $s$ for the factor by which sequences grow, and $L$ for the trained length:

- position interpolation: $\omega_i / s$ for all pairs (Chen et al. 2023);
- NTK-aware: a larger base, so that the slowest pair is slowed by $s$ and the fastest not at all;
- NTK by parts: $\omega_i / s$ for pairs that make less than one turn within $L$, $\omega_i$ for those that make
  many, and a mixture between (Peng et al. 2024, section 3.2);
- YaRN: NTK by parts, with queries and keys made longer by $0.1 \ln s + 1$ (section 3.4 there);
- Llama 3.1's: NTK by parts with 1 and 4 turns, and no longer vectors;
- LongRoPE: a factor of its own for each pair, found by search (Ding et al. 2024).

`Config.rotary_scaling` takes one of the classes at the end: `Interpolated`, `Dynamic`, `Yarn`, `Llama3` or
`LongRope`.

>>> from measured_transformer.parts.positions import frequencies
>>> interpolation(frequencies(4), 8.0)
tensor([0.1250, 0.0013], dtype=torch.float64)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.parts.positions import frequencies

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


# As settings of a model ---------------------------------------------------------------------------


class RotaryScaling:
    """What changes the frequencies of a rotary model; the base of the settings below.

    A scheme of one's own is a frozen dataclass that inherits from this class and defines `frequencies`.
    """

    grows: bool = False
    """Whether the frequencies depend on the length of the sequence."""

    @property
    def factor_of_vectors(self) -> float:
        """What turned queries and keys are multiplied by."""
        return 1.0

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64.

        Args:
            d: number of entries of a head that are turned.
            base: of the frequencies of training.
            length: one more than the largest position; matters only where `grows`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Interpolated(RotaryScaling):
    """Position interpolation (`rope_type` 'linear'): every pair turns more slowly by the factor."""

    factor: float

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64."""
        return frequencies(d, base=base) / self.factor


@dataclass(frozen=True)
class Dynamic(RotaryScaling):
    """NTK-aware scaling by what the sequence has grown to (`rope_type` 'dynamic').

    Keys that a cache holds were turned by the frequencies of their time.

    Attributes:
        factor: how fast the base grows with the length.
        trained: the length of training; up to it nothing changes.
    """

    factor: float
    trained: int
    grows = True

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64. A single pair turns by one radian whatever the base is."""
        if d == 2:  # no other base would slow it down
            return frequencies(d, base=base)
        grown = self.factor * max(length, self.trained) / self.trained - (self.factor - 1)
        return frequencies(d, base=base * grown ** (d / (d - 2)))


@dataclass(frozen=True)
class Yarn(RotaryScaling):
    """YaRN (`rope_type` 'yarn').

    Attributes:
        factor: how many times longer sequences become.
        trained: the length of training.
        fast, slow: turns within it; pairs that turn more often than `fast` stay, less often than `slow` are
            interpolated.
        stretch: what queries and keys are multiplied by; `yarn_stretch(factor)` when None.
        truncate: whether the ramp between them begins and ends at whole pairs.
    """

    factor: float
    trained: int
    fast: float = 32.0
    slow: float = 1.0
    stretch: float | None = None
    truncate: bool = True

    @property
    def factor_of_vectors(self) -> float:
        """What turned queries and keys are multiplied by."""
        return yarn_stretch(max(1.0, self.factor)) if self.stretch is None else self.stretch

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64."""
        omega = frequencies(d, base=base)
        first, last = (
            d * math.log(self.trained / (2 * math.pi * n)) / (2 * math.log(base))
            for n in (self.fast, self.slow)
        )
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, d - 1)
        pair = torch.arange(d // 2, dtype=torch.float64)
        slowed = ((pair - first) / (last - first or 0.001)).clamp(0, 1)
        return omega * (1 - slowed) + omega / self.factor * slowed


@dataclass(frozen=True)
class Llama3(RotaryScaling):
    """The scaling of Llama 3.1 (`rope_type` 'llama3').

    Attributes:
        factor: how many times longer sequences become.
        trained: the length of training.
        slow, fast: turns within it; as in `Yarn`, but the ramp runs over the number of turns.
    """

    factor: float
    trained: int
    slow: float = 1.0
    fast: float = 4.0

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64."""
        omega = frequencies(d, base=base)
        kept = (turns(omega, float(self.trained)) - self.slow) / (self.fast - self.slow)
        kept = kept.clamp(0, 1)
        return (1 - kept) * omega / self.factor + kept * omega


@dataclass(frozen=True)
class LongRope(RotaryScaling):
    """A factor for each pair, one set for short sequences and one for long (`rope_type` 'longrope').

    Attributes:
        short, long: what the frequency of each pair is divided by, up to the trained length and beyond it.
        trained: the length of training.
        stretch: what queries and keys are multiplied by.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    trained: int
    stretch: float = 1.0
    grows = True

    @property
    def factor_of_vectors(self) -> float:
        """What turned queries and keys are multiplied by."""
        return self.stretch

    def frequencies(self, d: int, base: float, length: int) -> Frequencies:
        """Radians a position of each pair, float64.

        Raises:
            ValueError: when there is not one factor for each pair.
        """
        factors = self.long if length > self.trained else self.short
        if len(factors) != d // 2:
            raise ValueError(f"expected a factor for each of {d // 2} pairs, got {len(factors)}")
        return frequencies(d, base=base) / torch.tensor(factors, dtype=torch.float64)
