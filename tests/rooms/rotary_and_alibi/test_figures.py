"""Every figure of the chapter draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.rotary_and_alibi import figures, measure
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("rotary_and_alibi")
RULES = {
    "three back": RESULTS["three_back"],
    "induction": RESULTS["induction"],
    "reversal": RESULTS["reversal"],
}
CONTEXTS = {10_000: 4096, 500_000: 8192}
LIMITS = [measure.BACK.steps, measure.COPY.steps, measure.MIRROR.steps]
DRAWN = {
    "plot_look_back": lambda: figures.plot_look_back(np.eye(30), [10, 20], 2),
    "plot_one_number": lambda: figures.plot_one_number(
        np.minimum(np.arange(1, 200), 31), 2.0 ** -np.arange(1, 9), np.arange(1, 200)
    ),
    "plot_turned_vectors": lambda: figures.plot_turned_vectors(
        [(1, 0), (2, 1)], rate=0.5, query_angle=0.1, key_angle=0.2
    ),
    "plot_maps": lambda: figures.plot_maps({name: np.eye(4) for name in measure.PLAIN}),
    "plot_score_drift": lambda: figures.plot_score_drift(RESULTS["rounding"]),
    "plot_turns": lambda: figures.plot_turns(RESULTS["turns"], CONTEXTS),
    "plot_decay": lambda: figures.plot_decay(RESULTS["turns"], RESULTS["spread"]),
    "plot_rules": lambda: figures.plot_rules(RULES, LIMITS),
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


def test_every_training_is_a_dot_and_hollow_where_it_did_not_learn() -> None:
    axes = figures.plot_rules(RULES, LIMITS).figure.axes
    for panel, result, limit in zip(axes, RULES.values(), LIMITS, strict=True):
        dots = [line for line in panel.lines if line.get_marker() == "o"]
        hollow = sum(len(one.get_xdata()) for one in dots if one.get_markerfacecolor() == "none")
        assert sum(len(one.get_xdata()) for one in dots) == result.steps.size
        assert hollow == int((result.steps >= limit).sum())


def test_pairs_that_complete_no_turn_are_hollow() -> None:
    turns = RESULTS["turns"].isel(seed=0)
    lines = figures.plot_turns(RESULTS["turns"], CONTEXTS).figure.axes[0].lines
    hollow = [len(one.get_xdata()) for one in lines if one.get_markerfacecolor() == "none"]
    wanted = [int((turns.period.sel(base=b) > c).sum()) for b, c in CONTEXTS.items()]
    assert sorted(hollow) == sorted(wanted)
