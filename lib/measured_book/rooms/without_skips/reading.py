"""How the results of the chapter without skips are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.without_skips.measure import NORMS, TASK

LOOKED_AT = 10
"""Seeds that had been looked at before the claims were worded; these are judged on later ones."""


# What the claims are judged by --------------------------------------------------------------------


def _checked(algebra: Dataset, check: str) -> dict[str, DataArray]:
    return {
        "error": algebra.error.sel(check=check).squeeze("seed"),
        "control": algebra.control.sel(check=check).squeeze("seed"),
    }


@evidence("EX-1.12")
def _(algebra: Dataset) -> dict[str, Any]:
    return {
        "autograd": _checked(algebra, "parameters"),
        "differences": _checked(algebra, "parameters by differences"),
    }


@evidence("EX-1.13")
def _(algebra: Dataset) -> dict[str, Any]:
    return {
        "autograd": _checked(algebra, "input"),
        "differences": _checked(algebra, "input by differences"),
    }


@evidence("EX-1.14")
def _(algebra: Dataset) -> dict[str, Any]:
    return {
        "none": _checked(algebra, "skip without norm"),
        "pre": _checked(algebra, "skip in pre-norm"),
        "post": _checked(algebra, "skip in post-norm"),
    }


@evidence("DD-4.4")
def _(algebra: Dataset) -> dict[str, Any]:
    return {where: _checked(algebra, f"highway in {where}-norm") for where in ("pre", "post")}


def fall(untrained: Dataset, norm: str, skip: str) -> DataArray:
    """Powers of ten by which the gradient at the embedding exceeds that at the last state."""
    first = untrained.gradient.sel(norm=norm, skip=skip, state=0)
    return first.copy(data=np.log10(first.values))


def unseen(weights: Dataset, count: int = 24) -> Dataset:
    """Results of seeds that nobody had looked at when the claims about them were worded."""
    return weights.isel(seed=slice(LOOKED_AT, LOOKED_AT + count))


def attended(gradients: DataArray) -> DataArray:
    """Of logarithms by matrix: that of the length of the gradient of the query and key weights together."""
    squares = 10 ** (2 * gradients.sel(matrix=["query", "key"]))
    total = squares.sum("matrix")
    return total.copy(data=0.5 * np.log10(total.values))


def _lost(with_skips: DataArray, without: DataArray, blocks: str) -> DataArray:
    """Powers of ten by which queries and keys get less without skips, mean over the blocks."""
    return (attended(without) - attended(with_skips)).mean(blocks)


def _spread_over(gradients: DataArray, blocks: str) -> DataArray:
    """Powers of ten between the block whose queries and keys get the most and the one that gets least."""
    each = attended(gradients)
    return each.max(blocks) - each.min(blocks)


@evidence("DD-4.3")
def _(untrained: Dataset, weights: Dataset) -> dict[str, Any]:
    found = {f"stream_{norm}": {"value": fall(untrained, norm, "without")} for norm in NORMS}
    for norm in NORMS:
        here = unseen(weights).twelve.sel(norm=norm)
        lost = _lost(here.sel(skip="with"), here.sel(skip="without"), "block")
        found[f"weights_{norm}"] = {"value": lost}
    return found


@evidence("DA-2.15")
def _(untrained: Dataset, weights: Dataset) -> dict[str, Any]:
    found = {
        "stream_none": {
            "treatment": abs(fall(untrained, "none", "with")),
            "baseline": abs(fall(untrained, "none", "without")),
        }
    }
    for norm in NORMS:
        here = unseen(weights).twelve.sel(norm=norm)
        found[f"weights_{norm}"] = {
            "treatment": _spread_over(here.sel(skip="with"), "block"),
            "baseline": _spread_over(here.sel(skip="without"), "block"),
        }
    return found


@evidence("DD-4.2")
def _(algebra: Dataset) -> dict[str, Any]:
    return {"value": algebra.operations.squeeze("seed")}


@evidence("EX-1.15")
def _(weights: Dataset) -> dict[str, Any]:
    gains = unseen(weights).gains
    return {
        "ffn_none": {"value": gains.sel(gain="network, no norm")},
        "attention_none": {"value": gains.sel(gain="attention, no norm")},
        "ffn_pre": {"value": gains.sel(gain="network, pre")},
        "attention_pre": {"value": gains.sel(gain="attention, pre")},
    }


@evidence("DD-14.15")
def _(six: Dataset, weights: Dataset) -> dict[str, Any]:
    before = unseen(weights, 10).six
    return {
        "trains": {
            "treatment": six.accuracy.sel(arm="both"),
            "baseline": six.accuracy.sel(arm="none"),
        },
        "stream": {"value": six.fall},
        "weights": {"value": _lost(before.sel(arm="both"), before.sel(arm="none"), "shallow")},
    }


SUBLAYERS = {"attention_1": 0, "network_1": 1, "fetching": 2, "network_2": 3}
"""Of two blocks at the tuned learning rate, where the second block's attention fetches in every model."""


@evidence("CS-6.3")
def _(cut_two: Dataset) -> dict[str, Any]:
    return {
        name: {
            "treatment": cut_two.accuracy.sel(cut="skip", sublayer=at),
            "baseline": cut_two.accuracy.sel(cut="branch", sublayer=at),
        }
        for name, at in SUBLAYERS.items()
    }


