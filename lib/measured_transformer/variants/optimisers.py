r"""Changes the gradient before the step: Adam with chosen initial averages, and the z-loss.

Both are made to be given to `train` as its `prepare`. They hang on the gradients of a model, so that neither
the loop nor the loss has to know of them, and compute one model at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from measured_transformer.training.loop import Model

Filled = Literal["neither", "first", "second", "both"]
"""Which of Adam's averages go on while weights are held: of the gradient, of its square, both or neither."""


@dataclass(frozen=True)
class AdamWithFilled:
    r"""Preparation for training: Adam whose averages are filled before the first step, and kept as told.

    For `steps` steps the weights stay where they are, and the averages named by `filled` go on. Then both go
    on, the others from empty, each corrected for its own age, so that an average that begins at the release
    has a full-sized first value: $\hat m = g$ or $\hat v = g^2$. With no step held it is Adam.

    Every gradient is replaced by Adam's direction $\hat m / (\sqrt{\hat v} + \epsilon)$ as soon as it is
    complete. So train with the optimiser 'SGD', no momentum (a first beta of 0) and no clipping; what is
    recorded as the gradient's norm is then that of the direction.

    Liu et al. (2020), "On the Variance of the Adaptive Learning Rate and Beyond", hold the weights and fill the
    second average alone (their Adam-2k).

    Attributes:
        steps: for how many the weights are held.
        filled: which averages go on meanwhile.
        betas, eps: Adam's.

    Raises:
        ValueError: when `steps` is negative or `filled` unknown.
    """

    steps: int
    filled: Filled = "both"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must not be negative, got {self.steps}")
        if self.filled not in get_args(Filled):
            raise ValueError(
                f"filled must be one of {', '.join(get_args(Filled))}, got {self.filled!r}"
            )

    def __call__(self, model: Model) -> None:
        """Let every weight of the model have the direction in the place of its gradient."""
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(_Direction(self))


class _Direction:
    """Adam's state of one tensor of weights: turns its gradient into Adam's direction, in place."""

    def __init__(self, settings: AdamWithFilled) -> None:
        self.settings = settings
        self.seen = 0
        self.ages = [0, 0]
        self.averages: list[Tensor | None] = [None, None]

    @torch.no_grad()
    def __call__(self, weight: Tensor) -> None:
        """Replace the gradient of the weight."""
        gradient = weight.grad
        assert gradient is not None  # the hook is called where one has been accumulated
        settings, held = self.settings, self.seen < self.settings.steps
        self.seen += 1
        for which, (name, value) in enumerate((("first", gradient), ("second", gradient.square()))):
            if held and settings.filled not in (name, "both"):
                continue
            old, beta = self.averages[which], settings.betas[which]
            self.averages[which] = torch.lerp(
                torch.zeros_like(value) if old is None else old, value, 1 - beta
            )
            self.ages[which] += 1
        if held:
            gradient.zero_()
            return
        first, second = (
            average / (1 - beta**age)
            for average, beta, age in zip(self.averages, settings.betas, self.ages, strict=True)
            if average is not None
        )
        gradient.copy_(first / (second.sqrt() + settings.eps))


@dataclass(frozen=True)
class ZLoss:
    r"""Preparation for training: adds $c \cdot (\ln Z)^2$, averaged over positions, to the loss.

    $Z = \sum_v e^{z_v}$ is what the softmax over the logits $z$ divides by. The penalty pulls $\ln Z$ to zero,
    so that logits cannot drift away together, which cross-entropy does not see (PaLM, Chowdhery et al. 2023,
    with $c = 10^{-4}$). The recorded loss is the cross-entropy alone: only the gradient is changed.

    Attributes:
        coefficient: c.

    Raises:
        ValueError: when the coefficient is negative or not finite.
    """

    coefficient: float = 1e-4

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coefficient) and self.coefficient >= 0):
            raise ValueError(f"coefficient must be finite and not negative, got {self.coefficient}")

    def __call__(self, model: Model) -> None:
        """Let the gradient of the logits carry that of the penalty; every position counts as scored."""
        model.register_forward_hook(self._watch)

    def _watch(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        if not logits.requires_grad:
            return
        log_z = logits.detach().logsumexp(-1, keepdim=True)
        slope = 2 * self.coefficient * log_z * logits.detach().softmax(-1) / log_z.numel()

        def add(gradient: Tensor) -> Any:
            return gradient + slope

        logits.register_hook(add)
