"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.regularisation import figures

RESULTS = load_results("regularisation")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_remedies, ["remedies"]),
        (figures.plot_passes, ["remedies"]),
        (figures.plot_curves, ["remedies", "hastened"]),
        (figures.plot_reliability, ["remedies"]),
        (figures.plot_noise, ["noise"]),
        (figures.plot_turning, ["turning"]),
        (figures.plot_strength, ["strength"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_seed_of_every_remedy_is_a_dot():
    held = RESULTS["remedies"].held
    panels = figures.plot_remedies(RESULTS["remedies"]).figure.axes
    for panel, passes in zip(panels, figures.KINDS, strict=True):
        dots = (np.sort(line.get_xdata()) for line in panel.lines)
        rows = [each for each in dots if len(each) == held.sizes["seed"]]
        assert len(rows) == len(figures.NAMES)
        for arm in held.arm.values:
            values = np.sort(held.sel(passes=passes, arm=arm).values)
            assert any(np.allclose(row, values) for row in rows)


def test_every_cell_of_the_map_says_its_mean_and_its_range():
    held = RESULTS["strength"].held
    texts = [
        text.get_text() for text in figures.plot_strength(RESULTS["strength"]).figure.axes[0].texts
    ]
    means = held.mean("seed").values.ravel()
    assert texts[::2] == [f"{loss:.2f}" for loss in means]
    low = held.min("seed").values.ravel()
    assert [text.split(" to ")[0] for text in texts[1::2]] == [f"{loss:.2f}" for loss in low]


def test_passes_are_drawn_in_their_order_and_new_pairs_first():
    panel = figures.plot_passes(RESULTS["remedies"]).figure.axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["new", "4", "10", "40"]


def test_by_hand_shows_the_first_mask_and_all_of_them():
    outputs = np.array([[0.0, 4.0], [2.0, 0.0], [0.0, 0.0], [2.0, 4.0]])
    above, below = figures.plot_by_hand(
        np.array([1.0, 2.0]), outputs, np.array([1.0, 2.0])
    ).figure.axes
    assert sorted(bar.get_height() for bar in above.patches) == [0, 1, 2, 4]
    assert [text.get_text() for text in above.texts] == ["x"]
    drawn = [list(line.get_ydata()) for line in below.get_lines()]
    assert all(row in drawn for row in outputs.tolist())


def test_every_place_has_its_number():
    texts = [text.get_text() for text in figures.plot_places().figure.axes[0].texts]
    assert {"1", "2", "3", "4", "5"} <= set(texts)
