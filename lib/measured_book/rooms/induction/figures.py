"""Figures of the chapter on induction and learning in context: results in, drawings out."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.analysis.circuits import composition_baseline
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.induction.measure import (
    DEEP,
    ROUNDS,
    STRINGS,
    SWAPS,
    config_of,
)

_LETTERS = "abcdefghijklmnop"


@themed
def plot_matrices(matrices: Dataset) -> Figure:
    """Draw the two products of weights of the first seed's model, before training and after it.

    Args:
        matrices: the result ``matrices``.
    """
    figure, panels = subplots(2, 2, height=3.0)
    rows = (
        ("match", "token in front of the key", "own token"),
        ("copy", "letter whose logit rises", "token looked at"),
    )
    for line, (name, across, down) in zip(panels, rows, strict=True):
        for axes, state in zip(line, ("untrained", "trained"), strict=True):
            cells = matrices[name].sel(state=state).isel(seed=0).values
            heat_map(axes, cells, label="", x_label=across, y_label=down, diverging=True)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_ticks(range(0, len(_LETTERS), 3), list(_LETTERS[::3]))
            axes.set_title(state, loc="right", fontsize=11)
    panel_letters(panels)
    return figure


@themed
def plot_cliff(cliff: Dataset) -> Figure:
    """Draw losses, what heads look at, and what weights say, over the steps of training.

    Args:
        cliff: the result ``cliff``.
    """
    figure, panels = subplots(3, 1, height=2.5, sharex=True)
    steps = cliff.look.values
    above, middle, below = panels

    def lines(axes: Axes, name: str, concept: str, label: str, scale: float = 1.0) -> None:
        rows = cliff[name].transpose("seed", "look").values * scale
        seed_lines(axes, steps, rows, concept=concept, label=label)

    lines(above, "loss", "attention", "two layers")
    lines(above, "one_layer", "none", "one layer")
    above.axhline(STRINGS.bag_loss(), color=theme().ink, linewidth=1, linestyle=":")
    above.text(
        steps[-1], STRINGS.bag_loss() - 0.35, "letters, but not their order", ha="right", va="top"
    )
    above.set_ylabel("loss (nats)")
    above.set_ylim(bottom=0)
    lines(middle, "previous", "residual", "looks back")
    lines(middle, "prefix", "attention", "matches")
    middle.set_ylabel("weight")
    middle.set_ylim(0, 1)
    lines(below, "copying", "ffn", "copying score (OV)")
    chance = composition_baseline(config_of(DEEP[0]).d_model)
    lines(below, "keys", "norm", "K-composition, times chance", 1 / chance)
    below.set_ylabel("score")
    below.set_ylim(bottom=0)
    below.set_xlabel("step")
    for axes in panels:
        legend_above(axes, columns=2)
    panel_letters(panels)
    return figure


def _heads(axes: Axes, across: DataArray, up: DataArray, concept: str) -> None:
    """Draw every head of every seed as a dot."""
    x, y = (values.values.ravel() for values in (across, up))
    axes.plot(x, y, "o", color=COLOURS[concept], alpha=0.55, markersize=6, mew=0)
    axes.axhline(0, color=theme().ink, linewidth=0.8)
    axes.set_ylabel("rise of the loss (nats)")


@themed
def plot_harm(formed: Dataset, needed: Dataset) -> Figure:
    """Draw what is lost without each head against what it looks at, a layer a panel.

    Args:
        formed: the result ``formed``.
        needed: the result ``needed``.
    """
    figure, panels = subplots(2, 1, height=2.8)
    looks = (
        ("previous", "residual", "previous-token score"),
        ("prefix", "attention", "prefix-matching score"),
    )
    for layer, (axes, (name, concept, label)) in enumerate(zip(panels, looks, strict=True)):
        across = formed[name].sel(deep=DEEP[0], state="trained", layer=layer)
        up = needed.harm.sel(deep=DEEP[0], layer=layer)
        _heads(axes, across.transpose("seed", "head"), up.transpose("seed", "head"), concept)
        axes.set_xlabel(f"{label} of a head of layer {layer}")
        axes.set_xlim(0, 1.02)
    panel_letters(panels)
    return figure


@themed
def plot_apart(needed: Dataset) -> Figure:
    """Draw what patching a head's circuits takes, and what is left with other heads' output-value circuits.

    Args:
        needed: the result ``needed``.
    """
    figure, (above, below) = subplots(2, 1, height=2.6)
    of = needed.patched.sel(deep=DEEP[0])
    alone = {name: of.sel(patch=name) for name in ("pattern", "values")}
    groups = {
        "other pattern": alone["pattern"].values,
        "other values": alone["values"].values,
        "sum of the two": (alone["pattern"] + alone["values"]).values,
        "both at once": of.sel(patch="both").values,
    }
    concepts = {
        "other pattern": "residual",
        "other values": "ffn",
        "sum of the two": "none",
        "both at once": "attention",
    }
    seed_strip(above, groups, label="fall of the right answer's logit", concepts=concepts)
    above.set_xlim(left=0)
    names = {
        SWAPS[0]: "its own",
        SWAPS[1]: "another induction\nhead's",
        SWAPS[2]: "a first-layer\nhead's",
    }
    swap = needed.swapped.sel(deep=DEEP[0])
    strips = {name: swap.sel(swap=which).values for which, name in names.items()}
    colours = dict(zip(names.values(), ("attention", "attention", "residual"), strict=True))
    seed_strip(below, strips, label="accuracy", concepts=colours)
    below.set_xlim(0, 1.03)
    panel_letters((above, below))
    return figure


@themed
def plot_mixed(mixed: Dataset) -> Figure:
    """Draw accuracy in context and by heart against the share of strings in the training data.

    Args:
        mixed: the result ``mixed``.
    """
    figure, axes = subplots(height=3.4)
    share = mixed.share.values
    for name, concept, label in (
        ("strings", "attention", "strings: in the context"),
        ("circle", "residual", "circle: in the weights"),
    ):
        rows = mixed[name].transpose("seed", "share").values
        seed_lines(axes, share, rows, concept=concept, label=label, marker_every=1)
    axes.set_xticks(share, [f"{one:g}" for one in share])
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("share of the training sequences that repeat themselves")
    axes.set_ylabel("accuracy")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_text(text: Dataset) -> Figure:
    """Draw the language models' losses on a piece that comes again, and their heads.

    Args:
        text: the result ``text``.
    """
    figure, (above, below) = subplots(2, 1, height=3.0)
    rounds = text["round"].values
    for name, concept in zip(text.text.values, ("none", "attention"), strict=True):
        rows = text.rounds.sel(text=name).transpose("seed", "round").values
        label = f"trained on text {'as it is' if name == 'plain text' else 'with repeats'}"
        seed_lines(above, rounds, rows, concept=concept, label=label, marker_every=1)
    above.set_xticks(rounds)
    above.set_xlim(0.8, ROUNDS + 0.2)
    above.set_ylim(bottom=0)
    above.set_xlabel("how often the piece has come")
    above.set_ylabel("loss (nats per character)")
    legend_above(above, columns=1)
    for name, concept in zip(text.text.values, ("none", "attention"), strict=True):
        of = text.sel(text=name, layer=1)
        _heads(below, of.prefix, of.harm, concept)
    below.set_xlabel("prefix-matching score of a head of layer 1")
    below.set_xlim(left=-0.01)
    panel_letters((above, below))
    return figure


@themed
def plot_regression(regression: Dataset) -> Figure:
    """Draw the squared error of five kinds of guesses against the number of points seen.

    Args:
        regression: the result ``regression``.
    """
    figure, axes = subplots(height=4.2)
    points = regression.points.values
    for guess, concept, label in (
        ("one step", "norm", "one step of gradient descent"),
        ("least squares", "learned", "least squares"),
        ("one layer", "none", "Transformer, one block"),
        ("model", "attention", "Transformer, two blocks"),
        ("ridge", "residual", "ridge regression (best)"),
    ):
        rows = regression.error.sel(guess=guess).transpose("seed", "points").values
        seed_lines(axes, points, rows, concept=concept, label=label, marker_every=1)
    axes.set_yscale("log")
    axes.set_ylim(0.1, 5)
    ticks = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("points seen")
    axes.set_ylabel("mean squared error")
    legend_above(axes, columns=2)
    return figure
