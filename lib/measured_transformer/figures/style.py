"""One visual language for every figure: a palette, a light and a dark theme, shared plots.

A figure function is written once, in plain matplotlib, and decorated with `themed`::

    @themed
    def decay(distances, similarity):
        figure, axes = subplots()
        seed_lines(axes, distances, similarity, concept="sinusoidal")
        axes.set_xlabel("distance")
        return figure

Calling it draws the figure twice, once for a light page and once for a dark one. In a notebook the
result shows the light drawing on white; the book puts the dark one beside it.

Every colour of `COLOURS` has at least 3:1 contrast on white and on the dark page, so that a concept
keeps one colour in both. Colour is never the only sign: `look` adds a marker and a line style.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy import stats

P = ParamSpec("P")

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        # what a block is made of (after Okabe and Ito)
        "residual": "#0072b2",
        "attention": "#d55e00",
        "ffn": "#009e73",
        "norm": "#c46c9e",
        # how positions enter
        "sinusoidal": "#3c96d2",
        "learned": "#c3872d",
        "rotary": "#d2005a",
        "alibi": "#963cff",
        "none": "#5f6f66",
        "random": "#949494",
    }
)
"""Concept -> colour, the same in every figure and diagram, in light and in dark."""

_MARKS: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "residual": ("o", "-"),
        "attention": ("s", "--"),
        "ffn": ("^", "-."),
        "norm": ("D", ":"),
        "sinusoidal": ("o", "-"),
        "learned": ("s", "--"),
        "rotary": ("^", "-."),
        "alibi": ("D", (0, (5, 1, 1, 1, 1, 1))),
        "none": ("v", ":"),
        "random": ("x", (0, (1, 3))),
    }
)

WIDTH = 6.4
"""Width of a figure in inches; the page shows 100 CSS pixels an inch, a telephone about 55."""
DPI = 200
"""Dots an inch of the stored image: two for each CSS pixel."""


@dataclass(frozen=True)
class Theme:
    """What a drawing may know about the page it is drawn for.

    Attributes:
        name: "light" or "dark".
        ink: colour of text and axes.
        paper: colour of the page behind the drawing.
        faint: colour of grid lines and of what should stand back.
    """

    name: str
    ink: str
    paper: str
    faint: str


LIGHT = Theme(name="light", ink="#222832", paper="#ffffff", faint="#d5d9e0")
DARK = Theme(name="dark", ink="#e4e6eb", paper="#121212", faint="#3d4148")

_drawing_for: ContextVar[Theme] = ContextVar("drawing_for", default=LIGHT)


def theme() -> Theme:
    """Return the theme that is being drawn for; `LIGHT` outside of `themed`."""
    return _drawing_for.get()


def look(concept: str) -> dict[str, Any]:
    """Return colour, marker and line style of a concept, as keyword arguments of `Axes.plot`.

    Raises:
        ValueError: the palette has no such concept.
    """
    _known(concept)
    marker, line = _MARKS[concept]
    return {"color": COLOURS[concept], "marker": marker, "linestyle": line}


def tint(concept: str, strength: float = 0.18) -> tuple[float, float, float]:
    """Return a concept's colour mixed with the page, for areas that carry text.

    Args:
        concept: a key of `COLOURS`.
        strength: share of the colour, from 0 (the page) to 1 (the colour).

    Raises:
        ValueError: the palette has no such concept.
    """
    _known(concept)
    colour, paper = np.array(to_rgb(COLOURS[concept])), np.array(to_rgb(theme().paper))
    red, green, blue = strength * colour + (1 - strength) * paper
    return float(red), float(green), float(blue)


# Drawing once for each theme ------------------------------------------------------------------


@dataclass(frozen=True)
class ThemedFigure:
    """One figure, drawn for a light and for a dark page.

    Attributes:
        figure: the light drawing, for whoever wants to work on it.
        light: PNG on white.
        dark: PNG on a transparent ground, to lie on a dark page.
    """

    figure: Figure
    light: bytes
    dark: bytes

    @property
    def width(self) -> int:
        """Width in CSS pixels at which the figure is meant to be shown."""
        return round(self.figure.get_figwidth() * 100)

    def save(self, path: str | Path, *, dark: bool = False) -> Path:
        """Write the light (or the dark) drawing as a PNG and return where it lies.

        Raises:
            ValueError: the name ends in something other than `.png`.
        """
        path = Path(path)
        if path.suffix.lower() != ".png":
            raise ValueError(
                f"expected a file name ending in .png, got {path.name!r}; "
                "for another format use .figure.savefig"
            )
        path.write_bytes(self.dark if dark else self.light)
        return path

    def __repr__(self) -> str:
        """Say what this is; the images themselves are bytes nobody wants to see."""
        inches = self.figure.get_size_inches()
        return f"ThemedFigure({inches[0]:.1f} x {inches[1]:.1f} in)"

    def _repr_mimebundle_(
        self,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show the light drawing in a notebook and carry the dark one in the metadata."""
        data = {"image/png": _base64(self.light), "text/plain": repr(self)}
        metadata = {
            "image/png": {"width": self.width},
            "measured": {"kind": "figure", "dark": _base64(self.dark)},
        }
        return data, metadata


