"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.layers_as_steps import figures

RESULTS = load_results("layers_as_steps")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_edits, ["twelve"]),
        (figures.plot_agreement, ["twelve"]),
        (figures.plot_repair, ["twelve"]),
        (figures.plot_suppression, ["suppressing"]),
        (figures.plot_read_off, ["readings"]),
        (figures.plot_idle, ["six"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_two_teams_are_drawn_as_they_walk():
    teams = {
        "refiners": {"whole": [8, 4, 2], "one skipped": [8, 4]},
        "relay": {"whole": [8, 8, 0], "one skipped": [8, 8]},
    }
    figure = figures.plot_two_teams(teams).figure
    for panel, walks in zip(figure.axes, teams.values(), strict=True):
        assert [list(line.get_ydata()) for line in panel.lines] == list(walks.values())


def test_every_seed_of_an_edit_is_a_line():
    twelve = RESULTS["twelve"]
    figure = figures.plot_edits(twelve).figure
    for panel, task in zip(figure.axes, figures.NAMES, strict=True):
        drawn = [np.asarray(line.get_ydata()) for line in panel.lines]
        for row in twelve.skip.sel(task=task).values:
            assert any(len(y) == len(row) and np.allclose(y, row) for y in drawn)


def test_every_silenced_sublayer_of_every_seed_is_a_mark():
    twelve = RESULTS["twelve"]
    figure = figures.plot_repair(twelve).figure
    marks = sum(len(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) > 2)
    assert marks == twelve.sizes["seed"] * twelve.sizes["sublayer"]


def test_lengths_and_losses_show_each_sublayer():
    lookups = RESULTS["lookups"]
    agreement = lookups.agreement.mean("model")
    figure = figures.plot_lengths_and_losses(lookups, agreement, bound=0.7).figure
    marks = sum(len(line.get_xdata()) for line in figure.axes[0].lines)
    assert marks == lookups.zero_four.size + lookups.zero_six.size
