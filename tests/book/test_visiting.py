"""Which pages are looked at most closely."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from test_pages_by_day import TestByDay as _Day
from test_pages_by_night import TestByNight as _Night
from visiting import WIDTHS, Visit, asked_of_axe, covering, kinds


def article(inner: str):
    return BeautifulSoup(f"<article>{inner}</article>", "html.parser").article


def test_a_kind_is_a_text_s_holder_and_what_is_around_it():
    same = kinds(article('<p class="b a">one</p>'))
    assert same == kinds(article('<p class="a b">two</p>'))
    assert len(kinds(article('<p class="a">one <em>two</em></p>'))) == 2
    assert not kinds(article('<div><img src="x.png"/> \n</div>')) - kinds(article(""))


@pytest.mark.parametrize(
    "other",
    [
        "<div>text</div>",
        '<p class="quiet">text</p>',
        '<p style="color: red">text</p>',
        '<div class="dark"><p>text</p></div>',
    ],
)
def test_tag_class_style_and_surroundings_tell_kinds_apart(other):
    assert kinds(article("<p>text</p>")).isdisjoint(kinds(article(other)))


words = st.text("abcdef", max_size=3)


@given(st.dictionaries(words, st.sets(st.integers(0, 9)), max_size=6))
def test_the_chosen_pages_have_every_kind_and_none_is_chosen_for_nothing(found):
    chosen = covering(found)
    everything = set().union(*found.values())
    assert set().union(*(found[page] for page in chosen)) == everything
    assert len(chosen) <= len(everything)


def test_a_page_with_a_kind_of_its_own_is_chosen_and_its_double_is_not():
    assert covering({"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {3, 4}, "d": {1}}) == {"a", "c"}


def test_contrast_is_asked_for_in_both_themes_where_kinds_are_covered():
    def asked(page, width, theme):
        return asked_of_axe(Visit(page, width, theme), {"covering"})

    assert asked("covering", "telephone", "light") == asked("covering", "desk", "dark") == {}
    assert asked("other", "desk", "dark") is None
    assert asked("other", "telephone", "light")["rules"] == {
        rule: {"enabled": False} for rule in ("color-contrast", "link-in-text-block")
    }
    assert asked("book/reference/tasks.html", "telephone", "light") is None


def test_pages_are_looked_at_in_both_widths_and_both_themes():
    looks = {*_Day.LOOKS, *_Night.LOOKS}
    assert {width for width, _ in looks} == set(WIDTHS)
    assert {theme for _, theme in looks} == {"light", "dark"}
