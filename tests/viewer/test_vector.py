"""Drawings of both themes as one SVG: which figures have one, and that it draws what the two drawings draw."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from measured_book.figures.plots import seed_lines, seed_strip, subplots
from measured_transformer.viewer import _vector, style
from measured_transformer.viewer.style import COLOURS, DARK, LIGHT, theme, themed

SVG = "{http://www.w3.org/2000/svg}"


@themed
def plot_lines(points: int = 20) -> Figure:
    """Lines, marks, words and mathematics."""
    figure, axes = subplots(height=2.4)
    rows = np.cumsum(np.random.default_rng(0).normal(size=(4, points)), axis=1)
    seed_lines(axes, np.arange(points), rows, concept="rotary", label="rotary")
    axes.set(xlabel="step", ylabel="$x^2$")
    axes.legend()
    return figure


@themed
def plot_map() -> Figure:
    """Pixels."""
    figure, axes = subplots(height=2)
    axes.imshow(np.eye(4))
    return figure


@themed
def plot_strip() -> Figure:
    """Dots for seeds, and an area in a mixed colour."""
    figure, axes = subplots(height=2)
    rows = {"norm": np.arange(5.0), "ffn": np.arange(5.0) + 1}
    seed_strip(axes, rows, label="loss")
    axes.axvspan(0, 1, color=style.tint("ffn"), hatch="//")
    return figure


@themed
def plot_unlike() -> Figure:
    """A line more on dark pages."""
    figure, axes = subplots(height=2)
    axes.plot([0, 1])
    if theme() is DARK:
        axes.plot([0, 1], [1, 0])
    return figure


def rules(svg: str) -> dict[str, str]:
    """Selector -> declarations of a drawing's sheet."""
    return dict(
        re.findall(r"([^{}]+)\{([^{}]*)\}", svg.partition("<style>")[2].split("</style>")[0])
    )


def absolute(d: str) -> list[tuple[str, list[float]]]:
    """Read a path, in steps or not, as commands and the points that they lead to."""
    found, at, start, last = [], np.zeros(2), np.zeros(2), ""
    for letter, text in re.findall(r"([a-zA-Z])([^a-zA-Z]*)", d):
        numbers = np.array([float(n) for n in re.findall(r"-?(?:\d+\.\d*|\.?\d+)", text)])
        width = {"m": 2, "l": 2, "q": 4, "c": 6, "z": 0}[letter.lower()]
        if not width:
            found.append(("Z", []))
            at = start
        for part in numbers.reshape(-1, width) if width else ():
            points = part.reshape(-1, 2) + (at if letter.islower() else 0)
            at = points[-1]
            start = at if letter in "mM" else start
            found.append((letter.upper(), points.ravel().tolist()))
        last = letter
    assert last
    return found


def test_few_lines_are_one_drawing_with_two_colours():
    svg = plot_lines().vector
    assert svg is not None
    drawing = ElementTree.fromstring(svg)
    assert drawing.get("id") == _vector.DARK
    assert drawing.get("viewBox", "").split()[2:] == ["460.8", "172.8"]
    found = rules(svg)
    light = "".join(value for name, value in found.items() if "target" not in name)
    dark = "".join(value for name, value in found.items() if "target" in name)
    assert LIGHT.ink in light
    assert DARK.ink in dark
    assert DARK.ink not in light
    assert COLOURS["rotary"] in light
    assert COLOURS["rotary"] not in dark, "what both share is said once"


def test_all_that_is_named_is_there():
    for svg in (plot_lines().vector, plot_strip().vector):
        assert svg is not None
        named = re.findall(r'id="([^"]+)"', svg)
        assert len(named) == len(set(named))
        assert set(re.findall(r"#([A-Za-z]+)[\")]", svg)) <= set(named)
        classes = set(re.findall(r'class="([^"]+)"', svg))
        assert {f".{name}" for name in classes} <= set(rules(svg))


