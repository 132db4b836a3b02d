"""Figure of the sheet's models after an epoch of Shakespeare's words: results in, drawing out."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, panels, strips

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


@themed
def plot_epoch(epoch: Dataset, at_the_default: Dataset, text: Dataset) -> Figure:
    """Draw the perplexity on held-out words of every model at its own rate, and of two at Adam's default.

    Args:
        epoch, at_the_default, text: the results of these names.
    """
    plain = at_the_default.validation
    plain = plain.assign_coords(model=[f"{name} at 0.001" for name in plain.model.values])
    perplexity = np.exp(xarray.concat([epoch.validation, plain], "model"))
    figure, (axes,) = panels(height=0.7 + 0.27 * len(ARMS))
    frequent = float(np.exp(text.unigram.mean()))
    label = "perplexity on held-out words"
    strips(axes, perplexity, ARMS, over="model", label=label, reference=frequent)
    return figure
