r"""Learning-rate schedules: how large each step of the optimiser is, as a pure function of the step's number.

A schedule is called with the number of the step, 0 for the first one, and gives a factor that the optimiser's
own rate is multiplied by: that is what `torch.optim.lr_scheduler.LambdaLR` asks for. All but `Noam` reach 1 at
their highest, so that the optimiser's rate is the highest rate of the training. `Noam` gives the rate itself:
use it with an optimiser whose rate is 1.

Step $t$ is the update that turns the weights after $t$ updates into those after $t + 1$. A warm-up over $w$
steps takes $1/w, 2/w, \dots, 1$: no step is wasted on a rate of zero, and the peak is step $w - 1$. A schedule
that ends after `steps` steps would reach its final value at step number `steps`, the first that is not taken,
and keeps it from there on.

>>> import torch
>>> weight = torch.nn.Parameter(torch.zeros(1))
>>> optimiser = torch.optim.SGD([weight], lr=0.5)
>>> scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, WarmupCosine(warmup=2, steps=4))
>>> for _ in range(4):
...     print(round(optimiser.param_groups[0]["lr"], 3))
...     optimiser.step()
...     scheduler.step()
0.25
0.5
0.375
0.125
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """Gives the factor of the learning rate at a step; the first step is number 0."""

    def __call__(self, step: int) -> float:
        """The factor at this step, at least 0."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same rate at every step, after a linear warm-up if one is asked for.

    Attributes:
        warmup: number of steps over which the factor grows to 1.

    Raises:
        ValueError: when `warmup` is not a whole number of at least 0.
    """

    warmup: int = 0

    def __post_init__(self) -> None:
        _check_steps(warmup=self.warmup)

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        return _rise(step, self.warmup)


@dataclass(frozen=True)
class InverseSquareRoot:
    r"""Linear growth to 1, then a fall with the square root of the step: $\sqrt{w / (t + 1)}$.

    The shape of `Noam` with a peak of 1, so that the peak can be tuned like any other rate.

    Attributes:
        warmup: number of steps over which the factor grows to 1, at least one.

    Raises:
        ValueError: when `warmup` is not a positive whole number.
    """

    warmup: int

    def __post_init__(self) -> None:
        _check_steps(warmup=self.warmup, least=1)

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        return min(_rise(step, self.warmup), math.sqrt(self.warmup / (step + 1)))


@dataclass(frozen=True)
class Noam:
    r"""The schedule of Vaswani et al. (2017, section 5.3, equation 3), named after Noam Shazeer.

    With their step number $s = t + 1$, which starts at 1,

    $\text{rate} = d_\text{model}^{-1/2} \min(s^{-1/2}, s\, w^{-3/2})$.

    It is a rate and not a factor: the optimiser's own rate must be 1, or any number that shall scale it.

    Attributes:
        d_model: width of the model; wider models get smaller rates.
        warmup: number of steps over which the rate grows, at least one; 4000 in the paper.

    Raises:
        ValueError: when `d_model` or `warmup` is not a positive whole number.
    """

    d_model: int
    warmup: int = 4000

    def __post_init__(self) -> None:
        _check_steps(d_model=self.d_model, warmup=self.warmup, least=1)

    def __call__(self, step: int) -> float:
        """The rate at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        return self.peak * InverseSquareRoot(self.warmup)(step)

    @property
    def peak(self) -> float:
        """The highest rate, that of step `warmup` - 1: one over the root of width times warm-up.

        >>> round(Noam(d_model=512, warmup=4000).peak, 6)
        0.000699
        """
        return 1 / math.sqrt(self.d_model * self.warmup)


@dataclass(frozen=True)
class ExponentialDecay:
    r"""The factor is multiplied by `rate` every `every` steps, in between smoothly or all at once.

    After the warm-up, at $u$ steps from the peak, it is $r^{u / e}$, or $r^{\lfloor u / e \rfloor}$ in stairs:
    the schedule that is called step decay.

    Attributes:
        rate: what the factor is multiplied by, above 0 and at most 1.
        every: number of steps that this takes.
        staircase: whether the factor stays the same in between.
        warmup: number of steps of linear growth before.

    Raises:
        ValueError: when `every` is not a positive whole number, `warmup` is not a whole number of at least 0,
            or `rate` is not above 0 and at most 1.
    """

    rate: float
    every: int = 1
    staircase: bool = False
    warmup: int = 0

    def __post_init__(self) -> None:
        _check_steps(warmup=self.warmup)
        _check_steps(every=self.every, least=1)
        if not _is_number(self.rate) or not 0 < self.rate <= 1:
            raise ValueError(f"rate must lie above 0 and not above 1, got {self.rate!r}")

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        if step < self.warmup:
            return _rise(step, self.warmup)
        since = (_check_step(step) - _peak(self.warmup)) / self.every
        return float(self.rate ** (math.floor(since) if self.staircase else since))

    @property
    def time_constant(self) -> float:
        """Number of steps in which the factor falls to 1/e; infinite when it does not fall.

        >>> round(ExponentialDecay(rate=0.5, every=100).time_constant, 1)
        144.3
        """
        return math.inf if self.rate == 1 else -self.every / math.log(self.rate)

    @classmethod
    def lasting(cls, time_constant: float, *, warmup: int = 0) -> ExponentialDecay:
        """The smooth decay that falls to 1/e in `time_constant` steps.

        >>> round(ExponentialDecay.lasting(50.0)(50), 3)
        0.368

        Raises:
            ValueError: when `time_constant` is not positive or `warmup` is not a whole number of at least 0.
        """
        if not _is_number(time_constant) or not time_constant > 0:
            raise ValueError(
                f"time_constant must be a positive number of steps, got {time_constant}"
            )
        return cls(rate=math.exp(-1 / time_constant), warmup=warmup)


