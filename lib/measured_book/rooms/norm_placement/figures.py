"""Figures about where a norm stands: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import look, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, subplots
from measured_book.figures.solving import draw_runs

CONCEPTS = {"pre": "norm", "post": "attention"}
NAMES = {"pre": "pre-norm", "post": "post-norm"}


@themed
def plot_two_blocks(two_blocks: Dataset) -> Figure:
    """Draw the steps of every training of two blocks: a dot per seed, the geometric mean as a bar."""
    rows = [
        (placement, rate)
        for rate in two_blocks.rate.values.tolist()
        for placement in two_blocks.placement.values.tolist()
    ]
    figure, axes = subplots(height=2.6)
    for place, (placement, rate) in enumerate(reversed(rows)):
        steps = two_blocks.steps.sel(placement=placement, rate=rate).values
        solved = two_blocks.solved.sel(placement=placement, rate=rate).values.astype(bool)
        draw_runs(axes, float(place), steps.astype(float), solved, CONCEPTS[placement], height=0.22)
    labels = [f"{NAMES[placement]}, {rate} rate" for placement, rate in reversed(rows)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_xscale("log")
    _plain_ticks(axes, (75, 100, 150, 200, 300, 400, 500))
    axes.set_xlabel("steps to a loss of 0.05")
    axes.grid(visible=False, axis="y")
    return figure


def _plain_ticks(axes: Axes, ticks: tuple[float | int, ...]) -> None:
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


@themed
def plot_border(border: Dataset) -> Figure:
    """Draw for each placement how many trainings solve the task, by depth and learning rate."""
    return _maps(border, "depth", [f"{depth} blocks" for depth in border.depth.values])


@themed
def plot_recipes(border: Dataset, recipes: Dataset) -> Figure:
    """Draw the same for twelve blocks trained in three ways, the first of them that of the border."""
    deepest = border.sel(depth=int(border.depth.max()))
    rows = [deepest, *(recipes.sel(recipe=name) for name in recipes.recipe.values)]
    names = ["as before", *recipes.recipe.values.tolist()]
    figure, axes = subplots(1, 2, height=2.5, sharey=True)
    for panel, placement in zip(axes, NAMES, strict=True):
        shares = np.array([r.solved.sel(placement=placement).mean("seed").values for r in rows])
        steps = np.array([_median_steps(r.sel(placement=placement)) for r in rows])
        _map(panel, shares, steps, border.rate.values, names)
        panel.set_title(f"({'ab'[placement == 'post']}) {NAMES[placement]}", loc="left")
    return figure


def _maps(result: Dataset, axis: str, names: list[str]) -> Figure:
    figure, axes = subplots(1, 2, height=2.5, sharey=True)
    for panel, placement in zip(axes, NAMES, strict=True):
        here = result.sel(placement=placement)
        shares = here.solved.mean("seed").transpose(axis, "rate").values
        steps = np.array([_median_steps(here.sel({axis: one})) for one in here[axis].values])
        _map(panel, shares, steps, here.rate.values, names)
        panel.set_title(f"({'ab'[placement == 'post']}) {NAMES[placement]}", loc="left")
    return figure


def _median_steps(cells: Dataset) -> np.ndarray:
    """Median steps over seeds at each learning rate."""
    median: DataArray = cells.steps.median("seed")
    return np.asarray(median.values)


def _map(
    panel: Axes, shares: np.ndarray, steps: np.ndarray, rates: np.ndarray, names: list[str]
) -> None:
    """A table of cells: colour and upper line the share that solves the task, lower line the median steps."""
    panel.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    panel.grid(visible=False)
    for (i, j), share in np.ndenumerate(shares):
        ink = "black" if share > 0.6 else "white"
        text = f"{share:.0%}" if share < 0.5 else f"{share:.0%}\n{steps[i, j]:.0f}"
        panel.text(j, i, text, ha="center", va="center", color=ink, fontsize=7.5, linespacing=1.1)
    panel.set_xticks(range(len(rates)), [f"{1000 * rate:g}" for rate in rates])
    panel.set_yticks(range(len(names)), names)
    panel.set_xlabel("learning rate, thousandths")
    panel.tick_params(length=0)


_STACKS = {
    "pre": ("norm", "pre-norm"),
    "post": ("attention", "post-norm"),
    "post, wide": ("alibi", "post-norm, width 768"),
    "post, as BERT": ("ffn", "post-norm, drawn as BERT"),
    "post, small": ("residual", "post-norm, small weights"),
}


@themed
def plot_alike(alike: Dataset) -> Figure:
    """Draw, block by block and before any training, how alike positions are and how much of the tokens is left.

    Args:
        alike: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.2, sharey=True)
    for panel, name in zip(axes, ("alike", "kept"), strict=True):
        for stack, (concept, label) in _STACKS.items():
            rows = alike[name].sel(stack=stack).transpose("seed", "block").values
            seed_lines(
                panel, alike.block.values, rows, concept=concept, label=label, marker_every=3
            )
        panel.set_xlabel("blocks passed")
        panel.set_xticks((0, 3, 6, 9, 12))
        panel.set_ylim(-0.15, 1.05)
    axes[0].set_ylabel("mean cosine")
    axes[0].set_title("(a) two positions", loc="left")
    axes[1].set_title("(b) state and embedding", loc="left")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=10)
    return figure


