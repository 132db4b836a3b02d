"""Figures about what can be read, and what is missed when it is gone: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from measured_transformer.tasks.grammar import VOCABULARY
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from numpy.typing import NDArray
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, subplots

_ERASERS = {"leace": "attention", "mean": "norm", "drawn": "none"}
"""Colour of each eraser."""


def _name(axes: Axes, text: str, at: tuple[float, float], concept: str, **how: str) -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(*at, text, color=COLOURS[concept], fontsize=9, **how)  # type: ignore[arg-type]


def _rows(values: DataArray, along: str) -> NDArray[np.float64]:
    return np.asarray(values.transpose("seed", along).values, dtype=float)


def _shares(axes: Axes, what: str) -> None:
    axes.set_ylim(-0.04, 1.08)
    axes.set_xlabel("blocks passed")
    axes.set_ylabel(what)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


@themed
def plot_by_heart(sentences: Dataset) -> Figure:
    """Draw probes and their control tasks by depth: the subject's number beside the last word's.

    Args:
        sentences: the result ``sentences``.
    """
    figure, axes = subplots(columns=2, height=3.3, sharey=True)
    labels = {
        "subject": ((3.0, 0.93), (2.4, 0.56), "number of the subject"),
        "place": ((0.2, 0.87), (0.2, 0.78), "number of the last word"),
    }
    for panel, (what, (probe, control, name)) in zip(axes, labels.items(), strict=True):
        one = sentences.sel(what=what)
        for values, concept in ((one.accuracy, "residual"), (one.control, "random")):
            seed_lines(panel, one.state.values, _rows(values, "state"), concept=concept)
        _name(panel, "probe", probe, "residual", va="top")
        _name(panel, "control task", control, "none", va="top")
        _shares(panel, "accuracy on other sentences")
        panel.set_ylim(0.4, 1.04)
        panel.set_title(name, fontsize=10)
    axes[1].set_ylabel("")
    panel_letters(axes)
    return figure


_POINTS = np.array([(1.0, 3.0), (-5.0, -3.0), (5.0, 3.0), (-1.0, -3.0)])
_LABELS = np.array([0, 0, 1, 1])


@themed
def plot_erasers() -> Figure:
    """Draw the four states of the hand example before erasing, after projecting and after LEACE."""
    figure, axes = subplots(columns=3, height=2.7, sharey=True)
    projected = _POINTS * np.array([0.0, 1.0])
    second = _POINTS[:, 1:]
    erased = np.concatenate((second, second), 1)
    panels = {"before": _POINTS, "projection": projected, "LEACE": erased}
    for panel, (name, points) in zip(axes, panels.items(), strict=True):
        panel.axhline(0, color=COLOURS["none"], linewidth=0.5)
        panel.axvline(0, color=COLOURS["none"], linewidth=0.5)
        for start, end in zip(_POINTS, points, strict=True):
            if np.any(start != end):
                panel.annotate(
                    "", end, start, arrowprops={"arrowstyle": "->", "color": COLOURS["none"]}
                )
        for label, (concept, mark, size) in enumerate(
            (("residual", "o", 9.0), ("attention", "s", 5.0))
        ):
            chosen = points[label == _LABELS]
            panel.plot(
                chosen[:, 0], chosen[:, 1], mark, color=COLOURS[concept], markersize=size, zorder=3
            )
        panel.set_xlim(-6.5, 6.5)
        panel.set_ylim(-4.6, 4.6)
        panel.set_aspect("equal")
        panel.set_yticks([-3, 0, 3])
        panel.set_xlabel("first entry")
        panel.set_title(name, fontsize=10)
    axes[0].set_ylabel("second entry")
    _name(axes[0], "plural", (2.4, 3.5), "attention")
    _name(axes[0], "singular", (-4.2, 3.5), "residual")
    panel_letters(axes)
    return figure


@themed
def plot_rounds(sentences: Dataset) -> Figure:
    """Draw what is left after so many rounds of nullspace projection: to a probe, and to the model.

    Args:
        sentences: the result ``sentences``.
    """
    figure, axes = subplots(columns=2, height=3.1, sharey=True)
    names = {"subject": "number of the subject", "place": "number of the last word"}
    for panel, (what, name) in zip(axes, names.items(), strict=True):
        one = sentences.sel(what=what)
        for values, concept in ((one.rounds_left, "residual"), (one.rounds_kept, "attention")):
            seed_lines(panel, one.rounds.values, _rows(values, "rounds"), concept=concept)
        panel.set_xscale("log", base=2)
        panel.set_xticks(one.rounds.values, [str(rounds) for rounds in one.rounds.values])
        panel.set_ylim(0.3, 1.08)
        panel.set_xlabel("directions removed")
        panel.set_title(name, fontsize=10)
    axes[0].set_ylabel("accuracy")
    _name(axes[1], "agreement of the model", (1.0, 1.03), "attention")
    _name(axes[1], "probe", (1.0, 0.79), "residual")
    panel_letters(axes)
    return figure


@themed
def plot_used(sentences: Dataset, facts: Dataset, positions: Dataset) -> Figure:
    """Draw for four properties what a probe reads by depth, and what the model can do without it.

    Args:
        sentences: the result ``sentences``.
        facts: the result ``facts``.
        positions: the result ``positions``.
    """
    figure, axes = subplots(rows=2, columns=2, height=2.9, sharex=True, sharey=True)
    panels: Mapping[str, tuple[Dataset, float]] = {
        "the subject's number": (sentences.sel(what="subject"), 0.5),
        "the last word's number": (sentences.sel(what="place"), 0.5),
        "the object of a fact": (facts, 1 / 8),
        "the position": (positions, 1 / 8),
    }
    for panel, (name, (one, chance)) in zip(axes.flat, panels.items(), strict=True):
        panel.axhline(chance, color=COLOURS["none"], linewidth=0.8, linestyle=(0, (6, 4)))
        seed_lines(panel, one.state.values, _rows(one.accuracy, "state"), concept="residual")
        for eraser in ("drawn", "leace"):
            seed_lines(
                panel,
                one.state.values,
                _rows(one.kept.sel(eraser=eraser), "state"),
                concept=_ERASERS[eraser],
            )
        _shares(panel, "accuracy")
        panel.set_title(name, fontsize=10)
    for panel in axes[0]:
        panel.set_xlabel("")
    for panel in axes[:, 1]:
        panel.set_ylabel("")
    panel_letters(axes.flat)
    facts_panel = axes[1, 0]
    _name(facts_panel, "probe", (1.15, 0.62), "residual")
    _name(facts_panel, "model, erased", (2.6, 0.36), "attention")
    _name(facts_panel, "model, random\nlabels erased", (3.2, 0.74), "none")
    return figure


@themed
def plot_damage(positions: Dataset) -> Figure:
    """Draw how often a reversal is right after three erasers of its positions, by depth.

    Args:
        positions: the result ``positions``.
    """
    figure, axes = subplots(height=3.1)
    names = {
        "leace": ("LEACE", (0.25, 1.03)),
        "drawn": ("LEACE for shuffled labels", (2.1, 1.03)),
        "mean": ("projection at right angles", (2.1, 0.27)),
    }
    for eraser, (name, at) in names.items():
        values = _rows(positions.kept.sel(eraser=eraser), "state")
        seed_lines(axes, positions.state.values, values, concept=_ERASERS[eraser])
        _name(axes, name, at, _ERASERS[eraser])
    _shares(axes, "reversed rightly")
    axes.set_ylim(0.0, 1.12)
    return figure


@themed
def plot_sentence(one_sentence: Dataset, words: tuple[str, ...]) -> Figure:
    """Draw the most likely next word that each lens reads, word by word and depth by depth.

    Args:
        one_sentence: the result ``one_sentence``.
        words: of the sentence.
    """
    figure, axes = subplots(rows=2, height=3.2)
    one = one_sentence.isel(seed=0)
    names = {"logit": "logit lens", "tuned": "tuned lens"}
    for panel, (lens, name) in zip(axes, names.items(), strict=True):
        read = one.sel(lens=lens).transpose("state", "position")
        for state, (tokens, chances) in enumerate(
            zip(read.word.values, read.chance.values, strict=True)
        ):
            for position, (token, chance) in enumerate(zip(tokens, chances, strict=True)):
                final = int(read.word.values[-1, position])
                same = int(token) == final
                panel.add_patch(
                    _cell(position, state, tint("ffn" if same else "none", 0.12 + 0.5 * chance))
                )
                panel.text(
                    position, state, VOCABULARY[int(token)], ha="center", va="center", fontsize=7.5,
                    color=theme().ink, fontweight="bold" if same else "normal",
                )  # fmt: skip
        panel.set_xlim(-0.5, len(words) - 0.5)
        panel.set_ylim(-0.5, len(read.state) - 0.5)
        panel.set_xticks(range(len(words)), words, fontsize=9)
        panel.set_ylabel(f"{name}\nblocks passed")
        panel.tick_params(length=0)
        panel.grid(visible=False)
    axes[1].set_xlabel("word read")
    panel_letters(axes)
    return figure


def _cell(x: int, y: int, colour: tuple[float, float, float]) -> Rectangle:
    return Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, edgecolor="none")


@themed
def plot_lenses(lenses: Dataset) -> Figure:
    """Draw how far each lens is from the model's prediction by depth, and how biased it is.

    Args:
        lenses: the result ``lenses``.
    """
    figure, axes = subplots(columns=2, height=3.3)
    states = lenses.state.values[:-1]
    for panel, (what, name) in zip(
        axes, (("kl", "KL divergence (nats)"), ("bias", "bias (nats)")), strict=True
    ):
        for lens, concept in (("logit", "attention"), ("tuned", "residual")):
            values = lenses[what].sel(lens=lens, state=states)
            seed_lines(panel, states, _rows(values, "state"), concept=concept)
        panel.set_yscale("log")
        panel.set_xlabel("blocks passed")
        panel.set_ylabel(name)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    _name(axes[0], "logit lens", (2.1, 0.45), "attention")
    _name(axes[0], "tuned lens", (0.1, 0.02), "residual")
    panel_letters(axes)
    return figure
