"""Figure of what experts gain after 20 tokens per weight: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, panels, strips
from measured_book.rooms.experts_at_length.measure import DENSE

ARMS: Arms = {
    DENSE: ("none", "dense"),
    "one of 8": ("ffn", "one of 8"),
    "two of 16": ("alibi", "two of 16"),
    "four of 32": ("residual", "four of 32"),
    "sigmoids": ("attention", "two of 16, sigmoids"),
    "z-loss": ("norm", "two of 16, z-loss"),
    "untrained router": ("random", "two of 16, untrained router"),
    "table": ("learned", "two of 16, table of bytes"),
}
"""What an arm is drawn as and called, from top to bottom."""


@themed
def plot_gained(gained: Dataset) -> Figure:
    """Draw (a) the loss of every arm, (b) the load of the busiest expert, a mean of the blocks; every seed.

    Args:
        gained: the result of this name.
    """
    figure, (losses, loads) = panels(2, 1, height=0.7 + 0.27 * len(ARMS))
    label = "loss on held-out text, nats per byte"
    dense = float(gained.loss.sel(arm=DENSE).mean())
    strips(losses, gained.loss, ARMS, over="arm", label=label, reference=dense)
    routed = {arm: how for arm, how in ARMS.items() if arm != DENSE}
    label = "load of the busiest expert, in even shares"
    strips(loads, gained.busiest.mean("block"), routed, over="arm", label=label, reference=1.0)
    return figure
