"""How the results of the chapter on activations and widths are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.activations_and_widths.measure import HELD, TEXT, Kind

# What the claims are judged by --------------------------------------------------------------------

JUDGED_NEURONS = 16
"""The width at which learned products are judged."""


def log_errors(multiplied: Dataset) -> DataArray:
    """Natural logarithm of the error of each seed, at the rate that is best for the *other* seeds."""
    logs: DataArray = xarray.apply_ufunc(np.log, multiplied.error.clip(max=1e6))
    chosen = []
    for seed in logs.seed.values:
        best = logs.drop_sel(seed=seed).mean("seed").argmin("rate")
        chosen.append(logs.sel(seed=seed).isel(rate=best).drop_vars("rate"))
    return xarray.concat(chosen, "seed")


def _on_products(multiplied: Dataset, kind: Kind) -> dict[str, DataArray]:
    at = log_errors(multiplied).sel(neurons=JUDGED_NEURONS)
    return {"treatment": at.sel(kind=kind), "baseline": at.sel(kind="relu")}


def _on_text(text: Dataset, kind: Kind) -> dict[str, DataArray]:
    return {"treatment": text.loss.sel(kind=kind), "baseline": text.loss.sel(kind="relu")}


@evidence("DD-10.6")
def _(text: Dataset, multiplied: Dataset) -> dict[str, Any]:
    return {"text": _on_text(text, "gelu"), "product": _on_products(multiplied, "gelu")}


@evidence("DD-14.3")
def _(text: Dataset, multiplied: Dataset) -> dict[str, Any]:
    found = {f"{kind}_text": _on_text(text, kind) for kind in ("gelu", "swiglu")}
    return found | {
        f"{kind}_product": _on_products(multiplied, kind) for kind in ("gelu", "swiglu")
    }


def fitted_loss(losses: DataArray, ratio: float) -> DataArray:
    """Of each seed: a straight line through the loss over the logarithm of the width, read at one width."""
    doublings = np.log2(losses.ratio.values.astype(float))
    lines = np.polyfit(doublings, losses.transpose("ratio", "seed").values, 1)
    return DataArray(np.polyval(lines, math.log2(ratio)), dims="seed")


@evidence("DD-5.5")
def _(widths: Dataset, facts: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for held in HELD:
        losses = widths.loss.sel(held=held)
        arms = {"treatment": fitted_loss(losses, 4.0), "baseline": fitted_loss(losses, 1.0)}
        found[f"text_{held}"] = arms
    bits = xarray.apply_ufunc(np.log, facts.bits)
    for held, arm in zip(HELD, ("once", "wider"), strict=True):
        found[f"facts_{held}"] = {"treatment": bits.sel(arm="four"), "baseline": bits.sel(arm=arm)}
    return found


# Numbers that the prose names ---------------------------------------------------------------------


@number
def ahead(text: Dataset, *, kind: str) -> DataArray:
    """How much smaller a loss on text is than that of ReLU from the same seed, in nats."""
    return text.loss.sel(kind="relu") - text.loss.sel(kind=kind)


@number
def seeds_apart(text: Dataset) -> float:
    """How far two seeds of ReLU are apart on text, on average, in nats."""
    values = text.loss.sel(kind="relu").values
    return float(np.mean([abs(a - b) for i, a in enumerate(values) for b in values[:i]]))


@number
def error(multiplied: Dataset, *, kind: str, neurons: int) -> float:
    """The typical error of a product (geometric mean over seeds, each at the best rate of the others)."""
    return float(np.exp(log_errors(multiplied).sel(kind=kind, neurons=neurons).mean()))


@number
def times_smaller(multiplied: Dataset, *, kind: str) -> float:
    """By which factor an activation's error of a product is smaller than that of ReLU."""
    arms = _on_products(multiplied, kind)  # type: ignore[arg-type]
    return float(np.exp((arms["baseline"] - arms["treatment"]).mean()))


@number
def per_doubling(widths: Dataset, *, held: str) -> DataArray:
    """Fall of the loss on text, in nats, for each doubling of the width."""
    losses = widths.loss.sel(held=held)
    return fitted_loss(losses, 1.0) - fitted_loss(losses, 2.0)


@number
def more_bits(facts: Dataset, *, arm: str) -> DataArray:
    """How many times as many bits of the table four times the width keeps as another arm."""
    return facts.bits.sel(arm="four") / facts.bits.sel(arm=arm)


@number
def unigram() -> float:
    """Loss on text of a model that knows nothing but how frequent each byte is."""
    return TEXT.unigram_loss()


@number
def largest_gap(widths: Dataset) -> float:
    """How far the number of parameters is from that of four times the width, at most, as a share."""
    counts = widths.parameters.sel(held="parameters").isel(seed=0)
    return float(abs(counts / counts.sel(ratio=4) - 1).max())
