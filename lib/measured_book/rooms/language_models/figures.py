"""Figures of the chapter on language models: results in, drawings out."""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter
from measured_transformer.analysis.scaling import ScalingLaw
from measured_transformer.inference.sampling import keep_top_k, keep_top_p, with_temperature
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.language_models.measure import (
    DURATIONS,
    HELD_OUT,
    LONGER,
    MERGES,
    SIZES,
    STEPS,
    TEXT,
    fitted,
    operations,
    parameters_of,
    tokens_read,
)
from measured_book.rooms.language_models.reading import xz_validation

FIRST = {"a": 0.6, "b": 0.4}
"""How likely the hand example begins with each letter."""
NEXT = {"a": {"a": 0.5, "b": 0.5}, "b": {"a": 0.9, "b": 0.1}}
"""How likely each letter follows another in it."""
_CONCEPTS = {"8 x 1": "none", "16 x 1": "ffn", "32 x 2": "attention", "64 x 2": "residual"}
_WAYS = {
    "greedy": ("attention", "s"),
    "T = 0.5": ("residual", "o"),
    "T = 0.8": ("residual", "o"),
    "T = 1": ("residual", "o"),
    "T = 1.3": ("residual", "o"),
    "top-k 10": ("ffn", "^"),
    "top-p 0.9": ("norm", "D"),
    TEXT: ("none", "*"),
}
"""Way of writing -> what it is drawn as, and its mark."""
_BESIDE = {
    "greedy": (32, 0),
    "T = 0.5": (30, 0),
    "T = 0.8": (-24, -10),
    "top-p 0.9": (26, 14),
    "top-k 10": (20, 16),
    "T = 1": (18, 14),
    "T = 1.3": (0, 15),
    TEXT: (0, 17),
}
"""Where the name of a way stands, in points from its mean."""


@themed
def plot_tree() -> Figure:
    """Draw all texts of three letters of the hand example as a wall of bricks, each as wide as it is likely."""
    figure, axes = subplots(height=3.0)
    row = {"": (0.0, 1.0)}
    for level in range(3):
        below: dict[str, tuple[float, float]] = {}
        for text, (left, width) in row.items():
            at = left
            for letter, chance in (NEXT[text[-1]] if text else FIRST).items():
                wide = width * chance
                fill = tint("residual" if letter == "a" else "attention", 0.3)
                axes.add_patch(
                    Rectangle(
                        (at, 2 - level),
                        wide,
                        0.92,
                        facecolor=fill,
                        edgecolor=theme().paper,
                        linewidth=2,
                    )
                )
                if wide > 0.025:
                    said = f"{letter}\n{chance}"
                    axes.text(
                        at + wide / 2,
                        2.46 - level,
                        said,
                        ha="center",
                        va="center",
                        fontsize=9 if wide > 0.05 else 8,
                    )
                below[text + letter] = (at, wide)
                at += wide
        row = below
    for text, (left, width) in row.items():
        if width > 0.025:
            axes.text(
                left + width / 2, -0.08, f"{text}\n{width:.3g}", ha="center", va="top", fontsize=9
            )
    axes.set_xlim(0, 1.01)
    axes.set_ylim(-0.55, 2.95)
    axes.axis("off")
    return figure