def themed(draw: Callable[P, Figure]) -> Callable[P, ThemedFigure]:
    """Make a function that returns a matplotlib figure draw it for both themes.

    The function is called twice with the same arguments: it must not change them, and draws random
    numbers only from a generator that it seeds itself.

    Raises:
        ValueError: (when called) the function returned something other than a figure.
    """

    @functools.wraps(draw)
    def draw_both(*args: P.args, **kwargs: P.kwargs) -> ThemedFigure:
        drawings = []
        for each in (LIGHT, DARK):
            with _themed_settings(each):
                with _closed_after():  # or Jupyter would show it a second time
                    figure = draw(*args, **kwargs)
                    if not isinstance(figure, Figure):
                        raise ValueError(
                            f"expected {draw.__name__} to return a matplotlib Figure, got "
                            f"{type(figure).__name__}; end it with `return figure`"
                        )
                drawings.append((figure, _png(figure, transparent=each is DARK)))
        (light_figure, light), (_, dark) = drawings
        return ThemedFigure(figure=light_figure, light=light, dark=dark)

    return draw_both


@contextmanager
def _closed_after() -> Iterator[None]:
    """Close what the block opens in pyplot, also when it fails half-way."""
    before = set(plt.get_fignums())
    try:
        yield
    finally:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)


@contextmanager
def _themed_settings(each: Theme) -> Iterator[None]:
    token = _drawing_for.set(each)
    try:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(cast(Any, _settings(each)))  # some stubs know only literal keys
            yield
    finally:
        _drawing_for.reset(token)


def _settings(each: Theme) -> dict[str, Any]:
    cycle = [COLOURS[name] for name in ("residual", "attention", "ffn", "norm")]
    return {
        "figure.figsize": (WIDTH, 3.6),
        "figure.dpi": 100,
        "figure.constrained_layout.use": True,
        "figure.facecolor": each.paper,
        "savefig.dpi": DPI,
        "axes.facecolor": "none",
        "axes.edgecolor": each.ink,
        "axes.labelcolor": each.ink,
        "axes.titlecolor": each.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 1.0,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.labelsize": 12,
        "axes.titlesize": 12,
        "axes.prop_cycle": cycler(color=cycle),
        "grid.color": each.faint,
        "grid.linewidth": 0.8,
        "text.color": each.ink,
        "font.size": 12,
        "xtick.color": each.ink,
        "ytick.color": each.ink,
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "legend.fontsize": 11,
        "legend.frameon": False,
        "lines.linewidth": 2.0,
        "lines.markersize": 6,
        "patch.edgecolor": each.ink,
        "hatch.color": each.ink,
        "image.cmap": "cividis",
        "mathtext.fontset": "dejavusans",
    }


def _png(figure: Figure, *, transparent: bool) -> bytes:
    stream = io.BytesIO()
    no_version = {"Software": ""}  # equal drawings are equal bytes
    figure.savefig(stream, format="png", dpi=DPI, transparent=transparent, metadata=no_version)
    return stream.getvalue()


def _base64(image: bytes) -> str:
    return base64.b64encode(image).decode("ascii")


# Plots that more than one chapter needs -------------------------------------------------------


def subplots(
    rows: int = 1, columns: int = 1, *, height: float = 3.6, **kwargs: Any
) -> tuple[Figure, Any]:
    """`matplotlib.pyplot.subplots` at the width of the page.

    Args:
        rows: rows of panels; on a telephone, panels below one another read best.
        columns: columns of panels.
        height: height of one row in inches.
        kwargs: what else `matplotlib.pyplot.subplots` takes.

    Returns:
        The figure and its axes, as `matplotlib.pyplot.subplots` returns them.
    """
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, rows * height), **kwargs)
    return figure, axes


