"""How the results of the chapter on the fate of positions are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.surviving.measure import (
    CASES,
    LAYERS,
    NETWORKS,
    diluted_r2,
    kept,
)

# What the claims are judged by --------------------------------------------------------------------------


def _value(values: DataArray) -> dict[str, Any]:
    return {"value": values}


def _top(stacks: Dataset, name: str) -> DataArray:
    return stacks.r2.sel(stack=name, layer=LAYERS[-1])


def _shares(patterns: Dataset, case: str) -> dict[str, Any]:
    return {"treatment": patterns.trained.sel(case=case), "baseline": patterns.fresh.sel(case=case)}


@evidence("DD-7.1")
def _(deep: Dataset, untrained_stacks: Dataset) -> dict[str, Any]:
    return {
        "trained": _value(deep.r2.sel(model="pre-norm", layer=LAYERS[-1])),
        "untrained": _value(_top(untrained_stacks, "pre-norm")),
        "learned": _value(_top(untrained_stacks, "pre-norm, table")),
        "post": _value(_top(untrained_stacks, "post-norm")),
    }


@evidence("DD-7.2")
def _(patterns: Dataset) -> dict[str, Any]:
    return {case: _shares(patterns, case) for case in CASES}


@evidence("DD-7.3")
def _(networks: Dataset) -> dict[str, Any]:
    parts = {
        "learned_parity": "learned, alternating",
        "sinusoidal_parity": "sinusoidal, alternating",
        "sinusoidal_halves": "sinusoidal, halves",
        "rotary_halves": "rotary, halves",
    }
    found = {}
    for part, name in parts.items():
        values = networks.accuracy.sel(network=name)
        blind = values.copy(data=np.full(values.shape, NETWORKS[name][1].blind_accuracy()))
        found[part] = {"treatment": values, "baseline": blind}
    return found


@evidence("DD-7.4")
def _(forced: Dataset) -> dict[str, Any]:
    return {
        "reversal_shuffled": _value(forced.rise.sel(task="reversal", change="shuffled")),
        "duplicates_shuffled": _value(forced.rise.sel(task="duplicates", change="shuffled")),
        "duplicates_zeroed": _value(forced.rise.sel(task="duplicates", change="zero")),
    }


@evidence("DD-13.5")
def _(
    deep: Dataset,
    untrained_stacks: Dataset,
    patterns: Dataset,
    forced: Dataset,
    rotary_values: Dataset,
) -> dict[str, Any]:
    return {
        "stream_pre": _value(deep.r2.sel(model="pre-norm", layer=LAYERS[-1])),
        "stream_post": _value(_top(untrained_stacks, "post-norm")),
        "attention": _shares(patterns, "reversal"),
        "ignored": _value(forced.rise.sel(task="duplicates", change="shuffled")),
        "rotary": _value(rotary_values.r2),
    }


# Numbers that the prose names ---------------------------------------------------------------------------


@number
def reader_one() -> float:
    """R2 where the rest is as large as the position."""
    return diluted_r2(1.0)


@number
def reader_three() -> float:
    """R2 where the rest is three times as large."""
    return diluted_r2(3.0)


@number
def kept_pre() -> float:
    """Share left after 24 sums with writes of variance 0.25."""
    return kept(0.25, sublayers=24, norms=False)


@number
def kept_post() -> float:
    """The same with a norm after each."""
    return kept(0.25, sublayers=24, norms=True)


@number
def faint_pre() -> float:
    """Share left after 24 sums with writes of variance 0.01."""
    return kept(0.01, sublayers=24, norms=False)


@number
def faint_post() -> float:
    """The same with a norm after each."""
    return kept(0.01, sublayers=24, norms=True)


def _mean(values: DataArray) -> float:
    return float(values.mean("seed"))


@number
def table_top(untrained_stacks: Dataset) -> float:
    """Mean R2 at the top with a random table."""
    return _mean(_top(untrained_stacks, "pre-norm, table"))


@number
def eighth_pre(sizes: Dataset) -> float:
    """Mean R2 at the top with writes of an eighth, pre-norm."""
    return _mean(sizes.top.sel(placement="pre", factor=0.125))


@number
def eighth_post(sizes: Dataset) -> float:
    """The same, post-norm."""
    return _mean(sizes.top.sel(placement="post", factor=0.125))


@number
def removed_first(deep: Dataset) -> float:
    """Median loss of the pre-norm models when places are removed at the embedding."""
    return float(deep.without.sel(model="pre-norm", layer=0).median("seed"))


@number
def deep_loss(deep: Dataset) -> float:
    """Median loss of the pre-norm models."""
    return float(deep.loss.sel(model="pre-norm").median("seed"))


@number
def pre_top(deep: Dataset) -> float:
    """Mean R2 at the top of the trained pre-norm stacks."""
    return _mean(deep.r2.sel(model="pre-norm", layer=LAYERS[-1]))


@number
def post_top(deep: Dataset) -> float:
    """Mean R2 at the top of the trained post-norm stacks."""
    return _mean(_post_tops(deep))


@number
def post_least(deep: Dataset) -> float:
    """The smallest of them."""
    return float(_post_tops(deep).min())


@number
def post_most(deep: Dataset) -> float:
    """The largest."""
    return float(_post_tops(deep).max())


def _post_tops(deep: Dataset) -> DataArray:
    tops: DataArray = deep.r2.sel(model="post-norm, small writes", layer=LAYERS[-1])
    return tops


@number
def share_reversal(patterns: Dataset) -> float:
    """Mean share of the head that is bound most to places, reversal."""
    return _mean(patterns.trained.sel(case="reversal"))


@number
def share_lag(patterns: Dataset) -> float:
    """Mean share of the head that is bound most to places, lag."""
    return _mean(patterns.trained.sel(case="lag"))


@number
def share_rotary(patterns: Dataset) -> float:
    """Mean share of the head that is bound most to places, rotary."""
    return _mean(patterns.trained.sel(case="rotary"))


@number
def share_fresh(patterns: Dataset) -> float:
    """The same before training, on reversal."""
    return _mean(patterns.fresh.sel(case="reversal"))


@number
def network_learned(networks: Dataset) -> float:
    """Mean accuracy without attention: learned, alternating."""
    return _mean(networks.accuracy.sel(network="learned, alternating"))


@number
def network_turns(networks: Dataset) -> float:
    """Mean accuracy without attention: sinusoidal, alternating."""
    return _mean(networks.accuracy.sel(network="sinusoidal, alternating"))


@number
def network_longer(networks: Dataset) -> float:
    """Mean accuracy without attention: sinusoidal, alternating, longer."""
    return _mean(networks.accuracy.sel(network="sinusoidal, alternating, longer"))


@number
def network_halves(networks: Dataset) -> float:
    """Mean accuracy without attention: sinusoidal, halves."""
    return _mean(networks.accuracy.sel(network="sinusoidal, halves"))


@number
def network_rotary(networks: Dataset) -> float:
    """Mean accuracy without attention: rotary, halves."""
    return _mean(networks.accuracy.sel(network="rotary, halves"))


@number
def rise_shuffled_reversal(forced: Dataset) -> float:
    """Mean rise of the loss on reversal: shuffled."""
    return _mean(forced.rise.sel(task="reversal", change="shuffled"))


@number
def rise_shuffled(forced: Dataset) -> float:
    """Mean rise of the loss on duplicates: shuffled."""
    return _mean(forced.rise.sel(task="duplicates", change="shuffled"))


@number
def rise_average(forced: Dataset) -> float:
    """Mean rise of the loss on duplicates: average."""
    return _mean(forced.rise.sel(task="duplicates", change="average"))


@number
def rise_zero(forced: Dataset) -> float:
    """Mean rise of the loss on duplicates: zero."""
    return _mean(forced.rise.sel(task="duplicates", change="zero"))
