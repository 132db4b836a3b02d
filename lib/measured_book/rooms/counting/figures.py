"""Figures of the chapter on counting parameters and operations: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import panel_letters, subplots

_GROUPS = {
    "embedding": ("residual", 0.45),
    "attention": ("attention", 0.55),
    "network": ("ffn", 0.5),
    "head": ("none", 0.35),
}
_GROUP_NAMES = {
    "embedding": "embeddings",
    "attention": "attention",
    "network": "feed-forward networks",
    "head": "unembedding or pooler",
}


@themed
def plot_models(counted: Dataset) -> Figure:
    """Draw where the parameters of published models are, and those of the networks over those of attention.

    Args:
        counted: the result ``counted``.
    """
    figure, (shares, ratios) = subplots(
        1, 2, height=4.2, sharey=True, gridspec_kw={"width_ratios": (2.1, 1)}
    )
    models, here = counted.model.values, counted.isel(seed=0)
    start = np.zeros(len(models))
    rows = np.arange(len(models))
    for group, shade in _GROUPS.items():
        share = (here[group] / here.total).values
        shares.barh(
            rows, share, left=start, height=0.66, color=tint(*shade), edgecolor=theme().ink,
            linewidth=0.7, label=_GROUP_NAMES[group],
        )  # fmt: skip
        for row in rows[share > 0.1] if group in ("attention", "network") else ():
            shares.text(
                start[row] + share[row] / 2, row, f"{share[row]:.0%}", ha="center", va="center",
                fontsize=9,
            )  # fmt: skip
        start = start + share
    shares.set_yticks(rows, [str(name) for name in models])
    shares.set_ylim(len(models) - 0.5, -0.5)
    shares.set_xlim(0, 1)
    shares.set_xlabel("share of the parameters")
    figure.legend(*shares.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    ratios.axvline(3, color=theme().ink, linestyle="--", linewidth=1)
    ratios.plot(here.ratio.values, rows, "D", color=COLOURS["ffn"], mec=theme().ink, markersize=8)
    for row, ratio in zip(rows, here.ratio.values, strict=True):
        near = ratio > 4.3
        ratios.text(
            ratio + (-0.25 if near else 0.25), row, f"{ratio:.1f}", va="center", fontsize=10,
            ha="right" if near else "left",
        )  # fmt: skip
    ratios.set_xlim(1.5, 5)
    ratios.set_xlabel("networks over\nattention")
    for axes in (shares, ratios):
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
    panel_letters((shares, ratios))
    return figure
