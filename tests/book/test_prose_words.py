"""No page in the new form is longer than an evening allows."""

from __future__ import annotations

from pathlib import Path

import prose_words
import pytest
from bookpress.sphinx.rooms import declared

BOOK = Path(__file__).parents[2] / "book"
MOST = 4500
IN_ROOMS = {
    path.relative_to(BOOK).as_posix(): path
    for path in sorted(BOOK.rglob("*.md"))
    if declared(path.read_text("utf-8"))
}


def test_no_page_of_a_room_is_too_long():
    counted = {name: prose_words.count(path.read_text("utf-8")) for name, path in IN_ROOMS.items()}
    assert {name: words for name, words in counted.items() if words > MOST} == {}


def test_every_page_of_a_room_has_lab_notes():
    missing = [
        name for name in IN_ROOMS if not (BOOK / "about/lab-notes" / Path(name).name).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\ntitle: no word of it\n---\n\nOne two three.\n", 3),
        ("It is {measured}`a.b[arm=c]|mean:.2f` or {claim}`what they say <DA-2.8>`.\n", 7),
        ("A $x + y$ of mine.\n\n$$\na + b\n$$\n", 5),
        ("Two words\n\n```{code-cell} ipython3\nprint('no words at all')\n```\n", 2),
        ("````{exercise} By hand\n:label: ex\n\nShow it.\n\n```python\nno = 1\n```\n````\n", 4),
        (":::{note}\nSee [this page](https://somewhere.org/of/ours).\n:::\n", 3),
        ("```{claim} DA-2.8\nNo word.\n```\n\n(a-label)=\n# Head\n", 1),
    ],
)
def test_words_of_prose_are_counted(text, words):
    assert prose_words.count(text) == words