@themed
def plot_untrained(untrained: Dataset) -> Figure:
    """Draw over depth, before training: the gradient of the last block, and the spread of the logits."""
    figure, axes = subplots(1, 2, height=2.6)
    depths = untrained.depth.values
    for placement in NAMES:
        gradient = (
            untrained.last_gradient.sel(placement=placement).transpose("seed", "depth").values
        )
        seed_lines(axes[0], depths, gradient, concept=CONCEPTS[placement])
    for final, concept in (("with", "norm"), ("without", "none")):
        spread = untrained.logits.sel(final=final).transpose("seed", "depth").values
        seed_lines(axes[1], depths, spread, concept=concept)
    for panel in axes:
        panel.set_xscale("log")
        panel.set_yscale("log")
        _plain_ticks(panel, tuple(int(depth) for depth in depths))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlabel("blocks")
    axes[0].set_ylabel("gradient of the last block")
    axes[1].set_ylabel("deviation of the logits")
    last = [untrained.last_gradient.sel(placement=p, depth=depths[-1]).mean() for p in NAMES]
    for value, placement in zip(last, NAMES, strict=True):
        axes[0].annotate(
            NAMES[placement],
            (depths[-1], float(value)),
            xytext=(-4, 9 if placement == "post" else -12),
            textcoords="offset points",
            ha="right",
            color=look(CONCEPTS[placement])["color"],
        )
    for final, text, shift in (("with", "with a final norm", -14), ("without", "without", 4)):
        at = float(untrained.logits.sel(final=final, depth=depths[-1]).mean())
        axes[1].annotate(
            text, (depths[-1], at), xytext=(-4, shift), textcoords="offset points", ha="right"
        )
    panel_letters(axes)
    return figure


@themed
def plot_elsewhere(border: Dataset, elsewhere: Dataset) -> Figure:
    """Draw for twelve blocks and five places of the norm how many trainings solve the task."""
    deepest = border.sel(depth=int(border.depth.max()))
    cells = {NAMES[p]: deepest.sel(placement=p) for p in NAMES}
    cells |= {str(place): elsewhere.sel(place=place) for place in elsewhere.place.values}
    figure, axes = subplots(height=3.0)
    shares = np.array([one.solved.mean("seed").values for one in cells.values()])
    steps = np.array([_median_steps(one) for one in cells.values()])
    _map(axes, shares, steps, border.rate.values, list(cells))
    return figure
