"""The drawings of a figure with few colours: one grid of numbers, and a palette for each of them.

A figure is drawn for a light and for a dark page, with the same lines at the same places. So a pixel's two
colours go together, and 256 such pairs draw all of it as the eye sees it: what differs is the shade of a few
pixels at the rim of a line. Packed, a figure takes a sixth of what its two PNG files take; unpacked, it is
two PNG files with one grid and two palettes.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_COLOURS = 256
_STEPS = 12
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INCH = 0.0254  # metres


@dataclass(frozen=True)
class Drawings:
    """Drawings of one size that share a grid.

    Attributes:
        width, height: in pixels.
        dpi: dots an inch.
        palettes: for each drawing the red, green, blue and alpha of each colour, a byte each.
        grid: the rows from above, each a zero (PNG's word for a row that is written as it is) and the
        number of each pixel's colour, a byte each.
    """

    width: int
    height: int
    dpi: float
    palettes: tuple[bytes, ...]
    grid: bytes


def pack(files: Sequence[bytes]) -> Drawings:
    """Pack one or two drawings, given as PNG files of one size.

    Raises:
        ValueError: files of several sizes, or that are no images.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        images = [Image.open(io.BytesIO(file)) for file in files]
    except UnidentifiedImageError as error:
        raise ValueError(f"expected PNG files, got something else: {error}") from error
    if len(sizes := {image.size for image in images}) != 1:
        raise ValueError(f"expected drawings of one size, got {sorted(sizes)}")
    width, height = images[0].size
    pixels = np.concatenate([np.asarray(image.convert("RGBA")) for image in images], axis=-1)
    flat = np.ascontiguousarray(pixels.reshape(height * width, -1))
    words = np.zeros((height * width, 8), np.uint8)
    words[:, : flat.shape[1]] = flat
    _, first, at, counts = np.unique(
        words.view(np.uint64).ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    colours = _weakened(flat[first].astype(np.float64))
    centres = _centres(colours, np.sqrt(counts))
    centres = centres[np.argsort(centres @ np.ones(centres.shape[1]), kind="stable")]
    grid = np.zeros((height, width + 1), np.uint8)
    grid[:, 1:] = _nearest(colours, centres)[at].reshape(height, width)
    palettes = [_bare(centres[:, k : k + 4]).tobytes() for k in range(0, centres.shape[1], 4)]
    dpi = float(images[0].info.get("dpi", (72, 72))[0])
    return Drawings(width, height, dpi, tuple(palettes), grid.tobytes())


def unpack(drawings: Drawings) -> list[bytes]:
    """The drawings as PNG files."""
    data = _chunk(b"IDAT", zlib.compress(drawings.grid, 6))
    size = struct.pack(">IIBBBBB", drawings.width, drawings.height, 8, 3, 0, 0, 0)
    dots = round(drawings.dpi / _INCH)
    head = _chunk(b"IHDR", size) + _chunk(b"pHYs", struct.pack(">IIB", dots, dots, 1))
    files = []
    for palette in drawings.palettes:
        alpha = palette[3::4]
        colours = bytes(byte for k, byte in enumerate(palette) if k % 4 < 3)
        told = _chunk(b"PLTE", colours)
        if alpha.count(255) < len(alpha):
            told += _chunk(b"tRNS", alpha)
        files.append(_SIGNATURE + head + told + data + _chunk(b"IEND", b""))
    return files


def _chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def _weakened(colours: np.ndarray) -> np.ndarray:
    """Colours as weak as they are transparent: what cannot be seen has none, whatever the file says."""
    weak = colours.copy()
    for k in range(0, colours.shape[1], 4):
        weak[:, k : k + 3] *= colours[:, k + 3 : k + 4] / 255
    return weak


def _bare(colours: np.ndarray) -> np.ndarray:
    """The colours of one drawing, with the weakening taken back."""
    alpha = colours[:, 3:].round()
    strong = np.where(alpha > 0, colours[:, :3] * 255 / np.maximum(colours[:, 3:], 1), 0)
    return np.concatenate([strong.round().clip(0, 255), alpha], axis=1).astype(np.uint8)


def _centres(colours: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The colours that stand for all: boxes of colours cut at their medians, then moved to the means."""
    if len(colours) <= _COLOURS:
        return colours
    boxes = [np.arange(len(colours))]
    while len(boxes) < _COLOURS:
        spreads = [np.ptp(colours[box], axis=0).max() ** 2 * weights[box].sum() for box in boxes]
        box = boxes.pop(int(np.argmax(spreads)))
        box = box[np.argsort(colours[box, np.ptp(colours[box], axis=0).argmax()], kind="stable")]
        half = np.searchsorted(np.cumsum(weights[box]), weights[box].sum() / 2)
        half = int(np.clip(half, 1, len(box) - 1))
        boxes += [box[:half], box[half:]]
    centres = np.array([np.average(colours[b], axis=0, weights=weights[b]) for b in boxes])
    for _ in range(_STEPS):
        nearest = _nearest(colours, centres)
        total = np.bincount(nearest, weights, len(centres))
        for k in range(colours.shape[1]):
            moved = np.bincount(nearest, weights * colours[:, k], len(centres))
            centres[:, k] = np.where(total > 0, moved / np.maximum(total, 1e-9), centres[:, k])
    return centres


def _nearest(colours: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """For each colour the number of the nearest centre."""
    distances = (centres**2).sum(1) - 2 * colours @ centres.T
    return distances.argmin(1).astype(np.uint8)
