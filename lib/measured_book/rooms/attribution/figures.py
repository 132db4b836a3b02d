"""Figures of the chapter on attribution: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_book.rooms.attribution.chemistry import KNOWN
from measured_book.rooms.attribution.measure import (
    DEPTHS,
    METHODS,
    POINTS,
    RECOVERED,
    TASKS,
)

TEXT: Mapping[str, str] = {
    "attention mean": "attention, mean",
    "attention largest": "attention, largest",
    "attention last": "attention, last block",
    "weighted norms": "attention times norm",
    "rollout": "rollout",
    "flow": "flow",
    "gradient": "gradient, length",
    "gradient times input": "gradient times input",
    "integrated from zero": "integrated, from zero",
    "integrated from mean": "integrated, from the mean",
    "attention times gradient": "attention times gradient",
    "relevance rollout": "relevance, rolled out",
    "zero": "corrupt: zero",
    "mean": "corrupt: mean",
    "resample": "corrupt: another token",
    "delete": "delete",
    "restore": "restore",
}
"""Method -> its name in figures."""
KINDS = {
    "attention": METHODS[:6],
    "ffn": METHODS[6:12],
    "residual": METHODS[12:],
}
"""What a kind of method is drawn as: looking, slopes, interventions."""
_TASKS = {"recall": "residual", "induction": "attention", "two hops": "ffn"}


def two_hop_words(tokens: list[int], task: JoinedTwoHop) -> list[str]:
    """Tokens of two hops as words: keys are small letters, bridges capitals, values digits.

    >>> two_hop_words([0, 16, 24, 5], JoinedTwoHop(chains=3, names=4, values=4))
    ['a', 'c→P', 'P→1', '2']
    """
    first = task.names + task.values
    second = first + task.names**2
    words = []
    for token in tokens:
        if token < task.names:
            words.append("abcdefgh"[token])
        elif token < first:
            words.append(str(token - task.names + 1))
        elif token < second:
            key, bridge = divmod(token - first, task.names)
            words.append(f"{'abcdefgh'[key]}→{'PQRSTUVW'[bridge]}")
        else:
            bridge, value = divmod(token - second, task.values)
            words.append(f"{'PQRSTUVW'[bridge]}→{value + 1}")
    return words


def known_areas(found: Dataset, models: Sequence[str]) -> DataArray:
    """Areas, mean over those of some models that answer right in at least 0.99 of the cases."""
    return found.area.where(found.accuracy >= 0.99).sel(model=list(models)).mean("model")


@themed
def plot_question(one_question: Dataset) -> Figure:
    """Draw one question of two hops as a row of cells for each method: the darker, the higher its score.

    Args:
        one_question: the result ``one_question``.
    """
    task = TASKS["two hops"]
    assert isinstance(task, JoinedTwoHop)
    tokens = [int(token) for token in one_question.token.values.ravel()]
    scores = one_question.score.isel(seed=0).transpose("by", "position").values
    relevant = one_question.relevant.values.ravel() > 0
    figure, axes = subplots(height=5.6)
    words = two_hop_words(tokens, task)
    for row, values in enumerate(scores):
        for place, value in enumerate(values):
            cell = Rectangle((place + 0.04, row + 0.06), 0.92, 0.88, linewidth=0)
            cell.set_facecolor(COLOURS["residual"])
            cell.set_alpha(float(np.clip(value, 0, 1)) * 0.9)
            axes.add_patch(cell)
            if value >= 0.995:
                axes.text(
                    place + 0.5,
                    row + 0.5,
                    "1st",
                    ha="center",
                    va="center",
                    color="white",
                    fontsize=9,
                )
    for place in np.flatnonzero(relevant).tolist():
        frame = Rectangle((place, 0), 1, len(scores), fill=False)
        frame.set_edgecolor(COLOURS["attention"])
        frame.set_linewidth(2.2)
        axes.add_patch(frame)
    axes.set_xlim(-0.05, scores.shape[1] + 0.05)
    axes.set_ylim(len(scores) + 0.05, -0.05)
    axes.set_xticks(np.arange(scores.shape[1]) + 0.5, words[:-1], fontsize=12)
    axes.set_yticks(np.arange(len(scores)) + 0.5, [TEXT[name] for name in METHODS])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(f"tokens before the question {words[-1]}?")
    return figure


def _marks(axes: Axes, y: float, values: np.ndarray, concept: str, marker: str) -> None:
    """Draw a faint mark for each seed and a strong one for their mean."""
    colour = COLOURS[concept]
    there = values[np.isfinite(values)]
    axes.plot(there, np.full(len(there), y), marker, color=colour, alpha=0.35, markersize=4, mew=0)
    axes.plot(there.mean(), y, marker, color=colour, mec=theme().ink, markersize=7, zorder=4)


@themed
def plot_found(found: Dataset) -> Figure:
    """Draw how well each method finds what matters in models of six blocks, the best on top, task by task.

    Args:
        found: the result ``found``.
    """
    each = {task: known_areas(found, [f"{task} 6"]) for task in TASKS}
    means = sum(one.mean("seed") for one in each.values()) / len(each)
    assert isinstance(means, DataArray)
    order = [str(name) for name in means.by.values[np.argsort(-means.values, kind="stable")]]
    figure, axes = subplots(height=6.6)
    axes.axvline(0.5, color=theme().ink, linestyle="--", linewidth=1)
    for row, name in enumerate(order):
        for shift, (task, marker) in enumerate(zip(TASKS, "os^", strict=True)):
            values = each[task].sel(by=name).values
            _marks(axes, row + (shift - 1) * 0.24, values, _TASKS[task], marker)
    axes.set_yticks(range(len(order)), [TEXT[name] for name in order])
    colours = {name: kind for kind, names in KINDS.items() for name in names}
    weights = {"attention": "normal", "ffn": "normal", "residual": "bold"}
    for label, name in zip(axes.get_yticklabels(), order, strict=True):
        label.set_fontweight(weights[colours[name]])
    axes.set_ylim(len(order) - 0.5, -0.9)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for place, task in enumerate(TASKS):
        axes.text(
            0.02 + 0.34 * place,
            1.01,
            f"{'●■▲'[place]} {task}",
            transform=axes.transAxes,
            color=COLOURS[_TASKS[task]],
            va="bottom",
        )
    axes.text(0.505, -0.62, "chance", fontsize=9, va="center")
    axes.set_xlabel("area under the curve, six blocks")
    return figure


_BY_DEPTH = {
    "delete": ("delete", "residual"),
    "attention largest": ("attention, largest", "learned"),
    "gradient": ("gradient, length", "ffn"),
    "rollout": ("rollout", "attention"),
    "flow": ("flow", "norm"),
}


@themed
def plot_depths(found: Dataset) -> Figure:
    """Draw the area under the curve over depth: (a) recall, (b) mean of induction and two hops.

    Args:
        found: the result ``found``.
    """
    figure, axes = subplots(2, 1, height=3.3)
    groups = (
        (DEPTHS["recall"], ("recall",)),
        (DEPTHS["two hops"], ("induction", "two hops")),
    )
    for panel, (depths, tasks) in zip(axes, groups, strict=True):
        ends = {}
        for name, (_, concept) in _BY_DEPTH.items():
            rows = [
                known_areas(found, [f"{task} {depth}" for task in tasks]).sel(by=name)
                for depth in depths
            ]
            values = np.stack([one.values for one in rows], -1)
            style = look(concept)
            for row in values:
                panel.plot(depths, row, color=style["color"], alpha=0.3, linewidth=0.9)
            mean = np.nanmean(values, axis=0)  # without models that do not know their task
            panel.plot(depths, mean, **style, zorder=3)
            ends[name] = float(mean[-1])
        places = _apart(ends, 0.055)
        for name, (text, concept) in _BY_DEPTH.items():
            panel.text(depths[-1] + 0.12, places[name], text, color=COLOURS[concept], va="center")
        panel.axhline(0.5, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_xlim(0.8, 7.9)
        panel.set_ylim(0.42, 1.03)
        panel.set_xticks((1, 2, 4, 6))
        panel.set_xlabel("blocks")
        panel.set_ylabel("area under the curve")
    panel_letters(axes)
    return figure


def _apart(values: Mapping[str, float], gap: float) -> dict[str, float]:
    """Heights for labels that do not overlap, in the order of the values."""
    found: dict[str, float] = {}
    last = -np.inf
    for name in sorted(values, key=lambda each: values[each]):
        last = max(values[name], last + gap)
        found[name] = float(last)
    over = max(found.values()) - 1.02
    return {name: y - max(0.0, over) for name, y in found.items()}


@themed
def plot_complete(complete: Dataset) -> Figure:
    """Draw how far integrated gradients are from adding up, over the points of the quadrature.

    Args:
        complete: the result ``complete``.
    """
    figure, axes = subplots(height=3.6)
    for baseline, concept, text in (
        ("zero", "attention", "from zero"),
        ("mean", "residual", "from the mean"),
    ):
        for place, (task, marker) in enumerate(zip(TASKS, "os^", strict=True)):
            values = complete.gap.sel(baseline=baseline, task=task).transpose("seed", "points")
            x = np.array(POINTS) * (0.9, 1.0, 1.11)[place]
            for row in values.values:
                axes.plot(x, row, marker, color=COLOURS[concept], alpha=0.5, markersize=5, mew=0)
        middle = complete.gap.sel(baseline=baseline).median(("seed", "task")).values
        axes.plot(POINTS, middle, color=COLOURS[concept], linewidth=1.6)
        axes.text(POINTS[-1] * 1.25, float(middle[-1]), text, color=COLOURS[concept], va="center")
    axes.axhline(1e-3, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(POINTS, [str(each) for each in POINTS])
    axes.minorticks_off()
    axes.set_xlim(7.5, 2600)
    axes.set_xlabel("points of the quadrature")
    axes.set_ylabel("largest gap, in logits")
    return figure


@themed
def plot_both_or_either(found: Dataset, copies: Dataset) -> Figure:
    """Draw what corrupting and restoring one token find: (a) where both are needed, (b) where either will do.

    Args:
        found: the result ``found``.
        copies: the result ``copies``.
    """
    figure, axes = subplots(2, 1, height=1.9)
    panels = (
        known_areas(found, [f"two hops {depth}" for depth in DEPTHS["two hops"]]),
        copies.area.mean("depth"),
    )
    rows = {"corrupt one": "resample", "restore one": "restore"}
    concepts = {"corrupt one": "attention", "restore one": "residual"}
    for panel, values in zip(axes, panels, strict=True):
        groups = {text: values.sel(by=name).values for text, name in rows.items()}
        seed_strip(panel, groups, label="area under the curve", concepts=concepts, reference=0.5)
        panel.set_xlim(0.3, 1.02)
    panel_letters(axes)
    return figure


_WAYS = {
    "zero": ("zero", "learned"),
    "mean": ("mean", "residual"),
    "resample": ("another sequence", "attention"),
    "trained on": ("zero, then trained on", "none"),
}


@themed
def plot_heads(parts: Dataset) -> Figure:
    """Draw the rise of the loss without each head, in four ways, heads in the order of mean ablation.

    Args:
        parts: the result ``parts``.
    """
    figure, axes = subplots(2, 1, height=3.4)
    for panel, task in zip(axes, RECOVERED, strict=True):
        rises = parts.rise.sel(recovered=task).transpose("seed", "way", "head")
        ranked = np.argsort(-rises.sel(way="mean").values, axis=1, kind="stable")
        for way, (text, concept) in _WAYS.items():
            values = np.take_along_axis(rises.sel(way=way).values, ranked, axis=1)
            seed_lines(
                panel,
                np.arange(1, 9),
                np.maximum(values, 1e-4),
                concept=concept,
                label=text,
                marker_every=1,
            )
        panel.set_yscale("log")
        panel.set_ylim(8e-5, 30)
        panel.set_xlabel(f"heads of {task}, the one that mean ablation misses most first")
        panel.set_ylabel("rise of the loss, in nats")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    panel_letters(axes)
    return figure


_TRACED = {
    "position": ("order of writing", "none"),
    "rollout": ("rollout", "attention"),
    "gradient times input": ("gradient times input", "ffn"),
    "gradient": ("gradient, length", "ffn"),
    "deletion": ("deletion", "residual"),
    "attention largest": ("attention, largest", "attention"),
    "attention mean": ("attention, mean", "attention"),
    "one head": ("one head", "attention"),
}


@themed
def plot_atoms(atoms: Dataset) -> Figure:
    """Draw how often each head traces atoms, by block, and how often other ways do.

    Args:
        atoms: the result ``atoms``.
    """
    figure, (left, right) = subplots(2, 1, height=2.7)
    trained, control = (atoms.heads.mean("seed").sel(state=name) for name in atoms.state.values)
    known = int(atoms["head"].values[KNOWN[1]])
    for head in atoms["head"].values:
        told = head == known
        left.plot(
            atoms.block,
            trained.sel(head=head),
            color=COLOURS["attention"] if told else COLOURS["none"],
            linewidth=2.4 if told else 1,
            marker="o" if told else None,
            zorder=3 if told else 2,
        )
    left.plot(
        atoms.block, control.sel(head=known), color=theme().ink, linestyle="--", linewidth=1.5
    )
    left.text(9, 0.78, f"head {known}", color=COLOURS["attention"])
    left.text(6, 0.02, f"dashed: head {known}, directions redrawn", color=theme().ink, fontsize=8)
    left.set(ylim=(0, 1), xticks=[1, 4, 8, 12], xlabel="block", ylabel="share of atoms traced")
    found = atoms.found.sel(state="trained")
    groups = {text: found.sel(by=by).values for by, (text, _) in reversed(_TRACED.items())}
    seed_strip(
        right,
        groups,
        label="share of atoms traced",
        concepts=dict(_TRACED.values()),
        reference=float(found.sel(by="chance").mean()),
    )
    right.set_xlim(-0.02, 1.02)
    panel_letters([left, right])
    return figure
