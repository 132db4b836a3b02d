"""How the results of the chapter on heads are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measured_transformer.analysis.handmade import reversal_model
from measured_transformer.tasks.lag import Lag
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.one_head.measure import (
    FRESH,
    HALF,
    KINDS,
    MIRRORED,
    QUARTER,
    SETTINGS,
    TASKS,
    TRAINED,
    ablation_rises,
    all_but,
    batch_of,
    greedy_order,
    look,
    losses_with,
    order,
    pair_effects,
    spread_over_tasks,
    tuned_rate,
    twins,
)

# What the claims are judged by --------------------------------------------------------------------------


def _value(values: Any) -> dict[str, Any]:
    return {"value": values}


def _arms(treatment: DataArray, baseline: DataArray) -> dict[str, Any]:
    return {"treatment": treatment, "baseline": baseline}


def _part(kind: str) -> str:
    return kind.replace("-", "_")


def _row_shares(roles: Dataset, row: str) -> dict[str, Any]:
    found = roles.found.sel(row=row, factor=1.0)
    return {
        _part(kind): {
            "successes": [int(found.sel(kind=kind).sum())],
            "trials": [found.sizes["seed"]],
        }
        for kind in KINDS
    }


def ideal_share() -> float:
    """The share that the place explains of an ideal mirror head."""
    (own,) = look(reversal_model(vocab=12, length=12), batch_of(MIRRORED, 0))
    return float(own.table.place_share[0])


def mirror_share(roles: Dataset, state: str) -> DataArray:
    """Mean share that the place explains of a model's heads with most weight on the mirrored position."""
    here = roles.sel(state=state)
    return here.share.where(here.mirror > 0.5).mean(("layer", "head"))


@evidence("CS-2.1")
def _(roles: Dataset) -> dict[str, Any]:
    return {
        f"{_part(kind)}_{what}": _value(roles[name].sel(kind=kind))
        for what, name in (("learns", "accuracy"), ("stable", "stable"))
        for kind in KINDS
    }


@evidence("CS-2.2")
def _(roles: Dataset) -> dict[str, Any]:
    return {"one_class": _value(roles.one_class.mean("kind")), "kappa": _value(roles.kappa)}


@evidence("CS-2.3")
def _(roles: Dataset) -> dict[str, Any]:
    shares = _row_shares(roles, "next and first")
    del shares["decoder_only"]  # its heads cannot see the next token
    return shares


@evidence("CS-2.4")
def _(roles: Dataset) -> dict[str, Any]:
    return _row_shares(roles, "self")


@evidence("CS-2.5")
def _(roles: Dataset) -> dict[str, Any]:
    return _row_shares(roles, "content")


@evidence("CS-2.6")
def _(roles: Dataset) -> dict[str, Any]:
    return _row_shares(roles, "two mirrors")


@evidence("CS-2.7")
def _(roles: Dataset) -> dict[str, Any]:
    return _row_shares(roles, "several")


@evidence("CS-2.8")
def _(roles: Dataset) -> dict[str, Any]:
    return _row_shares(roles, "global")


@evidence("CS-2.9")
def _(roles: Dataset, lengths: Dataset) -> dict[str, Any]:
    return {
        "ideal": _value(ideal_share()),
        "fixed": _value(mirror_share(roles, "tuned").dropna("seed")),
        "variable": _value(lengths.share),
    }


def even_distance(n: int) -> float:
    """Mean distance that even attention over n positions looks: (n^2 - 1) / 3n.

    >>> round(even_distance(12), 2)
    3.97
    """
    return (n * n - 1) / (3 * n)


def _looks_near(roles: Dataset, state: str) -> dict[str, Any]:
    """How much nearer the first layer looks than even attention."""
    own = roles.distance.sel(state=state, layer=0).mean("head")
    return _value(even_distance(MIRRORED.length) - own)


def _late(roles: Dataset, state: str) -> dict[str, Any]:
    """Weight on the mirrored position, first layer and second."""
    values = roles.mirror.sel(state=state).mean("head")
    return _arms(values.sel(layer=0), values.sel(layer=1))


@evidence("CS-2.10")
def _(roles: Dataset, spares: Dataset) -> dict[str, Any]:
    found = {}
    for rate in TRAINED:
        found[f"distance_{rate}"] = _looks_near(roles, rate)
        found[f"pattern_{rate}"] = _late(roles, rate)
        fall = spares.fall_even.sel(rate=rate)
        found[f"effect_{rate}"] = _arms(fall.sel(layer=0), fall.sel(layer=1))
    return found


