"""What single layers have otherwise: `layer_types`, windows and the like, as fields of a `Config` and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from measured_transformer.interop.family import MisfitError
from measured_transformer.models.config import Config, Layer

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_types(theirs: Mapping[str, Any], otherwise: Sequence[str]) -> list[str]:
    """The kind of each layer's attention, where the settings do not tell it those given.

    Raises:
        ValueError: when there are other kinds than full and sliding, or not as many as layers.
    """
    kinds = theirs.get("layer_types")
    kinds = list(otherwise) if kinds is None else kinds
    if not isinstance(kinds, list | tuple) or len(kinds) != len(otherwise):
        raise ValueError(
            f"layer_types must name one kind for each of the {len(otherwise)} layers, got {kinds!r}"
        )
    if other := [kind for kind in kinds if kind not in (FULL, SLIDING)]:
        raise ValueError(
            f"this checkpoint has {other[0]!r} in layer_types, which this library does not compute; "
            f"supported are {FULL!r} and {SLIDING!r}"
        )
    return list(kinds)


def windows(kinds: Sequence[str], window: int | None) -> list[int | None]:
    """The window of each layer. Raises ValueError when a layer slides and no `sliding_window` is told."""
    if SLIDING in kinds and window is None:
        raise ValueError(
            f"layer_types has {SLIDING!r}, which needs a sliding_window; got sliding_window=None"
        )
    return [window if kind == SLIDING else None for kind in kinds]


def by_layer(**given: Sequence[Any]) -> dict[str, Any]:
    """Fields of a `Config` from what each of its layers has: what all have, and `layers` for the rest.

    >>> found = by_layer(window=[8, None, 8, None], positions=["rotary"] * 4)
    >>> found["positions"], [layer.window for layer in found["layers"]]
    ('rotary', [8, None])
    >>> by_layer(window=[8, 8])
    {'window': 8, 'layers': ()}
    """
    # A Layer takes back neither what is None nor the rotation of the whole model.
    common = {
        name: next((value for value in (None, "rotary") if value in values), values[0])
        for name, values in given.items()
    }
    rows = [
        {name: value for name, value in zip(given, values, strict=True) if value != common[name]}
        for values in zip(*given.values(), strict=True)
    ]
    if not any(rows):
        return {**common, "layers": ()}
    layers = tuple(Layer(**row) for row in rows)
    n = len(layers)
    period = next(p for p in range(1, n + 1) if all(layers[i] == layers[i % p] for i in range(n)))
    return {**common, "layers": layers[:period]}


def write_types(config: Config) -> tuple[list[str], int | None]:
    """The kind of each layer's attention and the window of those that slide.

    Raises:
        MisfitError: when layers have different windows.
    """
    found = [config.of_layer(i).window for i in range(config.n_layers)]
    sizes = sorted({window for window in found if window is not None})
    if len(sizes) > 1:
        raise MisfitError(
            f"all windows must have one size, are {', '.join(str(size) for size in sizes)}"
        )
    return [FULL if window is None else SLIDING for window in found], sizes[0] if sizes else None
