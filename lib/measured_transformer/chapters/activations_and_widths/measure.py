r"""Networks that differ in how they bend or in how wide they are, with as many parameters.

Sources: Shazeer (2020), "GLU Variants Improve Transformer", for gates and their two thirds of the width; So et
al. (2021), "Primer", for the square of ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_parameters
from measured_transformer.parts.feedforward import Activation, FeedForward, is_gated
from measured_transformer.tasks.task import Task
from measured_transformer.training.arms import tune_arms
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import Run
from measured_transformer.training.tuning import Arm, Tuned
from measured_transformer.variants.feedforward import squared_relu, with_squared_relu

Bend = Literal["relu", "gelu", "swiglu", "squared"]
"""The activations that the chapter compares; 'squared' is the square of ReLU."""

# Arms ----------------------------------------------------------------------------------------------


def activation_arms(config: Config) -> dict[Bend, Arm]:
    """Four models that differ in what their networks bend with: ReLU, GELU, SwiGLU and the square of ReLU.

    SwiGLU has two thirds of the neurons, to the nearest whole number, so that its three matrices have as many
    weights as the two of the others.

    >>> arms = activation_arms(Config(vocab=10, d_model=32, activation="relu"))
    >>> {name: arm.config.neurons for name, arm in arms.items()}
    {'relu': 128, 'gelu': 128, 'swiglu': 85, 'squared': 128}

    Raises:
        ValueError: when the activation of `config` has a gate.
    """
    if is_gated(config.activation):
        raise ValueError(f"expected a network without a gate, got {config.activation!r}")
    relu = config.replace(activation="relu")
    return {
        "relu": Arm(relu),
        "gelu": Arm(config.replace(activation="gelu")),
        "swiglu": Arm(config.replace(activation="swiglu", d_ff=round(2 * config.neurons / 3))),
        "squared": Arm(relu, {"prepare": with_squared_relu}),
    }


def at_width(config: Config, ratio: float | int) -> Config:
    """The same decoder with a hidden layer `ratio` times as wide as its stream.

    >>> at_width(Config(vocab=10, d_model=32), 0.5).neurons
    16

    Raises:
        ValueError: when that makes no whole number of neurons.
    """
    neurons = ratio * config.d_model
    if neurons < 1 or neurons != int(neurons):
        raise ValueError(
            f"expected a ratio that makes a whole number of neurons, got {ratio} times {config.d_model}"
        )
    return config.replace(d_ff=int(neurons))


def at_equal_parameters(config: Config, ratio: float | int) -> Config:
    """The decoder with that ratio of hidden to model width whose parameters come nearest to those of `config`.

    The stream becomes wider for a smaller ratio and narrower for a larger one; heads keep their number and
    change their width with it. All parameters count, the tables of tokens among them.

    >>> config = Config(vocab=256, d_model=32)
    >>> at_equal_parameters(config, 1).d_model, at_equal_parameters(config, 4) == at_width(config, 4)
    (40, True)

    Raises:
        ValueError: when the ratio is not positive.
    """
    if not ratio > 0:
        raise ValueError(f"expected a positive ratio, got {ratio}")
    wanted = count_parameters(config, "decoder").total
    # Widths that the heads divide and that positions by sines can have; a whole number of neurons for halves.
    step = math.lcm(2, config.n_heads)

    def made(d_model: int) -> Config:
        return at_width(config.replace(d_model=d_model, d_head=None, d_ff=None), ratio)

    widths = [d for d in range(step, 4 * config.d_model + 1, step) if float(ratio * d).is_integer()]
    found = [made(d) for d in widths]
    return min(found, key=lambda one: abs(count_parameters(one, "decoder").total - wanted))


# Training ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Arms that were tuned alike and trained.

    Attributes:
        runs: for each arm a run a seed.
        tuned: for each arm what its learning rate was chosen by.
    """

    runs: dict[str, list[Run]]
    tuned: dict[str, Tuned]

    def rate(self, arm: str) -> float:
        """The learning rate that was chosen for an arm."""
        return self.tuned[arm].rates[arm]

    def trials(self, arm: str) -> dict[float, list[float]]:
        """For each rate of the grid the loss of each tuning seed."""
        return self.tuned[arm].losses[arm]


