"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.facts import figures
from measured_book.rooms.facts.measure import BLOCKS, JUDGED, SILENCED

RESULTS = load_results("facts")


def lines(axes):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.get_lines()
    ]


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_shares_recalled, ["stored"]),
        (figures.plot_recall_left, ["inside_one_block"]),
        (figures.plot_answers_lost, ["inside_one_block"]),
        (figures.plot_traced, ["traced"]),
        (figures.plot_places, ["traced", "places"]),
        (figures.plot_many, ["many"]),
        (figures.plot_ripples, ["ripples"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_neurons_stand_in_rows_and_facts_in_columns():
    written, learned = np.eye(3), np.arange(8.0).reshape(2, 4) / 7
    drawn = figures.plot_who_fires(written, learned)
    images = [axes.images[0].get_array() for axes in drawn.figure.axes[:2]]
    assert np.array_equal(images[0], written)
    assert np.array_equal(images[1], learned.T)


def test_recall_is_drawn_for_every_seed_and_the_judged_number_is_marked():
    axes = figures.plot_recall_left(RESULTS["inside_one_block"]).figure.axes[0]
    shown = [y for _, y in lines(axes) if len(y) == len(SILENCED)]
    for name in ("own", "others", "drawn"):
        for row in RESULTS["inside_one_block"][name].transpose("seed", "silenced").values:
            assert any(np.allclose(row, y) for y in shown)
    assert any(np.array_equal(x, [SILENCED.index(JUDGED)] * 2) for x, _ in lines(axes))


def test_every_cell_of_tracing_says_its_mean():
    figure = figures.plot_traced(RESULTS["traced"]).figure
    effect = RESULTS["traced"].effect.mean("seed")
    for axes, value in zip(figure.axes, effect.value.values, strict=True):
        one = effect.sel(value=value).transpose("position", "block").values
        told = {tuple(map(int, t.get_position())): t.get_text() for t in axes.texts}
        for (i, j), text in told.items():
            assert float(text.split("\n")[0]) == pytest.approx(one[i, j], abs=0.0051)
        assert len(told) == one.size


def test_every_model_is_a_mark_at_every_place():
    left = figures.plot_places(RESULTS["traced"], RESULTS["places"]).figure.axes[0]
    marks = [(x, y) for x, y in lines(left) if len(x) == RESULTS["places"].sizes["seed"]]
    assert len(marks) == 2 * len(BLOCKS)
    done = RESULTS["places"].done.sel(site="last name", block=1).values
    assert any(np.array_equal(done, y) for _, y in marks)


def test_what_follows_has_a_row_for_each_question():
    figure = figures.plot_ripples(RESULTS["ripples"]).figure
    for axes in figure.axes:
        assert [t.get_text() for t in axes.get_yticklabels()] == list(figures.ROUTES.values())
