"""How the results of the chapter on positional encoding are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measured_transformer.analysis.sinusoids import (
    largest_climb,
    offset_deviation,
    rises,
    wrong_order_share,
)
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.positional_encoding.measure import (
    ARMS,
    LENGTHS,
    PRECISIONS,
    TASK,
    WIDTH,
)

# What the claims are judged by --------------------------------------------------------------------


def _similar(tables: Dataset) -> np.ndarray:
    values: np.ndarray = tables.similarity.isel(seed=0).values
    return values


@evidence("CS-1.1")
def _(tables: Dataset) -> dict[str, Any]:
    return {
        "value": tables.nearest.values.ravel(),
        "control": tables.nearest_control.values.ravel(),
    }


@evidence("CS-1.2")
def _(tables: Dataset) -> dict[str, Any]:
    return {"value": wrong_order_share(_similar(tables))}


@evidence("CS-1.3")
def _(drawn: Dataset, reversal: Dataset) -> dict[str, Any]:
    trained = [offset_deviation(torch.tensor(dots)) for dots in reversal.learned.values]
    control = [*drawn.closed_control.values, *trained]
    return {p: {"error": drawn.closed.sel(precision=p), "control": control} for p in PRECISIONS}


@evidence("CS-1.4")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "diagonal": {"error": drawn.diagonal, "control": drawn.diagonal_control},
        "rivals": {"value": drawn.rival},
    }


@evidence("CS-1.5")
def _(tables: Dataset) -> dict[str, Any]:
    return {"value": len(rises(_similar(tables)))}


@evidence("CS-1.6")
def _(tables: Dataset, drawn: Dataset) -> dict[str, Any]:
    return {"vectors": {"value": tables.stray}, "projected": {"value": drawn.explained}}


@evidence("CS-1.7")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"error": drawn.rates, "control": drawn.rates_control}


@evidence("CS-1.8")
def _(tables: Dataset) -> dict[str, Any]:
    return {"value": tables.period.sel(pair=0)}


@evidence("CS-1.9")
def _(tables: Dataset) -> dict[str, Any]:
    return {"value": tables.period.sel(pair=WIDTH // 2 - 1)}


@evidence("CS-1.10")
def _(reading: Dataset) -> dict[str, Any]:
    far = reading.sel(length=LENGTHS[-1])
    return {
        "fine": {"value": far.near.sel(band="all")},
        "coarse": {"value": far.tenth.sel(band="all")},
        "fastest": {"value": far.tenth.sel(band="fastest")},
        "slowest": {"value": far.near.sel(band="slowest")},
    }


@evidence("CS-1.11")
def _(tables: Dataset) -> dict[str, Any]:
    parts: dict[str, Any] = {
        p: {
            "error": tables.exp_log.sel(precision=p).values.ravel(),
            "control": tables.exp_log_control.sel(precision=p),
        }
        for p in PRECISIONS
    }
    n = tables.sizes["distance"]
    return {**parts, "rows": {"value": [n, n]}}


@evidence("CS-6.1")
def _(tables: Dataset, drawn: Dataset) -> dict[str, Any]:
    return {
        "relative": {"error": tables.stray, "control": drawn.closed_control},
        "smooth": {"value": len(rises(_similar(tables)))},
    }


@evidence("DA-2.4")
def _(drawn: Dataset) -> dict[str, Any]:
    return {"error": drawn.shuffled, "control": drawn.shuffled_control}


@evidence("DA-2.5")
def _(tables: Dataset) -> dict[str, Any]:
    return {"error": tables.exp_log_16, "control": tables.exp_log_16_control}


@evidence("DA-2.6")
def _(tables: Dataset) -> dict[str, Any]:
    return {"value": tables.nearest_16, "control": tables.nearest_16_control}


@evidence("DA-2.7")
def _(tables: Dataset) -> dict[str, Any]:
    period = tables.period_16.isel(seed=0).values
    return {
        "rates": {"error": tables.rates_16.values.ravel(), "control": tables.rates_16_control},
        "scales": {"value": period[1:] / period[:-1]},
    }


@evidence("DA-2.8")
def _(reversal: Dataset) -> dict[str, Any]:
    accuracy = {name: reversal.accuracy.sel(arm=name) for name in ARMS}
    told: dict[str, Any] = {
        name: {"treatment": accuracy[name], "baseline": accuracy["none"]}
        for name in ("sinusoidal", "learned", "random")
    }
    floor = np.full(reversal.sizes["seed"], TASK.bag_accuracy())
    return {
        **told,
        "none": {
            "treatment": accuracy["none"],
            "baseline": floor,
            "control": accuracy["sinusoidal"],
        },
    }


@evidence("EX-3.1")
def _(drawn: Dataset, tables: Dataset) -> dict[str, Any]:
    return {
        "definition": {"error": drawn.module, "control": drawn.module_control},
        "batch": {"error": drawn.stream, "control": drawn.stream_control},
        "odd": {"value": tables.refused / 50},
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def bag_accuracy() -> float:
    """The best accuracy on reversal that the bag of tokens allows."""
    return TASK.bag_accuracy()


def _period(tables: Dataset, pair: int) -> float:
    return float(tables.period.sel(pair=pair).isel(seed=0))


@number
def ratio(tables: Dataset) -> float:
    """A wavelength over the one before."""
    return _period(tables, 1) / _period(tables, 0)


@number
def turned_by_99(tables: Dataset) -> float:
    """Degrees by which the slowest hand turns in 99 positions."""
    return 99 * 360 / _period(tables, WIDTH // 2 - 1)


@number
def moved(tables: Dataset) -> int:
    """Hands that get at least half a turn in 99 positions."""
    return int((tables.period / 2 < 99).sum())


def _alike(tables: Dataset, distance: int) -> float:
    return float(_similar(tables)[distance] / _similar(tables)[0])


@number
def alike_1(tables: Dataset) -> float:
    """That of neighbours."""
    return _alike(tables, 1)


@number
def alike_40(tables: Dataset) -> float:
    """That of positions 40 apart."""
    return _alike(tables, 40)


@number
def alike_75(tables: Dataset) -> float:
    """That of positions 75 apart."""
    return _alike(tables, 75)


@number
def alike_99(tables: Dataset) -> float:
    """That of positions 99 apart."""
    return _alike(tables, 99)


@number
def rising(tables: Dataset) -> int:
    """Steps at which one farther is more alike."""
    return len(rises(_similar(tables)))


@number
def first_rise(tables: Dataset) -> int:
    """The first of them."""
    return int(rises(_similar(tables))[0])


@number
def climb(tables: Dataset) -> float:
    """The largest climb, as a share of the similarity at distance 0."""
    return largest_climb(_similar(tables))[0] / float(_similar(tables)[0])


@number
def climb_foot(tables: Dataset) -> int:
    """Where it begins."""
    return largest_climb(_similar(tables))[1]


@number
def climb_top(tables: Dataset) -> int:
    """Where it ends."""
    return largest_climb(_similar(tables))[2]


@number
def wrong_order(tables: Dataset) -> float:
    """Share of pairs of distances of which the farther is the more alike."""
    return wrong_order_share(_similar(tables))


@number
def trend(tables: Dataset) -> float:
    """Rank correlation of similarity and distance."""
    values = _similar(tables)
    return float(np.corrcoef(np.arange(len(values)), values.argsort().argsort())[0, 1])


@number
def control_error(drawn: Dataset, reversal: Dataset) -> float:
    """The smallest deviation from the mean at the same offset of a random or a trained table."""
    trained = [offset_deviation(torch.tensor(dots)) for dots in reversal.learned.values]
    return float(min(*drawn.closed_control.values, *trained))


@number
def one_step_apart(reversal: Dataset) -> DataArray:
    """Distance of the closest two random vectors, as a multiple of a word's length."""
    return reversal.nearest.sel(arm="random") / reversal.word


@number
def faintest_apart(reversal: Dataset) -> DataArray:
    """The same for the shortest random vectors."""
    return reversal.nearest.sel(arm="random 0.1") / reversal.word


@number
def slowest_apart(reversal: Dataset) -> DataArray:
    """The same for the slowest third of the sinusoids."""
    return reversal.nearest.sel(arm="slowest third") / reversal.word