def compare(
    name: str,
    arms: Mapping[str, Arm],
    task: Task,
    seeds: Mapping[str, Sequence[int]] | Sequence[int],
    *,
    steps: int,
    profile: Profile,
    rates: Sequence[float],
    trials: int = 2,
    **options: Any,
) -> Compared:
    """Tune the learning rate of each arm on the same grid, then train all its seeds as one stack.

    As `train_arms`, but arms may have different numbers of seeds, and small models of many seeds are trained
    at once, which takes less than half the time.

    Args:
        name, arms, task, steps, profile, rates, trials: as for `tune_arms`.
        seeds: of the evaluation, for all arms or for each by its name.
        options: passed to `train` for all arms.

    Raises:
        ValueError: as `tune_arms`, and when an arm has no seeds.
    """
    own = dict(seeds) if isinstance(seeds, Mapping) else dict.fromkeys(arms, seeds)
    if missing := [arm for arm in arms if not own.get(arm)]:
        raise ValueError(f"expected seeds for every arm, got none for {', '.join(missing)}")
    tuned = tune_arms(
        name, arms, task, steps=steps, profile=profile, rates=rates, trials=trials, **options
    )
    runs = {
        arm: train_ensemble(
            side.config, task, own[arm], stacked=True, steps=steps,
            **{**options, **side.options, "learning_rate": tuned[arm].rates[arm]},
        )
        for arm, side in arms.items()
    }  # fmt: skip
    return Compared(runs, tuned)


# A product by hand ---------------------------------------------------------------------------------


@torch.no_grad()
def product_network(bend: Bend) -> FeedForward:
    r"""A network in float64 on a stream of two numbers $(a, b)$, its weights written down to multiply them.

    It writes the product to the first number and nothing to the second. With the square of ReLU, four neurons
    do it exactly, since $\max(0, s)^2 + \max(0, -s)^2 = s^2$ and $((a + b)^2 - (a - b)^2)/4 = ab$. With a
    gate of SiLU two do, since $\text{SiLU}(a) - \text{SiLU}(-a) = a$. The same four neurons with GELU are
    right near zero only, scaled by $\sqrt{\pi/2}$; with ReLU and a factor of two they give
    $(|a + b| - |a - b|)/2$, which is the smaller of $|a|$ and $|b|$ with the sign of the product.

    >>> network = product_network("swiglu")
    >>> [round(x, 6) for x in network(torch.tensor([[[3.0, -2.0]]]).double()).flatten().tolist()]
    [-6.0, 0.0]

    Raises:
        ValueError: when the name is another one.
    """
    scales = {"relu": 0.5, "gelu": math.sqrt(math.pi / 2) / 4, "squared": 0.25, "swiglu": 1.0}
    if bend not in scales:
        raise ValueError(f"expected one of {', '.join(scales)}, got {bend!r}")
    activation: Activation = "relu" if bend == "squared" else bend
    gated = bend == "swiglu"
    network = FeedForward(2, 2 if gated else 4, activation=activation, bias=False).double()
    if gated:
        assert network.gate is not None
        network.gate.weight.copy_(_rows([1, 0], [-1, 0]))
        network.up.weight.copy_(_rows([0, 1], [0, -1]))
        signs = torch.ones(2)
    else:
        network.up.weight.copy_(_rows([1, 1], [-1, -1], [1, -1], [-1, 1]))
        signs = torch.tensor([1.0, 1.0, -1.0, -1.0])
    network.down.weight.zero_()
    network.down.weight[0] = scales[bend] * signs
    if bend == "squared":
        network.activate = squared_relu
    return network


def _rows(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()
def products(
    network: nn.Module, a: Float[Tensor, "x"], b: Float[Tensor, "y"]
) -> Float[Tensor, "y x"]:
    """What a network on two numbers writes to the first, for every pair of an a and a b."""
    first, second = torch.meshgrid(a, b, indexing="xy")
    written: Tensor = network(torch.stack([first, second], dim=-1))
    return written[..., 0]
