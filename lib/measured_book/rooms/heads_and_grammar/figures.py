"""Figures about heads and the grammar: sentences with their arcs, distances, scores, cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import PercentFormatter
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots

CONCEPTS = {"agreement": "residual", "reference": "attention", "adjective": "ffn"}
"""The colour of each relation, by the concept that lends it."""
NAMES = {
    "agreement": "verb to subject",
    "far agreement": "verb to far subject",
    "reference": "pronoun to referent",
    "adjective": "adjective to noun",
}
"""What a reader sees of each relation."""
_GAP = 1.1
"""Between two words, in characters."""


def _centres(words: Sequence[str]) -> Float[np.ndarray, "word"]:
    """Where the middle of each word is, in characters, when they stand in a line."""
    widths = np.array([max(len(word), 2) for word in words], dtype=float)
    ends = np.cumsum(widths + _GAP)
    return ends - widths / 2 - _GAP


def _line(axes: Axes, words: Sequence[str], y: float = 0.0, size: float = 11.0) -> np.ndarray:
    """Write words in a line and return where they are."""
    centres = _centres(words)
    for centre, word in zip(centres, words, strict=True):
        axes.text(centre, y, word, ha="center", va="center", fontsize=size)
    axes.set_xlim(-1.5, centres[-1] + 2.5)
    axes.axis("off")
    return centres


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float, **how: object
) -> None:
    given: dict[str, object] = {"arrowstyle": "-|>", "mutation_scale": 12, "linewidth": 1.8}
    axes.add_patch(
        FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **(given | how))  # type: ignore[arg-type]
    )


@themed
def plot_sentence_arcs(
    words: Sequence[str], arcs: Mapping[str, Sequence[tuple[int, int]]]
) -> Figure:
    """Draw a sentence as a line, with an arrow for each arc: those that point back above, ahead below.

    Args:
        words: of the sentence.
        arcs: relation -> pairs of start and end.
    """
    figure, axes = subplots(height=2.1)
    at = _line(axes, words)
    for relation, pairs in arcs.items():
        style = look(CONCEPTS[relation])
        for nth, (start, end) in enumerate(pairs):
            back = end < start
            y = 0.32 if back else -0.32
            bend = 0.42 if abs(end - start) > 1 else 0.9
            _arrow(
                axes, (at[start], y), (at[end], y), bend if back else 0.9,
                color=style["color"], linestyle=style["linestyle"],
            )  # fmt: skip
            if nth == 0:
                across = (at[start] + at[end]) / 2
                high = {"agreement": 1.5, "reference": 1.0, "adjective": -1.3}[relation]
                axes.text(
                    across, high, NAMES[relation], ha="center", va="center",
                    color=style["color"], fontsize=11,
                )  # fmt: skip
    axes.set_ylim(-1.6, 1.75)
    return figure


@themed
def plot_one_word_too_late(words: Sequence[str], sentence: Dataset, subject: int) -> Figure:
    """Draw where one head looks from a verb, and where from the word before it: a strand for each seed.

    Args:
        words: of the sentence, as far as it is to be shown.
        sentence: the result ``sentence``.
        subject: where the subject stands.
    """
    figure, panels = subplots(2, height=2.1)
    told = {
        "sees": "reading the verb",
        "rivers": "about to predict the verb",
    }
    for axes, (word, text) in zip(panels, told.items(), strict=True):
        start = words.index(word)
        at = _line(axes, words, size=14.0)
        weights = sentence.weight.sel(from_word=word).transpose("seed", "key").values
        for seed, row in enumerate(weights):
            for end, weight in enumerate(row[: start + 1]):
                if weight < 0.02 or end == start:
                    continue
                bend = 0.42 + 0.018 * (seed - len(weights) / 2)
                _arrow(
                    axes, (at[start], 0.34), (at[end], 0.34), bend,
                    color=COLOURS["attention" if end == subject else "random"], alpha=0.75,
                    linewidth=4.5 * float(weight), arrowstyle="-",
                )  # fmt: skip
        for end, weight in enumerate(weights.mean(0)[: start + 1]):
            if weight >= 0.005:
                right = end == subject
                axes.text(
                    at[end], -0.55, f"{weight:.0%}", ha="center", va="center", fontsize=12,
                    color=COLOURS["attention"] if right else theme().ink,
                    fontweight="bold" if right else "normal",
                )  # fmt: skip
        axes.plot(
            [at[start] - len(word) / 2, at[start] + len(word) / 2], [-0.27, -0.27],
            color=theme().ink, linewidth=2,
        )  # fmt: skip
        axes.set_ylim(-0.75, 2.15)
        letter = "ab"[list(told).index(word)]
        axes.set_title(f"({letter}) at “{word}”: {text}", loc="left", fontsize=12)
    return figure


@themed
def plot_distances(distances: Dataset) -> Figure:
    """Draw how far the arrows of each relation reach, a panel for each; the most frequent distance is full.

    Args:
        distances: the result ``distances``.
    """
    relations = list(distances.relation.values)
    figure, panels = subplots(len(relations), height=1.75, sharex=True, sharey=True)
    for axes, relation in zip(panels, relations, strict=True):
        shares = distances.share.sel(relation=relation).mean("seed")
        top = int(shares.distance.values[shares.values.argmax()])
        for distance, share in zip(shares.distance.values.tolist(), shares.values, strict=True):
            axes.bar(
                distance, share, width=0.75, color=COLOURS[CONCEPTS[relation]],
                alpha=1 if distance == top else 0.45,
            )  # fmt: skip
        highest = float(shares.max())
        axes.text(top, highest + 0.03, f"{highest:.0%}", ha="center", va="bottom", fontsize=11)
        axes.axvline(0, color=theme().ink, linewidth=1, linestyle=":")
        axes.set_title(NAMES[relation], loc="right")
    panels[0].set_ylim(0, 1.02)
    panels[0].set_xlim(-11.6, 2.8)
    panels[0].set_xticks(range(-10, 3, 2))
    panels[-1].set_xlabel("words from start to end of the arrow (negative: back)")
    panels[len(relations) // 2].set_ylabel("share of the arrows")
    panel_letters(panels)
    return figure


_ROWS = {
    "head": ("attention", "best head"),
    "offset": ("residual", "best offset"),
    "swapped": ("norm", "rows exchanged"),
    "untrained": ("random", "untrained"),
}
_VIEWS = {
    "decoder": {"read": "at the word", "predicted": "one word earlier"},
    "encoder": {"read": "the word is read", "predicted": "the word is hidden"},
}


@themed
def plot_scores(found: Dataset, reader: str, relations: Sequence[str]) -> Figure:
    """Draw the F1 of heads and of what needs no grammar, where a word is read and where it is predicted.

    Args:
        found: the result ``found``.
        reader: decoder or encoder.
        relations: a row of panels for each.
    """
    figure, panels = subplots(len(relations), 2, height=1.55, sharex=True, squeeze=False)
    for row, relation in zip(panels, relations, strict=True):
        for axes, (where, title) in zip(row, _VIEWS[reader].items(), strict=True):
            scores = found.f1.sel(reader=reader, view=where, relation=relation)
            groups = {name: scores.sel(by=by).values for by, (_, name) in _ROWS.items()}
            last = relation == relations[-1]
            seed_strip(
                axes, groups, label="$F_1$" if last else "",
                concepts=dict(_ROWS[by][::-1] for by in _ROWS),
            )  # fmt: skip
            axes.set_xlim(-0.04, 1.04)
            if axes is not row[0]:
                axes.set_yticklabels([])
            else:
                axes.set_title(NAMES[relation], loc="left", fontsize=11)
            if relation == relations[0]:
                axes.annotate(
                    title, (0.5, 1.28), xycoords="axes fraction", ha="center", va="bottom",
                    fontsize=12, annotation_clip=False,
                )  # fmt: skip
    return figure


@themed
def plot_roles(roles: Dataset) -> Figure:
    """Draw the largest weight that a head gives to its neighbours and to boundaries.

    Args:
        roles: the result ``roles``.
    """
    kinds = {"encoder": ("next", "previous", "boundary"), "decoder": ("previous", "boundary")}
    figure, panels = subplots(
        2, height=2.2, sharex=True, gridspec_kw={"height_ratios": [6, 4]},
    )  # fmt: skip
    for axes, (reader, shown) in zip(panels, kinds.items(), strict=True):
        groups, concepts = {}, {}
        for kind in shown:
            for model, concept in (("trained", "attention"), ("untrained", "random")):
                name = kind if model == "trained" else f"{kind}, untrained"
                groups[name] = roles.weight.sel(reader=reader, model=model, kind=kind).values
                concepts[name] = concept
        label = "largest mean weight of a head" if reader == "decoder" else ""
        seed_strip(axes, groups, label=label, concepts=concepts, reference=0.5)
        axes.set_title(reader, loc="right")
        axes.set_xlim(-0.03, 1.03)
    panel_letters(panels)
    return figure


_ORDERS = {"best first": "attention", "random": "random", "worst first": "residual"}


@themed
def plot_cuts(cuts: Dataset) -> Figure:
    """Draw what is left of agreement as heads are taken away in three orders, a faint line for each seed.

    Args:
        cuts: the result ``cuts``.
    """
    figure, panels = subplots(2, 2, height=2.7, sharex=True, sharey="col")
    removed = cuts.removed.values
    for row, reader in zip(panels, cuts.reader.values, strict=True):
        for axes, what in zip(row, ("right", "odds"), strict=True):
            for order, concept in _ORDERS.items():
                values = cuts[what].sel(reader=reader, order=order).transpose("seed", "removed")
                seed_lines(
                    axes, removed, values.values, concept=concept, label=order, marker_every=1
                )
            axes.axhline(
                0.5 if what == "right" else 0, color=theme().ink, linewidth=1, linestyle=":"
            )
        row[0].set_ylabel(f"{reader}\nright number")
        row[0].yaxis.set_major_formatter(PercentFormatter(1))
        row[1].set_ylabel("log-odds (nats)")
    for axes in panels[-1]:
        axes.set_xlabel("heads taken away")
        axes.set_xticks([0, 4, 8, 12, 16])
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    panel_letters(panels.flat)
    return figure


@themed
def plot_falls(cuts: Dataset) -> Figure:
    """Draw how far the log-odds of the right number fall when a single head is taken away.

    Args:
        cuts: the result ``cuts``.
    """
    figure, axes = subplots(height=2.9)
    names = {
        "best": ("attention", "best head for subjects"),
        "mean of the others": ("random", "any other head, on average"),
        "most missed": ("residual", "the head that is missed most"),
    }
    groups, concepts = {}, {}
    for reader in cuts.reader.values:
        for one, (concept, name) in names.items():
            groups[f"{reader}: {name}"] = cuts.fall.sel(reader=reader, one=one).values
            concepts[f"{reader}: {name}"] = concept
    seed_strip(axes, groups, label="fall of the log-odds (nats)", concepts=concepts, reference=0.0)
    return figure