def _specialised(roles: Dataset) -> dict[str, Any]:
    most, even = roles.mirror.max(("layer", "head")), roles.entropy.mean(("layer", "head"))
    return {
        "pattern": _arms(most.sel(state="tuned"), most.sel(state="fresh")),
        "entropy": _arms(even.sel(state="tuned"), even.sel(state="fresh")),
    }


@evidence("CS-2.11")
def _(roles: Dataset) -> dict[str, Any]:
    return _specialised(roles)


def same_label(roles: Dataset) -> DataArray:
    """Share of a model's heads with the class of the head of the same number in the next seed's model."""
    code = roles.code.sel(state="tuned")
    return (code == code.roll(seed=-1)).mean(("layer", "head"))


@evidence("CS-2.12")
def _(exchanged: Dataset, roles: Dataset) -> dict[str, Any]:
    return {
        "exchange": _value(exchanged.error.values.ravel()),
        "labels": _value(same_label(roles)),
    }


@evidence("CS-6.2")
def _(roles: Dataset) -> dict[str, Any]:
    return {
        **_specialised(roles),
        "distance": _looks_near(roles, "tuned"),
        "late": _late(roles, "tuned"),
        "distance_source": _looks_near(roles, "source"),
        "late_source": _late(roles, "source"),
    }


@evidence("DA-2.12")
def _(roles: Dataset) -> dict[str, Any]:
    within_layers, itself = roles.apart.mean("layer"), roles.itself.mean("layer")
    trained = within_layers.sel(state="tuned")
    return {
        "untrained": _arms(trained, within_layers.sel(state="fresh")),
        "within": _arms(trained, itself.sel(state="tuned")),
    }


@evidence("EX-2.8")
def _(roles: Dataset) -> dict[str, Any]:
    here = roles.sel(state="tuned")
    codes = here.code.transpose("seed", ...).values
    return {
        "divergence": _arms(here.apart_most, here.itself_most),
        "classes": _value([len(np.unique(each)) for each in codes]),
    }


def _by_gradient(orders: Dataset) -> DataArray:
    return orders.share.sel(order="gradient")


@evidence("DD-2.15")
def _(orders: Dataset) -> dict[str, Any]:
    quarter = orders.quarter.mean("task")
    return {
        **{task: _value(_by_gradient(orders).sel(task=task)) for task in TASKS},
        "unequal": _arms(quarter.sel(end="highest"), quarter.sel(end="lowest")),
    }


@evidence("DD-2.17")
def _(orders: Dataset) -> dict[str, Any]:
    return {task: _value(orders.critical.sel(task=task)) for task in TASKS}


@evidence("DD-2.16")
def _(insurance: Dataset) -> dict[str, Any]:
    loss, off = insurance.loss.mean("task"), insurance.off.mean("task")
    scratch = loss.sel(arm="scratch")
    return {
        "pruned": {**_arms(loss.sel(arm="pruned"), scratch), "headroom": scratch},
        "robust": _arms(off.sel(heads="eight"), off.sel(heads="four")),
    }


@evidence("DD-13.14")
def _(orders: Dataset) -> dict[str, Any]:
    return {task: _value(_by_gradient(orders).sel(task=task)) for task in TASKS}


@evidence("DD-13.15")
def _(orders: Dataset) -> dict[str, Any]:
    curve = orders.curve.mean("task")

    def removed(count: int) -> dict[str, Any]:
        here = curve.sel(removed=count)
        return _arms(here.sel(order="gradient"), here.sel(order="random"))

    return {"quarter": removed(QUARTER), "half": removed(HALF)}


@evidence("DD-13.16")
def _(orders: Dataset) -> dict[str, Any]:
    shares = {task: _by_gradient(orders).sel(task=task).values for task in TASKS}
    over_tasks, over_seeds = spread_over_tasks(shares)
    return {"treatment": over_tasks, "baseline": over_seeds}


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


def _of_layer(spares: Dataset, name: str, how: str, rate: str, *, idle: bool) -> DataArray:
    """Values of the layer that loses most without its heads, or of the other one."""
    here = spares.sel(rate=rate)
    layer = here.together.sel(how="zero").argmax("layer")
    return here[name].sel(how=how).isel(layer=1 - layer if idle else layer)


