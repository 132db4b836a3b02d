"""Figures on activations and widths draw every seed of what was measured."""

import numpy as np
from measured_book.evidence.results import load_results
from measured_book.rooms.activations_and_widths import figures, measure, reading

RESULTS = load_results("activations_and_widths")


def of_lines(axes, which):
    """All heights ('y') or places ('x') of what is drawn on some axes."""
    lines = [getattr(line, f"get_{which}data")() for line in axes.get_lines()]
    return np.concatenate([np.asarray(values, float) for values in lines])


def test_each_activation_multiplies_in_a_panel_of_its_own():
    drawn = figures.plot_products_by_hand()
    titles = [axes.get_title(loc="right") for axes in drawn.figure.axes]
    assert titles == ["ReLU", "GELU", "squared ReLU", "SwiGLU"]
    assert drawn.light != drawn.dark
    # Along a line of equal height the product itself is that high only where it is computed exactly.
    worst = []
    for axes in drawn.figure.axes:
        written = axes.collections[1]
        off = [
            np.abs(path.vertices.prod(1) - level).max()
            for level, path in zip(written.levels, written.get_paths(), strict=True)
            if level and len(path.vertices)
        ]
        worst.append(max(off))
    assert min(worst[:2]) > 0.5
    assert max(worst[2:]) < 0.01


def test_every_learned_product_is_drawn_at_the_rate_that_was_chosen_for_it():
    multiplied = RESULTS["multiplied"]
    (axes,) = figures.plot_learned_products(multiplied).figure.axes
    errors = np.exp(reading.log_errors(multiplied).values)
    heights = of_lines(axes, "y")
    assert np.isclose(errors.ravel()[:, None], heights, rtol=1e-9).any(1).all()
    assert {text.get_text() for text in axes.texts} == set(figures.KIND_NAMES.values())


def test_losses_on_text_are_drawn_less_those_of_relu():
    text = RESULTS["text"]
    (axes,) = figures.plot_text(text).figure.axes
    for kind in measure.READ[1:]:
        less = (text.loss.sel(kind=kind) - text.loss.sel(kind="relu")).values
        assert np.isin(less, of_lines(axes, "x")).all()
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert np.allclose([band.x0, band.x1], [-0.02, 0.02])


def test_widths_and_facts_are_drawn_with_every_seed():
    widths, facts = RESULTS["widths"], RESULTS["facts"]
    above, below = figures.plot_widths(widths, facts).figure.axes
    assert np.isin(widths.loss.values, of_lines(above, "y")).all()
    assert np.isin(facts.bits.values, of_lines(below, "x")).all()
