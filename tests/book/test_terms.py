"""The first mention of a term on a numbered page, linked to the glossary."""

from __future__ import annotations

import pytest
import tiny_pages
from bookpress.sphinx.terms import MOST, ordered, pattern_of
from hypothesis import given
from hypothesis import strategies as st

GLOSSARY = """\
---
measured: {unlinked: [Token]}
---

# Glossary

```{glossary}
Attention
  A weighted mean, see below.

Attention sink
  A token that gets what is left over; see {ref}`nothing to read <nothing>`.

Pre-norm
  A norm before each sublayer; see {doc}`norms`.

Query
  What a position asks with. It is compared with keys.

Token
  What a model reads.
```

A query on the glossary's own page.
"""
PAGE = """\
# On attention

Pre-attention, attentional and `attention` are other words, and [attention](glossary.md) is a link.
$attention$ is a formula.

:::{note}
Attention in a note.
:::

:::{exercise}
Attention in an exercise.
:::

| attention |
|---|
| queries |

> *Attention*, attention, tokens, then attention
> sinks: all with a pre-norm.

- The queries of attention, the query of a sink.

## Pre-norm

A Pre-norm, again.
"""
CALM = "# Norms\n\nPre-norm and post-norm.\n\n(nothing)=\n## Nothing\n\nAn attention sink and a query.\n"


def glossed(root, glossary=GLOSSARY):
    book = tiny_pages.make(root)
    book.write(
        "index.md",
        "# Tiny\n\nAttention on the front page.\n\n"
        "```{toctree}\n:numbered:\npage\nnorms\n```\n\n```{toctree}\nglossary\nother\n```\n",
    )
    book.write("glossary.md", glossary)
    book.write("page.md", PAGE)
    book.write("norms.md", CALM)
    book.write("other.md", "# Another\n\nAttention on a page without a number.\n")
    return book


def links(book, name):
    return {
        " ".join(link.get_text().split()): link
        for link in book.page(name).select("article a.term-link")
    }


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    found = glossed(tmp_path_factory.mktemp("terms"))
    assert found.build() == []
    return found


def test_first_mentions_in_running_text_are_linked_once(book):
    found = links(book, "page")
    assert list(found) == ["Attention", "attention sinks", "pre-norm", "queries"]
    assert found["Attention"]["href"] == "glossary.html#term-Attention"
    assert all(link.find_parent(["blockquote", "li"]) for link in found.values())
    assert len(book.page("page").select("a.term-link")) == len(found)
    assert book.page("glossary").select_one("#term-Attention") is not None


def test_a_link_shows_what_the_glossary_says_first(book):
    assert {words: link["title"] for words, link in links(book, "page").items()} == {
        "Attention": "A weighted mean, see below.",
        "attention sinks": "A token that gets what is left over.",
        "pre-norm": "A norm before each sublayer.",
        "queries": "What a position asks with.",
    }


def test_a_page_that_explains_a_term_itself_is_not_led_away(book):
    """By a document's name, and by a label."""
    assert list(links(book, "norms")) == ["query"]


@pytest.mark.parametrize("name", ["index", "glossary", "other"])
def test_pages_without_a_number_are_left_alone(book, name):
    assert not links(book, name)


def test_a_changed_glossary_reaches_pages_that_did_not_change(tmp_path):
    book = glossed(tmp_path)
    assert book.build() == []
    book.write("glossary.md", GLOSSARY.replace("[Token]", "[Token, Query]"))
    assert book.build() == []
    assert "queries" not in links(book, "page")
    assert not links(book, "norms")


def test_a_page_has_only_so_many_links(tmp_path):
    names = [f"{letter}{letter}term" for letter in "abcdefghijklmnopqrst"]
    entries = "\n".join(f"{name}\n  A word.\n" for name in names)
    book = glossed(tmp_path, f"# Glossary\n\n```{{glossary}}\n{entries}```\n")
    book.write("page.md", f"# Many\n\n{' '.join(names)}\n")
    assert book.build() == []
    assert list(links(book, "page")) == names[:MOST]


def test_an_entry_with_several_names_is_linked_once_by_the_first_that_is_used(tmp_path):
    names = "Attention sink\n  A token that gets what is left over"
    assert names in GLOSSARY
    book = glossed(tmp_path, GLOSSARY.replace(names, names.replace("\n", "\nRest\nIdle key\n", 1)))
    book.write(
        "page.md", "# Several\n\nAn idle key, a rest, then attention sinks and an idle key.\n"
    )
    assert book.build() == []
    found = links(book, "page")
    assert list(found) == ["idle key"]
    assert found["idle key"]["href"] == "glossary.html#term-Idle-key"
    assert found["idle key"]["title"] == "A token that gets what is left over."


def test_an_unlinked_term_that_the_glossary_does_not_have_is_complained_of(tmp_path):
    book = glossed(tmp_path, GLOSSARY.replace("[Token]", "[Tokens]"))
    (warning,) = book.build()
    assert "unlinked: Tokens is not in the glossary" in warning


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("two batches", ["batches"]),
        ("Losses, a loss", ["Losses", "loss"]),
        ("queries and a query", ["queries", "query"]),
        ("the query's answer", ["query"]),
        ("key-value caches keep keys", ["key-value caches", "keys"]),
        ("a monkey, keyed, non-key, key-like", []),
    ],
)
def test_whole_words_are_found_alone_and_in_their_plural(text, found):
    pattern = pattern_of(["Batch", "Loss", "Query", "Key", "Key-value cache"])
    assert [match[0] for match in pattern.finditer(text)] == found


@given(st.lists(st.text("abxy", min_size=1, max_size=4), min_size=1, unique=True))
def test_every_term_is_found_by_its_own_name(terms):
    pattern = pattern_of(terms)
    for term in terms:
        match = pattern.fullmatch(term)
        assert match is not None
        found = ordered(terms)[(match.lastindex or 0) - 1]
        assert len(found) <= len(term) + 1
