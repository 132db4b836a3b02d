r"""The mean of a training's last states in the place of its last one.

A run at a constant rate bounces around a place that it does not come to rest at. The mean of its states after
the last $k$ of $T$ steps, $\frac{1}{k} \sum_{t=T-k+1}^{T} \theta_t$, lies nearer to that place.
Training itself is not touched: the states are those that it would have gone through anyway.

Sources: Polyak & Juditsky (1992), "Acceleration of stochastic approximation by averaging", for the idea;
Izmailov et al. (2018), "Averaging weights leads to wider optima and better generalization", for networks.

>>> import torch
>>> from measured_transformer.models.config import Config
>>> from measured_transformer.tasks.reversal import Reversal
>>> from measured_transformer.training.loop import train
>>> config, task = Config(vocab=Reversal().vocab, d_model=8, n_heads=1), Reversal()
>>> options = {"steps": 6, "learning_rate": 0.01, "seed": 0}
>>> run = train(config, task, prepare=room_for_a_mean, after_step=MeanOfLast(2, 6), **options)
>>> states = [train(config, task, **{**options, "steps": steps}).model for steps in (5, 6)]
>>> one, other, mean = (model.unembedding.weight for model in (*states, run.model))
>>> bool(torch.allclose(mean, (one + other) / 2))
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.utils import parameters_to_vector

from measured_transformer.training.loop import Model, Step

_MEAN, _COUNT = "mean_of_states", "states_in_mean"


def room_for_a_mean(model: Model) -> None:
    """Preparation for training: buffers for the mean of states and for how many it has, for `MeanOfLast`.

    They are part of the model, so that a training that goes on from a checkpoint has them.
    """
    weights = parameters_to_vector(model.parameters()).detach()
    model.register_buffer(_MEAN, torch.zeros_like(weights))
    model.register_buffer(_COUNT, torch.zeros((), dtype=torch.int64, device=weights.device))


@dataclass(frozen=True)
class MeanOfLast:
    """Hook after each step: takes the mean of the last states, and at the end leaves it as the model's weights.

    The training needs `room_for_a_mean` as its preparation.

    Attributes:
        last: how many states, one after each step.
        steps: of the whole training.

    Raises:
        ValueError: when `last` is not a whole number from 1 to `steps`.
    """

    last: int
    steps: int

    def __post_init__(self) -> None:
        if not 1 <= self.last <= self.steps:
            raise ValueError(
                f"expected a number of last states from 1 to steps={self.steps}, got {self.last}"
            )

    @torch.no_grad()
    def __call__(self, step: Step) -> None:
        """Count the state in, where it is among the last, and not yet counted.

        Raises:
            ValueError: when the model has no room for a mean.
        """
        model = step.model
        if not hasattr(model, _MEAN):
            raise ValueError(
                "expected a model with room for a mean: train with prepare=room_for_a_mean"
            )
        mean, counted = getattr(model, _MEAN), getattr(model, _COUNT)
        number = step.number - (self.steps - self.last)
        if number <= int(counted):  # before the last states, or asked again after a checkpoint
            return
        mean += (parameters_to_vector(model.parameters()) - mean) / number
        counted.fill_(number)
        if step.number == self.steps:
            weights = list(model.parameters())
            for weight, part in zip(
                weights, mean.split([one.numel() for one in weights]), strict=True
            ):
                weight.copy_(part.view_as(weight))
