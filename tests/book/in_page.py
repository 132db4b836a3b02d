"""Arrays that a page hands over: as the bytes of single precision, which are read a hundred times faster than
the same numbers written out."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

PACKING = """
  // Arrays of single precision, in base64.
  window.handed = (arrays) => arrays.map((array) => {
    const bytes = new Uint8Array(Float32Array.from(array).buffer);
    let text = "";
    for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return btoa(text);
  });
"""


def taken(handed: list[str]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """The arrays that `handed` of a page has packed."""
    return [np.frombuffer(base64.b64decode(each), "<f4").astype(np.float64) for each in handed]


def gap(found: Any, wanted: Any) -> float:
    """The largest difference between two arrays of one size."""
    return float(np.abs(found.reshape(wanted.shape) - np.asarray(wanted, np.float64)).max())
