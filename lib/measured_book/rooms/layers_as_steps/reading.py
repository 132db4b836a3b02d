"""How the results of the chapter on refining and rewriting are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from measured_transformer.analysis.layers import centre_of_gravity, slope
from measured_transformer.analysis.lens import rise_chosen_apart
from scipy import stats
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.layers_as_steps.measure import (
    DECAYS,
    DEPTH,
    GRAMMAR,
    LENSES,
    MEASURES,
    SAMPLES,
    SMALL,
    TASKS,
    share_of_pairs,
)

KNOWS = 0.99


# What the claims are judged by ----------------------------------------------------------------------


def _per_seed(values: Sequence[float]) -> DataArray:
    return DataArray(np.asarray(values), dims="seed")


def rises(read: DataArray) -> DataArray:
    """The rise of the loss read off the stream at the block where it is largest on other sequences."""
    rows = read.transpose(..., "sample", "state")
    found = rise_chosen_apart(
        rows.sel(sample=SAMPLES[0]).values, rows.sel(sample=SAMPLES[1]).values
    )
    return rows.isel(sample=0, state=0, drop=True).copy(data=found)


def against(cosines: DataArray) -> DataArray:
    """Share of the pairs of blocks whose writes point against one another."""
    rows = cosines.transpose(..., "block", "other")
    found = [share_of_pairs(one) for one in rows.values.reshape(-1, DEPTH, DEPTH)]
    kept = rows.isel(block=0, other=0, drop=True)
    return kept.copy(data=np.reshape(found, kept.shape))


def _value(values: DataArray) -> dict[str, Any]:
    return {"value": values}


def worsened(read: DataArray) -> DataArray:
    """By how many nats blocks make worse what is read off: the sum of the rises from block to block.

    Counted on one sample are the blocks at which the loss rises on the other, or noise would count as rises.
    """
    rows = read.transpose(..., "sample", "state")
    chosen, steps = (rows.sel(sample=one).diff("state").values for one in SAMPLES)
    found = np.where(chosen > 0, steps, 0.0).sum(-1)
    return rows.isel(sample=0, state=0, drop=True).copy(data=found)


@evidence("DD-14.14")
def _(readings: Dataset) -> dict[str, Any]:
    found = worsened(readings["read"])
    return {
        f"{task}_{lens}": _value(found.sel(task=task, lens=lens))
        for task in TASKS
        for lens in LENSES
    }


def climbs(sentences: Dataset) -> DataArray:
    """By how many positions the distance attended to grows from first block to last, on the fitted line."""
    rows = sentences.distance.transpose("seed", "kind", "block")
    found = [[(DEPTH - 1) * slope(row) for row in each] for each in rows.values]
    return rows.isel(block=0, drop=True).copy(data=found)


def centres(sentences: Dataset) -> DataArray:
    """Where in the depth probes gain what they gain: the centre of gravity, as a share of the depth."""
    rows = sentences.gained.transpose("seed", "kind", "what", "state")
    found = np.apply_along_axis(centre_of_gravity, -1, rows.values)
    return rows.isel(state=0, drop=True).copy(data=found)


def lags(sentences: Dataset) -> DataArray:
    """How far in the depth the centre of gravity of pronouns lies behind that of agreement."""
    found = centres(sentences)
    return found.sel(what="pronouns", drop=True) - found.sel(what="agreement", drop=True)


def _against_shuffled(values: DataArray) -> dict[str, DataArray]:
    return {"treatment": values.sel(kind="sentences"), "baseline": values.sel(kind="shuffled")}


@evidence("DD-4.9")
def _(readings: Dataset, sentences: Dataset) -> dict[str, Any]:
    own = centres(sentences).sel(kind="sentences")
    return {
        "distance": _against_shuffled(climbs(sentences)),
        "order": {"treatment": own.sel(what="pronouns"), "baseline": own.sel(what="agreement")},
        "order_shuffled": _against_shuffled(lags(sentences)),
        "refine": _value(worsened(readings["read"].sel(task="sentences", lens="logit"))),
    }


A_RISE = 0.02
"""By how many nats the loss that is read off must rise for a block to count as making it worse."""
A_PART, MADE_UP = 0.05, 0.05
"""What a sublayer must add to the right logit to count, and the share of it that later ones must make up."""


def rerouted(twelve: Dataset) -> DataArray:
    """Share of the sublayers, from the second block on, that later ones make up for when silenced."""
    parts = twelve.isel(sublayer=slice(2, None))
    counts = (parts.direct <= -A_PART) & (parts.later >= -MADE_UP * parts.direct)
    share: DataArray = counts.mean("sublayer")
    return share


@evidence("DD-12.1")
def _(twelve: Dataset, readings: Dataset) -> dict[str, Any]:
    worse = rises(readings["read"].sel(lens="logit")) >= A_RISE
    return {
        "against": _value(against(twelve.centred).mean("task")),
        "rise": {"successes": [int(worse.sum())], "trials": [worse.size]},
        "rerouted": _value(rerouted(twelve).mean("task")),
    }


@evidence("DD-4.7")
def _(six: Dataset) -> dict[str, Any]:
    worst = six.survives.sel(arm="plain").min("state")
    return {what: _value(worst.sel(what=what)) for what in ("token", "position")}


def surplus_ratio(six: Dataset) -> DataArray:
    """Mean length, over that of the stream, of the writes of those blocks that are missed least."""
    needed = DataArray([SMALL[name][2] for name in six.task.values.tolist()], dims="task")
    skip = six.skip.transpose(..., "block")
    ranks = skip.copy(data=stats.rankdata(-skip.values, axis=-1))  # 1: missed most
    return six.ratio.where(ranks > needed).mean("block")


@evidence("EX-1.18")
def _(six: Dataset) -> dict[str, Any]:
    found = surplus_ratio(six)
    return {
        f"{task}_{arm}": _value(found.sel(task=task, arm=arm)) for task in SMALL for arm in DECAYS
    }


def length_agreement(lookups: Dataset) -> DataArray:
    """Rank correlation with the length by each of `MEASURES`, mean over a seed's models that know the task."""
    return lookups.agreement.where(lookups.accuracy >= KNOWS).mean("model")


