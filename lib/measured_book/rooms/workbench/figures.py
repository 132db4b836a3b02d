"""Figures of *The workbench*: what heads do on average."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import look, theme, themed
from xarray import Dataset

from measured_book.figures.plots import subplots

SHOWN = {
    "first": "weight on the first token",
    "previous": "weight on the previous token",
    "induction": "weight on the token after the earlier copy",
    "harm": "nats lost without the head",
}
"""What is drawn, by the name of the variable."""


@themed
def plot_heads(manual: Dataset, grammar: Dataset) -> Figure:
    """Draw for every head of both models what it does on average, a marker a head, a row a quantity."""
    figure, panels = subplots(len(SHOWN), 1, height=1.25, sharex=True)
    names: list[str] = []
    for model, result, concept in (("M", manual, "attention"), ("G", grammar, "residual")):
        first = result.isel(seed=0)
        layers, heads = first.sizes["layer"], first.sizes["head"]
        start = len(names)
        names += [f"{model}{layer}.{head}" for layer in range(layers) for head in range(heads)]
        places = np.arange(start, len(names))
        style = look(concept) | {"linestyle": "none"}
        for panel, variable in zip(panels, SHOWN, strict=True):
            values = first[variable].values.ravel()
            panel.vlines(places, 0, values, color=style["color"], linewidth=2)
            panel.plot(places, values, **style)
    for panel, words in zip(panels, SHOWN.values(), strict=True):
        panel.set_title(words, fontsize=11, loc="left")
        panel.margins(y=0.15)
        panel.set_xlim(-0.7, len(names) - 0.3)
        panel.axhline(0, color=theme().ink, linewidth=0.8)
    panels[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=9)
    panels[-1].set_xlabel("layer and head of the manual's model (M) and the grammar's (G)")
    return figure
