"""Readings of *Inside one layer* that no expression says: what moves what, and what published layers hold."""

from __future__ import annotations

from xarray import Dataset

from measured_book.measuring import number
from measured_book.rooms.one_layer.measure import BERT, KINDS, LLAMA, NAMES, costs


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


@number
def operation_count(*, kind: str) -> int:
    """Operations of a kind of layer."""
    return len(NAMES[kind])


@number
def mixing_count(mixing: Dataset, *, kind: str) -> int:
    """Those among them that read other tokens."""
    return sum(alone for _, _, alone in moves(mixing, kind))


_PUBLISHED = {"bert": BERT, "llama": LLAMA}


@number
def millions(*, model: str) -> float:
    """Million parameters of a layer of BERT base ('bert') or of Llama 3 8B ('llama')."""
    return sum(one.parameters for one in costs(_PUBLISHED[model], length=1)) / 1e6


@number
def parameter_share(*, model: str, part: str) -> float:
    """Share of a part, 'ffn' or 'norm', in the parameters of such a layer."""
    found = costs(_PUBLISHED[model], length=1)
    chosen = sum(one.parameters for one in found if one.part == part)
    return chosen / sum(one.parameters for one in found)


@number
def mixing_share(*, model: str, length: int) -> float:
    """Share of the operations that mix tokens in its matrix products, at a length."""
    found = costs(_PUBLISHED[model], length=length)
    return sum(one.flops for one in found if one.mixes) / sum(one.flops for one in found)
