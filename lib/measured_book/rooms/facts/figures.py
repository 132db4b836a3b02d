"""Figures on facts: who fires for what, how many are stored, where one passes, and what an edit does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import Dataset

from measured_book.figures.plots import (
    heat_map,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.facts.measure import GROUPS, JUDGED, PLACED, VALUES

Array = Float[np.ndarray, "..."]
ARMS: Mapping[str, tuple[str, str]] = {
    "attention": ("attention alone", "attention"),
    "four": ("4d neurons", "ffn"),
    "once": ("d neurons", "alibi"),
    "neither": ("neither", "none"),
}
"""What a model of the first section is called, and drawn as."""
HOWS: Mapping[str, tuple[str, str]] = {
    "least": ("least for the others", "ffn"),
    "plain": ("the shortest", "residual"),
    "value": ("one value", "attention"),
}
"""What a kind of edit is called, and drawn as."""
ROUTES: Mapping[str, str] = {
    "the edit": "the city itself",
    "chain": "its country, city written down",
    "country": "its country, in one step",
    "holder": "who wears the badge",
}
"""What is asked after an edit."""


def _named(axes: Axes, x: float, y: float, text: str, concept: str, **how: str) -> None:
    """Write a name beside what it names, in its colour."""
    axes.text(x, y, text, color=COLOURS[concept], fontsize=9, **how)  # type: ignore[arg-type]


@themed
def plot_who_fires(written: Array, learned: Array) -> Figure:
    """Draw the activations of neurons (rows) for facts (columns): written by hand, and learned.

    Args:
        written: of the network by hand, shape (fact, neuron).
        learned: of a trained one, each neuron in units of its largest, shape (fact, neuron).
    """
    figure, panels = subplots(1, 2, height=3.6, width_ratios=(2, 3))
    for axes, found in zip(panels, (written, learned), strict=True):
        heat_map(
            axes, found.T, label="activation", x_label="fact", y_label="neuron",
            limits=(0.0, float(found.max())),
        )  # fmt: skip
    panel_letters(panels)
    return figure


@themed
def plot_shares_recalled(stored: Dataset) -> Figure:
    """Draw for each model (a) the share of a table that it recalls, (b) the bits it keeps for each parameter.

    Args:
        stored: the result ``stored``.
    """
    figure, axes = subplots(1, 2, height=3.3, sharex=True)
    sizes = stored["size"].values
    for arm, (name, concept) in ARMS.items():
        one = stored.sel(arm=arm).transpose("seed", "size")
        bits = one.bits.values / one.parameters.values[:, None]
        seed_lines(axes[0], sizes, one.recalled.values, concept=concept)
        seed_lines(axes[1], sizes, bits, concept=concept)
        ends = (float(one.recalled.values[:, -1].mean()), float(bits[:, -1].mean()))
        for panel, end, apart in zip(axes, ends, (0.03, 0.025), strict=True):
            moved = {"four": apart, "attention": -apart}.get(arm, 0.0)
            _named(panel, 820.0, end + moved, name, concept, va="center")
    axes[0].set_ylabel("share recalled")
    axes[1].set_ylabel("bits kept for each parameter")
    for panel in axes:
        panel.xaxis.set_major_locator(FixedLocator(sizes.tolist()))
        panel.set_xlim(230, 1190)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("facts in the table")
    panel_letters(axes)
    return figure


@themed
def plot_recall_left(neurons: Dataset) -> Figure:
    """Draw recall over the number of neurons silenced, every seed faint, and mark where claims are judged.

    Args:
        neurons: the result ``inside_one_block``.
    """
    figure, axes = subplots(height=3.7)
    numbers = neurons.silenced.values.tolist()
    axes.axvline(numbers.index(JUDGED), color=theme().faint, linewidth=6, zorder=0)
    at = range(len(numbers))  # evenly, since zero has no logarithm
    for name, concept, words, where in (
        ("own", "ffn", "the fact itself,\nits strongest neurons", (3.25, 0.34)),
        ("others", "residual", "all other facts,\nthe same neurons", (4.65, 1.01)),
        ("drawn", "random", "the fact itself,\nneurons drawn", (4.3, 0.5)),
    ):
        values = neurons[name].transpose("seed", "silenced").values
        seed_lines(axes, list(at), values, concept=concept, label="", marker_every=1)
        _named(axes, *where, words, concept, va="center")
    axes.set_xticks(list(at), [str(number) for number in numbers])
    axes.set_ylim(-0.02, 1.1)
    axes.set_xlabel("neurons silenced for each fact")
    axes.set_ylabel("recall")
    return figure


@themed
def plot_answers_lost(neurons: Dataset) -> Figure:
    """Draw which share of other facts' answers an edit changes, a panel for each kind of edit.

    Args:
        neurons: the result ``inside_one_block``.
    """
    figure, panels = subplots(len(HOWS), 1, height=1.45, sharex=True)
    for axes, (how, (name, concept)) in zip(panels, HOWS.items(), strict=True):
        found = {group: neurons.lost.sel(how=how, group=group).values for group in GROUPS}
        label = "share of answers changed" if how == list(HOWS)[-1] else ""
        seed_strip(axes, found, label=label, concepts=dict.fromkeys(found, concept))
        axes.text(
            0.99, 0.06, name, transform=axes.transAxes, color=COLOURS[concept], ha="right", fontsize=10
        )  # fmt: skip
    panels[0].set_xlim(left=-0.005)
    panel_letters(panels)
    return figure


@themed
def plot_traced(traced: Dataset) -> Figure:
    """Draw how much of the right answer's probability one clean value brings back, block by block.

    Args:
        traced: the result ``traced``.
    """
    figure, panels = subplots(1, 3, height=3.5, sharey=True)
    effect = traced.effect.mean("seed").transpose("value", "position", "block")
    spread = traced.effect.std("seed").transpose("value", "position", "block")
    top = float(effect.max())
    names = [str(p).replace(" ", "\n") for p in traced.position.values]
    for axes, value in zip(panels, VALUES, strict=True):
        one, sd = effect.sel(value=value).values, spread.sel(value=value).values
        axes.imshow(one.T, cmap="cividis", vmin=0, vmax=top, aspect="auto", origin="lower")
        for i in range(one.shape[0]):
            for j in range(one.shape[1]):
                ink = "#000000" if one[i, j] > 0.55 * top else "#ffffff"
                told = f"{round(float(one[i, j]), 2) + 0.0:.2f}\n±{sd[i, j]:.2f}"
                axes.text(i, j, told, ha="center", va="center", color=ink, fontsize=8)
        axes.grid(visible=False)
        axes.set_xticks(range(len(names)), names, fontsize=9)
        axes.set_yticks(range(one.shape[1]), [str(b) for b in traced.block.values])
        for spine in axes.spines.values():
            spine.set_visible(False)
        what = {
            "stream": "the stream",
            "attention": "attention's write",
            "network": "network's write",
        }
        axes.set_xlabel(what[value])
    panels[0].set_ylabel("block")
    panel_letters(panels)
    return figure


@themed
def plot_places(traced: Dataset, places: Dataset) -> Figure:
    """Draw for eight places (a) success of edits over tracing's effect, (b) what else an edit changes.

    Args:
        traced: the result ``traced``.
        places: the result ``places``.
    """
    figure, (left, right) = subplots(1, 2, height=3.9, width_ratios=(5, 4))
    for site, concept in (("last name", "attention"), ("relation", "ffn")):
        for block in places.block.values:
            x = traced.effect.sel(value="network", position=site, block=block).values
            y = places.done.sel(site=site, block=block).values
            style = look(concept)
            left.plot(x, y, style["marker"], color=style["color"], alpha=0.35, markersize=4, mew=0)
            left.plot(
                x.mean(), y.mean(), style["marker"], color=style["color"], mec=theme().ink,
                markersize=9, zorder=4,
            )  # fmt: skip
            up = 1.045 if site == "relation" else float(y.mean())
            away = 0.0 if site == "relation" else 0.03
            aligned = "center" if site == "relation" else "left"
            _named(left, float(x.mean()) + away, up, str(block), concept, ha=aligned, va="center")
    _named(left, 0.30, 0.93, "relation, block", "ffn", ha="center", va="center")
    _named(left, 0.10, 0.42, "last name, block", "attention", va="center")
    left.set_ylim(-0.05, 1.1)
    left.set_xlabel("traced: probability brought back")
    left.set_ylabel("share of facts rewritten")
    price = [("last name", 1), *(("relation", int(block)) for block in places.block.values)]
    for group, concept in zip(GROUPS, ("attention", "ffn", "none"), strict=True):
        values = [places.lost.sel(site=s, block=b, group=group).values for s, b in price]
        seed_lines(right, range(len(price)), np.array(values).T, concept=concept, marker_every=1)
    right.set_xticks(
        range(len(price)), [f"{site.split()[-1]}\n{block}" for site, block in price], fontsize=9
    )
    _named(right, 0.25, 0.97 * right.get_ylim()[1], "same subject", "attention", va="top")
    _named(
        right,
        1.3,
        float(places.lost.sel(site="relation", block=1, group="same relation").mean()),
        "same relation",
        "ffn",
    )
    _named(right, 1.6, -0.035, "all others", "none", va="center")
    right.set_ylabel("share of other answers changed")
    right.set_ylim(bottom=-0.06)
    panel_letters((left, right))
    return figure


@themed
def plot_many(many: Dataset) -> Figure:
    """Draw over the number of edits the share (a) of edits done, (b) of other answers that stay.

    Args:
        many: the result ``many``.
    """
    figure, axes = subplots(1, 2, height=3.2, sharey=True)
    numbers = many.number.values
    for panel, name in zip(axes, ("done", "kept"), strict=True):
        for method, concept in (("at once", "ffn"), ("one by one", "attention")):
            values = many[name].sel({"method": method}).transpose("seed", "number").values
            seed_lines(panel, numbers, values, concept=concept, marker_every=1)
        panel.set_xscale("log", base=2)
        panel.set_xticks(numbers, [str(n) for n in numbers])
        panel.minorticks_off()
        panel.set_xlabel("facts rewritten")
    axes[0].set_ylabel("share")
    axes[0].set_ylim(0, 1.05)
    for text, y, concept in (("at once", 0.3, "ffn"), ("one after another", 0.2, "attention")):
        _named(axes[0], 1.1, y, text, concept)
    _named(axes[0], 1.1, 0.42, "have the new answer:", "none")
    _named(axes[1], 1.1, 0.2, "others keep theirs", "none")
    panel_letters(axes)
    return figure


@themed
def plot_ripples(ripples: Dataset) -> Figure:
    """Draw how often the answers that should follow an edit do, for an edit at two places.

    Args:
        ripples: the result ``ripples``.
    """
    figure, panels = subplots(2, 1, height=2.3, sharex=True)
    for axes, place in zip(panels, (PLACED[-1], PLACED[0]), strict=True):
        found = {
            words: ripples.follows.sel(place=place, route=route, answer="new").values
            for route, words in ROUTES.items()
        }
        concepts = dict(zip(found, ("ffn", "residual", "attention", "alibi"), strict=True))
        where, block = place[:-2], place[-1]
        label = "share of new answers" if place == PLACED[0] else ""
        seed_strip(axes, found, label=label, concepts=concepts)
        axes.set_title(f"edited in block {block}, {where}", loc="right", fontsize=10)
    panels[0].set_xlim(-0.03, 1.03)
    for axes in panels:
        axes.tick_params(labelbottom=True)
    panel_letters(panels)
    return figure
