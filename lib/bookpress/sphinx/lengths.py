"""How long chapters are to read: words of visible prose, told when the book is printed.

Prose is what stands in paragraphs and lists. What is folded, code and its output, tables, captions, claims,
exercises and the list of further reading are apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from bookpress.sphinx.nodes import (
    cite_box,
    claim_line,
    claims_list,
    figure_data,
    fold,
    ran_line,
)
from bookpress.sphinx.rooms import room_of

LIMIT = 3000
"""Words that a chapter may have."""
LONGER = {
    "book/attention/at-inference": 3500,
    "book/attention/cost": 3500,
    "book/feed-forward/facts": 3500,
    "book/feed-forward/superposition": 3500,
    "book/positions/extrapolation": 3500,
    "book/positions/rotary-and-alibi": 3500,
}
"""Chapters with more to say, and their limits."""
WORDS = "measured_words"
"""Page metadata: the words of a chapter's prose."""
_APART = (
    nodes.caption,
    nodes.figure,
    nodes.footnote,
    nodes.table,
    cite_box,
    claim_line,
    claims_list,
    figure_data,
    fold,
    ran_line,
)
_APART_BY_NAME = ("exercise", "solution")  # of sphinx_exercise, whose nodes are not ours to import
_FOLDED = {"cell", "cell_output", "dropdown", "toggle", "claim-measured", "carry-table"}
_WORD = re.compile(r"[^\W_][\w'\u2019.,-]*")
_log = logging.getLogger(__name__)


def words_of(document: nodes.Node) -> int:
    """Count the words of a page's visible prose; a formula, a number and a reference count, too."""
    return sum(
        _count(paragraph)
        for paragraph in document.findall(nodes.paragraph)
        if not _stands_apart(paragraph)
    )


def told(words: Mapping[str, int]) -> str:
    """Say how long chapters are, and which are longer than they may be.

    Args:
        words: of the chapters, by their names.
    """
    mean = sum(words.values()) / len(words)
    most = max(words, key=lambda name: words[name])
    longest = f"{words[most]:,} in the longest ({most})"
    found = f"prose: {len(words)} chapters, {mean:,.0f} words in the mean, {longest}"
    over = sorted(
        ((words[name] - limit_of(name), name) for name in words if words[name] > limit_of(name)),
        reverse=True,
    )
    if over:
        named = ", ".join(f"{name} by {many:,}" for many, name in over)
        found += f"; over the limit are {len(over)}: {named}"
    return found


def limit_of(name: str) -> int:
    """How many words of prose a chapter may have."""
    return LONGER.get(name, LIMIT)


def _stands_apart(node: nodes.Element) -> bool:
    above = node.parent
    while above is not None:
        if isinstance(above, _APART) or type(above).__name__.startswith(_APART_BY_NAME):
            return True
        if isinstance(above, nodes.Element):
            folded = _FOLDED.intersection(above.get("classes", ()))
            if folded or above.get("design_component") == "dropdown":
                return True
            if (
                isinstance(above, nodes.section)
                and above["names"]
                and above["names"][0].startswith(("exercises", "further reading"))
            ):
                return True
        above = above.parent
    return False


def _count(paragraph: nodes.paragraph) -> int:
    text = "".join(
        " x " if isinstance(one, nodes.math) else one.astext()
        for one in paragraph.findall(lambda n: isinstance(n, nodes.Text | nodes.math))
        if not isinstance(one.parent, nodes.math)
    )
    return len(_WORD.findall(text))


def _keep(app: Sphinx, document: nodes.document) -> None:
    env = app.env
    if room_of(env) is not None:
        env.metadata[env.docname][WORDS] = words_of(document)


def _tell(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.env is not None:
        found = {name: about[WORDS] for name, about in app.env.metadata.items() if WORDS in about}
        if found:
            _log.info(told(found))


def setup(app: Sphinx) -> None:
    """Count the words of each page, and tell at the end."""
    app.connect("doctree-read", _keep)
    app.connect("build-finished", _tell)
