"""How the results of the chapter on the residual stream are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.residual_stream.measure import RATE_KINDS, ROLES, growth

# What the claims are judged by -------------------------------------------------------------------------


def _checked(books: Dataset, check: str) -> dict[str, DataArray]:
    return {
        "error": books.error.sel(check=check).squeeze("seed"),
        "control": books.control.sel(check=check).squeeze("seed"),
    }


@evidence("CS-3.1")
def _(books: Dataset) -> dict[str, Any]:
    return _checked(books, "step")


@evidence("DD-4.1")
def _(books: Dataset) -> dict[str, Any]:
    return _checked(books, "two additions")


@evidence("DD-4.6")
def _(books: Dataset) -> dict[str, Any]:
    return {"pre": _checked(books, "sum"), "post": _checked(books, "sum in post-norm")}


@evidence("IW-2.4")
def _(books: Dataset) -> dict[str, Any]:
    return _checked(books, "sum in a decoder")


@evidence("EX-1.17")
def _(books: Dataset) -> dict[str, Any]:
    return _checked(books, "difference")


@evidence("CS-3.2")
def _(books: Dataset) -> dict[str, Any]:
    return {"value": books.percent.squeeze("seed")}


@evidence("CS-3.3")
def _(books: Dataset) -> dict[str, Any]:
    return {"value": books.needed.squeeze("seed"), "control": books.impossible.squeeze("seed")}


def _slopes(stream: DataArray) -> DataArray:
    """The slope of each seed's logarithm of the stream's length."""
    rows = stream.transpose("seed", "state")
    return DataArray([growth(row) for row in rows.values], dims="seed", coords={"seed": rows.seed})


def _families(two_beside_twelve: Dataset, twelve: Dataset, name: str) -> dict[str, DataArray]:
    """One variable of both results by the name of the claims' parts."""
    return {
        "initial": twelve[name].sel(stage="untrained"),
        "twelve": twelve[name].sel(stage="trained"),
        "two": two_beside_twelve[name].sel(rate="tuned"),
        "stated": two_beside_twelve[name].sel(rate="stated"),
        "large": two_beside_twelve[name].sel(rate="large"),
    }


@evidence("CS-3.4a")
def _(two_beside_twelve: Dataset, twelve: Dataset) -> dict[str, Any]:
    families = _families(two_beside_twelve, twelve, "stream")
    return {name: {"value": _slopes(values)} for name, values in families.items()}


@evidence("CS-3.4b")
def _(two_beside_twelve: Dataset, twelve: Dataset) -> dict[str, Any]:
    families = _families(two_beside_twelve, twelve, "stream")
    return {name: {"value": largest_step(values)} for name, values in families.items()}


def largest_step(stream: DataArray) -> DataArray:
    """The logarithm of the largest factor by which the stream grows over one block."""
    logs: DataArray = xarray.apply_ufunc(np.log, stream)
    return logs.diff("state").max("state")


@evidence("CS-3.5")
def _(two: Dataset) -> dict[str, Any]:
    lengths = two.log_length
    return {
        f"{role}_{rate}": {
            "treatment": lengths.sel(role=role, rate=rate, writer="network"),
            "baseline": lengths.sel(role=role, rate=rate, writer="attention"),
        }
        for role in ROLES
        for rate in RATE_KINDS
    }


def _halves(ratio: DataArray) -> dict[str, DataArray]:
    """Logarithm of a block's two relative writes, summed: later half of the blocks against the first half."""
    pairs = ratio.isel(sublayer=slice(0, None, 2)).drop_vars("sublayer") + ratio.isel(
        sublayer=slice(1, None, 2)
    ).drop_vars("sublayer")
    logs: DataArray = xarray.apply_ufunc(np.log, pairs)
    half = logs.sizes["sublayer"] // 2
    return {
        "treatment": logs.isel(sublayer=slice(half, None)).mean("sublayer"),
        "baseline": logs.isel(sublayer=slice(None, half)).mean("sublayer"),
    }


@evidence("CS-3.7a")
def _(two: Dataset) -> dict[str, Any]:
    return {rate: _halves(two.by_block.sel(rate=rate)) for rate in RATE_KINDS}


@evidence("CS-3.7b")
def _(twelve: Dataset) -> dict[str, Any]:
    return {
        "initial": _halves(twelve.ratio.sel(stage="untrained")),
        "twelve": _halves(twelve.ratio.sel(stage="trained")),
    }


def _late(twelve: Dataset, name: str, stage: str) -> DataArray:
    """A variable of the last six of twelve blocks, mean over them."""
    values = twelve[name].sel(stage=stage)
    if "block" in values.dims:
        return values.sel(block=slice(7, None)).mean("block")
    return values.sel(sublayer=slice(12, None)).mean("sublayer")