@number
def working(spares: Dataset, *, name: str, how: str, rate: str) -> float:
    """A variable of `spares` in the layer that does the work, mean over heads and seeds."""
    return float(_of_layer(spares, name, how, rate, idle=False).mean())


@number
def idle(spares: Dataset, *, name: str, how: str, rate: str) -> float:
    """The same in the other layer."""
    return float(_of_layer(spares, name, how, rate, idle=True).mean())


@number
def working_most(spares: Dataset, *, rate: str) -> float:
    """The largest rise of the loss without one head of the layer that does the work, of all heads and seeds."""
    return float(_of_layer(spares, "alone", "zero", rate, idle=False).max())


@number
def four_summed(spares: Dataset) -> float:
    """The single rises of the four heads of the layer that does the work, added up; mean over the seeds."""
    return float(_of_layer(spares, "alone", "zero", "tuned", idle=False).sum("head").mean())


@number
def seeds_of_result(
    spares: Dataset, roles: Dataset, by_rate: Dataset, orders: Dataset, *, name: str
) -> int:
    """Seeds of a result."""
    known = {"spares": spares, "roles": roles, "by_rate": by_rate, "orders": orders}
    return int(known[name].sizes["seed"])


@number
def without(orders: Dataset, *, way: str, count: int) -> float:
    """Rise of the loss after so many removals, mean over tasks and seeds."""
    curve = orders.curve.sel(order=way)
    return float((curve.sel(removed=count) - curve.sel(removed=0)).mean())


@number
def heads_that_go(orders: Dataset, *, task: str, way: str) -> float:
    """How many of sixteen heads can go, mean over the seeds."""
    return float(16 * orders.share.sel(task=task, order=way).mean())


@number
def median_that_go(orders: Dataset, *, task: str, way: str) -> float:
    """The same, median over the seeds."""
    return float(16 * orders.share.sel(task=task, order=way).median())


@number
def spared(orders: Dataset, *, task: str, least: int) -> int:
    """Models of a task in which so many of sixteen heads or more can go by the slope."""
    return int((16 * orders.share.sel(task=task, order="gradient") >= least - 0.5).sum())


@number
def spares_few(orders: Dataset, *, task: str, most: int) -> int:
    """Models of a task in which so many or fewer can go."""
    return int((16 * orders.share.sel(task=task, order="gradient") <= most + 0.5).sum())


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
def worth(orders: Dataset, *, task: str) -> float:
    """The loss without any head, less that of the whole model, in nats."""
    curve = orders.curve.sel(task=task, order="gradient")
    return float((curve.sel(removed=16) - curve.sel(removed=0)).mean())


@number
def without_critical(orders: Dataset, *, task: str) -> int:
    """Models of a task in which no head costs 0.1 nats alone."""
    return int((orders.critical.sel(task=task) < 0.1).sum())


@number
def with_critical(orders: Dataset, *, task: str) -> int:
    """Models of a task in which some head does."""
    return int((orders.critical.sel(task=task) >= 0.1).sum())


@number
def table_found(roles: Dataset) -> int:
    """Models of all kinds that have every row of the table."""
    return int(roles.found.sel(factor=1.0).all("row").sum())


@number
def table_models(roles: Dataset) -> int:
    """Models of all kinds."""
    return int(roles.sizes["seed"] * roles.sizes["kind"])


@number
def row_count(roles: Dataset, *, row: str, kind: str) -> int:
    """Models of a kind that have a row of the table."""
    return int(roles.found.sel(factor=1.0, row=row, kind=kind).sum())


@number
def all_alike(roles: Dataset) -> int:
    """Encoders at the tuned rate with a layer all of whose heads mirror."""
    mirror = roles.mirror.sel(state="tuned")
    return int((mirror > 0.5).all("head").any("layer").sum())


@number
def trained_share(roles: Dataset) -> float:
    """Mean share that the place explains of trained heads that mirror."""
    return float(mirror_share(roles, "tuned").mean())


@number
def works_late(by_rate: Dataset, *, rate: float) -> int:
    """Seeds in which the second layer has more weight on the mirrored position than the first."""
    here = by_rate.mirror.sel(rate=rate).mean("head")
    return int((here.sel(layer=1) > here.sel(layer=0)).sum())


@number
def even_looks(*, positions: int) -> float:
    """Mean distance that even attention over so many positions looks."""
    return even_distance(positions)


@number
def chosen_rate() -> float:
    """The learning rate that suits the encoder."""
    return tuned_rate()
