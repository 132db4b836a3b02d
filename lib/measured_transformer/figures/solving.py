"""Figures about whether and when runs solve their task: measurements in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.plots import (
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import theme, themed

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


@themed
def steps_strip(rows: Mapping[str, tuple[str, Solved]]) -> Figure:
    """Draw one row an arm: the steps that each run took.

    Args:
        rows: name -> (placement, when its runs solved the task).
    """
    figure, axes = subplots(height=0.6 + 0.55 * len(rows))
    seed_strip(
        axes,
        {name: found.steps for name, (_, found) in rows.items()},
        label="steps to a loss of 0.05",
        concepts={name: CONCEPTS[where] for name, (where, _) in rows.items()},
    )
    return figure


@themed
def success_map(
    counts: Mapping[str, Float[np.ndarray, "depth rate"]],
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int,
) -> Figure:
    """Draw how many runs solve the task, one panel an arm, with the number in each cell.

    Args:
        counts: title of a panel -> (depth, rate) number of runs that solve it; not a number where none was
            trained, for which a dash is drawn.
        depths: numbers of blocks, the rows.
        rates: learning rates, the columns.
        seeds: number of runs of each cell.
    """
    rows = -(-len(counts) // 2)
    figure, axes = subplots(rows, 2, height=1.0 + 0.5 * len(depths), sharex=True, sharey=True)
    panels = np.ravel(axes)
    for panel in panels[len(counts) :]:
        panel.set_visible(False)
    for panel, (arm, found) in zip(panels, counts.items(), strict=False):
        shown = np.asarray(found, dtype=float)
        panel.imshow(shown / seeds, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        panel.grid(visible=False)
        for (i, j), number in np.ndenumerate(shown):
            if np.isfinite(number):
                ink, word = "black" if number > 0.6 * seeds else "white", f"{number:.0f}"
            else:
                ink, word = theme().ink, "-"
            panel.text(j, i, word, ha="center", va="center", color=ink, fontsize=10)
        panel.set_title(arm, loc="left")
        panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        panel.set_yticks(range(len(depths)), [str(depth) for depth in depths])
        panel.tick_params(length=0)
    for panel in np.atleast_2d(axes)[:, 0]:
        panel.set_ylabel("blocks")
    for panel in np.atleast_2d(axes)[-1]:
        panel.set_xlabel("learning rate")
    return figure
