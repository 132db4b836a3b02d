"""Every figure of the chapter draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.positional_encoding import figures, measure
from measured_transformer.viewer.style import ThemedFigure

RNG = np.random.default_rng(0)
RESULTS = load_results("positional_encoding")
DRAWN = {
    "plot_word_patterns": lambda: figures.plot_word_patterns(
        np.eye(3), np.eye(3), ["a", "b", "c"], ["c", "b", "a"]
    ),
    "plot_accuracy": lambda: figures.plot_accuracy(RESULTS["reversal"], ["none", "digits"], 0.25),
    "plot_nearest": lambda: figures.plot_nearest(RESULTS["reversal"]),
    "plot_digits_and_waves": lambda: figures.plot_digits_and_waves(8),
    "plot_clocks": lambda: figures.plot_clocks([0, 1, 10], [1.0, 0.1]),
    "plot_table": lambda: figures.plot_table(RNG.normal(size=(10, 6))),
    "plot_wavelengths": lambda: figures.plot_wavelengths(
        {4: [6.0, 600.0], 6: [6.0, 60.0, 600.0]}, length=50
    ),
    "plot_similarity": lambda: figures.plot_similarity(RESULTS["tables"], marked=(40, 75)),
    "plot_maps": lambda: figures.plot_maps({name: np.eye(4) for name in ("a", "b", "c")}),
    "plot_distinct": lambda: figures.plot_distinct(RESULTS["tables"]),
    "plot_reading": lambda: figures.plot_reading(RESULTS["reading"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)


def test_the_rising_steps_are_those_that_are_drawn_thick() -> None:
    tables = RESULTS["tables"]
    similarity = tables.similarity.values[0]
    drawn = figures.plot_similarity(tables, marked=())
    thick = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() > 3]
    rising = [k for k in range(99) if similarity[k + 1] > similarity[k]]
    assert [int(line.get_xdata()[0]) for line in thick] == rising
    assert all(line.get_ydata()[1] > line.get_ydata()[0] for line in thick)


def test_every_training_is_a_dot_and_full_where_it_has_learned() -> None:
    reversal = RESULTS["reversal"]
    axes = figures.plot_nearest(reversal).figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert set(names) == set(measure.ARMS) - {"none", "count everywhere"}
    full = dict.fromkeys(names, 0)
    for line in axes.lines:
        for height in line.get_ydata():
            full[names[round(float(height))]] += line.get_markerfacecolor() != "none"
    assert sum(len(line.get_xdata()) for line in axes.lines) == 10 * len(names)
    assert full == {name: int((reversal.accuracy.sel(arm=name) > 0.9).sum()) for name in names}
    distances = [float((reversal.nearest.sel(arm=n) / reversal.word).mean()) for n in names]
    assert distances == pytest.approx(sorted(distances, reverse=True), rel=0.05)


def test_digits_jump_and_waves_do_not() -> None:
    digits, waves = figures.plot_digits_and_waves(16).figure.axes
    for column, line in enumerate(digits.lines):
        at = dict(zip(np.round(line.get_ydata(), 6), line.get_xdata(), strict=True))
        assert [round((at[float(p)] - column) / 0.8) for p in range(16)] == [
            p >> column & 1 for p in range(16)
        ]
    for digit, wave in zip(digits.lines, waves.lines, strict=True):
        assert np.abs(np.diff(digit.get_xdata())).max() == pytest.approx(0.8)
        assert np.abs(np.diff(wave.get_xdata())).max() < 0.1