def _beside_untrained(twelve: Dataset, name: str) -> dict[str, dict[str, DataArray]]:
    """The last six blocks trained, untrained, and the one against the other."""
    trained, untrained = (_late(twelve, name, stage) for stage in ("trained", "untrained"))
    return {
        "twelve": {"value": trained},
        "initial": {"value": untrained},
        "beyond": {"treatment": trained, "baseline": untrained},
    }


@evidence("CS-3.8")
def _(two_beside_twelve: Dataset, twelve: Dataset) -> dict[str, Any]:
    kept = two_beside_twelve.kept.mean("block")
    both = {name: {"value": kept.sel(rate=name)} for name in RATE_KINDS}
    return {**both, **_beside_untrained(twelve, "kept")}


@evidence("DD-4.5")
def _(two_beside_twelve: Dataset, twelve: Dataset) -> dict[str, Any]:
    ratio = two_beside_twelve.by_block.mean("sublayer")
    both = {name: {"value": ratio.sel(rate=name)} for name in RATE_KINDS}
    return {**both, **_beside_untrained(twelve, "ratio")}


# Numbers that the prose names ----------------------------------------------------------------------------


def _largest(books: Dataset, check: str) -> float:
    return float(books.error.sel(check=check).max())


@number
def sum_error(books: Dataset) -> float:
    """The largest error of the sum of all writes in pre-norm models."""
    return _largest(books, "sum")


@number
def post_error(books: Dataset) -> float:
    """The same in post-norm models, median over the draws."""
    return float(books.error.sel(check="sum in post-norm").median())


@number
def logit_error(books: Dataset) -> float:
    """The largest error of the logits as a sum of parts."""
    return _largest(books, "logits")


@number
def logit_control(books: Dataset) -> float:
    """The smallest error when each part has a divisor of its own."""
    return float(books.control.sel(check="logits").min())


@number
def rotation_error(books: Dataset) -> float:
    """The largest change of a logit when the stream of a model with RMSNorm gets another basis."""
    return _largest(books, "rotation")


@number
def rotation_control(books: Dataset) -> float:
    """The smallest of the same in models with LayerNorm."""
    return float(books.control.sel(check="rotation").min())


@number
def seeds_two(two: Dataset) -> int:
    """Trained models of two blocks at each learning rate."""
    return int(two.sizes["seed"])


@number
def second_large(two: Dataset) -> int:
    """Models at the large learning rate whose second block fetches."""
    return int(two.second.sel(rate="large").sum())


@number
def step_initial(twelve: Dataset) -> DataArray:
    """The largest factor by which one of twelve untrained blocks lengthens the stream."""
    return _exp(largest_step(twelve.stream.sel(stage="untrained")))


def _fetching(fetched: Dataset, block: int) -> np.ndarray:
    """Of which models with twelve blocks this is the one that looks most at the mirrored position."""
    here: np.ndarray = (fetched.mirrored.argmax("block") == block - 1).values
    return here


@number
def fetching_in(fetched: Dataset, *, block: int) -> int:
    """How many models with twelve trained blocks fetch in this block."""
    return int(_fetching(fetched, block).sum())


@number
def grown_by(twelve: Dataset, fetched: Dataset, *, fetching: int, block: int) -> DataArray:
    """By which factor a block lengthens the stream, in the models in which block `fetching` fetches."""
    stream = twelve.stream.sel(stage="trained").isel(seed=_fetching(fetched, fetching))
    factor = stream.sel(state=block).drop_vars("state") / stream.sel(state=block - 1).drop_vars(
        "state"
    )
    return factor


@number
def network_cosines(twelve: Dataset) -> DataArray:
    """For each network of twelve trained blocks its write's cosine with the stream, mean over the models."""
    return twelve.cosine.sel(stage="trained").isel(sublayer=slice(1, None, 2)).mean("seed")


@number
def step_two(two: Dataset) -> DataArray:
    """The same for two trained blocks at the tuned learning rate."""
    return _exp(largest_step(two.stream.sel(rate="tuned")))


@number
def step_large(two: Dataset) -> DataArray:
    """The same at the large learning rate."""
    return _exp(largest_step(two.stream.sel(rate="large")))


def _exp(logs: DataArray) -> DataArray:
    found: DataArray = xarray.apply_ufunc(np.exp, logs)
    return found


@number
def late_kept(twelve: Dataset) -> DataArray:
    """The cosine that the last six of twelve trained blocks keep, mean over them."""
    return _late(twelve, "kept", "trained")


@number
def late_kept_untrained(twelve: Dataset) -> DataArray:
    """The same before training."""
    return _late(twelve, "kept", "untrained")


@number
def late_ratio(twelve: Dataset, *, stage: str) -> DataArray:
    """Length of the writes of the last six blocks relative to the stream, mean over them."""
    return _late(twelve, "ratio", stage)


@number
def two_kept(two: Dataset) -> DataArray:
    """The cosine that two trained blocks keep at the tuned learning rate, mean over them."""
    return two.kept.sel(rate="tuned").mean("block")