@evidence("CS-3.9")
def _(lookups: Dataset) -> dict[str, Any]:
    found = length_agreement(lookups)
    return {way: _value(found.sel(measure=way)) for way in MEASURES}


ATTENTION, NETWORK = slice(2, None, 2), slice(3, None, 2)
"""Which sublayers, from the second block on."""


def made_up(twelve: Dataset, of: slice = slice(2, None)) -> DataArray:
    """Of what silenced sublayers contributed directly, the share by which later ones raise their own parts.

    Summed over the sublayers from the second block on, or over some of them; below zero: later ones lose too.
    """
    parts = twelve.isel(sublayer=of).sum("sublayer")
    share: DataArray = -parts.later / parts.direct
    return share


def given_back(twelve: Dataset) -> DataArray:
    """Of what the right logit loses at a frozen norm, the share that the norm gives back.

    Lost directly and through later sublayers. Summed over the sublayers from the second block on.
    """
    parts = twelve.isel(sublayer=slice(2, None)).sum("sublayer")
    share: DataArray = -parts.norm / (parts.direct + parts.later)
    return share


@evidence("LT-2.1")
def _(twelve: Dataset) -> dict[str, Any]:
    return _value(made_up(twelve.sel(task="sentences"), ATTENTION))


@evidence("LT-2.2")
def _(twelve: Dataset) -> dict[str, Any]:
    found = given_back(twelve)
    return {task: _value(found.sel(task=task)) for task in TASKS}


@evidence("LT-2.3")
def _(suppressing: Dataset) -> dict[str, Any]:
    return {
        "effect": _value(suppressing.chosen_effect.sel(task="raffle")),
        "aim": _value(suppressing.chosen_aim.sel(task="raffle")),
    }


# Numbers that the prose names -----------------------------------------------------------------------

OF: Mapping[str, slice] = {"attention": ATTENTION, "network": NETWORK}


@number
def floor() -> float:
    """The smallest expected loss of one who knows the grammar, nats a word."""
    return GRAMMAR.bayes_loss()


@number
def worst_swap(twelve: Dataset, *, task: str) -> DataArray:
    """The largest rise of the loss when two neighbours from the third block on are exchanged."""
    return twelve.swap.sel(task=task, block=slice(3, DEPTH - 1)).max("block")