@themed
def plot_source(source: Dataset) -> Figure:
    """Draw the perplexity of models of a source as they learn, with that of the source itself.

    Args:
        source: the result ``source``.
    """
    figure, axes = subplots(height=3.6)
    seed_lines(
        axes,
        source.step,
        np.exp(source.curve.transpose("seed", "step")),
        concept="residual",
        label="",
    )
    floor = float(np.exp(source.rate.mean()))
    axes.axhline(floor, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(
        400, floor - 0.01, f"the source's own table: {floor:.2f}", ha="right", va="top", fontsize=9
    )
    axes.set_ylim(bottom=3.05)
    axes.set_xlabel("steps of training")
    axes.set_ylabel("perplexity on new text")
    return figure


@themed
def plot_cuts(cuts: Dataset) -> Figure:
    """Draw one text cut in three ways: (a) perplexity of a token, (b) bits for a byte.

    Args:
        cuts: the result ``cuts``.
    """
    figure, axes = subplots(2, 1, height=2.2)
    names = {m: f"{256 + m} tokens" if m else "256 bytes" for m in MERGES}
    panels = (
        (np.exp(cuts.nats), "perplexity per token", "attention"),
        (cuts.bits, "bits per byte", "residual"),
    )
    for panel, (values, label, concept) in zip(axes, panels, strict=True):
        groups = {name: values.sel(merges=m).values for m, name in names.items()}
        seed_strip(panel, groups, label=label, concepts=dict.fromkeys(groups, concept))
    axes[0].set_xscale("log")
    axes[0].set_xticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    panel_letters(axes)
    return figure


@themed
def plot_peeking(peeking: Dataset) -> Figure:
    """Draw the losses of models with and without a causal mask: in training, and when nobody can peek.

    Args:
        peeking: the result ``peeking``.
    """
    figure, axes = subplots(height=2.8)
    groups = {
        f"{text}, {when}": peeking[name].sel(arm=arm).values
        for name, when in (("training", "in training"), ("honest", "the rest hidden"))
        for arm, text in (("masked", "causal mask"), ("peeking", "no mask"))
    }
    concepts = {name: "attention" if name.startswith("no") else "residual" for name in groups}
    seed_strip(
        axes,
        groups,
        label="nats per token (logarithmic axis)",
        concepts=concepts,
        reference=float(peeking.best.mean()),
    )
    axes.set_xscale("log")
    axes.set_xticks([0.05, 0.2, 1, 5, 20], ["0.05", "0.2", "1", "5", "20"])
    axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


@themed
def plot_author(author: Dataset) -> Figure:
    """Draw bits per byte on validation text while the book's model and a longer training learn.

    Args:
        author: the result ``author``.
    """
    figure, axes = subplots(height=3.8)
    share = author.look.values / author.sizes["look"]
    curves = (
        ("right", STEPS, "residual", "the book's model"),
        ("long", LONGER, "attention", "five times as long"),
    )
    for last, steps, concept, label in curves:
        bits = author.curve.sel(last=last).transpose("seed", "look").values / math.log(2)
        seed_lines(axes, share * steps, bits, concept=concept, label=label)
        end = float(author.training.sel(last=last).mean()) / math.log(2)
        axes.plot([steps], [end], "x", color=COLOURS[concept], markersize=8, mew=2)
        axes.annotate(
            "on its training text",
            (steps, end),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=9,
            color=COLOURS[concept],
            bbox={"facecolor": theme().paper, "edgecolor": "none", "pad": 0.6},
            zorder=6,
        )
    xz = xz_validation()
    axes.axhline(xz, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(
        100, xz - 0.03, "xz, with the training text to look up", ha="left", va="top", fontsize=9
    )
    axes.set_xscale("log")
    axes.set_xticks([100, 300, 1000, 3000], ["100", "300", "1000", "3000"])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("steps of training (logarithmic axis)")
    axes.set_ylabel("bits per byte")
    legend_above(axes, columns=2)
    return figure


def next_bytes(model: Decoder, prompt: str) -> torch.Tensor:
    """Logits of what follows a prompt, in double precision."""
    with torch.no_grad():
        return model(torch.tensor([list(prompt.encode())]))[0, -1].double()


@themed
def plot_choices(model: Decoder, prompt: str = "The value of the re", shown: int = 9) -> Figure:
    """Draw the likeliest next bytes after a prompt, as the model has them and after each kind of choice.

    Args:
        model: the book's.
        prompt: what it reads.
        shown: how many bytes have a bar.
    """
    logits = next_bytes(model, prompt)
    order = logits.argsort(descending=True)[:shown]
    names = [{" ": "blank", "\n": "line"}.get(chr(i), chr(i)) for i in order.tolist()]
    panels = {
        "the model, T = 1": (logits, "residual"),
        "T = 0.5": (with_temperature(logits, 0.5), "residual"),
        "T = 2": (with_temperature(logits, 2.0), "residual"),
        "greedy": (keep_top_k(logits, 1), "attention"),
        "top-k, k = 3": (keep_top_k(logits, 3), "ffn"),
        "top-p, p = 0.9": (keep_top_p(logits, 0.9), "norm"),
    }
    figure, axes = subplots(2, 3, height=2.6, sharex=True, sharey=True)
    for panel, (text, (changed, concept)) in zip(axes.flat, panels.items(), strict=True):
        chances = changed.softmax(-1)
        rest = float(1 - chances[order].sum())
        values = [*chances[order].tolist(), rest]
        panel.barh(range(shown + 1), values, color=COLOURS[concept], height=0.75)
        kept = int(changed.isfinite().sum())
        panel.text(0, -0.75, text, ha="left", va="bottom", fontsize=9, fontweight="bold")
        panel.text(1, shown - 1, f"{kept} possible", ha="right", va="center", fontsize=8)
        panel.grid(visible=False, axis="y")
    axes[0, 0].set_yticks(range(shown + 1), [*names, "others"])
    axes[0, 0].set_ylim(shown + 0.5, -0.5)
    axes[0, 0].set_xlim(0, 1)
    axes[0, 0].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    for panel in axes[:, 0]:
        panel.tick_params(axis="y", labelsize=9)
    for panel in axes[1]:
        panel.set_xlabel("probability")
    return figure


@themed
def plot_writing(writing: Dataset) -> Figure:
    """Draw each way of writing by how much its texts surprise the model and how much they repeat.

    Args:
        writing: the result ``writing``.
    """
    figure, axes = subplots(height=4.0)
    for way, (concept, mark) in _WAYS.items():
        found = writing.sel(way=way)
        axes.plot(
            found.surprise,
            found.repeated,
            mark,
            color=COLOURS[concept],
            alpha=0.4,
            markersize=5,
            mew=0,
        )
        x, y = float(found.surprise.mean()), float(found.repeated.mean())
        size = 15 if way == TEXT else 9
        axes.plot(x, y, mark, color=COLOURS[concept], mec=theme().ink, markersize=size)
        axes.annotate(
            way,
            (x, y),
            xytext=_BESIDE.get(way, (0, 11)),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            color=COLOURS[concept],
        )
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1)
    axes.set_xlabel("bits per byte under the model")
    axes.set_ylabel("share of runs of 12 bytes\nthat occurred before")
    return figure


@themed
def plot_calibration(author: Dataset) -> Figure:
    """Draw (a) what probabilities promise and keep, (b) what held-out text costs at other temperatures.

    Args:
        author: the result ``author``.
    """
    figure, axes = subplots(1, 2, height=3.6)
    for last, concept, label in (
        ("right", "residual", "the book's model"),
        ("long", "attention", "five times as long"),
    ):
        found = author.sel(last=last)
        seed_lines(
            axes[0],
            found.confidence.mean("seed"),
            found.accuracy.transpose("seed", "bin"),
            concept=concept,
            label=label,
        )
        bits = found.warm.transpose("seed", "temperature").values / math.log(2)
        seed_lines(axes[1], author.temperature, bits, concept=concept, label=label)
    axes[0].plot([0, 1], [0, 1], color=theme().ink, linewidth=1, linestyle="--")
    axes[0].set_xlabel("probability of the likeliest byte")
    axes[0].set_ylabel("share that is right")
    axes[1].axvline(1, color=theme().ink, linewidth=1, linestyle="--")
    axes[1].set_xlabel("temperature")
    axes[1].set_ylabel("bits per byte, test text")
    axes[0].legend(loc="upper left", fontsize=8)
    panel_letters(axes)
    return figure


def cheapest(law: ScalingLaw, compute: np.ndarray) -> np.ndarray:
    """The smallest loss that a law gives for each amount of compute, over all sizes."""
    sizes = np.geomspace(1e2, 1e8, 600)[:, None]
    found: np.ndarray = law(sizes, compute / (6 * sizes)).min(0)
    return found


@themed
def plot_scaling(scaling: Dataset) -> Figure:
    """Draw the loss of every run over its compute, and the fitted law's best loss with its extrapolation.

    Args:
        scaling: the result ``scaling``.
    """
    figure, axes = subplots(height=4.6)
    for size, concept in _CONCEPTS.items():
        compute = np.array([operations(size, d) for d in DURATIONS])
        values = scaling.nats.sel(size=size).transpose("seed", "duration").values
        axes.plot(compute, values.mean(0), color=COLOURS[concept], linewidth=1.2, alpha=0.7)
        for row in values:
            for c, loss in zip(compute, row, strict=True):
                fill = COLOURS[concept] if c < HELD_OUT else theme().paper
                axes.plot(c, loss, "o", color=COLOURS[concept], mfc=fill, markersize=4.5, alpha=0.8)
        axes.annotate(
            f"{parameters_of(size) / 1000:.0f}k",
            (compute[0], values[:, 0].mean()),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=9,
            color=COLOURS[concept],
        )
    x, law = np.geomspace(1e9, 2e12, 80), fitted(scaling)
    for seed in scaling.seed.values:
        axes.plot(
            x, cheapest(fitted(scaling, int(seed)), x), color=theme().ink, linewidth=0.7, alpha=0.3
        )
    mean = cheapest(law, x)
    inside = x < HELD_OUT
    axes.plot(x[inside], mean[inside], color=theme().ink, linewidth=1.8)
    axes.plot(x[~inside], mean[~inside], color=theme().ink, linewidth=1.8, linestyle="--")
    for size in SIZES:
        for d in DURATIONS:
            if (c := operations(size, d)) >= HELD_OUT:
                said = float(law(float(parameters_of(size)), float(tokens_read(d))))
                axes.plot(c, said, "x", color=theme().ink, markersize=9, mew=1.8, zorder=5)
    axes.axvline(HELD_OUT, color=theme().ink, linewidth=1, linestyle=":")
    axes.text(HELD_OUT * 1.1, 3.1, "held out", fontsize=9, va="top")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(5e8, 2.5e12)
    axes.set_ylim(1.2, 3.2)
    ticks = [1.25, 1.5, 2.0, 2.5, 3.0]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"$10^{{{math.log10(v):.0f}}}$"))
    axes.set_xlabel("operations of the training")
    axes.set_ylabel("nats per byte on validation text")
    return figure
