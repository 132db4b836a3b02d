"""Trains many configs from many seeds, on this machine or a cluster: each run once, and none is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from tqdm import tqdm

from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Task
from measured_transformer.training.ensemble import arrivals
from measured_transformer.training.jobs import Job, make_jobs
from measured_transformer.training.loop import Run
from measured_transformer.training.store import Where, as_store
from measured_transformer.training.tuning import Arm


class SweepError(RuntimeError):
    """Some runs of a sweep failed; all others are available.

    Attributes:
        runs: for each name the runs that arrived, by seed.
        errors: what each failed run ended with, by name and seed.
    """

    def __init__(
        self,
        message: str,
        runs: dict[str, dict[int, Run]],
        errors: dict[tuple[str, int], Exception],
    ) -> None:
        super().__init__(message)
        self.runs, self.errors = runs, errors


def sweep(
    configs: Mapping[str, Config | Arm],
    seeds: Sequence[int],
    *,
    task: Task,
    executor: Executor | None = None,
    store: Where = "found",
    stacked: bool | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
    **options: Any,
) -> dict[str, list[Run]]:
    """Train each config from each seed.

    What the store has is not trained again, and each run is stored as soon as it is finished: a sweep that
    was interrupted goes on when it is called again.

    Args:
        configs: what to train, by name; the options of an `Arm` go before those of the sweep.
        seeds: of the runs, the same for all.
        task: what all of them learn.
        executor: any `concurrent.futures.Executor`: a process pool, `dask.distributed`'s
            `client.get_executor()`. Jobs and results travel as bytes. Runs in threads of one process take
            turns, since PyTorch has one generator for all of them. When not given, this machine trains as
            `train_ensemble` does. What an executor breaks at is tried once more on this machine.
        store, stacked, checkpoint_every: as for `train_ensemble`.
        progress: whether to show a progress bar over the runs.
        options: the other arguments of `train`; `steps` and `learning_rate` are needed, here or in each arm.

    Returns:
        for each name one `Run` a seed, in the order of the seeds.

    Raises:
        ValueError: as `train_ensemble`, before anything is trained.
        TypeError: when `train` has no such option, or needs one that is missing.
        SweepError: when runs failed, after all others have arrived; it names them and holds the others.

    >>> from measured_transformer.tasks.reversal import Reversal
    >>> narrow = Config(vocab=4, d_model=16, n_layers=1)
    >>> configs = {"narrow": narrow, "fast": Arm(narrow, {"learning_rate": 0.1})}
    >>> options = {"task": Reversal(vocab=4, length=4), "steps": 2, "learning_rate": 0.01}
    >>> runs = sweep(configs, [0, 1], **options, store=None, progress=False)
    >>> {name: [float(run.rates[0]) for run in each] for name, each in runs.items()}
    {'narrow': [0.01, 0.01], 'fast': [0.1, 0.1]}
    """
    place, wanted = as_store(store), list(dict.fromkeys(seeds))
    jobs: list[Job] = []
    names: dict[int, str] = {}
    for name, side in configs.items():
        arm = side if isinstance(side, Arm) else Arm(side)
        settings = {**options, **arm.options}
        own = make_jobs(arm.config, task, wanted, settings, checkpoint_every=checkpoint_every)
        jobs += own
        names |= {id(job): name for job in own}
    runs: dict[str, dict[int, Run]] = {name: {} for name in configs}
    errors: dict[tuple[str, int], Exception] = {}
    arriving = arrivals(jobs, executor=executor, store=place, stacked=stacked)
    for job, run in tqdm(arriving, total=len(jobs), disable=not progress):
        if isinstance(run, Exception):
            errors[names[id(job)], job.seed] = run
        else:
            runs[names[id(job)]][job.seed] = run
    if errors:
        kept = "in this error's `runs`" if place is None else f"in {place.folder}"
        told = "; ".join(
            f"{name!r} from seed {seed}: {type(error).__name__}: {error}"
            for (name, seed), error in errors.items()
        )
        raise SweepError(
            f"{len(errors)} of {len(jobs)} runs failed ({told}). The other {len(jobs) - len(errors)} are kept "
            f"{kept}. Call sweep again, and only what cannot be found there is trained",
            runs,
            errors,
        ) from next(iter(errors.values()))
    return {name: [found[seed] for seed in seeds] for name, found in runs.items()}