@dataclass(frozen=True)
class WarmupCosine:
    """Linear growth to 1, then half a wave of the cosine down to `final` (Loshchilov & Hutter, 2017).

    Attributes:
        warmup: number of steps over which the factor grows; may be 0.
        steps: number of steps of the whole training.
        final: the factor that the fall ends at.

    Raises:
        ValueError: when `steps` is not a positive whole number, `warmup` is not a whole number from 0 to
            `steps`, or `final` does not lie between 0 and 1.
    """

    warmup: int
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_fall(self.warmup, self.steps, self.final)

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        if step < self.warmup:
            return _rise(step, self.warmup)
        done = _progress(step, _peak(self.warmup), self.steps)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class WarmupLinear:
    """Linear growth to 1, then a straight line down to `final`.

    Attributes:
        warmup: number of steps over which the factor grows; may be 0.
        steps: number of steps of the whole training.
        final: the factor that the fall ends at.

    Raises:
        ValueError: when `steps` is not a positive whole number, `warmup` is not a whole number from 0 to
            `steps`, or `final` does not lie between 0 and 1.
    """

    warmup: int
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_fall(self.warmup, self.steps, self.final)

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        if step < self.warmup:
            return _rise(step, self.warmup)
        return 1 - (1 - self.final) * _progress(step, _peak(self.warmup), self.steps)


@dataclass(frozen=True)
class WarmupStableDecay:
    """Linear growth to 1, a plateau, and at the end a straight line down to `final` (Hu et al., 2024).

    Attributes:
        warmup: number of steps over which the factor grows; may be 0.
        steps: number of steps of the whole training.
        decay: number of steps of the fall, at least one.
        final: the factor that the fall ends at.

    Raises:
        ValueError: when `steps` or `decay` is not a positive whole number, `warmup` is not a whole number of
            at least 0, warm-up and decay together take more than `steps`, or `final` does not lie between 0
            and 1.
    """

    warmup: int
    steps: int
    decay: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_fall(self.warmup, self.steps, self.final)
        _check_steps(decay=self.decay, least=1)
        if self.warmup + self.decay > self.steps:
            raise ValueError(
                f"warm-up and decay take {self.warmup} + {self.decay} steps, more than steps={self.steps}"
            )

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        start = self.steps - self.decay
        if step < start:
            return _rise(step, self.warmup)
        return 1 - (1 - self.final) * _progress(step, start, self.steps)


@dataclass(frozen=True)
class WarmupStableRoot:
    r"""Linear growth to 1, a plateau, and at the end a fall as $1 - \sqrt{u}$ (Hägele et al., 2024).

    $u$ is the share of the fall that is over: fast at first and slow at the end, where a straight line would
    keep its pace.

    Attributes:
        warmup: number of steps over which the factor grows; may be 0.
        steps: number of steps of the whole training.
        decay: number of steps of the fall, at least one.

    Raises:
        ValueError: as `WarmupStableDecay`.
    """

    warmup: int
    steps: int
    decay: int

    def __post_init__(self) -> None:
        WarmupStableDecay(self.warmup, self.steps, self.decay)

    def __call__(self, step: int) -> float:
        """The factor at this step.

        Raises:
            ValueError: when `step` is negative.
        """
        start = self.steps - self.decay
        if step < start:
            return _rise(step, self.warmup)
        return 1 - math.sqrt(_progress(step, start, self.steps))


def _rise(step: int, warmup: int) -> float:
    return min(1.0, (_check_step(step) + 1) / max(1, warmup))


def _peak(warmup: int) -> int:
    """The step at which a warm-up first reaches 1."""
    return max(warmup - 1, 0)


def _progress(step: int, start: int, end: int) -> float:
    """The share of the way from start to end that lies behind this step."""
    return min(1.0, (_check_step(step) - start) / (end - start))


def _check_step(step: int) -> int:
    if step < 0:
        raise ValueError(f"steps are counted from 0, got step {step}")
    return step


def _check_steps(*, least: int = 0, **numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_fall(warmup: int, steps: int, final: float) -> None:
    _check_steps(warmup=warmup)
    _check_steps(steps=steps, least=1)
    if warmup > steps:
        raise ValueError(f"a warm-up of {warmup} steps does not fit into steps={steps}")
    if not _is_number(final) or not 0 <= final <= 1:
        raise ValueError(f"final is a factor between 0 and 1, got {final!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
