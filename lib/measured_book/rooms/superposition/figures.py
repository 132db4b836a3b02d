"""Figures about superposition: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import mean_and_bar, panel_letters, seed_lines, subplots
from measured_book.rooms.superposition.measure import (
    BASES,
    COMPANY,
    DIMENSIONS,
    FEATURES,
    KINDS,
    LINES,
    PHASES,
    SIZES,
    WIDE,
    border,
    polygon,
    predicted_phases,
    read_back,
    welch_bound,
)
from measured_book.rooms.superposition.reading import text_of

FIVE = ("residual", "attention", "ffn", "norm", "learned")
"""What each of five features is drawn as."""
SPARSEST_DRAWN = 22
"""Beyond it all cells of the phase diagram are alike."""
PHASE_CONCEPTS = ("random", "residual", "attention")
BASIS_NAMES: Mapping[str, str] = {
    "latents": "latents",
    "neurons": "neurons",
    "ICA": "ICA",
    "PCA": "PCA",
    "random": "random directions",
}


# Five features in the plane -----------------------------------------------------------------------


def _arrows(axes: Axes, columns: np.ndarray, *, names: bool = True, reach: float = 1.45) -> None:
    """Draw the columns of a matrix with two rows as arrows from the middle of a square without axes."""
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.plot(0, 0, "o", color=theme().ink, markersize=3)
    for i, (x, y) in enumerate(columns.T):
        length = float(np.hypot(x, y))
        if length < 0.1:
            continue
        axes.annotate(
            "", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": COLOURS[FIVE[i]], "lw": 2}
        )
        if names and length > 0.3:
            far, colour = 1 + 0.2 / length, COLOURS[FIVE[i]]
            axes.text(far * x, far * y, str(i + 1), ha="center", va="center", color=colour)


@themed
def plot_pentagon() -> Figure:
    """Draw five features in the plane, and what is read of them when one is on and when two are."""
    figure, panels = subplots(1, 3, height=2.5, gridspec_kw={"width_ratios": (0.9, 1.25, 1.25)})
    w = polygon(5)
    turned = w.numpy()[::-1]  # the first feature points up
    panels[0].add_patch(
        Polygon(turned.T, closed=True, fill=False, ls=":", ec=theme().faint, lw=1.5)
    )
    _arrows(panels[0], turned)
    for axes, on in zip(panels[1:], ([0], [0, 2]), strict=True):
        x = torch.zeros(5, dtype=torch.float64)
        x[on] = 1.0
        read = (w.T @ w @ x).numpy()
        colours = [COLOURS[name] for name in FIVE]
        bars = axes.bar(range(1, 6), read, color=colours, width=0.7, edgecolor=theme().ink, lw=0.7)
        for i, bar in enumerate(bars):
            bar.set_hatch("" if i in on else "///")
            up = read[i] >= 0
            axes.text(
                i + 1, read[i] + (0.05 if up else -0.05), f"{read[i]:.2f}".replace("-", "\u2212"),
                ha="center", va="bottom" if up else "top", fontsize=7.5,
            )  # fmt: skip
        axes.axhline(0, color=theme().ink, lw=1)
        axes.set_ylim(-1.1, 1.35)
        axes.set_xlabel(
            " and ".join(str(i + 1) for i in on) + (" is on" if len(on) == 1 else " are on")
        )
        axes.set_xticks(range(1, 6))
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
    panels[1].set_ylabel("read, before ReLU")
    panels[2].tick_params(labelleft=False)
    panel_letters(panels)
    return figure


@themed
def plot_rescue() -> Figure:
    """Draw what is read of feature 1 and of its neighbour, over how much of feature 1 there is."""
    figure, axes = subplots(height=2.6)
    amount = torch.linspace(0, 1, 101, dtype=torch.float64)
    x = torch.zeros(len(amount), 5, dtype=torch.float64)
    x[:, 0] = amount
    plain = read_back(polygon(5), x)
    longer = read_back(stretched(), x, rescuing_bias())
    axes.plot(amount, amount, color=theme().faint, lw=5, solid_capstyle="butt", zorder=0)
    lines = (
        (plain[:, 1], "norm", "neighbour, no bias", (0.87, 0.3), 0),
        (longer[:, 0], "ffn", "feature 1, with bias", (0.77, 0.54), 25),
        (longer[:, 1], "attention", "neighbour, with bias", (0.78, 0.03), 0),
    )
    for values, concept, name, at, turn in lines:
        axes.plot(amount, values, **look(concept) | {"marker": None})
        axes.text(*at, name, color=COLOURS[concept], rotation=turn, ha="center", va="bottom",
                  rotation_mode="anchor", fontsize=10)  # fmt: skip
    axes.text(0.42, 0.45, "what is there", rotation=18, rotation_mode="anchor", fontsize=10,
              ha="center", va="bottom")  # fmt: skip
    axes.set_xlabel("how much of feature 1 is there")
    axes.set_ylabel("read, after ReLU")
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.05)
    return figure


def stretched() -> torch.Tensor:
    """The pentagon with arrows so long that a feature of 1 is read as 1 with the bias that mutes neighbours."""
    return polygon(5) / (1 - np.cos(2 * np.pi / 5)) ** 0.5


def rescuing_bias() -> float:
    """The bias at which the neighbours of a feature of 1 are read as 0."""
    cosine = float(np.cos(2 * np.pi / 5))
    return -cosine / (1 - cosine)


# Phases -------------------------------------------------------------------------------------------


@themed
def plot_phases(pairs: Dataset) -> Figure:
    """Draw which phase the second of two features is in: by closed forms, and trained, mixed over seeds.

    Args:
        pairs: the result ``pairs``.
    """
    figure, panels = subplots(1, 2, height=3.6, sharex=True, sharey=True)
    density, importance = pairs.density.values, pairs.importance.values
    colours = np.array([to_rgb(COLOURS[name]) for name in PHASE_CONCEPTS])
    colours[0] = to_rgb(theme().faint)
    trained = np.stack([(pairs.phase.values == i).mean(0) for i in range(len(PHASES))], -1)
    told = np.eye(len(PHASES))[predicted_phases()]
    sparse = np.log10(1 / density)
    weigh = np.log10(importance)
    ratios = np.geomspace(0.08, 12.5, 400)
    line = np.array([border(min(r, 1 / r)) for r in ratios])
    half_x, half_y = (sparse[1] - sparse[0]) / 2, (weigh[1] - weigh[0]) / 2
    extent = (sparse[0] - half_x, sparse[-1] + half_x, weigh[0] - half_y, weigh[-1] + half_y)
    for axes, shares in zip(panels, (told, trained), strict=True):
        mixed = np.einsum("drk,kc->rdc", shares, colours)
        axes.imshow(mixed, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
        axes.plot(np.log10(1 / line), np.log10(ratios), color=theme().ink, lw=1.8, ls="--")
        axes.grid(visible=False)
        axes.set_xlim(extent[0], np.log10(SPARSEST_DRAWN))
        axes.set_ylim(extent[2:])
        axes.set_xticks(np.log10([1, 2, 5, 10, 20]), ("1", "2", "5", "10", "20"))
        axes.set_yticks((-1, 0, 1), ("0.1", "1", "10"))
        axes.set_xlabel("sparsity, 1 / density")
    panels[0].set_ylabel("importance of feature 2")
    paper = {"ha": "center", "va": "center", "fontsize": 11, "color": "white", "fontweight": "bold"}
    panels[0].text(0.83, 0.0, "both share it,\nat opposite signs", **paper)
    panels[0].text(0.17, 0.8, "feature 2\nalone", **paper)
    panels[0].text(0.17, -0.8, "feature 1\nalone", **{**paper, "color": theme().ink})
    panels[0].set_title("(a) by closed form", loc="left", fontweight="bold")
    panels[1].set_title("(b) trained", loc="left", fontweight="bold")
    return figure


@themed
def plot_polygons(polygons: Dataset) -> Figure:
    """Draw where five features lie in two dimensions, at falling densities: one seed, and the others as dots.

    Args:
        polygons: the result ``polygons``.
    """
    densities = polygons.density.values
    figure, panels = subplots(1, len(densities), height=1.9)
    for axes, density in zip(panels, densities, strict=True):
        columns = polygons.weight.sel(density=density).transpose("seed", "axis", "feature").values
        for seed, each in enumerate(columns):
            upright = _upright(each)
            if seed == 0:
                _arrows(axes, upright, names=False, reach=1.35)
            axes.plot(*upright, "o", color=theme().ink, alpha=0.35, markersize=2.5, mew=0, zorder=0)
        axes.set_title(f"{density:g}", fontsize=11)
    return figure


def _upright(columns: np.ndarray) -> np.ndarray:
    """Turned so that the first column points up, and mirrored so that the rest lies alike in all seeds."""
    x, y = columns[:, 0] / max(1e-9, float(np.hypot(*columns[:, 0])))
    turned = np.array([[y, -x], [x, y]]) @ columns
    first = turned[0, 1:][np.abs(turned[0, 1:]).argmax()]
    return np.asarray(turned * np.array([[np.sign(first) or 1.0], [1.0]]))


@themed
def plot_shares(dimensions: Dataset) -> Figure:
    """Draw the share of a dimension that each of eighty features has, and the cosine of the nearest two.

    Args:
        dimensions: the result ``dimensions``.
    """
    figure, (shares, worst) = subplots(2, 1, height=2.9, sharex=True)
    sparsity = 1 / dimensions.density.values
    values = dimensions.share.transpose("seed", "density", "feature").values
    spread = np.random.default_rng(0).uniform(0.94, 1.06, values.shape)
    at = np.broadcast_to(sparsity[None, :, None], values.shape) * spread
    on = values > 0
    shares.plot(
        at[on], values[on], ".", color=COLOURS["attention"], alpha=0.15, markersize=4, mew=0
    )
    marks = {
        1.0: "one dimension each",
        0.5: "two share one",
        DIMENSIONS / FEATURES: "five share one",
    }
    for level, words in marks.items():
        shares.axhline(level, color=theme().ink, lw=1, ls="--", zorder=0)
        shares.text(105, level + 0.015, words, ha="right", va="bottom", fontsize=10)
    shares.set_ylabel("share of a dimension")
    shares.set_ylim(0, 1.12)
    seed_lines(
        worst, sparsity, dimensions.worst.transpose("seed", "density").values, concept="attention"
    )
    random = float(dimensions.random_worst.mean())
    bound = welch_bound(DIMENSIONS, FEATURES)
    for level, words, side in (
        (random, "random directions", "bottom"),
        (bound, "Welch's bound", "top"),
    ):
        worst.axhline(level, color=theme().ink, lw=1, ls="--", zorder=0)
        worst.text(
            105,
            level + (0.01 if side == "bottom" else -0.015),
            words,
            ha="right",
            va=side,
            fontsize=10,
        )
    worst.set_ylabel("cosine of the nearest")
    worst.set_ylim(0, 1.02)
    worst.set_xscale("log")
    worst.set_xlim(0.9, 112)
    worst.set_xlabel("sparsity, 1 / density")
    worst.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100]))
    worst.xaxis.set_minor_locator(NullLocator())
    worst.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel_letters((shares, worst))
    return figure


# The world whose features are known ---------------------------------------------------------------


def _row(
    axes: Axes,
    row: float,
    values: np.ndarray,
    concept: str,
    *,
    hollow: bool = False,
    small: bool = False,
) -> None:
    """A dot for each seed, and a diamond for their mean with its interval."""
    colour = look(concept)["color"]
    mean, low, high = mean_and_bar(values)
    jitter = row + np.linspace(-0.13, 0.13, values.size)
    axes.plot(values, jitter, "o", color=colour, alpha=0.45, markersize=3.5, mew=0)
    axes.plot([low, high], [row, row], color=theme().ink, lw=1.4, zorder=3)
    axes.plot(
        mean, row, "D", color=theme().paper if hollow else colour, mec=colour if hollow else theme().ink,
        mew=1.6 if hollow else 0.9, markersize=6 if small else 7.5, zorder=4,
    )  # fmt: skip


def _rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


@themed
def plot_known(world: Dataset) -> Figure:
    """Draw how well the true features are found, by arm, beside random directions.

    Args:
        world: the result ``world``.
    """
    figure, axes = subplots(height=3.0)
    names = [str(arm) for arm in world.arm.values]
    for row, name in enumerate(names):
        here = world.sel(arm=name)
        for part, concept in (("child", "norm"), ("parent", "learned"), ("single", "residual")):
            _row(axes, float(row), here.by_kind.sel(kind=part).values, concept)
        _row(axes, float(row), here.random.values, "none", hollow=True, small=True)
    at = world.sel(arm=names[0])
    for label, value, concept in (
        ("random", float(at.random.mean()), "none"),
        ("child", float(at.by_kind.sel(kind="child").mean()), "norm"),
        ("single and parent", float(at.by_kind.sel(kind="single").mean()), "residual"),
    ):
        axes.text(
            value, -0.42, label, color=COLOURS[concept], ha="center", va="bottom", fontsize=10
        )
    _rows(axes, names)
    axes.set_ylim(len(names) - 0.45, -0.85)
    axes.set_xlim(0.3, 1.03)
    axes.set_xlabel("largest cosine with a latent, mean over the true features of a kind")
    return figure


@themed
def plot_failures(world: Dataset) -> Figure:
    """Draw how much a feature's latent says of what is there, and in whose company it still speaks.

    Args:
        world: the result ``world``.
    """
    figure, (amount, heard) = subplots(2, 1, height=2.7)
    names = ["TopK 96", "L1 96", "L1 192"]
    for row, name in enumerate(names):
        _row(
            amount,
            float(row),
            world.amount.sel(arm=name).values,
            "residual" if row == 0 else "attention",
        )
    amount.axvline(1, color=theme().ink, lw=1, ls="--")
    _rows(amount, names)
    amount.set_xlim(0, 1.05)
    amount.set_xlabel("what is said of a feature, over what is there")
    sizes = [f"TopK {size}" for size in SIZES]
    for who, concept in zip(COMPANY, ("ffn", "residual", "norm"), strict=True):
        for row, name in enumerate(sizes):
            _row(heard, float(row), world.heard.sel(arm=name, company=who).values, concept)
        last = float(world.heard.sel(arm=sizes[-1], company=who).mean())
        side = "left" if who == "alone" else "right"
        heard.text(
            last, len(sizes) - 0.72, who, color=COLOURS[concept], ha=side, va="top", fontsize=10
        )
    _rows(heard, sizes)
    heard.set_ylim(len(sizes) - 0.3, -0.55)
    heard.set_xlim(0.5, 1.08)
    heard.set_xlabel("share of inputs with a parent on which its latent speaks")
    panel_letters((amount, heard))
    return figure


# The language model -------------------------------------------------------------------------------


@themed
def plot_judged(language: Dataset) -> Figure:
    """Draw two scores of each basis, for a trained and an untrained model: of its units, and of a list.

    Args:
        language: the result ``language``.
    """
    figure, (own, best) = subplots(2, 1, height=3.0, sharex=True)
    names = list(BASIS_NAMES.values())
    for row, basis in enumerate(BASES):
        for model, concept, hollow in (("untrained", "none", True), ("trained", "ffn", False)):
            here = language.sel(model=model, basis=basis)
            shift = 0.16 if hollow else -0.16
            _row(own, row + shift, here.own.values, concept, hollow=hollow)
            _row(best, row + shift, here.best.values, concept, hollow=hollow)
    for model, concept, hollow in (("untrained", "none", True), ("trained", "ffn", False)):
        shift = 0.16 if hollow else -0.16
        _row(
            best, len(BASES) + shift, language.probe.sel(model=model).values, concept, hollow=hollow
        )
    _rows(own, names)
    _rows(best, [*names, "linear probe"])
    first = language.sel(basis="latents")
    for axes, values in ((own, first.own), (best, first.best)):
        middle = float(values.mean())
        for model, concept in (("trained", "ffn"), ("untrained", "none")):
            at = float(values.sel(model=model).mean())
            side = "left" if at > middle else "right"
            at += 0.01 if at > middle else -0.01
            axes.text(at, -0.5, model, color=COLOURS[concept], ha=side, va="bottom", fontsize=10)
        axes.set_ylim(axes.get_ylim()[0], -0.95)
    own.set_xlabel("mean F1, each unit with its best property")
    best.set_xlabel("mean F1, each property with its best unit")
    own.tick_params(labelbottom=True)
    best.set_xlim(0.25, 0.9)
    panel_letters((own, best))
    return figure


@themed
def plot_kinds(language: Dataset) -> Figure:
    """Draw how well the list is covered, by the kind of property: trained and untrained latents, and neurons.

    Args:
        language: the result ``language``.
    """
    figure, axes = subplots(height=2.9)
    lines = (
        ("untrained", "latents", "none", True, "untrained"),
        ("trained", "neurons", "learned", False, "neurons"),
        ("trained", "latents", "ffn", False, "latents"),
    )
    for row, kind in enumerate(KINDS):
        for i, (model, basis, concept, hollow, _) in enumerate(lines):
            values = language.by_kind.sel(model=model, basis=basis, kind=kind).values
            _row(axes, row + 0.22 * (1 - i), values, concept, hollow=hollow, small=True)
    for model, basis, concept, _, words in lines:
        at = float(language.by_kind.sel(model=model, basis=basis, kind="pair").mean())
        axes.text(at, 1.55, words, color=COLOURS[concept], ha="center", va="center", fontsize=10)
    _rows(axes, list(KINDS))
    axes.set_xlim(0.1, 1.0)
    axes.set_xlabel("mean F1, each property with its best unit")
    return figure


PORTRAIT_NAMES: Mapping[str, str] = {
    "character": "best for a character",
    "pair": "best for a pair",
    "triple": "best for a triple",
    "class": "best for a class",
    "worst": "worst of all",
}


@themed
def plot_portraits(portraits: Dataset) -> Figure:
    """Draw lines of text in which some latents speak, shaded by how much they say.

    Args:
        portraits: the result ``portraits``.
    """
    names = list(PORTRAIT_NAMES)
    figure, axes = subplots(height=0.24 * len(names) * (LINES + 1.4))
    axes.set_xlim(0, 1.62 * WIDE)
    axes.set_ylim(len(names) * (LINES + 0.7) - 0.3, -0.4)
    axes.axis("off")
    here = portraits.isel(seed=0)
    for row, name in enumerate(names):
        one = here.sel(latent=name)
        top = row * (LINES + 0.7)
        words = f"{PORTRAIT_NAMES[name]}\nF1 {float(one.f1):.2f}"
        axes.text(0, top + 0.5, words, ha="left", va="top", fontsize=10)
        loudest = float(one.says.max())
        for line in range(LINES):
            text = text_of(one.token.sel(line=line).values.tolist())
            for place, (sign, says) in enumerate(
                zip(text, one.says.sel(line=line).values, strict=True)
            ):
                at = (0.6 * WIDE + place, top + line)
                if says > 0:
                    shade = tint("ffn", 0.15 + 0.6 * float(says) / loudest)
                    axes.add_patch(Rectangle(at, 1, 1, facecolor=shade, edgecolor="none"))
                axes.text(
                    at[0] + 0.5, at[1] + 0.55, _SHOWN.get(sign, sign), ha="center", va="center",
                    fontsize=9, family="monospace",
                )  # fmt: skip
    return figure


_SHOWN = {"\n": "\u21b5", "$": r"\$"}
"""Signs that would not be seen, or would be read as mathematics."""
