"""Tables as text and as HTML."""

from __future__ import annotations

import re

import pytest
from measured_transformer.viewer.table import Table


def test_columns_are_aligned_as_a_terminal_shows_them():
    table = Table(("a", "long name", "c"), (("日本", "x", "1"), ("e\u0301", "", "22")))
    assert repr(table) == "a     long name  c\n日本  x          1\ne\u0301                22"


def test_html_has_a_cell_for_each_and_lets_nothing_through():
    html = Table(("<i>",), (("&<script>",), ("x",)))._repr_html_()
    assert re.findall(r"<td><bdi>(.*?)</bdi></td>", html) == ["&amp;&lt;script&gt;", "x"]
    assert '<th scope="col">&lt;i&gt;</th>' in html


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"expected 2 cells in a row, got 1"):
        Table(("a", "b"), (("1",),))


def test_an_empty_table_has_its_head():
    assert repr(Table(("a", "b"), ())) == "a  b"
