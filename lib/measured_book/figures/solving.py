"""What placements of norms are called and drawn as, on all figures of runs that solve their task or do not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from measured_transformer.viewer.style import look, theme

CONCEPTS: Mapping[str, str] = {
    "pre": "residual",
    "post": "norm",
    "sandwich": "attention",
    "deep": "ffn",
    "qk": "learned",
    "none": "none",
}
"""What a placement is drawn as, the same on all figures."""
NAMES: Mapping[str, str] = {
    "pre": "pre-norm",
    "post": "post-norm",
    "sandwich": "both sides",
    "deep": "DeepNorm",
    "qk": "queries and keys",
    "none": "no norm",
}
"""What a placement is called."""


def draw_runs(
    axes: Axes,
    row: float,
    steps: Float[np.ndarray, "run"],
    solved: Bool[np.ndarray, "run"],
    concept: str,
    *,
    height: float = 0.24,
) -> None:
    """Draw a row of runs by the steps they took: one mark for each, open where stopped, and a bar.

    Args:
        axes: where to draw; steps go across.
        row: how far up.
        steps: of each run, until it solved its task or was stopped.
        solved: whether it did.
        concept: key of `COLOURS`; gives colour and marker.
        height: how far marks lie from the row at most; the bar, at the geometric mean, is half as long again.
    """
    style = look(concept)
    beside = row + np.linspace(-height, height, len(steps))
    for chosen, face in ((solved, style["color"]), (~solved, "none")):
        axes.plot(
            steps[chosen],
            beside[chosen],
            style["marker"],
            color=style["color"],
            mfc=face,
            markersize=5,
            alpha=0.75,
        )
    middle, bar = float(np.exp(np.log(steps).mean())), 1.5 * height
    axes.plot([middle, middle], [row - bar, row + bar], color=theme().ink, linewidth=2)
