"""Figures about attention at inference: what a step computes, bytes, the roofline, pages, batches, drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.analysis.roofline import Machine
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import legend_above, panel_letters, seed_lines, subplots
from measured_book.rooms.at_inference.measure import (
    LLAMA_2,
    LLAMA_3,
    MEMORY,
    Kept,
    largest_batch,
    tokens_a_second,
)

_REQUESTS = ("residual", "attention", "ffn", "norm", "learned", "rotary", "alibi", "none")
"""Colours of requests, in turn."""


def _square(
    axes: Axes,
    x: float | int,
    y: float | int,
    colour: object,
    *,
    width: float = 1.0,
    height: float = 1.0,
) -> None:
    axes.add_patch(
        Rectangle((x, y), width, height, facecolor=colour, edgecolor=theme().ink, linewidth=0.7)
    )


@themed
def plot_step(n: int = 6) -> Figure:
    """Draw which scores the last step of writing computes: all again, or one row of them.

    Args:
        n: tokens, the newest included.
    """
    figure, axes = subplots(1, 2, height=3.1)
    for panel, name, cached in zip(
        axes, ("(a) all again", "(b) with a cache"), (0, 1), strict=True
    ):
        panel.set_title(name, loc="left", fontsize=11, pad=2)
        panel.set_aspect("equal")
        panel.set_xlim(-2.4, n + 0.1)
        panel.set_ylim(n + 0.2, -2.3)
        panel.axis("off")
        for query in range(n):
            newest = query == n - 1
            if newest or not cached:
                for key in range(query + 1):
                    _square(panel, key, query, tint("attention", 0.85 if newest else 0.4))
            if newest or not cached:
                _square(panel, -1.3, query, tint("attention", 0.85 if newest else 0.4), width=0.8)
        for key in range(n):
            made = not cached or key == n - 1
            colour = (
                tint("attention", 0.85 if key == n - 1 else 0.4) if made else tint("residual", 0.55)
            )
            _square(panel, key, -1.3, colour, height=0.8)
        panel.text(n / 2, -1.85, "keys and values", ha="center", va="center", fontsize=10)
        panel.text(-1.9, n / 2, "queries", ha="center", va="center", fontsize=10, rotation=90)
        if cached:
            panel.text(
                n / 2, n / 2 - 0.2, "computed once,\nnever asked for again",
                ha="center", va="center", fontsize=10,
            )  # fmt: skip
    return figure


_LABELS: Mapping[str, tuple[str, float]] = {
    "Llama 2 7B: 32 heads": ("attention", 1.0),
    "Llama 3 8B: 8 of 32": ("ffn", 1.35),
    "DeepSeek-V2: latent": ("norm", 0.66),
    "1 of 32": ("residual", 1.0),
    "Mistral 7B: 8 of 32, window": ("learned", 1.0),
}
"""Concept, and by how much the words are shifted."""


@themed
def plot_caches(caches: Mapping[str, Kept], *, memory: float = MEMORY) -> Figure:
    """Draw gigabytes of one text's cache over its length, with the memory of a GPU.

    Args:
        caches: what models keep of a token, by name.
        memory: bytes of the GPU.
    """
    figure, axes = subplots(height=4.3)
    lengths = 2.0 ** np.arange(10, 20.01, 0.25)
    for name, kept in caches.items():
        concept = _LABELS[name][0]
        values = [kept.bytes(round(n)) / 1e9 for n in lengths]
        style = look(concept)
        axes.plot(lengths, values, color=style["color"], linestyle=style["linestyle"], label=name)
        axes.text(
            lengths[-1] * 1.12, values[-1] * _LABELS[name][1], name.replace(": ", ":\n").replace(", w", ",\nw"),
            color=style["color"], va="center", fontsize=9.5, linespacing=1.0,
        )  # fmt: skip
    axes.axhline(memory / 1e9, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(lengths[0], memory / 1e9 * 1.1, "all the memory of an A100", fontsize=10, va="bottom")
    axes.axvline(2048, color=theme().ink, linestyle=":", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(lengths[0], lengths[-1])
    ticks = [1024, 4096, 16384, 65536, 262144, 1048576]
    axes.set_xticks(ticks, ["1k", "4k", "16k", "64k", "256k", "1M"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("tokens of the text (1k = 1024)")
    axes.set_ylabel("gigabytes")
    return figure


@themed
def plot_bound(machine: Machine, points: Mapping[str, tuple[str, float, str]]) -> Figure:
    """Draw the roofline of a processor with the work of prompts and of single steps on it.

    Args:
        machine: what its data sheet says.
        points: words -> concept, operations for each byte, and where the words stand ('above', 'below', 'top').
    """
    figure, axes = subplots(height=4.2)
    across = np.geomspace(0.05, 4000, 400)
    roof = np.array([machine.attainable(each) for each in across]) / 1e12
    axes.plot(across, roof, color=theme().ink, linewidth=2)
    axes.fill_between(across, roof, 0.1, color=tint("residual", 0.1), linewidth=0)
    shifts = {"above": (-9, 7, "right"), "below": (9, -10, "left"), "top": (0, 16, "center")}
    for words, (concept, at, where) in points.items():
        style = look(concept)
        height = machine.attainable(at) / 1e12
        axes.plot(at, height, style["marker"], color=style["color"], markersize=9, zorder=4)
        x, y, side = shifts[where]
        axes.annotate(
            words, (at, height), xytext=(x, y), textcoords="offset points", ha=side, va="center",
            fontsize=10, color=style["color"],
        )  # fmt: skip
    axes.axvline(machine.ridge, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(machine.ridge * 1.08, 0.4, f"ridge: {machine.ridge:.0f}", fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.05, 4000)
    axes.set_ylim(0.12, 1600)
    for axis, ticks in ((axes.xaxis, (1, 10, 100, 1000)), (axes.yaxis, (1, 10, 100))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("operations for each byte that is moved")
    axes.set_ylabel(r"at most, $10^{12}$ operations a second")
    return figure


@themed
def plot_throughput(machine: Machine, *, lengths: Sequence[int] = (1024, 4096)) -> Figure:
    """Draw the most tokens a second over the batch, each curve up to where memory is full.

    Args:
        machine: what its data sheet says.
        lengths: tokens of every text of the batch.
    """
    figure, axes = subplots(height=4.2)
    aside = {("Llama 2 7B", lengths[0]): (-4, 18), ("Llama 3 8B", lengths[-1]): (6, -14)}
    for name, config, concept in (
        ("Llama 2 7B", LLAMA_2, "attention"),
        ("Llama 3 8B", LLAMA_3, "ffn"),
    ):
        for length, line in zip(lengths, ("-", "--"), strict=True):
            most = largest_batch(config, length)
            batches = np.unique(np.geomspace(1, most, 60).round().astype(int))
            values = [tokens_a_second(config, length, int(b), machine) for b in batches]
            colour = COLOURS[concept]
            axes.plot(batches, values, line, color=colour, linewidth=2)
            axes.plot(most, values[-1], "o", color=colour, markersize=8)
            axes.annotate(
                f"{name},\n{length} tokens",
                (most, values[-1]),
                xytext=aside.get((name, length), (8, 0)),
                textcoords="offset points",
                va="center",
                fontsize=9.5,
                color=colour,
                linespacing=1.0,
            )
    free = np.geomspace(1, 200, 40)
    alone = tokens_a_second(LLAMA_2, 1, 1, machine)
    axes.plot(free, alone * free, ":", color=theme().ink, linewidth=1.2)
    axes.text(9, 9 * alone * 1.25, "weights alone", rotation=37, fontsize=10, ha="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1, 2200)
    axes.set_ylim(90, 20000)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("texts in the batch")
    axes.set_ylabel("tokens a second, at most")
    return figure


@themed
def plot_clock(clocked: Dataset) -> Figure:
    """Draw the time of one more token over the tokens before it, with and without a cache, by rounds."""
    figure, axes = subplots(height=3.5)
    lengths = clocked.length.values
    for variable, concept, name in (
        ("step_plain", "attention", "the whole text again"),
        ("step_cached", "residual", "with a cache"),
    ):
        values = 1e3 * np.exp(clocked[variable].transpose("seed", "length").values)
        seed_lines(axes, lengths, values, concept=concept, label=name, marker_every=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("tokens before")
    axes.set_ylabel("milliseconds for one more")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_pages(
    tables: Mapping[str, Sequence[int]], lengths: Mapping[str, int], *, page: int, most: int
) -> Figure:
    """Draw the memory of some requests: reserved in one piece each, and in pages.

    Args:
        tables: request -> its pages, in the order of its tokens.
        lengths: request -> tokens held.
        page: tokens of a page.
        most: tokens that a request in one piece reserves.
    """
    figure, (above, below) = subplots(2, 1, height=1.75, height_ratios=(1.15, 1))
    colours = dict(zip(tables, _REQUESTS, strict=False))
    for row, (name, count) in enumerate(lengths.items()):
        for t in range(most):
            colour = tint(colours[name], 0.75) if t < count else "none"
            _square(above, t, row, colour, height=0.8)
        above.text(
            -0.4,
            row + 0.4,
            name,
            ha="right",
            va="center",
            fontsize=11,
            color=COLOURS[colours[name]],
        )
    above.text(most + 0.4, 0.4, "reserved,\nand empty", fontsize=10, va="center", linespacing=1.0)
    above.set_xlim(-1.6, most + 5)
    above.set_ylim(len(lengths), -0.2)
    owner = {p: (name, i) for name, pages in tables.items() for i, p in enumerate(pages)}
    count = max(owner) + 2
    for p in range(count):
        name, i = owner.get(p, ("", 0))
        left = p * (page + 0.5)
        for slot in range(page):
            held = bool(name) and i * page + slot < lengths[name]
            _square(below, left + slot, 0, tint(colours[name], 0.75) if held else "none")
        words = f"{name}{i + 1}" if name else "free"
        colour = COLOURS[colours[name]] if name else theme().ink
        below.text(
            left + page / 2, 1.45, words, ha="center", va="center", fontsize=11, color=colour
        )
        below.text(left + page / 2, -0.45, str(p), ha="center", va="center", fontsize=10)
    below.set_xlim(-0.3, count * (page + 0.5))
    below.set_ylim(2.0, -1.0)
    for axes in (above, below):
        axes.axis("off")
    panel_letters((above, below))
    return figure


@themed
def plot_schedule(limits: Sequence[int], running: Sequence[Sequence[int]], slots: int) -> Figure:
    """Draw who is in the batch at each step: in batches that wait for their longest text, and made up anew.

    Args:
        limits: tokens that each request writes.
        running: for each step of the batch that is made up anew, its requests.
        slots: the most requests in a batch.
    """
    figure, panels = subplots(2, 1, height=2.2, sharex=True)
    waiting: list[tuple[int, int, int, int]] = []  # request, slot, begin, end
    start = 0
    for first in range(0, len(limits), slots):
        batch = range(first, min(first + slots, len(limits)))
        waiting += [(r, r - first, start, start + limits[r]) for r in batch]
        start += max(limits[r] for r in batch)
    place: dict[int, int] = {}
    joining: list[tuple[int, int, int, int]] = []
    for step, members in enumerate(running):
        place = {r: slot for r, slot in place.items() if r in members}
        for r in members:
            if r not in place:
                place[r] = min(set(range(slots)) - set(place.values()))
            joined = [span for span in joining if span[:2] == (r, place[r]) and span[3] == step]
            begin = joined[0][2] if joined else step
            joining = [span for span in joining if span not in joined]
            joining.append((r, place[r], begin, step + 1))
    for panel, spans in zip(panels, (waiting, joining), strict=True):
        for r, slot, begin, end in spans:
            panel.barh(
                slot, end - begin, left=begin, height=0.86, linewidth=1.2, edgecolor=theme().paper,
                color=tint(_REQUESTS[r % len(_REQUESTS)], 0.8),
            )  # fmt: skip
        for r in {span[0] for span in spans}:
            own = [span for span in spans if span[0] == r]
            begin, end = own[0][2], own[-1][3]
            if end - begin > 4:
                panel.text(
                    (begin + end) / 2, own[0][1], str(r), ha="center", va="center", fontsize=8.5,
                    color="white", weight="bold",
                )  # fmt: skip
        panel.set_ylim(slots - 0.4, -0.6)
        panel.set_yticks([])
        panel.set_ylabel("batch")
        panel.grid(visible=False)
        panel.axvline(
            max(span[3] for span in spans), color=theme().ink, linestyle="--", linewidth=1
        )
    panels[1].set_xlim(0, start * 1.01)
    panels[1].set_xlabel("step")
    panel_letters(panels)
    return figure


@themed
def plot_overlap(target: Sequence[float], draft: Sequence[float], words: Sequence[str]) -> Figure:
    """Draw two distributions over few tokens: what they share is accepted, and what the draft lacks is made up.

    Args:
        target, draft: a probability for each token.
        words: the tokens.
    """
    figure, axes = subplots(height=3.3)
    p, q = np.asarray(target), np.asarray(draft)
    both, place = np.minimum(p, q), np.arange(len(p))
    parts = (
        (both, 0 * both, "accepted", "ffn", 0.6),
        ((q - p).clip(0), both, "proposed, refused", "attention", 0.25),
        ((p - q).clip(0), both, "made up for", "residual", 0.6),
    )
    for height, bottom, name, concept, strength in parts:
        axes.bar(
            place, height, 0.62, bottom=bottom, color=tint(concept, strength),
            edgecolor=COLOURS[concept], linewidth=1.4, label=name,
        )  # fmt: skip
    for x, one in zip(place, p, strict=True):
        axes.plot([x - 0.42, x + 0.42], [one, one], color=theme().ink, linewidth=2.4)
        axes.text(x, one + 0.008, f"p = {one:g}", va="bottom", ha="center", fontsize=10)
    axes.set_xticks(place, list(words))
    axes.set_xlim(-0.6, len(p) - 0.4)
    axes.set_ylim(0, max(p.max(), q.max()) * 1.12)
    axes.set_xlabel("token")
    axes.set_ylabel("probability")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_drafted(drafted: Dataset) -> Figure:
    """Draw tokens for each pass of the target over the number of proposals, beside the formula."""
    figure, axes = subplots(height=3.7)
    ahead = drafted.ahead.values
    values = drafted.per_pass.transpose("seed", "ahead").values
    seed_lines(axes, ahead, values, concept="ffn", label="measured", marker_every=1)
    axes.plot(
        ahead, drafted.predicted.mean("seed").transpose("ahead").values, ":", color=theme().ink,
        linewidth=1.8, label="if all proposals were alike",
    )  # fmt: skip
    axes.axhline(1, color=theme().ink, linewidth=1)
    axes.text(ahead[-1], 1.03, "without a draft", ha="right", va="bottom", fontsize=10)
    axes.set_xticks(ahead)
    axes.set_ylim(bottom=0.9)
    axes.set_xlabel("tokens proposed before each pass")
    axes.set_ylabel("tokens for each pass")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_training(clocked: Dataset, stored: Dataset) -> Figure:
    """Draw (a) what the fused kernel saves over the length and (b) what second runs save over the depth."""
    figure, (left, right) = subplots(1, 2, height=3.7)
    lengths = clocked.tokens.values
    times = np.exp((clocked.formula - clocked.fused).transpose("seed", "tokens").values)
    seed_lines(left, lengths, times, concept="attention", label="time", marker_every=1)
    peaks = (clocked.formula_peak / clocked.fused_peak).transpose("seed", "tokens").values[0]
    seed_lines(left, lengths, peaks, concept="residual", label="memory", marker_every=1)
    for value, words in ((3, "3"), (10, "10")):
        left.axhline(value, color=theme().ink, linestyle=":", linewidth=1)
        left.text(lengths[-1], value * 0.95, words, fontsize=10, va="top", ha="right")
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xticks(lengths, [str(n) for n in lengths])
    left.minorticks_off()
    left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    left.set_xlabel("tokens")
    left.set_ylabel("formula / fused kernel")
    layers = stored.layers.values
    for how, concept, name in (
        ("plain", "attention", "plain"),
        ("checkpointed", "residual", "run again"),
    ):
        values = stored.bytes.sel(how=how).transpose("seed", "layers").values[0] / 1e6
        seed_lines(right, layers, values, concept=concept, label=name, marker_every=1)
    right.set_xticks(layers)
    right.set_ylim(bottom=0)
    right.set_xlabel("layers")
    right.set_ylabel("megabytes kept for gradients")
    for panel in (left, right):
        panel.legend(loc="upper left")
    panel_letters((left, right))
    return figure
