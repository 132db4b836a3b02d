"""Figures of the chapter on shared projections: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    mean_and_bar,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

Array = Float[np.ndarray, "..."]


@themed
def plot_boards(tables: Mapping[str, Array], words: Sequence[str]) -> Figure:
    """Draw small square tables of numbers with their diagonals marked.

    Args:
        tables: name -> numbers, shape (query, key).
        words: the tokens, of queries and keys.
    """
    figure, panels = subplots(1, len(tables), height=2.7)
    for axes, (name, table) in zip(np.atleast_1d(panels), tables.items(), strict=True):
        largest = float(np.abs(table).max()) or 1.0
        for (row, column), value in np.ndenumerate(table):
            own = row == column
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5),
                    1,
                    1,
                    facecolor=tint("attention", 0.7 * abs(float(value)) / largest),
                    edgecolor=theme().ink if own else theme().faint,
                    linewidth=2.0 if own else 0.8,
                    zorder=2 if own else 1,
                )
            )
            whole = float(value).is_integer()
            text = f"{value:.0f}" if whole else f"{value:.2f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=12, zorder=3)
        axes.set_xlim(-0.55, len(words) - 0.45)
        axes.set_ylim(len(words) - 0.45, -0.55)
        axes.set_aspect("equal")
        axes.set_xticks(range(len(words)), words)
        axes.set_yticks(range(len(words)), words if axes is np.atleast_1d(panels)[0] else [])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(name)
    panel_letters(np.atleast_1d(panels))
    return figure


ARMS = {"none": ("separate", "none"), "qk": ("shared", "attention")}
"""What is shared -> its name in figures, and how it is drawn."""


@themed
def plot_learning(one_head: Dataset, *, predicted: float) -> Figure:
    """Draw accuracy over training of models with one head, every seed, with residual connections and without.

    Args:
        one_head: result of that name.
        predicted: the accuracy that is marked.
    """
    figure, panels = subplots(2, 1, height=2.6, sharex=True, sharey=True)
    names = {"with": "with residual connections", "without": "without: attention alone"}
    for axes, (layer, name) in zip(panels, names.items(), strict=True):
        for tie, (label, concept) in ARMS.items():
            rows = one_head.accuracy.sel(layer=layer, tie=tie).transpose("seed", "step").values
            seed_lines(axes, one_head.step.values, rows, concept=concept, label=label)
        axes.axhline(predicted, color=theme().ink, linestyle="--", linewidth=1)
        axes.text(0.98, 0.05, name, transform=axes.transAxes, ha="right", va="bottom")
        axes.set_ylabel("accuracy")
        axes.set_ylim(0, 1.05)
    panels[0].text(
        0.98, predicted + 0.02, "at most one of two", transform=panels[0].get_yaxis_transform(),
        ha="right", va="bottom", color=theme().ink,
    )  # fmt: skip
    panels[-1].set_xlabel("training step")
    legend_above(panels[0])
    panel_letters(panels)
    return figure


TIES = {"qk": "Q = K", "kv": "K = V", "qkv": "Q = K = V"}
TASKS = {"reversal": "reversal", "shift": "cyclic shift", "lag": "three back", "text": "text"}


@themed
def plot_gaps(four: Dataset, *, margin: float) -> Figure:
    """Draw what sharing changes, a panel a task: accuracy of the tied model minus that of the free one.

    Args:
        four: result of that name.
        margin: the smallest difference that counts; marked on the side of the loss.
    """
    figure, panels = subplots(len(TASKS), 1, height=1.75, sharex=True)
    concepts = dict(zip(TIES.values(), ("attention", "residual", "norm"), strict=True))
    for axes, (task, name) in zip(panels, TASKS.items(), strict=True):
        of = four.accuracy.sel(task=task)
        gaps = {label: (of.sel(tie=tie) - of.sel(tie="none")).values for tie, label in TIES.items()}
        seed_strip(axes, gaps, label="", concepts=concepts, reference=0.0)
        axes.axvline(-margin, color=COLOURS["random"], linestyle=":", linewidth=1.5)
        axes.set_title(name, loc="right", fontsize=12)
    panels[-1].set_xlabel("accuracy, tied minus free")
    panel_letters(panels)
    return figure


def _box(axes: Axes, x: float, y: float, text: str, concept: str, width: float = 0.7) -> None:
    box = FancyBboxPatch(
        (x - width / 2, y - 0.22), width, 0.44, boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=tint(concept, 0.45), edgecolor=theme().ink, linewidth=0.9, zorder=2,
    )  # fmt: skip
    axes.add_patch(box)
    axes.text(x, y, text, ha="center", va="center", fontsize=10, zorder=3)


@themed
def plot_schemes() -> Figure:
    """Draw which keys and values four query heads read, by five ways of sharing them."""
    figure, axes = subplots(height=6.2)
    schemes: dict[str, list[tuple[float, tuple[str, ...]]]] = {
        "MHA": [(float(x), ("k", "v")) for x in range(4)],
        "GQA": [(0.5, ("k", "v")), (2.5, ("k", "v"))],
        "K = V": [(float(x), ("k = v",)) for x in range(4)],
        "MQA": [(1.5, ("k", "v"))],
        "MLA": [(1.5, ("c",))],
    }
    numbers = {"MHA": "8", "GQA": "4", "K = V": "4", "MQA": "2", "MLA": "as long\nas c is"}
    for row, (name, keys) in enumerate(schemes.items()):
        top = -2.05 * row
        for head in range(4):
            _box(axes, float(head), top, "q", "attention")
            x = min(keys, key=lambda each: abs(each[0] - head))[0]
            axes.plot([head, x], [top - 0.22, top - 0.75], color=theme().ink, linewidth=1, zorder=1)
        for x, parts in keys:
            each = 0.4 if len(parts) == 2 else 0.8
            if name == "MLA":
                each = 1.6
            for place, part in enumerate(parts):
                shift = each * (place - (len(parts) - 1) / 2)
                concept = {"v": "ffn", "k": "residual"}.get(part, "norm")
                _box(axes, x + shift, top - 0.97, part, concept, each)
        axes.text(-0.75, top - 0.45, name, ha="right", va="center", fontweight="bold")
        axes.text(3.75, top - 0.45, numbers[name], ha="left", va="center")
    axes.text(3.75, 0.55, "vectors kept", ha="left", va="bottom", fontsize=10)
    axes.set_xlim(-1.7, 5.0)
    axes.set_ylim(-9.6, 0.9)
    axes.axis("off")
    return figure


SHARING = {"MHA": "none", "GQA": "residual", "K = V": "norm", "MQA": "attention", "MLA": "ffn"}
"""Ways to share keys and values -> how they are drawn."""


@themed
def plot_sharing(sharing: Dataset) -> Figure:
    """Draw the loss over the bytes that a token leaves behind, every seed, by how keys are shared."""
    figure, axes = subplots(height=3.6)
    for arm, concept in SHARING.items():
        loss = sharing.loss.sel(arm=arm).values
        width = 2 * float(sharing.kept.sel(arm=arm).values[0])
        mean, low, high = mean_and_bar(loss)
        near = 0.94 if arm in ("K = V", "MLA") else 1.06  # two arms keep as much as another
        if arm == "MHA":
            near = 1.0
        x = width * near
        axes.plot(
            np.full(len(loss), x), loss, "o", color=COLOURS[concept], alpha=0.55, markersize=5
        )
        axes.plot([x, x], [max(low, 1e-4), high], color=theme().ink, linewidth=1.6, zorder=3)
        axes.plot(
            x, mean, marker="D", color=COLOURS[concept], mec=theme().ink, markersize=8, zorder=4
        )
        left = near < 1
        axes.annotate(
            arm, (x, mean), xytext=(-10 if left else 10, 0), textcoords="offset points",
            ha="right" if left else "left", va="center", fontsize=12,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(50, 340)
    axes.set_xticks([64, 128, 256], ["64", "128", "256"])
    axes.minorticks_off()
    axes.set_xlabel("bytes kept for each token and layer, two a number")
    axes.set_ylabel("loss (nats)")
    return figure
