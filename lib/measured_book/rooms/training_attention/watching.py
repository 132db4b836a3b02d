"""Trainings that are watched at every step, and how well a number tells which of them will fail."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from measured_transformer.analysis.curves import area_under_curve
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.loop import Model, make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.initialisation import Scaled
from numpy import ndarray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

# Runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What is drawn for a run.

    Attributes:
        rate: learning rate of Adam.
        scale: factor on all first weights of the blocks' matrices.
        seed: of its first weights.
    """

    rate: float
    scale: float
    seed: int


@dataclass(frozen=True)
class Watched:
    """What was seen of a group of runs.

    Attributes:
        settings: what was drawn.
        entropy: of attention at the look, mean over layers, heads, and rows, over its largest value.
        first_entropy: the same before the first step.
        loss: on held-out sequences at the look, in nats.
        gradient: length of the gradient, mean over the steps before the look, as a logarithm.
        final: loss on held-out sequences after the last step.
    """

    settings: tuple[Setting, ...]
    entropy: Float[ndarray, "run"]
    first_entropy: Float[ndarray, "run"]
    loss: Float[ndarray, "run"]
    gradient: Float[ndarray, "run"]
    final: Float[ndarray, "run"]

    def failed(self, task: Reversal) -> Bool[ndarray, "run"]:
        """Which ended above half of the loss of the bag of tokens."""
        found: ndarray = ~(self.final <= task.bag_loss() / 2)
        return found


def watch(
    config: Config,
    task: Reversal,
    groups: Sequence[Sequence[Setting]],
    *,
    seeds: Sequence[int],
    steps: int,
    look_at: int,
    batch_size: int = 16,
    look_back: int = 20,
    held_out: int = 64,
) -> list[Watched]:
    """Train all runs of all groups at once with Adam, each gradient clipped at length 1, and look at them.

    Runs of a group see the same batches. A run whose loss or gradient is no finite number stops there.

    Args:
        config: of the models, without dropout.
        task: what they learn.
        groups: settings of each group's runs.
        seeds: of the batches, one a group.
        steps: of the training.
        look_at: step after which the runs are looked at.
        batch_size: sequences in a step.
        look_back: number of steps before the look over which the gradient is averaged.
        held_out: number of sequences for losses and entropies.

    Raises:
        ValueError: when there are not as many seeds as groups, or the look lies beyond the last step.
    """
    if len(groups) != len(seeds):
        raise ValueError(f"expected a seed a group, got {len(seeds)} for {len(groups)} groups")
    if not look_back <= look_at <= steps:
        raise ValueError(f"expected {look_back} <= look_at <= {steps}, got {look_at}")
    every = [setting for group in groups for setting in group]
    models = [_fresh(config, task, setting) for setting in every]
    sizes = [len(group) for group in groups]
    batches = [make_generator(seed, "training") for seed in seeds]
    tests = [task.batch(make_generator(seed, "evaluation"), held_out) for seed in seeds]
    looked = [test for test, size in zip(tests, sizes, strict=True) for _ in range(size)]
    skeleton, reader = copy.deepcopy(models[0]), models[0]
    # It looks at the values of its tokens, and inside of vmap there is nothing to look at.
    skeleton.__dict__["_check"] = lambda *_: None
    weights, _ = stack_module_state(list[nn.Module](models))
    weights = {name: weight.detach() for name, weight in weights.items()}
    means = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    rates = torch.tensor([setting.rate for setting in every])
    alive = torch.ones(len(every), dtype=torch.bool)
    recent: list[Tensor] = []

    def loss_of(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(skeleton, weights, (inputs,))
        return cross_entropy(logits, targets, torch.ones_like(targets, dtype=torch.bool))

    step_of = vmap(grad_and_value(loss_of))
    first = _entropies(reader, weights, looked)
    entropy, loss, gradient = first, np.empty(0), np.empty(0)
    with cpu_threads(1), sdpa_kernel(SDPBackend.MATH):
        for step in range(1, steps + 1):
            drawn = [task.batch(batch, batch_size) for batch in batches]
            inputs = _spread([one.inputs for one in drawn], sizes)
            targets = _spread([one.targets for one in drawn], sizes)
            gradients, losses = step_of(weights, inputs, targets)
            norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()])
            norms = norms.sum(0).sqrt()
            alive &= losses.isfinite() & norms.isfinite()
            factors = torch.where(alive, 1 / norms.clamp(min=1.0), 0.0)
            _adam(weights, gradients, means, squares, step, factors, torch.where(alive, rates, 0.0))
            if look_at - look_back < step <= look_at:
                recent.append(norms.nan_to_num(nan=math.inf).clamp(1e-12, 1e12).log())
            if step == look_at:
                entropy = _entropies(reader, weights, looked)
                loss = _losses(reader, weights, looked)
                gradient = torch.stack(recent).mean(0).double().numpy()
    final = _losses(reader, weights, looked)
    final[~alive.numpy()] = np.inf
    ends = np.cumsum(sizes)[:-1]
    columns = [np.split(column, ends) for column in (entropy, first, loss, gradient, final)]
    return [Watched(tuple(group), *seen) for group, *seen in zip(groups, *columns, strict=True)]


