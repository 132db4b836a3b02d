"""Figures on activations and widths draw the numbers that they are given."""

import numpy as np
from measured_transformer.chapters.activations_and_widths import figures


def lines(axes):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.get_lines()
    ]


def test_each_activation_multiplies_in_a_panel_of_its_own():
    drawn = figures.plot_products_by_hand()
    titles = [axes.get_title(loc="right") for axes in drawn.figure.axes]
    assert titles == ["ReLU", "GELU", "squared ReLU", "SwiGLU"]
    assert drawn.light != drawn.dark
    # Along a line of equal height the product itself is that high only where it is computed exactly.
    worst = []
    for axes in drawn.figure.axes:
        written = axes.collections[1]
        off = [
            np.abs(path.vertices.prod(1) - level).max()
            for level, path in zip(written.levels, written.get_paths(), strict=True)
            if level and len(path.vertices)
        ]
        worst.append(max(off))
    assert min(worst[:2]) > 0.5
    assert max(worst[2:]) < 0.01


def test_losses_are_drawn_for_every_rate_with_a_ring_at_the_best():
    found = {
        "text": {
            "ReLU": {0.01: [2.0, 2.2], 0.02: [1.8, 1.9]},
            "GELU": {0.01: [1.0, 1.2], 0.02: [1.5, 1.6]},
        }
    }
    drawn = figures.plot_losses_by_rate(found, limits={"text": (0.0, 3.0)})
    (axes,) = drawn.figure.axes
    shown = lines(axes)
    for arm in found["text"].values():
        rows = np.array(list(arm.values())).T
        for row in [*rows, rows.mean(0)]:
            assert any(np.allclose(y, row) for _, y in shown if len(y) == 2)
    rings = [(x[0], y[0]) for x, y in shown if len(x) == 1]
    assert np.allclose(sorted(rings), [(0.01, 1.1), (0.02, 1.85)])
    assert axes.get_ylim() == (0.0, 3.0)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.01", "0.02"]


def test_differences_stand_over_a_shaded_margin():
    found = {"text": {"GELU": np.array([-0.02, 0.01])}, "sums": {"GELU": np.array([0.3, 0.5])}}
    drawn = figures.plot_against_relu(found, margin=0.05, limits={"sums": (-1.0, 1.0)})
    for axes, values in zip(drawn.figure.axes, found.values(), strict=True):
        band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
        assert np.allclose([band.x0, band.x1], [-0.05, 0.05])
        assert any(np.array_equal(np.sort(x), np.sort(values["GELU"])) for x, _ in lines(axes))
        assert any(len(x) == 1 and np.isclose(x[0], values["GELU"].mean()) for x, _ in lines(axes))
    assert drawn.figure.axes[1].get_xlim() == (-1.0, 1.0)


def test_every_width_is_drawn_with_its_seeds_and_their_mean():
    found = {
        "loss": {"width": {1.0: [2.0, 2.1], 4.0: [1.9]}, "parameters": {1.0: [1.8], 4.0: [1.9]}}
    }
    drawn = figures.plot_by_width(found, {"width": "ffn", "parameters": "residual"})
    (axes,) = drawn.figure.axes
    shown = lines(axes)
    assert any(np.allclose(y, [2.05, 1.9]) for _, y in shown if len(y) == 2)
    assert any(np.allclose(y, [2.0, 2.1]) and np.ptp(x) == 0 for x, y in shown if len(y) == 2)
    bands = [one.get_extents().transformed(axes.transData.inverted()) for one in axes.patches]
    for band, judged in zip(bands, (1.0, 4.0), strict=True):
        assert band.x0 < judged < band.x1, "the judged widths are shaded"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["width", "parameters"]
