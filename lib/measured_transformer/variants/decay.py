r"""Weight decay that follows the schedule and not the peak of the learning rate, or spares some weights.

With a schedule's factor $s_t$, a peak rate $\eta$ and a strength $\lambda$, PyTorch's AdamW subtracts
$\eta s_t \lambda w$ from a weight $w$ at step $t$; independent decay subtracts $s_t \lambda w$. Who changes the
peak leaves it as it is.

Sources: Loshchilov & Hutter (2019), "Decoupled weight decay regularization", who wrote it so; Wortsman et al.
(2023), "Small-scale proxies for large-scale Transformer training instabilities", section 3.2.2, for the name.

>>> from measured_transformer.models.config import Config
>>> from measured_transformer.tasks.reversal import Reversal
>>> from measured_transformer.training.loop import train
>>> from measured_transformer.training.schedules import Constant
>>> config, task = Config(vocab=Reversal().vocab, d_model=8, n_heads=1), Reversal()
>>> options = {"steps": 1, "learning_rate": 0.01, "seed": 0}
>>> plain = train(config, task, **options).model.unembedding.weight
>>> hook = IndependentDecay(0.1, Constant())
>>> less = train(config, task, prepare=room_for_decay, after_step=hook, **options).model.unembedding.weight
>>> round(float((less / plain).detach().mean()), 6)
0.9
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from measured_transformer.training.loop import Model, Step
from measured_transformer.training.schedules import Schedule

_DECAYED = "decayed_until"


def room_for_decay(model: Model) -> None:
    """Preparation for training: a buffer for the last step that `IndependentDecay` has acted after.

    It is part of the model, so that a training that goes on from a checkpoint decays no step twice.
    """
    device = next(model.parameters()).device
    model.register_buffer(_DECAYED, torch.zeros((), dtype=torch.int64, device=device))


@dataclass(frozen=True)
class IndependentDecay:
    """Hook after each step: every weight loses the share that the strength and the schedule say.

    The training needs `room_for_decay` as its preparation, the same schedule, and no decay of its own.

    Attributes:
        strength: the share that is lost in a step at the schedule's peak.
        schedule: of the training.

    Raises:
        ValueError: when the strength is not in [0, 1).
    """

    strength: float
    schedule: Schedule

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and 0 <= self.strength < 1):
            raise ValueError(f"strength must lie in [0, 1), got {self.strength}")

    @torch.no_grad()
    def __call__(self, step: Step) -> None:
        """Shrink the weights, unless that has been done after this step already.

        Raises:
            ValueError: when the model was not prepared.
        """
        if not hasattr(step.model, _DECAYED):
            raise ValueError(
                "expected a model that knows its last decay: train with prepare=room_for_decay"
            )
        decayed = getattr(step.model, _DECAYED)
        if step.number <= int(decayed):  # asked again after a checkpoint
            return
        kept = 1 - self.strength * self.schedule(step.number - 1)
        for weight in step.model.parameters():
            weight.mul_(kept)
        decayed.fill_(step.number)


@dataclass(frozen=True)
class DecayExcept:
    r"""Hook after each step: decoupled weight decay, $\eta_t \lambda w$, of all weights but some.

    AdamW subtracts the same before its step, and from every weight. The training needs `room_for_decay` among
    its preparations, and no decay of its own.

    Attributes:
        strength: $\lambda$.
        spared: ends of the names of weights that do not decay.

    Raises:
        ValueError: when the strength is negative or not finite, or nothing is spared.
    """

    strength: float
    spared: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise ValueError(f"strength must not be negative, got {self.strength}")
        if isinstance(self.spared, str) or not self.spared or "" in self.spared:
            raise ValueError(f"expected a tuple of ends of names, got spared={self.spared!r}")

    @torch.no_grad()
    def __call__(self, step: Step) -> None:
        """Shrink the weights, unless that has been done after this step already.

        Raises:
            ValueError: when the model was not prepared.
        """
        if not hasattr(step.model, _DECAYED):
            raise ValueError(
                "expected a model that knows its last decay: train with room_for_decay among its preparations"
            )
        decayed = getattr(step.model, _DECAYED)
        if step.number <= int(decayed):  # asked again after a checkpoint
            return
        for name, weight in step.model.named_parameters():
            if not name.endswith(self.spared):
                weight.mul_(1 - self.strength * step.rate)
        decayed.fill_(step.number)
