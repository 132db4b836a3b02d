"""Training what a pruned model is compared with: fewer heads from the start, wider heads; and training it on.

A `Study` is one task with the sizes of its models. Every arm has its own learning rate, chosen from one grid
(`tuned`), also the pruned ones: there each trial trains a large model, cuts it and trains it on at that rate.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from measured_transformer.chapters.pruning.measure import (
    OneStack,
    cut,
    gradient_importance,
    keep_by_layer,
)
from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch, Task, held_out
from measured_transformer.training.arms import tune_arms
from measured_transformer.training.loop import Model, train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm

SMALLER = (2, 4)
"""Heads a layer that the large model is pruned to."""
_TRIES = 200


@dataclass(frozen=True)
class LoadWeights:
    """A preparation for `train` that begins with another model's weights.

    Attributes:
        model: of the same form as the one that is prepared.
    """

    model: OneStack

    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights."""
        fresh.load_state_dict(self.model.state_dict())


@dataclass(frozen=True)
class PrunedTo:
    """A preparation for `train`: a larger model is trained first and cut to the heads of the fresh one.

    Made for the choice of learning rates. The larger model's seed comes from the fresh weights, and nothing
    else is trained from it.

    Attributes:
        study: task and sizes.
        learning_rate: of the larger model's training.
    """

    study: Study
    learning_rate: float

    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights with those of the pruned model."""
        bits = next(fresh.parameters()).detach().cpu().numpy().tobytes()
        seed = 10 * (zlib.crc32(bits) % 10**7) + 3
        model = self.study.whole(seed, self.learning_rate)
        kept = keep_by_layer(
            gradient_importance(model, self.study.half(seed, "rank")), fresh.config.n_heads
        )
        fresh.load_state_dict(cut(model, kept).state_dict())


@dataclass(frozen=True)
class Study:
    """One task, the models that learn it, and for how long.

    Attributes:
        task: what is learnt.
        width: of the stream; a head is an eighth of it.
        steps: of the model with eight heads a layer.
        further: steps of training on after pruning; models with fewer heads from the start get both.
        batch_size: sequences per step.
        rows: sequences of each half of the data that heads are ranked and models measured on.
    """

    task: Task
    width: int = 32
    steps: int = 120
    further: int = 40
    batch_size: int = 32
    rows: int = 64

    def config(self, n_heads: int, *, wide: bool = False) -> Config:
        """Four layers of so many heads, an eighth of the stream wide, or twice that."""
        return Config(
            vocab=self.task.vocab,
            d_model=self.width,
            n_layers=4,
            n_heads=n_heads,
            d_head=self.width // 8 * (2 if wide else 1),
            activation="relu",
            bias=False,
        )

    def half(self, seed: int, purpose: str) -> Batch:
        """Fresh sequences for ranking (`rank`), measuring (`measure`) or means (`reference`).

        No sequence that is measured on is among those that heads are ranked on, also where a task has few.

        Raises:
            ValueError: when the task has too few sequences for two halves.
        """
        task, drawn = held_out(self.task), make_generator(seed, f"pruning {purpose}")
        if purpose != "measure":
            return task.batch(drawn, self.rows)
        taken, kept, found = _rows(self.half(seed, "rank")), list[Batch](), 0
        for _ in range(_TRIES):
            batch = task.batch(drawn, self.rows)
            fresh = torch.tensor([row not in taken for row in _rows(batch)])
            kept.append(Batch(batch.inputs[fresh], batch.targets[fresh], batch.scored[fresh]))
            found += int(fresh.sum())
            if found >= self.rows:
                parts = zip(*((b.inputs, b.targets, b.scored) for b in kept), strict=True)
                inputs, targets, scored = (torch.cat(part)[: self.rows] for part in parts)
                return Batch(inputs, targets, scored)
        raise ValueError(
            f"expected sequences for two halves of {self.rows} that share none, but {self.task} has too few"
        )

    def options(self, steps: int) -> dict[str, Any]:
        """What all trainings have in common."""
        schedule = WarmupLinear(steps // 10, steps)
        return {"steps": steps, "schedule": schedule, "batch_size": self.batch_size}

    def whole(self, seed: int, learning_rate: float, *, wide: bool = False) -> OneStack:
        """A trained model of eight heads a layer, or of four that are twice as wide."""
        config = self.config(4 if wide else 8, wide=wide)
        return self._trained(config, seed, learning_rate, self.steps)

    def scratch(self, n_heads: int, seed: int, learning_rate: float) -> OneStack:
        """A model that had few heads from the start, trained for as many steps as a pruned one in all."""
        return self._trained(self.config(n_heads), seed, learning_rate, self.steps + self.further)

    def trained_on(self, model: OneStack, seed: int, learning_rate: float) -> OneStack:
        """A copy of a model after further steps, on batches that the first training has not seen."""
        # The last digit of a seed is its stream: 2 is nobody else's.
        return self._trained(
            model.config, seed + 2, learning_rate, self.further, LoadWeights(model)
        )

    def _trained(
        self,
        config: Config,
        seed: int,
        learning_rate: float,
        steps: int,
        prepare: Callable[[Model], None] | None = None,
    ) -> OneStack:
        options = self.options(steps)
        run = train(
            config, self.task, seed=seed, learning_rate=learning_rate, prepare=prepare, **options
        )
        assert isinstance(run.model, Decoder | Encoder)
        return run.model


def _rows(batch: Batch) -> list[tuple[int, ...]]:
    whole = torch.cat([batch.inputs, batch.targets], dim=1).tolist()
    return [tuple(row) for row in whole]


def pruned(model: OneStack, ranked_on: Batch, keep: int) -> OneStack:
    """The model with the `keep` heads of each layer that have the most importance by gradient."""
    return cut(model, keep_by_layer(gradient_importance(model, ranked_on), keep))


def tuned(name: str, study: Study, *, profile: Profile, rates: Sequence[float]) -> dict[str, float]:
    """The learning rate of each arm, all from the same grid: `8`, `wide`, `2`, `4`, `to 2`, `to 4` and `to 8`.

    The last one trains the whole model on, with all of its heads.

    Args:
        name: of the task; the records are kept under it.
        study: task and sizes.
        profile: of this run; decides the tuning seeds.
        rates: the grid.
    """

    def choose(arms: dict[str, Arm], steps: int) -> dict[str, float]:
        options = study.options(steps)
        found = tune_arms(
            f"pruning-{name}", arms, study.task, profile=profile, rates=rates, **options
        )
        return {arm: found[arm].rates[arm] for arm in arms}

    first = choose(
        {"8": Arm(study.config(8)), "wide": Arm(study.config(4, wide=True))}, study.steps
    )
    scratch = {str(k): Arm(study.config(k)) for k in SMALLER}
    prepare = PrunedTo(study, first["8"])
    later = {f"to {k}": Arm(study.config(k), {"prepare": prepare}) for k in (*SMALLER, 8)}
    return {
        **first,
        **choose(scratch, study.steps + study.further),
        **choose(later, study.further),
    }
