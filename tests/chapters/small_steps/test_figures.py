"""Figures on factors of branches draw every seed of what they are given."""

import numpy as np
import pytest
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.small_steps.figures import (
    plot_largest_depths,
    plot_shifts_by_depth,
    plot_steps_by_factor,
    plot_tuning_losses,
    plot_turns_by_block,
)
from measured_transformer.chapters.small_steps.measure import Descent
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.training.loop import Run

RNG = np.random.default_rng(0)
FACTORS = (0.1, 0.3, 1.0, 2.0)


def drawn(panel):
    return [np.asarray(line.get_ydata(), float) for line in panel.get_lines()]


def holds(lines, row):
    return any(len(y) == len(row) and np.allclose(y, row, equal_nan=True) for y in lines)


def names(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_turns_show_every_seed_the_mean_and_the_limit():
    panels = {w: {f: RNG.uniform(1, 90, (3, 7)) for f in FACTORS} for w in ("pre", "post")}
    limit = np.linspace(90, 10, 7)
    figure = plot_turns_by_block(panels, limit, unit="write").figure
    assert figure.axes[1].get_xlabel() == "write"
    for panel, lines in zip(figure.axes, panels.values(), strict=True):
        for values in lines.values():
            assert all(holds(drawn(panel), row) for row in (*values, values.mean(0)))
    assert holds(drawn(figure.axes[0]), limit)
    assert not holds(drawn(figure.axes[1]), limit)
    assert names(figure) == ["0.1", "0.3", "1", "2"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_each_run_has_a_mark_open_where_it_was_stopped():
    found = {  # rows are in the order of the factors, whatever order they came in
        2.0: Solved(np.array([90.0, 150.0]), np.array([True, False])),
        0.1: Solved(np.array([40.0, 50.0]), np.array([True, True])),
    }
    (axes,) = plot_steps_by_factor(found).figure.axes
    marks = [
        (x, round(y), line.get_markerfacecolor() == "none")
        for line in axes.get_lines()
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    assert sorted(marks) == [(40, 0, False), (50, 0, False), (90, 1, False), (150, 1, True)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.1", "2"]


def test_losses_stand_over_their_rates():
    panels = {
        depth: {f: {r: list(RNG.uniform(0.01, 1, 2)) for r in (1e-2, 1e-3)} for f in FACTORS}
        for depth in (12, 48)
    }
    figure = plot_tuning_losses(panels, 0.05).figure
    for panel, (depth, lines) in zip(figure.axes, panels.items(), strict=True):
        assert str(depth) in panel.get_ylabel()
        for found in lines.values():
            for seed in range(2):  # in the order of the rates, whatever order they came in
                assert holds(drawn(panel), [found[1e-3][seed], found[1e-2][seed]])
            middle = [np.sqrt(np.prod(found[rate])) for rate in (1e-3, 1e-2)]
            assert holds(drawn(panel), middle)
        assert holds(drawn(panel), [0.05, 0.05])
    assert figure.axes[-1].get_xlabel() == "learning rate"


def test_a_line_of_shifts_ends_where_numbers_end():
    panels = {w: {f: np.exp(RNG.normal(size=(3, 3))) for f in FACTORS} for w in ("pre", "none")}
    panels["none"][2.0][:, 2] = np.nan, np.inf, 1.0
    del panels["none"][0.3]
    figure = plot_shifts_by_depth(panels, (3, 12, 48)).figure
    for panel, lines in zip(figure.axes, panels.values(), strict=True):
        assert panel.get_yscale() == "log"
        for values in lines.values():
            shown = np.where(np.isfinite(values), values, np.nan)
            assert all(holds(drawn(panel), row) for row in shown)
            assert holds(drawn(panel), shown.prod(0) ** (1 / len(shown)))
    looks = [
        {line.get_label(): (line.get_marker(), line.get_color()) for line in panel.get_lines()}
        for panel in figure.axes
    ]
    assert all(looks[0][name] == looks[1][name] for name in ("0.1", "1", "2"))


def descent(*largest):
    """Models of 6 and 12 blocks; 0 for a seed that neither solves."""
    full, none = np.ones(20), np.zeros(0)
    model = Encoder(Config(vocab=2, d_model=8, n_layers=1, n_heads=2))

    def run(seed, solves):
        losses = full * (0.0 if solves else 1.0)
        return Run(model, losses, seed, False, full, full, none.astype(int), none, none)

    deep = {seed: run(seed, depth == 12) for seed, depth in enumerate(largest)}
    less = {seed: run(seed, depth == 6) for seed, depth in enumerate(largest) if depth < 12}
    return Descent(tuple(range(len(largest))), {12: deep, 6: less} if less else {12: deep})


def test_largest_depths_have_a_row_a_model_and_open_marks_for_none():
    found = {"pre": {0.1: descent(12, 12)}, "none": {1.0: descent(6, 0)}}
    (axes,) = plot_largest_depths(found, (6, 12)).figure.axes
    marks = [
        (x, round(y), line.get_markerfacecolor() == "none")
        for line in axes.get_lines()
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    assert sorted(marks) == [(3, 1, True), (6, 1, False), (12, 0, False), (12, 0, False)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["none", "6", "12"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["pre-norm, 0.1", "no norm, 1"]


def test_five_factors_are_told_apart_without_colour():
    panels = {"pre": {f: RNG.uniform(1, 90, (2, 7)) for f in (*FACTORS, 10.0)}}
    figure = plot_turns_by_block(panels, np.ones(7)).figure
    (legend,) = figure.legends
    marks = [handle.get_marker() for handle in legend.legend_handles]
    assert len(set(marks)) == 5
    assert len({handle.get_color() for handle in legend.legend_handles}) == pytest.approx(5)


def test_a_factor_looks_the_same_wherever_it_stands():
    panels = {"pre": {f: RNG.uniform(1, 90, (2, 7)) for f in (*FACTORS, 10.0)}}
    legend = plot_turns_by_block(panels, np.ones(7)).figure.legends[0]
    looks = {handle.get_label(): handle for handle in legend.legend_handles}
    (axes,) = plot_steps_by_factor({2.0: Solved(np.ones(2), np.ones(2, bool))}).figure.axes
    line = axes.get_lines()[0]
    assert line.get_color() == looks["2"].get_color()
    assert line.get_marker() == looks["2"].get_marker()


def test_a_factor_without_a_look_is_refused():
    with pytest.raises(ValueError, match=r"expected factors of .*0\.7"):
        plot_steps_by_factor({0.7: Solved(np.ones(2), np.ones(2, bool))})
