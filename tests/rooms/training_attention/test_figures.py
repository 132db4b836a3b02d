"""Every figure on how attention learns draws what was measured, every seed of it, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.training_attention import figures
from measured_book.rooms.training_attention.measure import failed
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("training_attention")
DRAWN = {
    "plot_nudges": lambda: figures.plot_nudges(
        [0.5, 0.3, 0.2], [1.0, 3.0, 2.0], [-0.4, 0.36, 0.04]
    ),
    "plot_fresh_entropy": lambda: figures.plot_fresh_entropy(RESULTS["drawn"], 0.99),
    "plot_values_first": lambda: figures.plot_values_first(RESULTS["values_first"]),
    "plot_three_arms": lambda: figures.plot_three_arms(RESULTS["forbidden"], (0.0, 0.4, 0.0)),
    "plot_collapse": lambda: figures.plot_collapse(RESULTS["collapse"]),
    "plot_induction": lambda: figures.plot_induction(RESULTS["induction"]),
    "plot_where_it_goes": lambda: figures.plot_where_it_goes(RESULTS["spending"]),
    "plot_similarity_by_block": lambda: figures.plot_similarity_by_block(RESULTS["readers"]),
    "plot_outcomes": lambda: figures.plot_outcomes(RESULTS["signals"]),
    "plot_areas": lambda: figures.plot_areas(RESULTS["signals"], 0.7),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert any(axes.get_xlabel() for axes in drawn.figure.axes)
    assert all(each.get_ylabel() or each.get_yticklabels() for each in drawn.figure.axes[:1])


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)


def lines(drawn: ThemedFigure, panel: int) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata(), float) for line in drawn.figure.axes[panel].get_lines()]


def shows(drawn: ThemedFigure, panel: int, rows: np.ndarray) -> bool:
    found = lines(drawn, panel)
    return all(
        any(len(line) == len(row) and np.allclose(line, row) for line in found)
        for row in (*rows, rows.mean(0))
    )


def test_every_seed_is_shown() -> None:
    drawn = figures.plot_values_first(RESULTS["values_first"])
    for panel, name in ((0, "values"), (0, "scores"), (1, "pull")):
        assert shows(drawn, panel, RESULTS["values_first"][name].transpose("seed", "step").values)
    induction = RESULTS["induction"]
    drawn = figures.plot_induction(induction)
    for arm in induction.arm.values:
        assert shows(drawn, 0, induction.loss.sel(arm=arm).transpose("seed", "step").values)
    spending = RESULTS["spending"]
    drawn = figures.plot_where_it_goes(spending)
    for kind in spending.kind.values:
        rows = spending.share.sel(block=2, kind=kind).transpose("seed", "step").values
        assert shows(drawn, 1, rows)


def test_nudges_draw_weights_and_moves() -> None:
    above, below = DRAWN["plot_nudges"]().figure.axes
    assert [bar.get_height() for bar in above.patches] == [0.5, 0.3, 0.2]
    assert [bar.get_height() for bar in below.patches] == [-0.4, 0.36, 0.04]
    names = [label.get_text() for label in below.get_xticklabels()]
    assert names == ["value 1\n(-0.8)", "value 3\n(+1.2)", "value 2\n(+0.2)"]


def test_every_training_is_shown_with_how_it_ended() -> None:
    signals = RESULTS["signals"]
    drawn = figures.plot_outcomes(signals)
    for panel, factor in zip(drawn.figure.axes, signals.factor.values, strict=True):
        good, bad, _ = panel.get_lines()
        lost = int(failed(signals).sel(factor=factor).sum())
        assert len(bad.get_xdata()) == lost
        assert len(good.get_xdata()) + lost == signals.seed.size * signals.rate.size
