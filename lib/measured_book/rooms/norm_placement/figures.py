"""Figures about where a norm stands: results in, drawings out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import (
    Arms,
    curves,
    legend_over,
    name_at,
    panels,
    plain_numbers,
    plain_ticks,
    run_rows,
    solved_map,
)

ARMS: Arms = {"pre": ("norm", "pre-norm"), "post": ("attention", "post-norm")}


@themed
def plot_two_blocks(two_blocks: Dataset) -> Figure:
    """Draw the steps of every training of two blocks: a dot per seed, the geometric mean as a bar."""
    figure, (axes,) = panels(height=2.6, x="steps to a loss of 0.05")
    rows = {
        f"{name}, {rate} rate": (two_blocks.sel(placement=placement, rate=rate), concept)
        for rate in two_blocks.rate.values
        for placement, (concept, name) in ARMS.items()
    }
    run_rows(axes, rows)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, (75, 100, 150, 200, 300, 400, 500))
    return figure


def _beside(rows: dict[str, Dataset]) -> Figure:
    figure, found = panels(
        1, 2, height=2.5, titles=[name for _, name in ARMS.values()], sharey=True
    )
    for axes, placement in zip(found, ARMS, strict=True):
        solved_map(axes, {name: one.sel(placement=placement) for name, one in rows.items()})
    return figure


@themed
def plot_border(border: Dataset) -> Figure:
    """Draw for each placement how many trainings solve the task, by depth and learning rate."""
    return _beside({f"{depth} blocks": border.sel(depth=depth) for depth in border.depth.values})


@themed
def plot_recipes(border: Dataset, recipes: Dataset) -> Figure:
    """Draw the same for twelve blocks trained in three ways, the first of them that of the border."""
    others = {name: recipes.sel(recipe=name) for name in recipes.recipe.values}
    return _beside({"as before": border.isel(depth=-1), **others})


@themed
def plot_elsewhere(border: Dataset, elsewhere: Dataset) -> Figure:
    """Draw for twelve blocks and five places of the norm how many trainings solve the task."""
    figure, (axes,) = panels(height=3.0)
    rows = {name: border.isel(depth=-1).sel(placement=p) for p, (_, name) in ARMS.items()}
    solved_map(axes, rows | {p: elsewhere.sel(place=p) for p in elsewhere.place.values})
    return figure


_STACKS: Arms = {
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
    titles = ("two positions", "state and embedding")
    figure, found = panels(
        1, 2, height=3.2, titles=titles, x="blocks passed", y="mean cosine", sharey=True
    )
    for axes, name in zip(found, ("alike", "kept"), strict=True):
        curves(axes, alike[name], "block", _STACKS, over="stack", marker_every=3)
        axes.set_xticks((0, 3, 6, 9, 12))
        axes.set_ylim(-0.15, 1.05)
    legend_over(figure, found[0])
    return figure


@themed
def plot_untrained(untrained: Dataset) -> Figure:
    """Draw over depth, before training: the gradient of the last block, and the spread of the logits."""
    figure, (left, right) = panels(1, 2, height=2.6, x="blocks")
    final: Arms = {"with": ("norm", "with a final norm"), "without": ("none", "without")}
    curves(left, untrained.last_gradient, "depth", ARMS, over="placement", names="")
    curves(right, untrained.logits, "depth", final, over="final", names="")
    left.set_ylabel("gradient of the last block")
    right.set_ylabel("deviation of the logits")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes.xaxis, untrained.depth.values)
        plain_numbers(axes.yaxis)
    up_left, up_right = {"pre": (-4, -12), "post": (-4, 9)}, {"with": (-4, -14), "without": (-4, 4)}
    name_at(left, ARMS, untrained.last_gradient, over="placement", at=up_left)
    name_at(right, final, untrained.logits, over="final", at=up_right)
    return figure
