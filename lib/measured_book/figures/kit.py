"""What figures of rooms are put together from: panels, curves, strips, rows of runs, maps of shares, labels.

These functions take values with named axes, as results have them, and `Arms`, which say of each label along an
axis what it is drawn as and what it is called::

    ARMS = {"pre": ("norm", "pre-norm"), "post": ("attention", "post-norm")}

    @themed
    def plot_race(race):
        figure, (left, right) = panels(1, 2, height=2.6, x="step")
        curves(left, race.loss, "step", ARMS, over="arm", names="end")
        strips(right, race.final, ARMS, over="arm", label="loss, nats")
        return figure

Every seed is shown: a faint line, or a dot. What lies below the kit (`figures.plots`) takes plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import look, theme
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from measured_book.figures.plots import seed_lines, seed_strip, subplots
from measured_book.figures.solving import draw_runs

Arms = Mapping[Any, tuple[str, str]]
"""Label along an axis -> concept of the palette, and name for readers; the order is that of drawing."""


# Panels -------------------------------------------------------------------------------------------


def panels(
    rows: int = 1,
    columns: int = 1,
    *,
    height: float = 3.0,
    titles: Sequence[str] = (),
    x: str = "",
    y: str = "",
    **kwargs: Any,
) -> tuple[Figure, list[Axes]]:
    """Panels with letters, in reading order.

    Args:
        rows, columns: of panels.
        height: of one row in inches.
        titles: behind the letters.
        x: label of the horizontal axes; where they are shared, of the lowest row alone.
        y: label of the vertical axes; where they are shared, of the first column alone.
        kwargs: what else `matplotlib.pyplot.subplots` takes.
    """
    figure, grid = subplots(rows, columns, height=height, squeeze=False, **kwargs)
    for axes in grid[-1] if kwargs.get("sharex") else grid.ravel():
        axes.set_xlabel(x)
    for axes in grid[:, 0] if kwargs.get("sharey") else grid.ravel():
        axes.set_ylabel(y)
    found = list(grid.ravel())
    letter(found, titles)
    return figure, found


def letter(axes: Iterable[Axes], titles: Sequence[str] = ()) -> None:
    """Write (a), (b), ... above panels, each with its title where there are titles; a single panel has none."""
    every = list(axes)
    for place, each in enumerate(every):
        mark = f"({chr(ord('a') + place)})" if len(every) > 1 else ""
        words = f"{mark} {titles[place]}".strip() if titles else mark
        each.set_title(words, loc="left", fontweight="normal" if titles else "bold")


def legend_over(figure: Figure, axes: Axes, *, columns: int = 3, size: float = 10) -> None:
    """One legend above all panels, of what one of them has."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=size)


def plain_ticks(axis: Axis, ticks: Sequence[float | int] | np.ndarray) -> None:
    """These ticks and no others, in plain numbers, also on a logarithmic axis."""
    axis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def plain_numbers(axis: Axis) -> None:
    """Plain numbers at the ticks of a logarithmic axis, 0.1 for a power of ten, and none between them."""
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def level(axes: Axes, value: float, text: str = "", *, along: Literal["x", "y"] = "y") -> None:
    """A dashed line at a value, such as chance, with words at its end.

    Args:
        axes: where to draw.
        value: where the line stands.
        text: what it is.
        along: the axis that the value belongs to.
    """
    draw = axes.axhline if along == "y" else axes.axvline
    draw(value, color=theme().ink, linestyle="--", linewidth=1)
    if not text:
        return
    if along == "y":
        where = axes.get_yaxis_transform()
        axes.text(1, value, f"{text} ", transform=where, ha="right", va="bottom")
    else:
        where = axes.get_xaxis_transform()
        axes.text(value, 1, f" {text}", transform=where, ha="left", va="top")


# Curves -------------------------------------------------------------------------------------------


