"""The figures on the roles of heads draw what they are given."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from measured_transformer.chapters.head_roles import figures
from measured_transformer.evidence.statistics import proportion
from measured_transformer.figures.style import COLOURS

RNG = np.random.default_rng(0)


def test_a_map_for_each_head():
    maps = {"one": np.eye(3), "two": np.ones((3, 3)) / 3}
    drawn = figures.plot_handmade_maps(maps, [1.0, 0.25], [0.0, 1.0])
    panels = [panel for panel in drawn.figure.axes if panel.get_visible()]
    assert [panel.get_title() for panel in panels] == ["one", "two"]
    assert np.array_equal(panels[1].images[0].get_array(), maps["two"])
    assert panels[1].get_xlabel() == "place 0.25, entropy 1.00"


def test_every_head_is_a_point():
    groups = ("untrained", "layer 0", "layer 1")
    share, mass = ({g: RNG.random((4, 2)) for g in groups} for _ in range(2))
    axes = figures.plot_between_two_numbers(share, mass).figure.axes[0]
    for line, group in zip(axes.get_lines(), groups, strict=True):
        assert np.array_equal(line.get_xdata(), share[group].ravel())
        assert np.array_equal(line.get_ydata(), mass[group].ravel())


def test_rows_show_share_interval_and_moved_thresholds():
    counts = {"encoder": {"self": [4, 2, 0]}, "decoder-only": {"self": [4, 3, 2]}}
    untrained = {"encoder": {"self": 6}, "decoder-only": {"self": 1}}
    axes = figures.plot_found_rows(
        counts, {"encoder": 8, "decoder-only": 4}, untrained
    ).figure.axes[0]
    drawn = [np.atleast_1d(line.get_xdata()).tolist() for line in axes.get_lines()]
    assert list(proportion(2, 8).interval) in drawn
    assert [1.0, 0.5] in drawn
    assert list(proportion(3, 4).interval) in drawn
    assert [0.5, 0.0] in drawn
    assert [0.25] in drawn
    assert [0.75] in drawn


def test_every_head_has_the_colour_of_its_class():
    rows = [["mirror", "content"], ["none", "mirror"], ["several", "self"]]
    axes = figures.plot_classes({"encoder": rows}, n_heads=1).figure.axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    wanted = [to_rgba(COLOURS[figures.CLASS_CONCEPTS[label]]) for row in rows for label in row]
    assert [box.get_facecolor() for box in boxes] == wanted
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.0", "1.0"]


def test_panels_with_other_numbers_of_seeds_show_all_of_them():
    models = {"encoder": [["mirror", "content"]] * 4, "decoder-only": [["none", "mirror"]]}
    for axes in figures.plot_classes(models, n_heads=1).figure.axes:
        last, first = axes.get_ylim()
        assert first < 0
        assert last > 3


def test_every_model_is_a_point_of_its_two_layers():
    groups = {"slow": (RNG.random(3), RNG.random(3)), "fast": (RNG.random(2), RNG.random(2))}
    lines = figures.plot_which_layer(groups).figure.axes[0].get_lines()[1:]
    for line, (name, (first, last)) in zip(lines, groups.items(), strict=True):
        assert line.get_label() == name
        assert np.array_equal(line.get_xdata(), first)
        assert np.array_equal(line.get_ydata(), last)


def test_falls_show_every_seed():
    values = -RNG.random(5)
    drawn = figures.plot_falls(
        {"one": {"layer 0, zero": values}, "all": {"layer 1, zero": values / 2}}
    )
    for panel, expected in zip(drawn.figure.axes, (values, values / 2), strict=True):
        assert any(
            len(line.get_xdata()) == 5 and np.allclose(line.get_xdata(), expected)
            for line in panel.get_lines()
        )
    with pytest.raises(ValueError, match="at least one group"):
        figures.plot_falls({"one": {}})
