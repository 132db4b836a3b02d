"""Figures about tables of facts: how many a model stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from measured_transformer.analysis.fact_counts import STORED, Stored
from measured_transformer.viewer.style import look, theme, themed

from measured_book.figures.plots import (
    panel_letters,
    seed_strip,
    subplots,
)


@themed
def plot_stored(found: Mapping[str, Sequence[Stored]], concepts: Mapping[str, str]) -> Figure:
    """Draw the share recalled over the size of the table, and beneath it how many facts each seed stores.

    Args:
        found: name of the model -> one count a seed.
        concepts: the same names -> key of `COLOURS`.
    """
    figure, (above, below) = subplots(
        2, 1, height=3.0, sharex=True, height_ratios=(4, 0.8 * len(found))
    )
    sizes = sorted({size for counts in found.values() for one in counts for size in one.tried})
    for name, counts in found.items():
        style = look(concepts[name])
        for number, one in enumerate(counts):
            tried = sorted(one.tried.items())
            above.plot(
                [size for size, _ in tried], [share for _, share in tried], color=style["color"],
                marker=style["marker"], linestyle=style["linestyle"], linewidth=1.2, markersize=5,
                alpha=0.75, label=name if number == 0 else "_nolegend_",
            )  # fmt: skip
    above.axhline(STORED, color=theme().ink, linestyle=":", linewidth=1.2)
    above.set_ylabel("share recalled")
    above.legend(loc="lower left")
    seed_strip(
        below,
        {name: [one.number for one in counts] for name, counts in found.items()},
        label="facts in the table",
        concepts=concepts,
    )
    below.set_xscale("log")
    below.set_xlim(min(sizes) / 1.1, max(sizes) * 1.1)
    below.set_xticks(sizes, [str(size) for size in sizes])
    below.minorticks_off()
    panel_letters((above, below))
    return figure