def test_the_ground_is_white_on_paper_and_clear_on_a_dark_page():
    svg = plot_lines().vector
    assert svg is not None
    first = re.search(r'<path [^>]*class="(\w+)"', svg)
    assert first is not None
    assert rules(svg)[f".{first[1]}"] == f"fill:{LIGHT.paper}"
    assert rules(svg)[f"svg:target .{first[1]}"] == "fill:none"


def test_it_is_smaller_than_what_matplotlib_writes_and_the_same_each_time():
    drawn = plot_lines()
    assert drawn.vector == plot_lines().vector
    assert drawn.vector is not None
    assert len(drawn.vector) < 0.5 * len(_vector.written(drawn.figure))


@pytest.mark.parametrize("draw", [plot_map, plot_unlike, lambda: plot_lines(3000)])
def test_what_is_no_vector_stays_an_image(draw):
    """Pixels, a dark drawing that has more in it, and a great many points."""
    drawn = draw()
    assert drawn.vector is None
    assert "vector" not in drawn._repr_mimebundle_()[1]["measured"]


@themed
def plot_tiles() -> Figure:
    """Many equal areas side by side, which pixels say in less."""
    figure, axes = subplots(height=2)
    for place in range(400):
        axes.add_patch(Rectangle((place % 20, place // 20), 1, 1, color=COLOURS["attention"]))
    axes.set(xlim=(0, 20), ylim=(0, 20))
    return figure


def test_a_large_one_stays_an_image(monkeypatch):
    tiles = plot_tiles()
    assert _vector.has_few_points(tiles.figure)
    assert tiles.vector is None
    monkeypatch.setattr(style, "MOST_BYTES", 1000)
    assert plot_lines().vector is None


def test_the_figure_is_left_as_it_was():
    drawn = plot_lines()
    engine = drawn.figure.get_layout_engine()
    assert engine is not None
    assert engine.__class__.__name__ == "ConstrainedLayoutEngine"


@pytest.mark.parametrize(("scale", "places"), [(1.0, 2), (0.25, 0)])
def test_steps_lead_where_the_path_leads(scale, places):
    rng = np.random.default_rng(1)
    d = "M 3 4 \nL 10.126 -2 \nL .5 1e-3 \nQ 1 2 3 4 \nz\nM 9 9 \nC 1 2 3 4 5 6 \nL 1 1 \n"
    d += "".join(f"L {x:.5f} {y:.5f} \n" for x, y in rng.normal(scale=90, size=(300, 2)))
    written = absolute(_vector._path(d, scale, places))
    expected = absolute(d.replace("1e-3", "0.001"))
    assert [letter for letter, _ in written] == [letter for letter, _ in expected]
    for (_, found), (_, wanted) in zip(written, expected, strict=True):
        assert found == pytest.approx([scale * one for one in wanted], abs=0.51 * 10.0**-places)


def test_a_mark_is_where_matplotlib_puts_it():
    """The dots of a strip, against the transform of its axes."""
    drawn = plot_strip()
    axes = drawn.figure.axes[0]
    dots = next(line for line in axes.get_lines() if len(line.get_xydata()) == 5)
    height = drawn.figure.get_figheight() * 72
    places = axes.transData.transform(dots.get_xydata()) * 72 / drawn.figure.dpi
    assert drawn.vector is not None
    uses = [
        (float(use.get("x", 0)), height - float(use.get("y", 0)))
        for use in ElementTree.fromstring(drawn.vector).iter(f"{SVG}use")
        if use.get("class")
    ]
    for x, y in places:
        assert min(np.hypot(x - u, y - v) for u, v in uses) < 0.02


def test_the_estimate_counts_points_and_refuses_pixels():
    figure, axes = subplots(height=2)
    axes.plot(np.zeros(_vector.MOST_POINTS // 2))
    assert _vector.has_few_points(figure)
    axes.plot(np.zeros(_vector.MOST_POINTS))
    assert not _vector.has_few_points(figure)
    other, axes = subplots(height=2)
    axes.pcolormesh(np.eye(3))
    assert not _vector.has_few_points(other)
