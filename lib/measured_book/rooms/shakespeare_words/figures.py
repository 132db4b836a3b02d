"""Figure of the sheet's models after one and after twenty epochs of Shakespeare's words: results in, drawing out."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, name_ends, panels, plain_ticks, strips

ARMS: Arms = {
    "one layer": ("attention", "one layer"),
    "two layers": ("attention", "two layers"),
    "three layers": ("attention", "three layers"),
    "six layers": ("attention", "six layers"),
    "LSTM": ("residual", "LSTM"),
    "two layers at 0.001": ("none", "two layers at 0.001"),
    "LSTM at 0.001": ("none", "LSTM at 0.001"),
}
"""What an arm is drawn as and called, from top to bottom."""


RACERS: Arms = {"two layers": ("attention", "two layers"), "LSTM": ("residual", "LSTM")}
"""The two that are trained for twenty epochs."""


@themed
def plot_epoch(epoch: Dataset, at_the_default: Dataset, text: Dataset, twenty: Dataset) -> Figure:
    """Draw perplexities on held-out words, (a) after one epoch, of every model, and (b) over twenty, of two.

    Args:
        epoch, at_the_default, text, twenty: the results of these names.
    """
    plain = at_the_default.validation
    plain = plain.assign_coords(model=[f"{name} at 0.001" for name in plain.model.values])
    perplexity = np.exp(xarray.concat([epoch.validation, plain], "model"))
    rows = [0.7 + 0.27 * len(ARMS), 2.4]
    figure, (upper, lower) = panels(2, height=sum(rows) / 2, height_ratios=rows)
    frequent = float(np.exp(text.unigram.mean()))
    label = "perplexity on held-out words"
    strips(upper, perplexity, ARMS, over="model", label=label, reference=frequent)
    curves(lower, np.exp(twenty.validation), "epoch", RACERS, over="model", names="end")
    lower.set_yscale("log")
    lower.set_xlim(0.5, 24.5)
    plain_ticks(lower.xaxis, (1, 5, 10, 15, 20))
    lower.set_xlabel("epochs at a rate of 0.001")
    lower.set_ylabel("perplexity")
    return figure
