"""Drawings as small PNGs: with a palette, where 256 colours are enough to draw the same.

Most colours of a drawing are blends, a few pixels each, along the edges of lines and letters. A colour that
fills an area keeps its value; of the blends, those that are alike share one.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

_COLOURS = 256
_EFFORT = 9
"""Of the compression: a tenth smaller than by default, for some hundredths of a second a drawing."""
_AREA = 1 / 2500
"""Share of all pixels from which a colour fills an area."""
_STEPS = (16, 24, 32)
_NEAR, _FARTHEST, _FEW = 16, 48, 1 / 100
"""How far a blend is moved, of the 255 values of a channel: by the first at most, but in this share of all
pixels by the second. A drawing that needs more keeps all its colours."""


def png(pixels: UInt8[np.ndarray, "row column 4"], **saved: Any) -> bytes:
    """Write an image as a PNG, with a palette where that changes nothing that can be seen.

    Args:
        pixels: red, green, blue and opacity.
        saved: what else `PIL.Image.Image.save` is to write.
    """
    stream = io.BytesIO()
    image = _with_palette(pixels) or Image.fromarray(pixels)
    image.save(stream, format="png", **{"compress_level": _EFFORT, **saved})
    return stream.getvalue()


def _with_palette(pixels: UInt8[np.ndarray, "row column 4"]) -> Image.Image | None:
    rows, columns, _ = pixels.shape
    packed = np.ascontiguousarray(pixels).view(np.uint32).ravel()
    # Neighbours are mostly equal, so what follows counts runs of them.
    starts = np.flatnonzero(np.concatenate(([True], packed[1:] != packed[:-1])))
    lengths = np.diff(np.append(starts, packed.size))
    colours, of_run = np.unique(packed[starts], return_inverse=True)
    counts = np.bincount(of_run, weights=lengths).astype(np.int64)
    rgba = colours.view(np.uint8).reshape(-1, 4)
    found = _chosen(rgba, counts)
    if found is None:
        return None
    chosen, entry = found
    indices = np.repeat(entry[of_run].astype(np.uint8), lengths).reshape(rows, columns)
    image = Image.fromarray(indices)
    palette = rgba[chosen]
    if (palette[:, 3] == 255).all():
        image.putpalette(palette[:, :3].tobytes(), "RGB")
    else:
        image.putpalette(palette.tobytes(), "RGBA")
    return image


def _chosen(
    rgba: UInt8[np.ndarray, "colour 4"], counts: Int[np.ndarray, " colour"]
) -> tuple[Int[np.ndarray, " entry"], Int[np.ndarray, " colour"]] | None:
    """Return which colours make up the palette, and the entry of each colour; None where 256 are too few."""
    if len(rgba) <= _COLOURS:
        return np.arange(len(rgba)), np.arange(len(rgba))
    seen = rgba.astype(np.int32)
    seen[:, :3] = seen[:, :3] * seen[:, 3:] // 255  # of what is transparent, the colour is not seen
    fills = counts >= counts.sum() * _AREA
    for step in _STEPS:
        alike = (seen // step) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        alike[fills] = -1 - np.arange(fills.sum())
        order = np.argsort(-counts, kind="stable")
        _, first, group = np.unique(alike[order], return_index=True, return_inverse=True)
        size = np.bincount(group, weights=counts[order])
        size[fills[order][first]] += counts.sum()
        chosen = order[first[np.argsort(-size, kind="stable")[:_COLOURS]]]
        distance = np.zeros((len(rgba), len(chosen)), np.int32)
        for channel in range(4):
            apart = np.abs(seen[:, channel, None] - seen[chosen, channel])
            np.maximum(distance, apart, out=distance)
        moved = distance.min(axis=1)
        few = counts[moved > _NEAR].sum() <= _FEW * counts.sum()
        if fills.sum() <= _COLOURS and moved.max() <= _FARTHEST and few:
            return chosen, distance.argmin(axis=1)
    return None