def curves(
    axes: Axes,
    values: DataArray,
    along: str,
    arms: Arms,
    *,
    over: str = "",
    names: Literal["", "end", "legend"] = "legend",
    x: ArrayLike | None = None,
    marker_every: int | None = None,
    solid: bool = False,
) -> None:
    """Draw a curve an arm: a faint line for every seed, a strong one for their mean.

    Args:
        axes: where to draw.
        values: over ``along``, perhaps seeds, and perhaps the axis of the arms; NaN is not drawn.
        along: the axis that goes from left to right.
        arms: what is drawn, in order; a single one where there is no axis of arms.
        over: the axis of the arms.
        names: at the end of each curve in its colour (call `name_ends` where limits or scales are set later),
            in a legend that the caller makes, or none.
        x: positions, where they are not the labels of ``along``.
        marker_every: a marker at every so many points.
        solid: whether the strong line is solid and ends in a dot, without the concept's dashes and markers:
            where arms are told apart by their places or by words.
    """
    across = np.asarray(values[along].values if x is None else x, dtype=float)
    for label, (concept, name) in arms.items():
        one = values.sel({over: label}) if over else values
        rows = one.transpose(*(["seed"] if "seed" in one.dims else []), along).values
        seen = ~np.isnan(np.atleast_2d(rows)).any(0)
        seed_lines(
            axes,
            across[seen],
            np.atleast_2d(rows)[:, seen],
            concept=concept,
            label=name if names else "",
            marker_every=marker_every,
        )
        if solid:
            axes.get_lines()[-1].set(linestyle="-", marker="o", markevery=[-1])
    if names == "end":
        name_ends(axes)


