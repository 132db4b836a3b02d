"""Which results a figure shows, followed through the code of its page."""

from __future__ import annotations

import pytest
from bookpress.sphinx.shown_data import Source, read_spec, shown

LOAD = 'one = load_result("a-room", "one")'


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([LOAD, "plot(one)"], {Source("a_room", "one")}),
        ([LOAD, "plot(one.accuracy)"], {Source("a_room", "one", "accuracy")}),
        ([LOAD, "plot(one['accuracy'])"], {Source("a_room", "one", "accuracy")}),
        ([LOAD, "x = one.accuracy.mean('seed')", "plot(x)"], {Source("a_room", "one", "accuracy")}),
        ([LOAD, "x, y = one.loss, 1\nplot(y)"], {Source("a_room", "one", "loss")}),
        (["r = load_results('a')", "plot(r['two'].loss)"], {Source("a", "two", "loss")}),
        (["R = 'a'\ntwo = load_result(R, name='two')", "plot(two)"], {Source("a", "two")}),
        ([LOAD, "def draw():\n    return plot(one)", "draw()"], {Source("a_room", "one")}),
        ([LOAD, "for v in one.loss:\n    x = v\nplot(x)"], {Source("a_room", "one", "loss")}),
        ([LOAD, "plot([1, 2])"], set()),
        ([LOAD, "%matplotlib inline\nplot(one)"], {Source("a_room", "one")}),
        ([LOAD, "!ls\nthis is no code"], set()),
        ([LOAD, "one = 3", "plot(one)"], set()),
    ],
)
def test_names_are_followed(cells, expected):
    assert shown(cells)[-1] == expected


def test_what_a_cell_declares():
    assert read_spec("one", "here") == Source("here", "one")
    assert read_spec("one.loss", "here") == Source("here", "one", "loss")
    assert read_spec("there/one.loss", "here") == Source("there", "one", "loss")
    with pytest.raises(ValueError, match="expected measurement"):
        read_spec("one two", "here")
