"""The figure on tables of facts draws the counts that it is given."""

import numpy as np
from measured_book.figures.fact_tables import plot_stored
from measured_transformer.analysis.fact_counts import Stored


def lines(axes):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.get_lines()
    ]


def test_every_count_is_drawn_with_the_tables_that_were_tried():
    found = {
        "much": [Stored(40, {40: 1.0, 57: 0.5}, False), Stored(57, {40: 0.99, 57: 1.0}, True)],
        "little": [Stored(20, {40: 0.2, 28: 0.5, 20: 1.0}, False)] * 2,
    }
    drawn = plot_stored(found, {"much": "ffn", "little": "none"})
    above, below = drawn.figure.axes
    shown = lines(above)
    for counts in found.values():
        for one in counts:
            x, y = zip(*sorted(one.tried.items()), strict=True)
            assert any(np.array_equal(a, x) and np.array_equal(b, y) for a, b in shown)
    assert any(np.allclose(y, 0.99) for _, y in shown)
    assert any(np.array_equal(np.sort(x), [40, 57]) for x, _ in lines(below))
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["20", "28", "40", "57"]
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["much", "little"]
