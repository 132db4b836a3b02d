"""Figures of sequences longer than those of training: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.parts.positions import frequencies
from measured_transformer.parts.rotary_scaling import (
    interpolation,
    ntk_aware,
    ntk_by_parts,
    turns,
)
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    mean_and_bar,
    panel_letters,
    seed_lines,
    subplots,
)

SHOWN = {
    "none": ("none", "none"),
    "learned": ("learned", "learned"),
    "sinusoidal": ("sinusoidal", "sinusoidal"),
    "relative": ("ffn", "T5's bias"),
    "alibi": ("alibi", "ALiBi"),
    "rotary": ("rotary", "rotary"),
}
"""Scheme -> its concept in the palette and its name in figures."""
METHODS = {
    "as trained": ("rotary", "as trained"),
    "interpolation": ("residual", "interpolation"),
    "NTK-aware": ("ffn", "NTK-aware"),
    "by parts": ("attention", "by parts"),
    "YaRN": ("learned", "YaRN"),
}
"""Method on a rotary model -> its concept in the palette and its name in figures."""
_KEPT = {
    "everything": ("rotary", "everything"),
    "window": ("attention", "the last 32"),
    "window and start": ("ffn", "the start token\nand the last 31"),
}
Place = tuple[int | float, int | float]
Places = Mapping[str, Place]


@themed
def plot_dials(d_head: int = 16, trained: int = 32, factor: int = 8, pairs: int = 6) -> Figure:
    """Draw each pair of a rotary head as a dial: the angles of trained distances, and those of longer ones.

    Args:
        d_head: width of the head.
        trained: length of training; distances 0 to `trained` - 1 have occurred.
        factor: how many times longer the sequences are that are to be read.
        pairs: how many of the pairs to draw, from the fastest on.
    """
    columns = 3
    figure, axes = subplots(-(-pairs // columns), columns, height=2.35, squeeze=False)
    omega = frequencies(d_head).numpy()
    for i, panel in enumerate(axes.flat):
        panel.set_aspect("equal")
        panel.axis("off")
        if i >= pairs:
            continue
        panel.set_xlim(-1.45, 1.45)
        panel.set_ylim(-1.75, 1.35)
        for radius in (0.78, 1.0):
            full = np.linspace(0, 2 * np.pi, 200)
            panel.plot(
                radius * np.sin(full),
                radius * np.cos(full),
                color=theme().faint,
                linewidth=6,
                solid_capstyle="butt",
                zorder=1,
            )
        _arc(panel, 0.78, omega[i] * np.arange(trained), "sinusoidal")
        _arc(panel, 1.0, omega[i] * np.arange(trained, factor * trained), "rotary")
        panel.plot([0, 0], [0, 0.62], color=theme().ink, linewidth=1.5)
        panel.plot(0, 0, "o", color=theme().ink, markersize=4)
        made = omega[i] * trained / (2 * np.pi)
        panel.text(0, -1.42, f"pair {i}", ha="center", fontsize=11, color=theme().ink)
        panel.text(0, -1.72, _turns(made), ha="center", fontsize=9.5, color=theme().ink)
    return figure


def _turns(made: float) -> str:
    return f"{made:.1f} turns" if made >= 1 else f"{made:.2f} of a turn"


def _arc(axes: Axes, radius: float, angles: np.ndarray, concept: str) -> None:
    """Mark angles on a ring, clockwise from the top."""
    for angle in np.unique(np.round(angles % (2 * np.pi), 4)):
        across, up = np.sin(angle), np.cos(angle)
        axes.plot(
            [(radius - 0.09) * across, (radius + 0.09) * across],
            [(radius - 0.09) * up, (radius + 0.09) * up],
            color=COLOURS[concept],
            linewidth=1.1,
            zorder=2,
        )


@themed
def plot_reading(
    panels: Sequence[tuple[Mapping[str, DataArray], float, Places]], *, trained: int, top: float
) -> Figure:
    """Draw excess loss by position for each scheme, a panel a rule, every seed faint.

    Args:
        panels: each scheme's excess (bucket, seed), that of guessing, and where to write each scheme's name; a
            scheme without a place is not drawn.
        trained: the trained length, which is shaded.
        top: end of the axis in nats.
    """
    figure, axes = subplots(len(panels), 1, height=3.3, sharex=True, squeeze=False)
    for panel, (excess, chance, places) in zip(axes[:, 0], panels, strict=True):
        for scheme, at in places.items():
            concept, name = SHOWN[scheme]
            _line(panel, excess[scheme], concept)
            _name(panel, name, at, concept)
        _frame(panel, trained, chance)
        panel.set_ylim(-0.08, top)
        panel.set_ylabel("excess loss (nats)")
    axes[-1, 0].set_xlabel("position")
    panel_letters(axes[:, 0])
    return figure


def _name(axes: Axes, text: str, at: Place, concept: str) -> None:
    """Write a line's name beside it, in its colour, on the page's own so that it can be read over lines."""
    ground = {"facecolor": theme().paper, "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
    axes.text(*at, text, color=COLOURS[concept], fontsize=10, va="center", bbox=ground, zorder=5)


def _line(axes: Axes, values: DataArray, concept: str) -> None:
    rows = values.transpose("seed", "bucket").values
    across = values.bucket.values + (values.bucket.values[1] - values.bucket.values[0]) / 2
    seed_lines(axes, across, rows, concept=concept, label="", marker_every=4)


def _frame(axes: Axes, trained: int, chance: float | None) -> None:
    axes.axvspan(0, trained, color=theme().faint, alpha=0.6, lw=0)
    axes.axhline(0, color=theme().ink, linewidth=1)
    if chance is not None:
        axes.axhline(chance, color=theme().ink, linewidth=1.2, linestyle=":")
    axes.set_xlim(0, None)
    axes.margins(x=0)


@themed
def plot_slowing(
    d_head: int = 128, trained: int = 4096, factor: float = 8.0, base: float = 10000.0
) -> Figure:
    """Draw by how much each method slows each pair of a head, over how often the pair turns in training."""
    figure, axes = subplots(height=3.6)
    omega = frequencies(d_head, base=base)
    across = turns(omega, float(trained)).numpy()
    parts = ntk_by_parts(d_head, factor, float(trained), base=base)
    curves = {
        "as trained": omega,
        "interpolation": interpolation(omega, factor),
        "NTK-aware": ntk_aware(d_head, factor, base=base),
        "by parts": parts,
    }
    where = {
        "as trained": (8.0, 1.05),
        "interpolation": (260.0, 0.185),
        "NTK-aware": (260.0, 0.46),
        "by parts": (21.0, 0.8),
    }
    for method, frequency in curves.items():
        concept, name = METHODS[method]
        axes.plot(across, (frequency / omega).numpy(), **look(concept) | {"markersize": 3.5})
        told = "by parts, YaRN" if method == "by parts" else name
        _name(axes, told, where[method], concept)
    axes.axvline(1, color=theme().ink, linewidth=1, linestyle=":")
    axes.text(0.9, 0.7, "one turn", fontsize=9.5, va="center")
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.xaxis.set_major_locator(FixedLocator([1000, 100, 10, 1, 0.1]))
    axes.set_xticklabels(["1000", "100", "10", "1", "0.1"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.2)
    axes.yaxis.set_major_locator(FixedLocator([0, 1 / factor, 0.5, 1]))
    axes.set_yticklabels(["0", f"1/{factor:.0f}", "1/2", "1"])
    axes.set_xlabel("turns of the pair within the trained length (fast pairs to the left)")
    axes.set_ylabel("new frequency / old")
    return figure


@themed
def plot_methods(
    text: Dataset,
    more: tuple[DataArray, DataArray],
    *,
    trained: int,
    places: Places,
) -> Figure:
    """Draw what a language model loses by position against a window, by method; and after more training.

    Args:
        text: the result ``text``; its window is the zero line.
        more: the same before and after more training, (method, seed) each.
        trained: the trained length, which is shaded.
        places: where to write each method's name in the first panel.
    """
    figure, axes = subplots(2, 1, height=3.4)
    zero = text.limited.sel(kept="window")
    for method, at in places.items():
        concept, name = METHODS[method]
        _line(axes[0], text.loss.sel({"method": method}) - zero, concept)
        _name(axes[0], name, at, concept)
    _frame(axes[0], trained, None)
    axes[0].set_xlabel("position")
    axes[0].set_ylabel("nats per character\nmore than with a window")
    before, after = more
    for row, method in enumerate(before.method.values):
        concept, _ = METHODS[str(method)]
        for values, filled in ((before, False), (after, True)):
            mean, low, high = mean_and_bar(values.sel({"method": method}).values)
            colour = COLOURS[concept]
            every = values.sel({"method": method}).values
            axes[1].plot(
                every, np.full(every.shape, row), "o", color=colour, alpha=0.4, ms=5, mew=0
            )
            axes[1].plot([low, high], [row, row], color=theme().ink, linewidth=1.4, zorder=3)
            axes[1].plot(
                mean,
                row,
                marker="D",
                markersize=8,
                color=colour if filled else theme().paper,
                mec=colour,
                mew=1.6,
                zorder=4,
            )
    axes[1].axvline(0, color=theme().ink, linewidth=1, linestyle="--")
    axes[1].set_yticks(
        range(before.method.size), [METHODS[str(m)][1] for m in before.method.values]
    )
    axes[1].set_ylim(before.method.size - 0.5, -0.5)
    axes[1].grid(visible=False, axis="y")
    axes[1].set_xlabel("nats per character more than with a window,\npositions 128 to 255")
    panel_letters(axes)
    return figure


@themed
def plot_evicted(lately: Dataset, *, trained: int, chance: float, places: Places) -> Figure:
    """Draw the loss on 'seen lately' by position, by what the model may attend to, every seed faint.

    Args:
        lately: the result ``lately``.
        trained: the trained length, which is shaded.
        chance: the loss of guessing by how frequent the answers are.
        places: where to write the name of each thing kept.
    """
    figure, axes = subplots(height=3.9)
    for kept, (concept, name) in _KEPT.items():
        _line(axes, lately.loss.sel(kept=kept), concept)
        _name(axes, name, places[kept], concept)
    _frame(axes, trained, chance)
    axes.text(254, chance + 0.06, "guessing", ha="right", fontsize=9.5, color=theme().ink)
    axes.set_xlabel("position")
    axes.set_ylabel("loss (nats)")
    return figure
