"""How the results of the chapter on layer norm are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.layer_norm.measure import ARMS, NORMS, STATES, clocked


def at_own_rate(values: DataArray) -> Float[np.ndarray, "seed"]:
    """Each seed's value at the learning rate that is best for the other seeds: chosen and judged apart.

    Args:
        values: over (seed, rate), smaller is better.
    """
    table = values.transpose("seed", "rate").values
    others = table.sum(0) - table
    chosen: np.ndarray = table[np.arange(len(table)), others.argmin(1)]
    return chosen


# What the claims are judged by --------------------------------------------------------------------


def checked(identities: Dataset, check: str) -> dict[str, DataArray]:
    """Errors of a check and of its control, over the draws."""
    here = identities.sel(check=check).isel(seed=0)
    return {"error": here.error, "control": here.control}


def _judged_by(check: str) -> Callable[[Dataset], dict[str, Any]]:
    def judged(identities: Dataset) -> dict[str, Any]:
        return dict(checked(identities, check))

    return judged


for _claim, _check in {
    "IW-3.3": "formula",
    "DD-3.1a": "epsilon outside",
    "DD-3.2": "neighbours",
    "IW-3.4": "projection",
    "IW-3.5": "sphere",
    "IW-3.6a": "affine",
    "IW-3.7": "matrix",
    "IW-3.8": "folded",
    "IW-3.9a": "rms",
    "DA-2.14": "post",
    "EX-1.10": "pre",
}.items():
    evidence(_claim)(_judged_by(_check))


@evidence("EX-1.6")
def _(identities: Dataset) -> dict[str, Any]:
    return {
        "varied": checked(identities, "centred"),
        "constant": {"value": identities.not_finite.sum()},
    }


@evidence("EX-1.7")
def _(identities: Dataset) -> dict[str, Any]:
    return {
        "centring": {"value": identities.centring.isel(seed=0)},
        "both": checked(identities, "scaled"),
    }


@evidence("DD-3.1b")
def _(identities: Dataset) -> dict[str, Any]:
    found = identities.isel(seed=0)
    return {"usual": {"value": found.usual}, "tiny": {"value": found.tiny}}


@evidence("DD-3.6")
def _(identities: Dataset) -> dict[str, Any]:
    return {name: checked(identities, name) for name in ("post", "pre")}


@evidence("IW-3.6b")
def _(identities: Dataset, text: Dataset) -> dict[str, Any]:
    here = text.sel(norm="LayerNorm")
    rise = here.loss.sel(change="divisors frozen") - here.loss.sel(change="nothing")
    return {
        "token": checked(identities, "affine"),
        "variation": {"value": here.variation.mean("reader")},
        "loss": {"value": rise},
    }


@evidence("IW-3.9b")
def _(arms: Dataset) -> dict[str, Any]:
    names = {"treatment": "RMSNorm", "baseline": "LayerNorm", "control": "no norm"}
    return {
        "loss": {role: at_own_rate(arms.excess.sel(arm=arm)) for role, arm in names.items()},
        "operations": {"value": time_ratio(", written out")},
        "functions": {"value": time_ratio("")},
    }


def time_ratio(end: str) -> float:
    """Time of RMSNorm over that of LayerNorm, medians over the rounds; `end` as in `clocked`."""
    rms, layer = (np.median(clocked(f"{name}{end}")) for name in NORMS[::-1])
    return float(rms / layer)


# Numbers that the prose names ---------------------------------------------------------------------

WORKS = 0.5
"""A learning rate works for a model whose loss ends less than this above the best possible, in nats."""


def _own(arms: Dataset, arm: str) -> DataArray:
    return DataArray(at_own_rate(arms.excess.sel(arm=arm)), dims="seed")


def _excess_of(arm: str) -> Callable[[Dataset], DataArray]:
    """Loss above the best possible of an arm, each seed at the learning rate that is best for the others."""
    return lambda arms: _own(arms, arm)


def _works_of(arm: str) -> Callable[[Dataset], int]:
    """Learning rates at which an arm works on every seed."""
    return lambda arms: int((arms.excess.sel(arm=arm) < WORKS).all("seed").sum())


def _largest_of(arm: str) -> Callable[[Dataset], float]:
    """The largest learning rate at which an arm works on every seed."""

    def largest(arms: Dataset) -> float:
        works = (arms.excess.sel(arm=arm) < WORKS).all("seed")
        return float(arms.rate.values[works.values].max())

    return largest


for _arm in ARMS:
    for _what, _of in {
        "excess": _excess_of(_arm),
        "works": _works_of(_arm),
        "largest": _largest_of(_arm),
    }.items():
        _of.__name__ = f"{_arm.lower().replace(' ', '_').replace('-', '_')}_{_what}"
        number(_of)


@number
def best_excess(arms: Dataset) -> float:
    """The smallest mean of these among all norms."""
    return min(float(_own(arms, arm).mean()) for arm in ARMS if arm != "no norm")


@number
def worst_excess(arms: Dataset) -> float:
    """The largest mean of these among all norms."""
    return max(float(_own(arms, arm).mean()) for arm in ARMS if arm != "no norm")


@number
def rates_tried(arms: Dataset) -> int:
    """Learning rates of the grid."""
    return int(arms.sizes["rate"])


@number
def works_level() -> float:
    """A learning rate works for a model whose loss ends less than this above the best possible."""
    return WORKS


@number
def rise_when_frozen(text: Dataset) -> DataArray:
    """How much the loss of the model with LayerNorm rises when every divisor is held at its mean."""
    here = text.loss.sel(norm="LayerNorm")
    return here.sel(change="divisors frozen") - here.sel(change="nothing")


@number
def growth(text: Dataset) -> DataArray:
    """How many times as long the stream is behind the last sublayer as behind the embedding."""
    here = text.rms.sel(norm="LayerNorm")
    return here.sel(state=STATES[-1]) / here.sel(state=STATES[0])


@number
def kernel_ratio() -> float:
    """Time of RMSNorm over that of LayerNorm, as PyTorch's functions, forward and backward."""
    return time_ratio("")


@number
def written_out_ratio() -> float:
    """The same with both formulas in single operations."""
    return time_ratio(", written out")


@number
def rounds() -> int:
    """Rounds of the benchmark that the times are medians of."""
    return int(clocked("LayerNorm").size)


@number
def epsilon_factor(identities: Dataset) -> float:
    """How many times as long a norm with epsilon outside of the root is, for entries of size 1e-5."""
    return 1 + float(identities.tiny.mean())


@number
def language_models(text: Dataset) -> int:
    """How many language models with each norm there are."""
    return int(text.sizes["seed"])
