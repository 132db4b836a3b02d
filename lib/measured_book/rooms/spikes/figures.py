"""Figures about loss spikes: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from numpy import ndarray
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_strip, subplots

BETAS: Mapping[float, str] = {
    0.95: "attention",
    0.98: "ffn",
    0.999: "residual",
}
"""A second beta -> what it is drawn as, the same in all figures."""
ARMS: Mapping[str, tuple[str, str]] = {
    "same batches": ("same batches", "none"),
    "nudged": ("weights nudged", "norm"),
    "other batches": ("other batches", "residual"),
    "earlier state": ("same batches,\nyounger state", "ffn"),
    "bound that follows": ("bound that follows", "learned"),
    "half the rate": ("half the rate", "attention"),
}
"""An arm of the rewinding -> its name in figures, and what it is drawn as."""
_ODD: Mapping[str, tuple[str, str]] = {
    "beta 0.95": (r"$\beta_2 = 0.95$", "attention"),
    "beta 0.98": (r"$\beta_2 = 0.98$", "ffn"),
    "beta 0.999": (r"$\beta_2 = 0.999$", "residual"),
    "clipped to 1": ("clipped to 1", "none"),
    "bound that follows": ("bound that\nfollows", "learned"),
}


@themed
def plot_bowl(
    paths: Mapping[float, tuple[Float[ndarray, "step"], Float[ndarray, "step"]]], limit: float
) -> Figure:
    """Draw Adam on a parabola: its loss, and its rate divided by the root of the average of squares.

    Args:
        paths: second beta -> loss and effective rate of every step.
        limit: of the effective rate, from which on the weight runs away.
    """
    figure, (upper, lower) = subplots(2, 1, height=2.1, sharex=True)
    for beta, (losses, rates) in paths.items():
        style = look(BETAS[beta]) | {"marker": ""}
        upper.plot(losses, **style, linewidth=1.2, label=rf"$\beta_2 = {beta}$")
        lower.plot(rates, **style, linewidth=1.6)
    for panel in (upper, lower):
        panel.set_yscale("log")
    upper.set_ylim(1e-16, 10)
    upper.set_ylabel("loss")
    upper.legend(loc="upper right", ncols=3, fontsize=8)
    lower.axhline(limit, color=theme().ink, linestyle="--", linewidth=1)
    lower.set_ylabel(r"$\eta / \sqrt{\hat v}$")
    lower.set_xlabel("step")
    panel_letters((upper, lower))
    return figure


@themed
def plot_rewound(rewound: Dataset) -> Figure:
    """Draw a row for each way to go on, a mark for each spike: filled where it came again."""
    figure, axes = subplots(height=2.9)
    spiked = rewound.again.isel(seed=np.flatnonzero(rewound.spiked.values))
    order = np.argsort(-spiked.sum("arm").values, kind="stable")
    for row, (arm, (_, concept)) in enumerate(ARMS.items()):
        again = spiked.sel(arm=arm).values[order].astype(bool)
        across = np.arange(len(again))
        colour = COLOURS[concept]
        axes.plot(across[again], np.full(again.sum(), row), "s", color=colour, markersize=6)
        axes.plot(
            across[~again],
            np.full((~again).sum(), row),
            "s",
            color=colour,
            mfc="none",
            markersize=6,
            alpha=0.5,
        )
        axes.text(
            len(again) + 0.5, row, f"{again.sum()} of {len(again)}", va="center", color=theme().ink
        )
    axes.set_yticks(range(len(ARMS)), [name for name, _ in ARMS.values()])
    axes.set_ylim(len(ARMS) - 0.5, -0.5)
    axes.set_xlim(-1, spiked.sizes["seed"] + 5)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.set_xlabel("one column per spike")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


@themed
def plot_betas(betas: Dataset) -> Figure:
    """Draw for each memory the spikes of every seed, and the steps that were lost to them."""
    figure, (left, right) = subplots(1, 2, height=2.5, sharey=True)
    concepts = {f"{beta:g}": concept for beta, concept in BETAS.items()}
    for panel, name, label in (
        (left, "spikes", "spikes in 500 steps"),
        (right, "bad", "of 300 steps above 0.2 nats"),
    ):
        groups = {f"{beta:g}": betas[name].sel(beta=beta).values for beta in BETAS}
        seed_strip(panel, groups, label=label, concepts=concepts)
    left.set_ylabel(r"second beta $\beta_2$")
    panel_letters((left, right))
    return figure


@themed
def plot_odd(odd: Dataset) -> Figure:
    """Draw what one odd batch does: how far the weights move in ten steps, and how high the loss goes."""
    figure, panels = subplots(1, 3, height=2.9, sharey=True)
    shown = (
        ("moved", "from the start", "way, averages\nfrom the start"),
        ("moved", "anew", "way, averages\nbegun anew"),
        ("height", "anew", "highest loss, nats,\nbegun anew"),
    )
    concepts = dict(_ODD.values())
    for panel, (name, memory, label) in zip(panels, shown, strict=True):
        values = odd[name].sel(memory=memory)
        groups = {_ODD[arm][0]: values.sel(arm=arm).values for arm in _ODD}
        seed_strip(panel, groups, label=label, concepts=concepts)
    across = 1.1 * float(odd.moved.max())
    for panel in panels[:2]:
        panel.set_xlim(-0.05 * across, across)
    panel_letters(panels)
    return figure
