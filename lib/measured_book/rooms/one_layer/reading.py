"""How the results of *Inside one layer* are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measured_transformer.models.config import Config
from xarray import Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.one_layer.measure import (
    BERT,
    DEPTH,
    KINDS,
    LLAMA,
    NAMES,
    costs,
    expected_share,
)

# What the claims are judged by ---------------------------------------------------------------------


@evidence("DD-1.1")
def _(forms: Dataset) -> dict[str, Any]:
    return {
        mode: {"error": forms.six.sel(mode=mode), "control": forms.six_control.sel(mode=mode)}
        for mode in ("eval", "train")
    }


@evidence("EX-1.5")
def _(forms: Dataset) -> dict[str, Any]:
    return {
        name: {"error": forms[name], "control": forms.norm_first} for name in ("staged", "nested")
    }


@evidence("DD-6.2")
def _(widths: Dataset) -> dict[str, Any]:
    return {"value": widths.tap_width.isel(seed=0)}


@evidence("DD-6.3")
def _(widths: Dataset) -> dict[str, Any]:
    return {"value": widths.stream_width.isel(seed=0)}


@evidence("DD-13.1")
def _(forms: Dataset) -> dict[str, Any]:
    return {"error": np.maximum(forms.told, forms.wider), "control": forms.skipped}


# Numbers that the prose names ----------------------------------------------------------------------


def moves(mixing: Dataset, kind: str) -> list[tuple[str, bool, bool]]:
    """Each operation, whether a change before the layer moves it, and whether one before the operation does.

    Raises:
        ValueError: something moves in some of the layers and not in others.
    """

    def moved(what: str, place: int, name: str) -> bool:
        i = KINDS.index(kind)
        each = mixing[f"{what}_{i}"].isel({f"operation_{i}": place}).values > 1e-9
        if each.any() != each.all():
            raise ValueError(f"expected {name} to move in all layers or in none, got some")
        return bool(each.all())

    return [
        (name, moved("through", place, name), moved("alone", place, name))
        for place, name in enumerate(NAMES[kind])
    ]


def _mixing_count(mixing: Dataset, kind: str) -> int:
    return sum(alone for _, _, alone in moves(mixing, kind))


@number
def operation_count() -> int:
    """Operations of the layer of 2017."""
    return len(NAMES["2017"])


@number
def operation_count_today() -> int:
    """Operations of today's layer."""
    return len(NAMES["today"])


@number
def mixing_count(mixing: Dataset) -> int:
    """Operations of the layer of 2017 that read other tokens."""
    return _mixing_count(mixing, "2017")


@number
def mixing_count_today(mixing: Dataset) -> int:
    """Those of today's layer."""
    return _mixing_count(mixing, "today")


def _share(config: Config, quantity: str, part: str, length: int = 512) -> float:
    found = costs(config, length=length)
    whole = sum(getattr(one, quantity) for one in found)
    chosen = (one for one in found if (one.mixes if part == "mixing" else one.part == part))
    return float(sum(getattr(one, quantity) for one in chosen) / whole)


@number
def bert_millions() -> float:
    """Million parameters of a layer of BERT base."""
    return sum(one.parameters for one in costs(BERT, length=1)) / 1e6


@number
def llama_millions() -> float:
    """Million parameters of a layer of Llama 3 8B."""
    return sum(one.parameters for one in costs(LLAMA, length=1)) / 1e6


@number
def bert_network() -> float:
    """Share of the network in the parameters of a layer of BERT base."""
    return _share(BERT, "parameters", "ffn")


@number
def llama_network() -> float:
    """Share of the network in the parameters of a layer of Llama 3 8B."""
    return _share(LLAMA, "parameters", "ffn")


@number
def bert_norms() -> float:
    """Share of the norms in the parameters of a layer of BERT base."""
    return _share(BERT, "parameters", "norm")


@number
def bert_mixing() -> float:
    """Share of the operations that mix tokens in the matrix products of BERT base, at 512 tokens."""
    return _share(BERT, "flops", "mixing", 512)


@number
def llama_mixing() -> float:
    """The same of Llama 3 8B, at 8192 tokens."""
    return _share(LLAMA, "flops", "mixing", 8192)


@number
def left_by_formula() -> float:
    """Share of the entries that dropout of a tenth behind 24 additions leaves, by the formula."""
    return expected_share(0.1, 2 * DEPTH)


@number
def grown() -> float:
    """How many times as large the entries are that are left."""
    return float(0.9 ** (-2 * DEPTH))