def _fresh(config: Config, task: Reversal, setting: Setting) -> Model:
    model = make_model(config, causal=task.causal, seed=setting.seed)
    Scaled(setting.scale)(model)
    return model


def _spread(rows: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The tensor of each group, once for each of its runs: (run ...)."""
    return torch.stack([row for row, size in zip(rows, sizes, strict=True) for _ in range(size)])


def _adam(
    weights: dict[str, Tensor],
    gradients: dict[str, Tensor],
    means: dict[str, Tensor],
    squares: dict[str, Tensor],
    step: int,
    factors: Tensor,
    rates: Tensor,
) -> None:
    """One step of Adam for all runs; means, squares and weights change in place."""
    slow, slower, eps = 0.9, 0.98, 1e-8
    for name, weight in weights.items():
        shape = (-1,) + (1,) * (weight.ndim - 1)
        gradient = gradients[name].nan_to_num(0.0, 0.0, 0.0) * factors.view(shape)
        mean, square = means[name], squares[name]
        mean.mul_(slow).add_(gradient, alpha=1 - slow)
        square.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        length = (square / (1 - slower**step)).sqrt_().add_(eps)
        weight.sub_(rates.view(shape) * (mean / (1 - slow**step)) / length)


@torch.no_grad()
def _each(model: Model, weights: dict[str, Tensor]) -> Iterator[Model]:
    """The model with the weights of one run after the other."""
    own = dict(model.eval().named_parameters())
    for run in range(len(next(iter(weights.values())))):
        for name, weight in own.items():
            weight.copy_(weights[name][run])
        yield model


@torch.no_grad()
def _losses(
    model: Model, weights: dict[str, Tensor], tests: Sequence[Batch]
) -> Float[ndarray, "run"]:
    models = zip(_each(model, weights), tests, strict=True)
    return np.array(
        [float(cross_entropy(one(test.inputs), test.targets, test.scored)) for one, test in models]
    )


@torch.no_grad()
def _entropies(
    model: Model, weights: dict[str, Tensor], tests: Sequence[Batch]
) -> Float[ndarray, "run"]:
    models = zip(_each(model, weights), tests, strict=True)
    return np.array([pattern_entropy(one, test.inputs) for one, test in models])


@torch.no_grad()
def pattern_entropy(model: Model, inputs: Tensor) -> float:
    """Mean entropy of the rows of all patterns of a model without a mask, over the largest one, ln n."""
    with capture(model, "*.pattern") as seen:
        model(inputs)
    rows = torch.stack([torch.special.entr(pattern).sum(-1).mean() for pattern in seen.values()])
    return float(rows.mean() / math.log(inputs.shape[1]))


# How well a number tells ------------------------------------------------------------------------------


def area(score: Float[ndarray, "run"], failed: Bool[ndarray, "run"]) -> float:
    """The area under the curve: the chance that a failed run has the higher score than another; ties are half.

    One half where all runs failed or none did: nothing could be told.

    >>> area(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]))
    1.0
    """
    return area_under_curve(score, failed) if 0 < failed.sum() < len(failed) else 0.5
