"""Gradients on their way down the stream: a watch on them, how unequal they are, how to level them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from measured_transformer.analysis.early_stopping import WhenSolved
from measured_transformer.evidence.profile import Profile
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.arms import tune_arms
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import Model, Run, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.norms import _blocks, _device, _stack

KINDS = ("query", "key", "value", "output", "up", "down", "norm")
"""The types of a block's parameters, as `by_kind` tells them apart; biases count with their matrix."""


@dataclass(frozen=True)
class Watched:
    """Writes down the length of each parameter's gradient at some steps of a training.

    The lengths are those of the loss's gradient, before any clipping. They become a buffer of the model,
    so that a stored run has them; `gradient_lengths` reads it.

    Attributes:
        at: the steps, counted from 0 for the gradient of the fresh model.
        variant: another preparation, which comes first.
    """

    at: tuple[int, ...]
    variant: Callable[[Model], None] | None = None

    def __call__(self, model: Model) -> None:
        """Attach the watch.

        Raises:
            ValueError: for an `EncoderDecoder`.
        """
        if self.variant is not None:
            self.variant(model)
        weights = [weight for _, weight in _trained(model)]
        lengths = torch.full((len(self.at), len(weights)), math.nan, device=_device(model))
        model.register_buffer("gradient_lengths", lengths)
        model.register_buffer("gradient_steps", torch.tensor(self.at, device=_device(model)))
        step = 0

        def look(_: Tensor) -> None:
            nonlocal step
            if step in self.at:
                found = [math.nan if w.grad is None else float(w.grad.norm()) for w in weights]
                # the model's own buffer, which may have been moved since
                row = torch.tensor(found, device=_device(model))
                model.get_buffer("gradient_lengths")[self.at.index(step)] = row
            step += 1

        _when_all_are_there(model, look)


def gradient_lengths(model: Model) -> dict[str, Float[ndarray, "at"]]:
    """What `Watched` wrote down: for each parameter its gradient's length at each of the steps.

    Raises:
        ValueError: when the model was not trained with `Watched`.
    """
    if "gradient_lengths" not in dict(model.named_buffers()):
        raise ValueError("expected a model trained with prepare=Watched(...), got one without")
    values = model.get_buffer("gradient_lengths").double().cpu().numpy()
    return {name: values[:, i] for i, (name, _) in enumerate(_trained(model))}


def by_block(lengths: Mapping[str, Float[ndarray, "at"]]) -> Float[ndarray, "at block"]:
    """The gradient's length in each block, all its parameters together."""
    blocks: dict[int, list[ndarray]] = {}
    for name, values in lengths.items():
        if name.startswith("blocks."):
            blocks.setdefault(int(name.split(".")[1]), []).append(values)
    return np.stack([np.sqrt(np.square(blocks[i]).sum(0)) for i in sorted(blocks)], axis=1)


def by_kind(lengths: Mapping[str, Float[ndarray, "at"]], kind: str) -> Float[ndarray, "at block"]:
    """The gradient's length in each block's parameters of one kind alone; see `KINDS`.

    Raises:
        ValueError: when there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    chosen = {name: values for name, values in lengths.items() if kind in name.split(".")[-2]}
    return by_block(chosen)


def equal_gradients(model: Model) -> None:
    """Before each step, scale the gradients of each block so that all blocks' are equally long.

    Each block's gradient gets the geometric mean of the blocks' lengths; directions inside of a block, and the
    gradients of embedding, unembedding and final norm, stay as they are.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """

    def equalise(_: Tensor) -> None:
        found = [
            [w.grad for w in block.parameters() if w.grad is not None] for block in _blocks(model)
        ]
        lengths = [float(nn.utils.get_total_norm(gradients)) for gradients in found]
        if min(lengths) > 0 and all(map(math.isfinite, lengths)):
            mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
            for gradients, length in zip(found, lengths, strict=True):
                for gradient in gradients:
                    gradient.mul_(mean / length)

    _when_all_are_there(model, equalise)


@dataclass(frozen=True)
class EqualRates:
    """Give each block a learning rate of its own, the larger the smaller its gradients are at the start.

    A block's rate is the common one times the geometric mean of the blocks' gradient lengths over its own,
    measured on the fresh model. Each weight W becomes c V with V trained in its place, whose steps then
    count c-fold.

    Attributes:
        task: what the gradients are measured on.
        size: number of sequences.
    """

    task: Task
    size: int = 64

    def __call__(self, model: Model) -> None:
        """Replace the weights of the blocks.

        Raises:
            ValueError: for an `EncoderDecoder`.
        """
        batch = self.task.batch(make_generator(0, "rates"), self.size).to(_device(model))
        weights = [w for block in _blocks(model) for w in block.parameters()]
        with torch.enable_grad():
            loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
            gradients = iter(torch.autograd.grad(loss, weights))
        lengths = [
            float(nn.utils.get_total_norm([next(gradients) for _ in block.parameters()]))
            for block in _blocks(model)
        ]
        mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
        for block, length in zip(_blocks(model), lengths, strict=True):
            owners = [
                (module, name)
                for module in block.modules()
                for name, _ in module.named_parameters(recurse=False)
            ]
            for module, name in owners:
                parametrize.register_parametrization(module, name, _Times(mean / length))


class _Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, weight: Tensor) -> Tensor:
        return self.factor * weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / self.factor


def _when_all_are_there(model: Model, act: Callable[[Tensor], None]) -> None:
    """Act once a step, when the gradients of all weights have come: the embedding's comes last of all."""
    _stack(model).token_embedding.weight.register_post_accumulate_grad_hook(act)


