"""Every figure of the chapter draws what it is given: the numbers, the arrows, each seed."""

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from measured_book.rooms.heads import figures
from xarray import Dataset

RNG = np.random.default_rng(0)
SEEDS = 3


def dataset(names, **coords):
    axes = ("seed", *coords)
    shape = (SEEDS, *map(len, coords.values()))
    variables = {name: (axes, RNG.random(shape)) for name in names}
    return Dataset(variables, coords={name: list(values) for name, values in coords.items()})


def shows(axes, x, rows):
    drawn = [
        (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.get_lines()
    ]
    return all(
        any(len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y) for px, py in drawn)
        for y in (*rows, rows.mean(0))
    )


def test_the_block_product_shows_factors_terms_and_sum():
    outputs = [np.array([[2.0], [1.0]]), np.array([[3.0, 0.5], [-1.0, 4.0]])]
    blocks = [np.array([[1.0, 0.0]]), np.array([[1.0, 2.0], [7.0, 9.0]])]
    whole = outputs[0] @ blocks[0] + outputs[1] @ blocks[1]
    drawn = figures.plot_block_product(outputs, blocks)
    assert drawn.dark != drawn.light
    for axes in drawn.figure.axes:
        shown = [text.get_text() for text in axes.texts]
        for matrix in (*outputs, *blocks, whole):
            for number in matrix.flatten():
                assert f"{number:g}".replace("-", "\N{MINUS SIGN}") in shown
    assert [t.get_text() for t in drawn.figure.axes[1].texts].count("+") == 1
    with pytest.raises(ValueError, match="got 2 and 1"):
        figures.plot_block_product(outputs, blocks[:1])


@pytest.mark.parametrize(("use", "arrows"), [("q", 4), ("k", 4), ("v", 4)])
def test_chains_show_the_looks_that_matter(use, arrows):
    earlier = np.diag(np.ones(3), -1)
    earlier[0, 0] = 1
    later = np.zeros((4, 4))
    later[3, [1, 2]] = 0.5
    if use == "q":
        earlier[3] = [0.5, 0, 0.5, 0]
    else:
        later[3] = [0, 0.9, 0.1, 0]
    drawn = figures.plot_chains("abca", {"way": (earlier, later, use)}, place=3)
    found = [p for p in drawn.figure.axes[0].patches if isinstance(p, FancyArrowPatch)]
    assert len(found) == arrows
    assert "way" in [text.get_text() for text in drawn.figure.axes[0].texts]


def test_learning_draws_every_seed_and_follows_one_head_for_longer():
    places = dataset(("accuracy",), heads=(1, 2, 4, 8), step=(50, 100)).merge(
        dataset(("one_later",), late=(150, 200))
    )
    [axes] = figures.plot_learning(places).figure.axes
    assert shows(axes, [50, 100], places.accuracy.sel(heads=2).values)
    one = np.concatenate((places.accuracy.sel(heads=1).values, places.one_later.values), axis=1)
    assert shows(axes, [50, 100, 150, 200], one)
    assert any(np.allclose(line.get_xdata(), 100) for line in axes.get_lines())
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["1 head", "2 heads", "4 heads", "8 heads"]


def test_each_key_is_a_curve_and_named_at_its_top():
    line, circle = RNG.random((5, 3)), RNG.random((7, 4))
    panels = figures.plot_line_and_circle(line, circle, 2.0).figure.axes
    for axes, weights, ends in zip(panels, (line, circle), ((-2, 2), (0, 360)), strict=True):
        drawn = [curve.get_ydata() for curve in axes.get_lines()]
        np.testing.assert_allclose(np.array(drawn).T, weights)
        assert tuple(axes.get_xlim()) == ends
        for key, text in enumerate(axes.texts):
            assert text.get_text() == f"{key + 1}"
            assert text.get_position()[1] == pytest.approx(weights[:, key].max() + 0.03)


COUNTS = dataset(("accuracy", "loss"), task=("recall", "text"), heads=(1, 2, 4))


def test_head_counts_have_a_panel_a_task():
    panels = figures.plot_head_counts(COUNTS).figure.axes
    for axes, task in zip(panels, ("recall", "text"), strict=True):
        assert axes.get_xscale() == "log"
        assert axes.get_title(loc="right") == task
        assert shows(axes, [1, 2, 4], COUNTS.loss.sel(task=task).values)


DEEP = {"deep": ("learned", "rotary")}
INDUCTION = (
    dataset(
        ("previous", "prefix"), **DEEP, state=("untrained", "trained"), layer=(0, 1), head=(0, 1)
    )
    .merge(dataset(("cut",), **DEEP, path=("q", "k", "v", "all", "direct")))
    .merge(dataset(("accuracy",), arm=("learned", "rotary", "one layer")))
)


def test_every_head_of_every_seed_is_a_dot():
    panels = figures.plot_roles(INDUCTION).figure.axes
    for axes, arm in zip(panels, DEEP["deep"], strict=True):
        clouds = {line.get_label(): line for line in axes.get_lines()}
        for state, ending in (("untrained", ", untrained"), ("trained", "")):
            for layer in (0, 1):
                of = INDUCTION.sel(deep=arm, state=state, layer=layer)
                cloud = clouds[f"layer {layer}{ending}"]
                np.testing.assert_allclose(cloud.get_xdata(), of.previous.values.ravel())
                np.testing.assert_allclose(cloud.get_ydata(), of.prefix.values.ravel())


def strips(axes):
    """The dots of every row of a strip, by name."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    dots = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"]
    return dict(zip(names, dots, strict=True))


def test_a_row_a_path_with_a_dot_a_seed():
    panels = figures.plot_cuts(INDUCTION).figure.axes
    for axes, arm in zip(panels, DEEP["deep"], strict=True):
        rows = strips(axes)
        assert list(rows) == list(figures.PATHS.values())
        np.testing.assert_allclose(rows["nothing"], INDUCTION.accuracy.sel(arm=arm))
        np.testing.assert_allclose(rows["to keys"], INDUCTION.cut.sel(deep=arm, path="k"))


def test_interactions_are_rows_by_depth():
    pairs = dataset(("one_layer",), depth=(1, 2, 6)).merge(dataset(("two_layers",), deep=(2, 6)))
    [axes] = figures.plot_interactions(pairs, allowed=0.1).figure.axes
    rows = strips(axes)
    assert len(rows) == 5
    np.testing.assert_allclose(rows["same layer, of six layers"], pairs.one_layer.sel(depth=6))
    np.testing.assert_allclose(rows["different ones, of two layers"], pairs.two_layers.sel(deep=2))
    assert any(np.allclose(line.get_xdata(), 0.1) for line in axes.get_lines())
