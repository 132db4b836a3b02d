"""One visual language for every figure: a palette, and a light and a dark theme.

A figure function is written once, in plain matplotlib, and decorated with `themed`::

    @themed
    def plot_decay(distances, similarity):
        figure, axes = subplots()
        seed_lines(axes, distances, similarity, concept="sinusoidal")
        axes.set_xlabel("distance")
        return figure

Calling it draws the figure twice, once for a light page and once for a dark one. In a notebook the
result shows the light drawing on white; the book puts the dark one beside it. Where a drawing is a few lines,
marks and words, the book shows both as one SVG, which is sharp at every size.

Every colour of `COLOURS` has at least 3:1 contrast on white and on the dark page, so that a concept
keeps one colour in both. Colour is never the only sign: `look` adds a marker and a line style.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Collection, Iterator, Mapping
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
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from measured_transformer.viewer import _vector
from measured_transformer.viewer._palette import png

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
MOST_BYTES = 60_000
"""Size of an SVG up to which it takes the place of two images in the book, where these are larger."""


@dataclass(frozen=True)
class Theme:
    """The properties of the page that a figure is drawn for.

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
    """Return the current theme; `LIGHT` outside `themed`."""
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


def _known(concept: str) -> None:
    if concept not in COLOURS:
        raise ValueError(
            f"expected a concept of the palette ({', '.join(COLOURS)}), got {concept!r}; "
            "pass the one whose colour it should have"
        )


# Drawing once for each theme ------------------------------------------------------------------


@dataclass(frozen=True)
class ThemedFigure:
    """One figure, drawn for a light and for a dark page.

    Attributes:
        figure: the light drawing, for whoever wants to work on it.
        light: PNG on white.
        vector: SVG of both drawings, where one of them is small: the dark one is asked for as `#dark`.
    """

    figure: Figure
    light: bytes
    vector: str | None
    _dark: Figure

    @functools.cached_property
    def dark(self) -> bytes:
        """PNG on a transparent ground, to lie on a dark page."""
        with _themed_settings(DARK):
            return _png(self._dark, transparent=True)

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
        """Describe the figure without its image bytes."""
        inches = self.figure.get_size_inches()
        return f"ThemedFigure({inches[0]:.1f} x {inches[1]:.1f} in)"

    def _repr_mimebundle_(
        self,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show the light drawing in a notebook and carry the dark one, or both as one SVG, in the metadata."""
        data = {"image/png": _base64(self.light), "text/plain": repr(self)}
        other = {"vector": self.vector} if self.vector else {"dark": _base64(self.dark)}
        metadata = {"image/png": {"width": self.width}, "measured": {"kind": "figure", **other}}
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
        figures: list[Figure] = []
        light, vectors = b"", list[bytes]()
        for each in (LIGHT, DARK):
            with _themed_settings(each):
                with _closed_after():  # or Jupyter would show it a second time
                    figure = draw(*args, **kwargs)
                    if not isinstance(figure, Figure):
                        raise ValueError(
                            f"expected {draw.__name__} to return a matplotlib Figure, got "
                            f"{type(figure).__name__}; end it with `return figure`"
                        )
                if each is LIGHT:
                    light = _png(figure, transparent=False)
                else:
                    _take_layout(figures[0], figure)
                figures.append(figure)
                if _vector.has_few_points(figures[0]):
                    vectors.append(_vector.written(figure))
        vector = _vector.both(*vectors) if vectors else None
        if vector is not None and len(vector) > min(MOST_BYTES, 2 * len(light)):
            vector = None
        drawn = ThemedFigure(figures[0], light, vector, figures[1])
        if vector is None:
            _ = drawn.dark  # drawn now, for those who listen to warnings now
        return drawn

    return draw_both


def _take_layout(laid_out: Figure, figure: Figure) -> None:
    """Place everything as in the same figure in the other theme: no size depends on a colour.

    Half of a figure's time is spent on its layout. Figures with subfigures have layouts of their own.
    """
    if figure.subfigs or len(figure.axes) != len(laid_out.axes):
        return
    figure.set_layout_engine("none")
    for before, axes in zip(laid_out.axes, figure.axes, strict=True):
        axes.set_position(before.get_position(original=True), which="original")
        axes.set_position(before.get_position(), which="active")
    for name in ("_suptitle", "_supxlabel", "_supylabel"):
        if (text := getattr(laid_out, name)) is not None:
            getattr(figure, name).set_position(text.get_position())


@contextmanager
def _closed_after() -> Iterator[None]:
    """Close the pyplot figures that the block opens, even when it fails."""
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
    figure.savefig(stream, format="rgba", dpi=DPI, transparent=transparent)
    columns = int(figure.get_figwidth() * DPI)
    pixels = np.frombuffer(stream.getbuffer(), np.uint8).reshape(-1, columns, 4)
    return png(pixels, dpi=(DPI, DPI))


def _base64(image: bytes) -> str:
    return base64.b64encode(image).decode("ascii")
