"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.pieces import figures
from measured_book.rooms.pieces.measure import STEPS
from measured_transformer.variants.component_ablation import PIECES
from measured_transformer.viewer.style import COLOURS, ThemedFigure

RESULTS = load_results("pieces")
FLOORS = {
    "reversal": {"no attention": 2.4, "no positions": 1.1},
    "recall": {"a": 1.3},
    "text": {"b": 2.3},
}


def drawn(name: str) -> ThemedFigure:
    """The figure of this name from the kept results."""
    both = (RESULTS["puzzles"], RESULTS["text"])
    more = {"plot_ranking": (*both, FLOORS), "plot_learning_curves": (*both, STEPS)}
    given = () if name == "plot_five_models" else more.get(name, both)
    return getattr(figures, name)(*given)


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float)) for x in axes.lines
    ]


@pytest.mark.parametrize(
    "name", ["plot_five_models", "plot_ranking", "plot_learning_curves", "plot_needed"]
)
def test_figures_are_drawn_for_day_and_night(name):
    figure = drawn(name)
    assert figure.light.startswith(b"\x89PNG")
    assert figure.light != figure.dark


def test_every_piece_has_a_name_and_a_colour():
    assert set(figures.ARMS) == {"whole", *PIECES}
    concepts = {concept for concept, _ in figures.ARMS.values()}
    assert len(concepts) == len(figures.ARMS)
    assert concepts <= set(COLOURS)


def test_six_models_are_drawn_and_named():
    panels = drawn("plot_five_models").figure.axes
    assert len(panels) == 6
    written = [{text.get_text() for text in axes.texts} for axes in panels]
    titles = [axes.get_title() for axes in panels]
    assert titles[0] == "whole"
    for piece in ("attention", "positions", "feed-forward"):
        at = titles.index(f"without {piece}")
        assert piece not in written[at]
        assert all(piece in found for i, found in enumerate(written) if i != at)
    assert "norm" not in written[titles.index("without norms")]


def test_ranking_sorts_by_the_mean_and_shows_seeds_and_floors():
    panels = drawn("plot_ranking").figure.axes
    for axes, task in zip(panels, ("reversal", "recall", "text"), strict=True):
        loss = RESULTS["text" if task == "text" else "puzzles"].loss.sel(task=task)
        wanted = sorted(figures.ARMS, key=lambda arm: float(loss.sel(arm=arm).mean()))
        labels = [t.get_text() for t in axes.get_yticklabels()]
        assert labels == [figures.ARMS[arm][1] for arm in wanted]
        for arm in wanted:
            values = loss.sel(arm=arm).values
            assert any(x.shape == values.shape and np.allclose(x, values) for x, _ in lines(axes))
        for floor in FLOORS[task].values():
            assert any(len(x) == 2 and np.allclose(x, floor) for x, _ in lines(axes))


def test_curves_show_every_seed_over_the_steps_of_their_task():
    for axes, task in zip(
        drawn("plot_learning_curves").figure.axes, ("reversal", "recall", "text"), strict=True
    ):
        result = RESULTS["text" if task == "text" else "puzzles"].sel(task=task)
        rows = result.curve.sel(arm="skip").transpose("seed", "stretch").values
        for row in (*rows, rows.mean(0)):
            (x,) = [x for x, y in lines(axes) if len(y) == len(row) and np.allclose(y, row)]
            assert x[0] + x[-1] == pytest.approx(STEPS[task])


def test_never_having_had_a_piece_stands_across_and_losing_it_upwards():
    (axes,) = drawn("plot_needed").figure.axes
    for result in (RESULTS["puzzles"], RESULTS["text"]):
        for task in result.task.values:
            here = result.sel(task=task)
            for piece in PIECES:
                built = (here.loss.sel(arm=piece) - here.loss.sel(arm="whole")).values
                taken = here.taken.sel(piece=piece).values
                for x, y in ((built, taken), (built.mean(), taken.mean())):
                    wanted = np.atleast_1d(x), np.atleast_1d(y)
                    assert any(
                        len(a) == len(wanted[0])
                        and np.allclose(a, wanted[0])
                        and np.allclose(b, wanted[1])
                        for a, b in lines(axes)
                    )
