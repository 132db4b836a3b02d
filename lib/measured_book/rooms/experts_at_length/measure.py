"""What experts gain after 20 tokens per active weight, at equal compute: by size, by router, by losses.

All models are the small one of the ladder, on the same text, for as many steps. Their networks have as many
neurons at work for each token as the dense one, and eight times as many in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.standard_library import NAME, StandardLibrary
from measured_transformer.tasks.task import held_out
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import predict
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.routers import ByToken, ExpertsInBlocks, RouterLosses

from measured_book.ladder import (
    BATCH,
    BETAS,
    BLOCKS,
    DECAY,
    LONG,
    RATES,
    SCORED_ON,
    SMALL,
    WINDOW,
    rung,
    schedule_of,
    speaker,
    steps_for,
)
from measured_book.measuring import Search, Trained, grid, job, tuned, tuning_seeds
from measured_book.measuring.readings import Scores, peak_rate

SEEDS = 6
NEURONS = 4 * SMALL
"""Of the dense network, and of all experts that a token uses."""
BALANCE, Z = 0.01, 0.001
"""Factors of the balancing loss, which every router has, and of the z-loss."""
COARSE = ExpertsInBlocks(8, 1, NEURONS)
FINE = ExpertsInBlocks(16, 2, NEURONS // 2, normalised=True)
FINER = ExpertsInBlocks(32, 4, NEURONS // 4, normalised=True)
SIGMOID = ExpertsInBlocks(16, 2, NEURONS // 2, scores="sigmoid", normalised=True)
ROUTED: Mapping[str, tuple[ExpertsInBlocks, RouterLosses | ByToken]] = {
    "one of 8": (COARSE, RouterLosses(BALANCE)),
    "two of 16": (FINE, RouterLosses(BALANCE)),
    "four of 32": (FINER, RouterLosses(BALANCE)),
    "untrained router": (FINE, RouterLosses(BALANCE, frozen=True)),
    "table": (FINE, ByToken()),
    "sigmoids": (SIGMOID, RouterLosses(BALANCE)),
    "z-loss": (FINE, RouterLosses(BALANCE, Z)),
}
"""Experts, and what acts on their routers. The last four are two of 16 in other ways: with a router that stays
as drawn, with a fixed table of bytes in its place, with sigmoids for its softmax, with a z-loss."""
DENSE = "dense"
ARMS = (DENSE, *ROUTED)


def sharing(one: Trained) -> dict[str, Any]:
    """``busiest``, ``evenness``, ``byte``: how the experts of each block share held-out tokens out; else NaN.

    ``busiest``: the load of the busiest expert in units of an even share. ``evenness``: the entropy of the load
    in units of that of an even one. ``byte``: the share of the choice, mutual information over entropy, that
    the byte at the position explains.
    """
    nothing = ("block", [np.nan] * BLOCKS)
    if one.labels["arm"] == DENSE:
        return {"busiest": nothing, "evenness": nothing, "byte": nothing}
    task = held_out(one.job.task, "validation")
    batch = task.batch(make_generator(one.seed, "evaluation"), SCORED_ON)
    taps = [f"blocks.{block}.feedforward.chosen" for block in range(BLOCKS)]
    with capture(one.model, *taps) as seen, torch.no_grad():
        predict(one.model, batch)
    bytes_ = batch.inputs.flatten().numpy()
    found = [shared(seen[tap].flatten(0, 1).double().numpy(), bytes_) for tap in taps]
    return {name: ("block", [each[name] for each in found]) for name in found[0]}


def shared(chosen: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """The three values of one block, from who asked whom (token, expert) and what each token is.

    >>> shared(np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]), np.array([7, 7, 3, 3]))
    {'busiest': 1.0, 'evenness': 1.0, 'byte': 1.0}
    """
    joint = np.zeros((256, chosen.shape[1]))
    np.add.at(joint, tokens, chosen)
    joint /= joint.sum()
    load, of_token = joint.sum(0), joint.sum(1)
    entropy = float(-(load[load > 0] * np.log(load[load > 0])).sum())
    apart = np.outer(of_token, load)
    some = joint > 0
    known = float((joint[some] * np.log(joint[some] / apart[some])).sum())
    return {
        "busiest": float(load.max() * len(load)),
        "evenness": entropy / float(np.log(len(load))),
        "byte": known / entropy if entropy > 0 else 0.0,
    }


@grid(
    axes={"arm": ARMS},
    seeds=SEEDS,
    read=(Scores(size=SCORED_ON, names=("loss",)), peak_rate, sharing),
    coords={"block": tuple(range(1, BLOCKS + 1))},
    corpora=(NAME,),
)
def gained(seed: int, arm: str) -> Job:
    """20 tokens per active weight: a dense network, and experts that do as much work for each token."""
    if arm == DENSE:
        return rung(SMALL, LONG, "linear", seed)
    return routed(arm, seed)


FRESH, MANY = 6000, 24
"""What is added to the seeds of `gained_afresh`, which nobody had looked at; how many it has."""


@grid(
    axes={"arm": ("two of 16", "four of 32", "z-loss")},
    seeds=MANY,
    read=(Scores(size=SCORED_ON, names=("loss",)), peak_rate),
    corpora=(NAME,),
)
def gained_afresh(seed: int, arm: str) -> Job:
    """What six seeds left open, on twenty-four fresh ones: finer experts and a z-loss."""
    return routed(arm, FRESH + seed)


def routed(arm: str, seed: int) -> Job:
    """A training with experts, at the rate that suits them best."""
    network, prepare = ROUTED[arm]
    steps = steps_for(SMALL, LONG)
    config, task = speaker(SMALL).replace(network=network), StandardLibrary(length=WINDOW)
    how = {
        "batch_size": BATCH,
        "betas": BETAS,
        "weight_decay": DECAY,
        "schedule": schedule_of("linear", steps),
        "prepare": prepare,
    }
    name = f"ladder-experts-{arm.replace(' ', '-')}"
    rate = tuned(Search(name, config, task, RATES, tuning_seeds(2), steps, how))
    return job(config, task, seed, steps=steps, learning_rate=rate, **how)
