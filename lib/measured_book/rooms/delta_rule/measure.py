"""What a layer with the delta rule recalls when values are overwritten, beside linear and softmax attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.overwritten_recall import OverwrittenRecall
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, predict
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.delta import Delta
from measured_transformer.variants.linear import linear

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

KEYS, VALUES, ASKED = 8, 8, 4
TOLD = 16
"""Pairs of a training sequence: each key is told twice on average."""
LENGTHS = (8, 16, 32, 64)
"""Pairs of the sequences that are tested."""
STEPS, BATCH = 500, 32
WIDTH, HEADS, HEAD = 32, 4, 4
"""Of the stream; heads of a layer, and the width of each."""
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
ARMS: Mapping[str, tuple[int, str, Any]] = {
    "softmax": (1, "rotary", None),
    "linear": (1, "none", linear),
    "delta": (1, "none", Delta()),
    "softmax twice": (2, "rotary", None),
    "hybrid": (2, "none", Delta(blocks=(0,))),
    "delta twice": (2, "none", Delta()),
}
"""Layers, positions, and what is put in the place of attention. A state writes in order; only models that have
nothing but softmax attention are told positions."""


def task_of(told: int) -> OverwrittenRecall:
    """The task with so many pairs."""
    return OverwrittenRecall(told=told, queries=ASKED, keys=KEYS, values=VALUES)


def arm_trainings(seed: int) -> dict[str, Job]:
    """Every arm on sixteen pairs, at the learning rate that suits it."""
    jobs = {}
    for arm, (layers, positions, prepare) in ARMS.items():
        config = Config(
            vocab=task_of(TOLD).vocab,
            d_model=WIDTH,
            n_heads=HEADS,
            d_head=HEAD,
            n_layers=layers,
            d_ff=WIDTH,
            positions=positions,
        )
        options = {"batch_size": BATCH, **({"prepare": prepare} if prepare else {})}
        name = f"overwritten-{arm.replace(' ', '-')}"
        search = Search(name, config, task_of(TOLD), RATES, tuning_seeds(2), STEPS, options)
        jobs[arm] = job(
            config, task_of(TOLD), seed, steps=STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={"arm": tuple(ARMS), "told": LENGTHS, "times": (1, 2, 3)},
    trainings=arm_trainings,
    repeat="opening",
)
@torch.no_grad()
def overwritten(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Accuracy at recalling a key's newest value, by the number of pairs and by how often the key was told."""
    accuracy, by_times = [], []
    for arm in ARMS:
        row = []
        for told in LENGTHS:
            batch = task_of(told).batch(make_generator(seed, "evaluation"), 1024)
            right = (predict(runs[arm].model, batch).argmax(-1) == batch.targets)[batch.scored]
            row.append(float(right.double().mean()))
            if told == TOLD:
                times = batch.gold["told"][batch.scored].clamp_max(3)
                by_times.append([float(right[times == n].double().mean()) for n in (1, 2, 3)])
        accuracy.append(row)
    return {"accuracy": (("arm", "told"), accuracy), "by_times": (("arm", "times"), by_times)}
