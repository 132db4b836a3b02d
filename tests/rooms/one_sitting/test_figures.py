"""Every figure of the chapter draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.one_sitting import figures, measure
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("one_sitting")
SCORES = np.array([[0.0, 1.1, 2.2], [1.1, 0.0, 1.1], [0.0, 1.1, 0.0]])
DRAWN = {
    "plot_machine": lambda: figures.plot_machine(3),
    "plot_head": lambda: figures.plot_head(SCORES, np.tril(np.ones((3, 3))) / 3, list("the")),
    "plot_tables": lambda: figures.plot_tables(RESULTS["tables"]),
    "plot_learning": lambda: figures.plot_learning(RESULTS["sitting"], RESULTS["tables"], 103),
    "plot_by_position": lambda: figures.plot_by_position(RESULTS["sitting"], RESULTS["tables"]),
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


def words(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_machine_names_every_part_once_and_says_how_many_layers() -> None:
    told = words(figures.plot_machine(3).figure.axes[0])
    for part in ("embedding", "attention", "feed-forward", "unembedding", "softmax"):
        assert told.count(part) == 1
    assert told.count("norm") == 3
    assert told.count("+") == 2
    assert "3 \N{MULTIPLICATION SIGN}" in told


def test_what_lies_ahead_is_struck_out_and_nothing_else() -> None:
    panels = figures.plot_head(SCORES, np.tril(np.ones((3, 3))) / 3, list("the")).figure.axes
    shown = [np.array(words(axes)[:9]).reshape(3, 3) for axes in panels]
    ahead = np.triu(np.ones((3, 3), dtype=bool), 1)
    assert not (shown[0] == "$-\\infty$").any()
    assert ((shown[1] == "$-\\infty$") == ahead).all()
    assert (shown[2][ahead] == "0").all()
    assert (shown[2][~ahead] == "0.33").all()


def test_the_model_is_drawn_with_all_its_seeds_and_the_tables_as_they_are() -> None:
    sitting, tables = RESULTS["sitting"], RESULTS["tables"]
    curves = figures.plot_learning(sitting, tables, 103).figure.axes[0].lines
    drawn = [np.asarray(line.get_ydata()) for line in curves]
    for seed in sitting.curve.transpose("seed", "step").values:
        assert any(line.shape == seed.shape and np.allclose(line, seed) for line in drawn)
    lines = figures.plot_by_position(sitting, tables).figure.axes[0].lines
    counted = tables.loss.sel(part="validation").isel(seed=0).values[1:]
    assert np.allclose(lines[-1].get_ydata(), counted)
    last = sitting.by_position.sel(position=slice(33, 64)).mean("position").values
    assert [line.get_ydata()[-1] for line in lines[: len(last)]] == pytest.approx(list(last))


def test_the_places_of_a_window_are_drawn_once_each() -> None:
    ends = figures._PLACES
    covered = [place for first, last in ends for place in range(first, last + 1)]
    assert covered == list(range(1, measure.LENGTH + 1))
