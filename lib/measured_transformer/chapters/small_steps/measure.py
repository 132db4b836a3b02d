r"""Whether small steps let a model be deep: how far a write turns the stream, and a training the function.

What a sublayer writes can be small in two ways: short beside the stream it is added to, or of little effect on
what the model says once a step of training has changed it. `write_turns` and `block_turn_limit` are about the
first by algebra, `first_step_shift` measures the second, and `from_the_top` asks how deep a model may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.early_stopping import train_until_solved
from measured_transformer.analysis.solving import Solved, solved
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, Optimiser, Run, predict, train
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm


def write_turns(length: float, writes: int) -> Float[ndarray, "write"]:
    r"""By how many degrees each write turns the stream, if all stand at right angles to what is there.

    The stream begins with a length of 1 and every write has the same length, as in a pre-norm model, whose
    branches do not see how long the stream is. The turn of write k, counted from 1, is
    $\arctan(f / \sqrt{1 + (k - 1) f^2})$.

    Args:
        length: of each write.
        writes: how many there are.

    Raises:
        ValueError: when the length is negative or there is no write.

    >>> write_turns(1.0, 3).round(1).tolist()
    [45.0, 35.3, 30.0]
    """
    if length < 0 or writes < 1:
        raise ValueError(
            f"expected a length of at least 0 and at least one write, got {length} and {writes}"
        )
    before = np.sqrt(1 + np.arange(writes) * length**2)
    turned: ndarray = np.degrees(np.arctan2(length, before))
    return turned


def block_turn_limit(blocks: int) -> Float[ndarray, "block"]:
    r"""What the turns of `write_turns` come to when writes are much longer than the embedding.

    After k writes of any such length the next turns the stream by $\arctan(1/\sqrt{k})$: the length cancels.
    The first block has nothing to cancel against and gets 90 degrees.

    Raises:
        ValueError: when there is no block.

    >>> block_turn_limit(3).round(1).tolist()
    [90.0, 45.0, 35.3]
    """
    if blocks < 1:
        raise ValueError(f"expected at least one block, got {blocks}")
    turned: ndarray = np.degrees(np.arctan2(1.0, np.sqrt(np.arange(blocks))))
    return turned


def logit_change(before: Model, after: Model, task: Task, *, seed: int, size: int = 64) -> float:
    """Root mean square of the change of the logits from one model to another, on sequences held out.

    Logits are taken around their mean at each position: what is added to all of them changes no answer.

    Args:
        before, after: two models of one vocabulary.
        task: makes the sequences.
        seed: of the sequences.
        size: number of sequences.
    """
    return _rms_change(*(_held_out_logits(model, task, seed, size) for model in (before, after)))


def first_step_shift(
    config: Config,
    task: Task,
    seed: int,
    *,
    learning_rate: float,
    optimiser: Optimiser = "AdamW",
    prepare: Callable[[Model], None] | None = None,
    batch_size: int = 32,
) -> float:
    """How far the very first step of a training moves the logits of a fresh model; see `logit_change`.

    The step has its full rate, without a warm-up and without clipping.

    Args:
        config, task, seed, learning_rate, optimiser, prepare, batch_size: as for `train`.
    """
    before: list[Tensor] = []

    def look_first(model: Model) -> None:
        if prepare is not None:
            prepare(model)
        before.append(_held_out_logits(model.eval(), task, seed))
        model.train()

    moved = train(
        config,
        task,
        steps=1,
        seed=seed,
        learning_rate=learning_rate,
        optimiser=optimiser,
        prepare=look_first,
        batch_size=batch_size,
        clip=None,
    ).model
    return _rms_change(before[0], _held_out_logits(moved, task, seed))


@torch.no_grad()
def _held_out_logits(model: Model, task: Task, seed: int, size: int = 64) -> Tensor:
    batch = task.batch(make_generator(seed, "evaluation"), size)
    return predict(model, batch.to(next(model.parameters()).device))


def _rms_change(before: Tensor, after: Tensor) -> float:
    change = after - before
    return float((change - change.mean(-1, keepdim=True)).square().mean().sqrt())


@dataclass(frozen=True)
class Descent:
    """How deep a model may be and still solve its task, seed by seed.

    Attributes:
        seeds: of the runs.
        runs: depth -> seed -> run; the deepest models first, and only the seeds that were tried there.
    """

    seeds: tuple[int, ...]
    runs: Mapping[int, Mapping[int, Run]]

    @property
    def largest(self) -> Float[ndarray, "seed"]:
        """The largest depth solved, for each seed; half of the smallest that was tried where there is none."""
        none = min(self.runs) / 2
        return np.array([max(self._solved(seed), default=none) for seed in self.seeds])

    def at(self, depth: int) -> Solved:
        """When the runs of this depth solved the task, in the order of the seeds that were tried there.

        Raises:
            ValueError: when no seed was tried at this depth.
        """
        if not self.runs.get(depth):
            raise ValueError(f"expected a depth that was tried, {[*self.runs]}, got {depth}")
        return solved(list(self.runs[depth].values()))

    def _solved(self, seed: int) -> list[float]:
        tried = [depth for depth, runs in self.runs.items() if seed in runs]
        return [float(d) for d in tried if solved([self.runs[d][seed]]).observed.all()]


def from_the_top(
    arms: Mapping[int, Arm],
    task: Task,
    seeds: Sequence[int],
    *,
    rate: Callable[[int], float],
    steps: int,
    look_every: int = 10,
    **options: Any,
) -> Descent:
    """Train the deepest model first, and with the seeds that fail the next one, until none is left.

    Runs end when they have solved their task, see `train_until_solved`. A depth that no seed needs is neither
    trained nor asked for its rate.

    Args:
        arms: depth -> the model of that depth, and what is special about its training.
        task: what all of them learn.
        seeds: of the runs.
        rate: gives the learning rate of a depth.
        steps: the most that a run takes.
        look_every: after how many steps it is looked whether the task is solved.
        options: passed to `train` for all depths.

    Raises:
        ValueError: when there is no depth or no seed, when an arm has another depth than it is named by, or as
            `train_until_solved`.
    """
    if not arms or not seeds:
        raise ValueError(f"expected at least one depth and seed, got {len(arms)} and {len(seeds)}")
    if wrong := [depth for depth, arm in arms.items() if arm.config.n_layers != depth]:
        raise ValueError(f"expected models as deep as they are named, got others at {wrong}")
    left, runs = list(seeds), {}
    for depth in sorted(arms, reverse=True):
        own = arms[depth]
        settings = {**options, **own.options, "learning_rate": rate(depth)}
        runs[depth] = {
            seed: train_until_solved(
                own.config, task, seed, steps=steps, look_every=look_every, **settings
            )
            for seed in left
        }
        left = [seed for seed, run in runs[depth].items() if not solved([run]).observed.all()]
        if not left:
            break
    return Descent(tuple(seeds), runs)


def rates_within(losses: Mapping[float, Sequence[float]], level: float) -> int:
    """How many rates of a grid brought every seed to at most this loss.

    Args:
        losses: rate -> loss of each seed, infinite where it diverged; as in `tuning.Tuned.losses`.
        level: what counts as good enough.
    """
    return sum(all(math.isfinite(x) and x <= level for x in each) for each in losses.values())
