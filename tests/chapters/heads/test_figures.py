"""Every figure of the chapter draws what it is given: the numbers, the arrows, each seed."""

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from measured_transformer.chapters.heads import figures

RNG = np.random.default_rng(0)
TABLE = RNG.random((3, 5))


def lines(axes):
    return [
        (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.get_lines()
    ]


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


def test_circuits_are_drawn_over_the_parts_of_the_stream():
    forms, product = RNG.normal(size=(2, 6, 6)), RNG.normal(size=(2, 2))
    parts = {"token": (0, 2), "place": (2, 6)}
    drawn = figures.plot_induction_circuits(*forms, product, parts=parts, tokens="ab")
    images = [np.asarray(axes.images[0].get_array()) for axes in drawn.figure.axes[:3]]
    for image, matrix in zip(images, (*forms, product), strict=True):
        np.testing.assert_allclose(image, matrix)
    first = drawn.figure.axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == list(parts)
    assert [label.get_text() for label in drawn.figure.axes[2].get_xticklabels()] == ["a", "b"]


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


def test_learning_draws_every_seed_also_of_arms_that_end_early():
    curves = {"one head": TABLE, "two heads": TABLE[:, :3]}
    steps = np.arange(1, 6) * 10
    drawn = figures.plot_learning(steps, curves, judged=30, chance=0.2)
    axes = drawn.figure.axes[0]
    for values in curves.values():
        for row in (*values, values.mean(0)):
            assert any(len(y) == len(row) and np.allclose(y, row) for _, y in lines(axes))
    assert any(np.allclose(x, 30) for x, _ in lines(axes))
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == list(curves)


def test_head_counts_have_a_panel_a_task():
    drawn = figures.plot_head_counts((1, 2, 4, 8, 16), {"a": TABLE, "b": TABLE + 1})
    first, second = drawn.figure.axes
    for axes, values in ((first, TABLE), (second, TABLE + 1)):
        assert axes.get_xscale() == "log"
        for row in (*values, values.mean(0)):
            assert any(len(y) == len(row) and np.allclose(y, row) for _, y in lines(axes))
    assert first.get_title(loc="right") == "a"


def test_interactions_show_shares_and_pairs():
    shares = {"one layer": TABLE[0], "two layers": TABLE[1]}
    drawn = figures.plot_interactions(shares, TABLE[0], TABLE[2], baseline=0.125, allowed=0.1)
    above, below = drawn.figure.axes
    for row in shares.values():
        assert any(len(x) == len(row) and np.allclose(x, row) for x, _ in lines(above))
    assert any(np.allclose(x, 0.1) for x, _ in lines(above))
    assert any(
        len(y) == 5 and np.allclose(x, TABLE[0]) and np.allclose(y, TABLE[2])
        for x, y in lines(below)
    )
    assert any(np.allclose(x, 0.125) for x, _ in lines(below))
