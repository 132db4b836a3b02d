"""Figures of *Repeats and rules*: results in, drawings out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, legend_over, level, panels, plain_ticks, strips

KINDS: Arms = {
    "prefix": ("attention", "behind an earlier copy"),
    "previous": ("rotary", "the token before"),
}
TIMES: Arms = {
    "1": ("none", "first time"),
    "2": ("residual", "second time"),
    "3": ("attention", "third time"),
}
GROUPS: Arms = {
    "induction": ("attention", "induction heads"),
    "matched": ("none", "matched by norm"),
}
WITHOUT: Arms = {
    "none": ("none", "all heads"),
    "matched": ("residual", "without matched heads"),
    "previous": ("rotary", "without previous-token heads"),
}
EXAMPLES: Arms = {
    "none": ("none", "no example"),
    "right": ("attention", "six right examples"),
    "wrong": ("alibi", "six wrong examples"),
}
AT: Arms = {
    "subject": ("attention", "the subject"),
    "the": ("none", "the word “the” between"),
    "last": ("rotary", "the word before the verb"),
}
LEVELS: Arms = {
    "answer": ("attention", "straight"),
    "queries": ("rotary", "by queries"),
    "values": ("residual", "by values"),
}
CIRCUITS: Arms = {
    "circuit": ("attention", "circuit"),
    "random": ("none", "random ones"),
}
_TICKS = [1, 5, 10, 15, 20, 25, 30]


@themed
def plot_found(found: Dataset) -> Figure:
    """Draw the two scores of every head by block, mean over draws.

    Args:
        found: the result of this name.
    """
    titles = tuple(label for _, label in KINDS.values())
    figure, axes = panels(1, 2, height=2.8, x="block", titles=titles, sharey=True)
    for one, (name, (concept, _)) in zip(axes, KINDS.items(), strict=True):
        values = found[name].mean("seed")
        for head in values["head"]:
            one.plot(
                values["block"], values.sel(head=head), "o", ms=4, alpha=0.7, color=COLOURS[concept]
            )
        level(one, 0.5)
        one.set_ylim(0, 1)
        plain_ticks(one.xaxis, _TICKS)
    axes[0].set_ylabel("weight")
    return figure


@themed
def plot_repeated(repeated: Dataset) -> Figure:
    """Draw the loss of the first, second and third time, for random words and for text.

    Args:
        repeated: the result of this name.
    """
    titles = ("random words", "text")
    figure, axes = panels(1, 2, height=2.0, titles=titles, sharey=True)
    for one, of in zip(axes, ("strings", "texts"), strict=True):
        loss = repeated.loss.sel(of=of)
        loss = loss.assign_coords(time=[str(int(time)) for time in loss.time])
        strips(one, loss, TIMES, over="time", label="loss (nats per token)")
    return figure


@themed
def plot_removed(removed: Dataset) -> Figure:
    """Draw how much the loss of the second time rises without heads, set to zero and to their mean.

    Args:
        removed: the result of this name.
    """
    names = {"strings": "random words", "texts": "text"}
    titles = tuple(f"{name}, {how}" for name in names.values() for how in ("zero", "mean"))
    figure, axes = panels(2, 2, height=1.7, titles=titles, sharey=True)
    rise = removed.loss - removed.plain
    cells = [(of, how) for of in names for how in ("zero", "mean")]
    for one, (of, how) in zip(axes, cells, strict=True):
        strips(one, rise.sel(of=of, how=how), GROUPS, over="heads", label="rise (nats per token)")
    return figure


@themed
def plot_ordinary(ordinary: Dataset) -> Figure:
    """Draw how much the loss in ordinary text rises without heads, by whether a pair is repeated.

    Args:
        ordinary: the result of this name.
    """
    titles = ("targets that repeat a pair", "all others")
    figure, axes = panels(1, 2, height=1.8, titles=titles, sharey=True)
    rise = ordinary.loss - ordinary.plain
    for one, targets in zip(axes, ("repeat", "other"), strict=True):
        strips(one, rise.sel(targets=targets), GROUPS, over="heads", label="rise (nats per token)")
        one.locator_params(axis="x", nbins=4)
    return figure


@themed
def plot_path(path: Dataset) -> Figure:
    """Draw the prefix-matching score of the induction heads, with and without other heads.

    Args:
        path: the result of this name.
    """
    figure, (axes,) = panels(height=1.9)
    strips(axes, path.prefix, WITHOUT, over="without", label="prefix-matching score")
    axes.set_xlim(0, 1)
    return figure


@themed
def plot_shots(shots: Dataset) -> Figure:
    """Draw the loss of the answer by the examples before it, and without heads.

    Args:
        shots: the result of this name.
    """
    titles = ("by examples", "without heads")
    figure, (left, right) = panels(1, 2, height=2.0, titles=titles)
    label = "nats for the answer"
    strips(left, shots.loss.mean("relation"), EXAMPLES, over="examples", label=label)
    strips(right, shots.without.mean("relation"), GROUPS, over="heads", label=label)
    return figure


@themed
def plot_agreement(agreement: Dataset) -> Figure:
    """Draw how much of a subject's number comes with the state at one position, by block.

    Args:
        agreement: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="moved before this block", y="share of the change")
    curves(axes, agreement.carried, "before", AT, over="at")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, [1, 7, 13, 19, 25, 31])
    legend_over(figure, axes, columns=3, size=9)
    return figure


@themed
def plot_objects(objects: Dataset) -> Figure:
    """Draw what every head does for the right name along three kinds of path, by block, mean over draws.

    Args:
        objects: the result of this name.
    """
    titles = tuple(label for _, label in LEVELS.values())
    figure, axes = panels(1, 3, height=2.8, x="block", titles=titles, sharey=True)
    for one, (name, (concept, _)) in zip(axes, LEVELS.items(), strict=True):
        values = -objects.effect.sel(level=name).mean("seed")
        for head in values["head"]:
            one.plot(
                values["block"], values.sel(head=head), "o", ms=4, alpha=0.7, color=COLOURS[concept]
            )
        level(one, 0.0)
        plain_ticks(one.xaxis, [1, 10, 20, 30])
    axes[0].set_ylabel("fall of the gap")
    return figure


@themed
def plot_circuit(objects: Dataset) -> Figure:
    """Draw the share of the gap that circuits keep alone, and that is left without them, beside random ones.

    Args:
        objects: the result of this name.
    """
    cells = [(size, kept) for size in objects["size"].values for kept in ("only", "without")]
    words = {"only": "{} heads alone", "without": "all but {} heads"}
    titles = tuple(words[kept].format(size) for size, kept in cells)
    figure, axes = panels(2, 2, height=1.7, titles=titles, sharey=True)
    share = (objects.circuit - objects.nothing) / (objects.gap.sel(names="two") - objects.nothing)
    for one, (size, kept) in zip(axes, cells, strict=True):
        strips(one, share.sel(size=size, kept=kept), CIRCUITS, over="of", label="share of the gap")
    return figure