@evidence("EX-1.19")
def _(cut_twelve: Dataset) -> dict[str, Any]:
    means = cut_twelve.accuracy.mean("sublayer")
    return {"treatment": means.sel(cut="skip"), "baseline": means.sel(cut="branch")}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def floor() -> float:
    """The best accuracy of a model that knows which tokens there are, and not where."""
    return TASK.bag_accuracy()


@number
def lost(untrained: Dataset, *, norm: str) -> DataArray:
    """Powers of ten that the gradient loses through twelve untrained blocks without skips."""
    return -fall(untrained, norm, "without")


@number
def gained(untrained: Dataset, *, norm: str) -> DataArray:
    """Powers of ten that it gains with skips."""
    return fall(untrained, norm, "with")


@number
def factor_lost(untrained: Dataset, *, norm: str) -> float:
    """The mean of `lost` as a factor."""
    return float(10 ** lost(untrained, norm=norm).mean())


@number
def six_fall(six: Dataset) -> DataArray:
    """Powers of ten that the gradient loses through six untrained pre-norm blocks without skips."""
    return -six.fall


@number
def decades_apart(untrained: Dataset, *, blocks: int) -> float:
    """What tells tokens apart after so many pre-norm blocks without skips: median, in powers of ten."""
    here = untrained.spread.sel(norm="pre", skip="without", state=2 * blocks)
    return float(np.log10(here.median()))


@number
def apart(untrained: Dataset, *, norm: str, skips: str, blocks: int) -> float:
    """What tells tokens apart after so many blocks with 'both' skips or that of 'attention' alone: median."""
    if skips == "both":
        here = untrained.spread.sel(norm=norm, skip="with", state=2 * blocks)
    else:
        here = untrained.one_skip.sel(around=skips, state=2 * blocks)
    return float(here.median())


@number
def asked_for(weights: Dataset, *, skip: str, block: int) -> float:
    """Of twelve pre-norm blocks: log10 of the gradient of a block's query and key weights, median."""
    here = unseen(weights).twelve.sel(norm="pre", skip=skip, block=block)
    return float(attended(here).median())


@number
def value_in_twelve(weights: Dataset, *, skip: str) -> float:
    """The same of the value weights of the last block."""
    here = unseen(weights).twelve.sel(norm="pre", skip=skip, block=12, matrix="value")
    return float(here.median())


@number
def asked_in_six(weights: Dataset, *, arm: str) -> float:
    """Of six blocks: log10 of the gradient of the last block's query and key weights, median."""
    return float(attended(unseen(weights, 10).six.sel(arm=arm, shallow=6)).median())


@number
def blind() -> float:
    """Accuracy of guessing among the tokens."""
    return 1 / TASK.vocab


@number
def cosine_post(algebra: Dataset) -> float:
    """Mean cosine of g + g J with the gradient of a post-norm layer."""
    return float(algebra.cosine.sel(place="post").mean())


@number
def orthogonal_gain(untrained: Dataset) -> float:
    """The gain of a branch that gives the straight path its share at twelve blocks, if paths are orthogonal."""
    share = float(untrained.straight.sel(depth=12).mean())
    return math.sqrt(share ** (-1 / 24) - 1)


@number
def orthogonal_share(untrained: Dataset) -> float:
    """The straight path's share at twelve blocks if paths were orthogonal and branches had their gains."""
    attention, network = (
        float(seen_gain(untrained, what=what).mean()) for what in ("attention", "network")
    )
    return ((1 + attention**2) * (1 + network**2)) ** -12


@number
def gain(weights: Dataset, *, what: str, norm: str) -> DataArray:
    """What a sublayer of a stack without skips makes of a random gradient: with a norm ('pre') or 'free'."""
    return unseen(weights).gains.sel(gain=f"{what}, {'no norm' if norm == 'free' else norm}")


@number
def seen_gain(untrained: Dataset, *, what: str) -> DataArray:
    """What a sublayer with its norm makes of a random gradient's length, on the seeds of the picture."""
    return untrained.gains.sel(gain=f"{what}, pre")


@number
def slope(cube: Dataset) -> DataArray:
    """The exponent with which attention treats distances up to a tenth: slope between logarithms."""
    small = cube.after.sel(kind="attention").where(cube["size"] <= 0.1, drop=True)
    sizes = np.log(small["size"].values)
    rows = np.log(small.transpose("seed", "size").values)
    found = [float(np.polyfit(sizes, row, 1)[0]) for row in rows]
    return DataArray(found, dims="seed")


@number
def bound_kept(cube: Dataset) -> float:
    """The largest ratio of what was measured behind attention to what the bound allows."""
    return float((cube.after.sel(kind="attention") / cube.bound).max())


@number
def branches_taken(untrained: Dataset) -> DataArray:
    """The mean number of branches that the gradient's paths go through, weighted by their shares."""
    return (untrained.share * untrained.length).sum("length")


@number
def without_late(cut_twelve: Dataset, *, cut: str, around: str) -> float:
    """Accuracy without one late part of twelve blocks, mean over those parts.

    Args:
        cut_twelve: of this room.
        cut: 'branch' or 'skip'.
        around: 'attention' in the last six blocks, or the 'network' of blocks
            seven to eleven, or 'either' in the last six.
    """
    parts = {
        "either": slice(12, None),
        "attention": slice(12, None, 2),
        "network": slice(13, 23, 2),
    }
    return float(cut_twelve.accuracy.sel(cut=cut).isel(sublayer=parts[around]).mean())
