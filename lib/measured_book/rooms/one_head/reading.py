"""Values of the chapter on heads that no expression says, such as those of heads written by hand."""

from __future__ import annotations

import numpy as np
from measured_transformer.analysis.handmade import reversal_model
from measured_transformer.tasks.lag import Lag
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.one_head.measure import (
    FRESH,
    MIRRORED,
    SETTINGS,
    batch_of,
    pair_effects,
    tuned_rate,
)
from measured_book.rooms.one_head.pruning import (
    ablation_rises,
    all_but,
    greedy_order,
    losses_with,
    order,
    spread_over_tasks,
    twins,
)
from measured_book.rooms.one_head.table import look

# What claims are judged by ------------------------------------------------------------------------------


@number
def ideal_share() -> float:
    """The share that the place explains of an ideal mirror head."""
    (own,) = look(reversal_model(vocab=12, length=12), batch_of(MIRRORED, 0))
    return float(own.table.place_share[0])


@number
def same_label(roles: Dataset) -> DataArray:
    """Share of a model's heads with the class of the head of the same number in the next seed's model."""
    code = roles.code.sel(state="tuned")
    return (code == code.roll(seed=-1)).mean(("layer", "head"))


@number
def classes(roles: Dataset) -> list[int]:
    """How many classes the heads of a model belong to."""
    codes = roles.code.sel(state="tuned").transpose("seed", ...).values
    return [len(np.unique(each)) for each in codes]


@number
def over_seeds(orders: Dataset) -> np.ndarray:
    """The standard deviation of the share of heads that can go over trainings on one task."""
    shares = orders.share.sel(order="gradient").transpose("task", "seed")
    return spread_over_tasks(dict(zip(orders.task.values, shares.values, strict=True)))[1]


# Numbers that the prose names ---------------------------------------------------------------------------


@number
def by_hand(*, what: str) -> float:
    """What the twins' layer loses, in nats.

    Without a twin, or without both, what the loss rises by; without the three heads that go first, ranked once,
    or ranked again after each removal, the loss itself.
    """
    model, batch = twins()
    once = order(ablation_rises(model, batch, reference=None))
    again = greedy_order(model, batch)
    sets: list[list[int]] = [[], [0], [0, 1], once[:3], again[:3]]
    whole, twin, both, at_once, anew = losses_with(model, batch, all_but(model, sets))
    return float({"twin": twin - whole, "both": both - whole, "once": at_once, "again": anew}[what])


@number
def twin_interaction() -> float:
    """The share of the joint effects of the hand-made heads that is interaction."""
    joint, summed, _ = pair_effects(*twins())
    return float(np.abs(joint - summed).sum() / np.abs(joint).sum())


@number
def lag_excess(orders: Dataset, *, which: str) -> float:
    """Loss of models of the lag task above the least possible on the same sequences, mean over the models.

    Those in which many heads can go by the slope, ten or more, or few.
    """
    here, task = orders.sel(task="lag", order="gradient"), SETTINGS["lag"].task
    assert isinstance(task, Lag)
    batches = [batch_of(task, int(seed) + FRESH, "measuring", 64) for seed in orders.seed]
    least = np.array([np.nanmean(task.ideal_loss(batch).numpy()) for batch in batches])
    many = 16 * here.share.values >= 9.5
    above = here.curve.sel(removed=0).values - least
    return float(above[many if which == "many" else ~many].mean())


@number
def chosen_rate() -> float:
    """The learning rate that suits the encoder."""
    return tuned_rate()