def _trained(model: Model) -> list[tuple[str, Tensor]]:
    return [(name, w) for name, w in model.named_parameters() if w.requires_grad]


def gradient_cosines(model: Decoder | Encoder, batch: Batch) -> Float[ndarray, "state"]:
    """Cosine between the loss's gradient at each state of the stream and that at the last one, embedding first.

    Both are taken over all tokens and entries at once. States: what enters each block, what leaves the last.
    """
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        gradients = torch.autograd.grad(loss, [seen[name] for name in names])
    flat = torch.stack([gradient.flatten() for gradient in gradients]).double()
    cosines: ndarray = torch.cosine_similarity(flat, flat[-1:], dim=1).cpu().numpy()
    return cosines


def first_gradients(model: Decoder | Encoder, batch: Batch) -> dict[str, Float[ndarray, "at"]]:
    """The length of each parameter's gradient on one batch, in the form of `norm_arms.gradient_lengths`.

    The model is left without gradients.
    """
    model.zero_grad()
    with torch.enable_grad():
        cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
    named = model.named_parameters()
    found = {n: np.array([float(w.grad.norm())]) for n, w in named if w.grad is not None}
    model.zero_grad()
    return found


def spread(lengths: Float[ndarray, "*at block"]) -> Float[ndarray, "*at"]:
    """The longest block's gradient over the shortest one's.

    Raises:
        ValueError: when a block has no gradient at all, so that there is no ratio.
    """
    if not (np.asarray(lengths) > 0).all():
        raise ValueError(f"expected gradients in every block, got lengths {lengths}")
    ratio: ndarray = lengths.max(-1) / lengths.min(-1)
    return ratio


def equal_by_kind(model: Model) -> None:
    """Before each step, make the gradient of every weight and bias as long in one block as in all others.

    The query weights of all blocks get the geometric mean of their lengths, so do the key weights, and so on
    for each parameter of a block by its name. `norm_arms.equal_gradients` is coarser: it leaves the lengths
    *within* a block as they stand to one another. A parameter whose gradient is zero in some block stays.

    Raises:
        ValueError: for an `EncoderDecoder`.
    """
    named = [dict(block.named_parameters()) for block in _blocks(model)]

    def equalise(_: Tensor) -> None:
        for name in named[0]:
            found = [block[name].grad for block in named]
            gradients = [gradient for gradient in found if gradient is not None]
            lengths = [float(gradient.norm()) for gradient in gradients]
            if min(lengths) > 0 and all(map(math.isfinite, lengths)):
                mean = math.exp(math.fsum(map(math.log, lengths)) / len(lengths))
                for gradient, length in zip(gradients, lengths, strict=True):
                    gradient.mul_(mean / length)

    _when_all_are_there(model, equalise)


def share_closed(
    slow: Float[ndarray, "run"], mended: Float[ndarray, "run"], fast: Float[ndarray, "run"]
) -> Float[ndarray, "run"]:
    """The share of the gap between a slow and a fast arm that a remedy of the slow one closes, run by run.

    Args:
        slow, mended, fast: logarithms of steps, run by run from the same seeds.

    Returns:
        what the remedy gained in each run, over the mean gap: 0 for no help, 1 for all of the gap.

    Raises:
        ValueError: when the slow arm is not slower on average: there is no gap to close.
    """
    gap = float(np.mean(slow - fast))
    if gap <= 0:
        raise ValueError(f"expected the slow arm to be slower on average, got a gap of {gap:.3g}")
    closed: ndarray = (slow - mended) / gap
    return closed


def solve_arms(
    name: str,
    arms: Mapping[str, Arm | Config],
    task: Task,
    *,
    steps: int,
    tuned_at: int,
    rates: Sequence[float],
    profile: Profile,
    quick: int = 5,
    full: int = 10,
    trials: int = 2,
    **options: Any,
) -> dict[str, list[Run]]:
    """Tune the learning rate of each arm on the same grid, then train each seed until the task is solved.

    Rates are chosen as `training.arms.tune_arms` does: on seeds of their own, by the loss after `tuned_at`
    steps. That should be about as many as the slowest arm needs: after many more, all losses are small and
    say nothing of speed.

    Args:
        name, arms, task, rates, profile, trials: as for `tune_arms`.
        steps: the most that a run takes.
        tuned_at: the steps of a tuning run.
        quick, full: number of evaluation seeds at each profile.
        options: passed to `train` for all arms.

    Returns:
        for each arm one `Run` a seed, in the order of the seeds; of unequal lengths.

    Raises:
        ValueError: as `tune_arms` and `train_ensemble`.
    """
    tuned = tune_arms(
        name, arms, task, steps=tuned_at, profile=profile, rates=rates, trials=trials, **options
    )
    runs = {}
    for arm, side in arms.items():
        own = side if isinstance(side, Arm) else Arm(side)
        settings = {**options, **own.options, "learning_rate": tuned[arm].rates[arm]}
        seeds = profile.seeds(quick=quick, full=full)
        settings["after_step"] = WhenSolved()
        runs[arm] = train_ensemble(own.config, task, seeds, steps=steps, **settings)
    return runs