def name_ends(axes: Axes, *, gap: float = 1.1, size: float = 10) -> None:
    """Write the name of each curve to the right of its end, in its colour, none over another.

    Call it when limits and scales are set.

    Args:
        axes: whose lines with a label are named.
        gap: distance between two names at least, in heights of a line of text.
        size: of the text, in points.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    figure = axes.get_figure()
    if figure is None or not lines:
        return
    ends = [
        (float(x[-1]), float(y[-1])) for x, y in (np.asarray(line.get_data()) for line in lines)
    ]
    points = axes.transData.transform(ends)[:, 1] * 72 / figure.dpi
    places = kept_apart(points.tolist(), gap * size)
    for line, end, at, place in zip(lines, ends, points, places, strict=True):
        axes.annotate(
            str(line.get_label()),
            end,
            xytext=(6, place - at),
            textcoords="offset points",
            va="center",
            color=str(line.get_color()),
            fontsize=size,
            annotation_clip=False,
            path_effects=_halo(),
        )


def _halo() -> list[Any]:
    """A rim in the colour of the page, so that words on faint lines can be read."""
    return [withStroke(linewidth=2.5, foreground=theme().paper)]


def kept_apart(places: Sequence[float], gap: float) -> list[float]:
    """The nearest places at which neighbours are at least a gap apart, in the order given.

    >>> kept_apart([0.0, 0.5, 4.0], 1.0)
    [-0.25, 0.75, 4.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[list[float]] = []  # each: middle of the group, how many
    for i in order:
        groups.append([places[i], 1])
        while len(groups) > 1:
            (low, m), (high, n) = groups[-2:]
            if high - low >= gap * (m + n) / 2:
                break
            groups[-2:] = [[(low * m + high * n) / (m + n), m + n]]
    spread = [middle + gap * (k - (n - 1) / 2) for middle, n in groups for k in range(int(n))]
    found = dict(zip(order, spread, strict=True))
    return [float(found[i]) for i in range(len(places))]


# Strips and rows ----------------------------------------------------------------------------------


def strips(
    axes: Axes,
    values: DataArray,
    arms: Arms,
    *,
    over: str,
    label: str,
    lowest_first: bool = False,
    reference: float | None = None,
) -> None:
    """Draw a row an arm: a dot for every seed, a diamond for their mean, a bar for its interval.

    Args:
        axes: where to draw.
        values: over seeds and the axis of the arms.
        arms: what is drawn, from top to bottom.
        over: the axis of the arms.
        label: what the values are, with their unit.
        lowest_first: sort rows by their means.
        reference: a value to mark with a dashed line.
    """
    order = list(arms)
    if lowest_first:
        order.sort(key=lambda arm: float(values.sel({over: arm}).mean()))
    seed_strip(
        axes,
        {arms[arm][1]: values.sel({over: arm}).values for arm in order},
        label=label,
        concepts={arms[arm][1]: arms[arm][0] for arm in order},
        reference=reference,
    )


def run_rows(axes: Axes, rows: Mapping[str, tuple[Dataset, str]], *, height: float = 0.22) -> None:
    """Draw a row of runs for each name, from top to bottom: their steps, open where stopped; see `draw_runs`.

    Args:
        axes: where to draw; steps go across.
        rows: name -> ``steps`` and ``solved`` over runs, and the concept.
        height: how far marks lie from the row at most.
    """
    names = list(rows)[::-1]
    for place, name in enumerate(names):
        one, concept = rows[name]
        steps, solved = one.steps.values.astype(float), one.solved.values.astype(bool)
        draw_runs(axes, float(place), steps.ravel(), solved.ravel(), concept, height=height)
    axes.set_yticks(range(len(rows)), names)
    axes.grid(visible=False, axis="y")


# Maps ---------------------------------------------------------------------------------------------


def share_map(
    axes: Axes,
    shares: DataArray,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    below: DataArray | None = None,
    say: Callable[[float], str] = lambda value: f"{value:.0f}",
    x: str = "",
) -> None:
    """Draw shares as a table of cells, each with its share in words.

    Args:
        axes: where to draw.
        shares: over rows and columns, from 0 to 1.
        rows, columns: what stands beside and below.
        below: a second value, over the same axes, for the lower line of cells of at least a half.
        say: how that is written.
        x: what the columns are.

    Raises:
        ValueError: names do not fit the shape.
    """
    if shares.shape != (len(rows), len(columns)):
        raise ValueError(
            f"expected shares of shape {(len(rows), len(columns))}, got {shares.shape}"
        )
    axes.imshow(shares.values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    for (i, j), share in np.ndenumerate(shares.values):
        text = f"{share:.0%}"
        if below is not None and share >= 0.5:
            text += f"\n{say(float(below.values[i, j]))}"
        ink = "black" if share > 0.6 else "white"
        axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=7.5, linespacing=1.1)
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xlabel(x)
    axes.tick_params(length=0)


def solved_map(
    axes: Axes, rows: Mapping[str, Dataset], *, x: str = "learning rate, thousandths"
) -> None:
    """Draw how many runs solve their task at each learning rate, and in how many steps (median), a row a name.

    Args:
        axes: where to draw.
        rows: name -> ``solved`` and ``steps`` over seeds and ``rate``.
        x: what the columns are.
    """
    shares = [one.solved.mean("seed").values for one in rows.values()]
    steps = [one.steps.median("seed").values for one in rows.values()]
    rates = next(iter(rows.values())).rate.values
    share_map(
        axes,
        DataArray(np.array(shares), dims=("row", "rate")),
        rows=list(rows),
        columns=[f"{1000 * rate:g}" for rate in rates],
        below=DataArray(np.array(steps), dims=("row", "rate")),
        x=x,
    )


def name_at(
    axes: Axes,
    arms: Arms,
    values: DataArray,
    *,
    over: str,
    at: Mapping[Any, tuple[float | int, float | int]],
) -> None:
    """Write names beside the last point of curves, shifted by hand: for curves that end where no room is.

    Args:
        axes: where to draw.
        arms: what is drawn.
        values: the curves, over their horizontal axis alone or with seeds.
        over: the axis of the arms.
        at: label -> shift to the right and up, in points.
    """
    for label, shift in at.items():
        one = values.sel({over: label})
        mean = one.mean("seed") if "seed" in one.dims else one
        (axis,) = mean.dims
        concept, name = arms[label]
        axes.annotate(
            name,
            (float(mean[axis][-1]), float(mean[-1])),
            xytext=shift,
            textcoords="offset points",
            ha="right",
            color=look(concept)["color"],
            path_effects=_halo(),
        )