def mean_and_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean over seeds and its Student t interval: (mean, low, high).

    With a single value the interval has no width.

    Raises:
        ValueError: no values, more than one axis, or a confidence outside (0, 1).
    """
    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"expected one value a seed, got an array of shape {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    mean = float(sample.mean())
    if sample.size == 1:
        return mean, mean, mean
    error = sample.std(ddof=1) / np.sqrt(sample.size)
    half = float(stats.t.ppf(0.5 + confidence / 2, sample.size - 1) * error)
    return mean, mean - half, mean + half


def seed_strip(
    axes: Axes,
    groups: Mapping[str, ArrayLike],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    confidence: float = 0.95,
    reference: float | None = None,
) -> None:
    """Draw one row a group: a dot for every seed, a diamond for their mean, a bar for its interval.

    Args:
        axes: where to draw.
        groups: name of the row -> one value a seed.
        label: what the values are, with their unit.
        concepts: name of the row -> key of `COLOURS`; needed where the two differ.
        confidence: of the t interval of the mean.
        reference: a value to mark with a dashed line, such as chance or the best possible loss.

    Raises:
        ValueError: there is no group, a group has no values, or a concept is not in the palette.
    """
    if not groups:
        raise ValueError("expected at least one group of values, got none")
    if reference is not None:
        axes.axvline(reference, color=theme().ink, linestyle="--", linewidth=1)
    names = list(groups)
    for row, name in enumerate(names):
        concept = (concepts or {}).get(name, name)
        _known(concept)
        values = np.asarray(groups[name], dtype=float)
        mean, low, high = mean_and_interval(values, confidence)
        colour = COLOURS[concept]
        spread = _spread(values.size)
        axes.plot(values, row + spread, "o", color=colour, alpha=0.55, markersize=5, mew=0)
        axes.plot([low, high], [row, row], color=theme().ink, linewidth=1.6, zorder=3)
        axes.plot(mean, row, marker="D", color=colour, mec=theme().ink, markersize=8, zorder=4)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)


def seed_lines(
    axes: Axes,
    x: ArrayLike,
    values: ArrayLike,
    *,
    concept: str,
    label: str | None = None,
    marker_every: int | None = None,
) -> None:
    """Draw a faint line for every seed and a strong one for their mean.

    Args:
        axes: where to draw.
        x: positions, one for each column of `values`.
        values: shape (seed, x), or (x,) for a single exact curve.
        concept: key of `COLOURS`; gives colour, line style and marker.
        label: in the legend; the concept's name unless given, and "" leaves the line out of it.
        marker_every: a marker at every so many points; about ten markers unless given.

    Raises:
        ValueError: the columns of `values` do not fit `x`, or the concept is not in the palette.
    """
    across = np.asarray(x, dtype=float)
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    if across.ndim != 1 or rows.ndim != 2 or rows.shape[1] != across.size:
        raise ValueError(
            f"expected values of shape (seed, {across.size}) for {across.size} positions, "
            f"got {np.shape(values)}"
        )
    style = look(concept)
    if len(rows) > 1:
        for row in rows:
            axes.plot(across, row, color=style["color"], alpha=0.3, linewidth=0.9)
    axes.plot(
        across,
        rows.mean(axis=0),
        **style,
        label=(concept if label is None else label) or "_nolegend_",
        markevery=marker_every or max(1, across.size // 10),
        zorder=3,
    )


def heat_map(
    axes: Axes,
    matrix: ArrayLike,
    *,
    label: str,
    x_label: str,
    y_label: str,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
) -> Colorbar:
    """Draw a matrix with its first row on top, beside a colour bar that says what the colours mean.

    Args:
        axes: where to draw.
        matrix: shape (row, column).
        label: what the colours measure, with its unit.
        x_label: what the columns are.
        y_label: what the rows are.
        diverging: the sign matters; colours then part at zero, with equal steps on both sides.
        limits: lowest and highest value shown; those of the matrix unless given.

    Returns:
        The colour bar, for its ticks.

    Raises:
        ValueError: the matrix does not have two axes.
    """
    cells: NDArray[np.float64] = np.asarray(matrix, dtype=float)
    if cells.ndim != 2:
        raise ValueError(f"expected a matrix of two axes, got shape {cells.shape}")
    low, high = limits or (float(np.nanmin(cells)), float(np.nanmax(cells)))
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if diverging:
        reach = max(abs(low), abs(high)) or 1.0
        image = axes.imshow(
            cells,
            cmap=_diverging_map(),
            norm=TwoSlopeNorm(0.0, -reach, reach),
            aspect="auto",
            interpolation="nearest",
        )
    else:
        image = axes.imshow(
            cells, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))  # there is no row 2.5
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def panel_letters(axes: Iterable[Axes] | NDArray[Any]) -> None:
    """Write (a), (b), ... above the panels, in reading order, so that a caption can name them."""
    for place, each in enumerate(np.ravel(np.asarray(list(axes), dtype=object))):
        each.set_title(f"({chr(ord('a') + place)})", loc="left", fontweight="bold")


def legend_above(axes: Axes, *, columns: int = 3) -> None:
    """Put the legend above the panel, where it hides no data on a narrow screen.

    Args:
        axes: the panel.
        columns: names beside one another; long names need fewer.
    """
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2)


def _known(concept: str) -> None:
    if concept not in COLOURS:
        raise ValueError(
            f"expected a concept of the palette ({', '.join(COLOURS)}), got {concept!r}; "
            "pass the one whose colour it should have"
        )


def _spread(count: int) -> NDArray[np.float64]:
    """Offsets that keep the dots of equal seeds apart, the same on every drawing."""
    pattern: Sequence[float] = (0.0, 0.16, -0.16, 0.26, -0.26)
    return np.array([pattern[place % len(pattern)] for place in range(count)])


def _diverging_map() -> LinearSegmentedColormap:
    """Blue below zero, orange above, the page's own colour at zero."""
    ends = (COLOURS["residual"], theme().paper, COLOURS["attention"])
    return LinearSegmentedColormap.from_list("measured-diverging", ends, N=257)  # one for zero