@number
def missed(twelve: Dataset, *, task: str) -> DataArray:
    """How many blocks cost more than 0.05 nats when left out."""
    return (twelve.skip.sel(task=task) > 0.05).sum("block").astype(float)


@number
def agreed(twelve: Dataset, *, which: str, task: str) -> DataArray:
    """Mean cosine between the writes of two different blocks, raw or centred."""
    rows = twelve[which].sel(task=task).transpose("seed", "block", "other")
    return _per_seed(rows.values[:, *np.triu_indices(DEPTH, 1)].mean(1).tolist())


@number
def opposed(twelve: Dataset, *, which: str, task: str) -> DataArray:
    """Share of the pairs of blocks that point against one another, raw or centred."""
    return against(twelve[which].sel(task=task))


@number
def over_direct(twelve: Dataset, *, what: str, task: str) -> DataArray:
    """A part of the account over what is lost directly, summed over all sublayers but the first block's."""
    parts = twelve.sel(task=task).isel(sublayer=slice(2, None)).sum("sublayer")
    share: DataArray = parts[what] / parts.direct
    return share


@number
def hardly_repaired(twelve: Dataset, *, task: str) -> int:
    """Models in which the output loses more than half of what silenced sublayers contributed directly."""
    return int((over_direct(twelve, what="total", task=task) > 0.5).sum())


@number
def risen(readings: Dataset, *, task: str, lens: str) -> int:
    """Models in which the loss read off the stream rises from some block to the next."""
    return int((rises(readings["read"]).sel(task=task, lens=lens) >= A_RISE).sum())


@number
def models_read(readings: Dataset) -> int:
    """Models of each task whose stream is read."""
    return int(readings.sizes["seed"])


@number
def made_worse(readings: Dataset, *, task: str, lens: str) -> DataArray:
    """By how many nats blocks make worse what is read off."""
    return worsened(readings["read"]).sel(task=task, lens=lens)


@number
def made_up_share(twelve: Dataset, *, task: str) -> DataArray:
    """Share of the sublayers that later ones make up for when they are silenced."""
    return rerouted(twelve).sel(task=task)


@number
def climb(sentences: Dataset, *, kind: str) -> DataArray:
    """By how many positions the distance attended to grows over the blocks."""
    return climbs(sentences).sel(kind=kind)


@number
def lag(sentences: Dataset, *, kind: str) -> DataArray:
    """How far in the depth pronouns come behind agreement."""
    return lags(sentences).sel(kind=kind)


@number
def returned(twelve: Dataset, *, task: str) -> DataArray:
    """Of what is lost at a frozen norm, the share that the norm gives back."""
    return given_back(twelve).sel(task=task)


@number
def made_up_by(twelve: Dataset, *, of: str) -> DataArray:
    """Of what silenced sublayers of sentences lose directly, the share that later ones make up for."""
    return made_up(twelve.sel(task="sentences"), OF[of])


@number
def lost_by(twelve: Dataset, *, of: str) -> DataArray:
    """The same with the other sign: what later ones lose besides."""
    return -made_up(twelve.sel(task="sentences"), OF[of])


@number
def read_at(readings: Dataset, *, task: str, lens: str, state: int) -> DataArray:
    """The loss that a lens reads after so many blocks."""
    return readings["read"].sel(task=task, lens=lens, sample=SAMPLES[1], state=state)


@number
def kept(six: Dataset, *, what: str, arm: str) -> DataArray:
    """How often a probe reads what entered, at the depth where it is read worst."""
    return six.survives.sel(what=what, arm=arm).min("state")


@number
def idle(six: Dataset, *, task: str, arm: str) -> DataArray:
    """Length over that of the stream of what surplus blocks write."""
    return surplus_ratio(six).sel(task=task, arm=arm)


@number
def most_missed(six: Dataset) -> DataArray:
    """By how many nats the block is missed that models of copying without weight decay miss most."""
    return six.skip.sel(task="copying", arm="plain").max("block")


@number
def with_length(lookups: Dataset, *, way: str) -> DataArray:
    """Rank correlation of a measure of contribution with the length."""
    return length_agreement(lookups).sel(measure=way)


@number
def knowing(lookups: Dataset) -> int:
    """Models that know their task."""
    return int((lookups.accuracy >= KNOWS).sum())


@number
def looked_at(lookups: Dataset) -> int:
    """All models that look something up."""
    return int(lookups.accuracy.size)
