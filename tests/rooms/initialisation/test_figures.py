"""Every figure of the chapter is drawn from its results, in both themes, and shows every run."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.initialisation import figures

RESULTS = load_results("initialisation")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_sums, []),
        (figures.plot_matrices, ["matrices"]),
        (figures.plot_streams, ["passages"]),
        (figures.plot_gradients, ["passages"]),
        (figures.plot_groups, ["untrained_groups"]),
        (figures.plot_coordinates, ["coordinates"]),
        (figures.plot_transfer, ["transfer"]),
        (figures.plot_best, ["transfer"]),
    ],
)
def test_every_figure_draws_in_both_themes(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def rows(axes):
    return [np.asarray(line.get_ydata()) for line in axes.get_lines()]


def test_streams_show_every_seed_and_factor():
    passages = RESULTS["passages"]
    drawn = figures.plot_streams(passages)
    for panel, design in zip(drawn.figure.axes, figures.DESIGN_NAMES, strict=False):
        for factor in passages.factor.values:
            wanted = passages.stream.sel(scaled="rest", design=design, factor=factor)
            for row in wanted.transpose("seed", "state").values:
                assert any(y.shape == row.shape and np.allclose(y, row) for y in rows(panel))


def test_every_run_of_the_bet_is_drawn():
    transfer = RESULTS["transfer"]
    drawn = figures.plot_transfer(transfer)
    order = np.argsort(transfer.rate.values)
    for panel, rule in zip(drawn.figure.axes, figures.RULE_NAMES, strict=False):
        wanted = transfer.loss.sel(rule=rule).transpose("seed", "width", "rate").values
        for row in wanted.reshape(-1, len(order)):
            assert any(y.shape == row.shape and np.allclose(y, row[order]) for y in rows(panel))
    best = figures.plot_best(transfer)
    for row in transfer.best.transpose("seed", "rule", "width").values.reshape(-1, 4):
        assert any(
            y.shape == row.shape and np.allclose(y, 2**row) for y in rows(best.figure.axes[0])
        )


def test_every_run_of_a_changed_group_is_a_mark():
    drawn = figures.plot_groups(RESULTS["untrained_groups"])
    marks = sum(
        len(line.get_xdata())
        for line in drawn.figure.axes[0].get_lines()
        if line.get_marker() in "v^"
    )
    assert marks == 10 * RESULTS["untrained_groups"].sizes["seed"]
