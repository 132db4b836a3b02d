"""Comparing arms: each gets its own learning rate from the same grid, then trains from each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.loop import Run
from measured_transformer.training.tuning import Arm, Tuned, tuned_rates

RATES = (3e-3, 1e-2, 3e-2)


def tune_arms(
    name: str,
    arms: Mapping[str, Arm | Config],
    task: Task,
    *,
    steps: int,
    profile: Profile,
    rates: Sequence[float] = RATES,
    trials: int = 2,
    **options: Any,
) -> dict[str, Tuned]:
    """Choose the learning rate of each arm, on seeds that nothing else uses.

    Every arm has a record of its own, so that another arm or another order costs nothing.

    Args:
        name: of the comparison; the tuned rates are kept under it.
        arms: what is compared, by name.
        task: what all arms learn.
        steps: number of batches.
        profile: of this run; decides the seeds.
        rates: the grid of learning rates, the same for all arms.
        trials: number of those seeds, the same at both profiles. More are needed where some seeds solve the
            task and others do not at the same rate.
        options: passed to `train` for all arms.

    Raises:
        ValueError: as `tuned_rates`.
    """
    return {
        arm: tuned_rates(
            f"{name}-{arm}",
            {arm: side},
            task,
            rates=rates,
            seeds=profile.seeds(quick=trials, full=trials, stream="tuning"),
            steps=steps,
            profile=profile.name,
            **options,
        )
        for arm, side in arms.items()
    }


def train_arms(
    name: str,
    arms: Mapping[str, Arm | Config],
    task: Task,
    *,
    steps: int,
    profile: Profile,
    rates: Sequence[float] = RATES,
    batch_size: int = 32,
    quick: int = 5,
    full: int = 10,
    trials: int = 2,
    **options: Any,
) -> dict[str, list[Run]]:
    """Tune the learning rate of each arm on the same grid, then train it from each evaluation seed.

    Runs that the store of `store.found_store` has are not trained again.

    Args:
        name, arms, task, steps, profile, rates, trials: as for `tune_arms`.
        batch_size: sequences per step.
        quick, full: number of evaluation seeds at each profile.
        options: passed to `train` for all arms.

    Returns:
        for each arm one `Run` a seed, in the order of the seeds.

    Raises:
        ValueError: as `tuned_rates`.
    """
    options = {**options, "batch_size": batch_size}
    tuned = tune_arms(
        name, arms, task, steps=steps, profile=profile, rates=rates, trials=trials, **options
    )
    runs = {}
    for arm, side in arms.items():
        own = side if isinstance(side, Arm) else Arm(side)
        settings = {**options, **own.options, "learning_rate": tuned[arm].rates[arm]}
        seeds = profile.seeds(quick=quick, full=full)
        runs[arm] = train_ensemble(own.config, task, seeds, steps=steps, **settings)
    return runs
