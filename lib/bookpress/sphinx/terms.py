"""Terms of the field, linked to the glossary where a chapter first uses them.

The glossary's own page has the say: each entry of its ``{glossary}`` is linked once on each numbered page, in
running text only, but for words so common that links would be noise, which its front matter lists:

    measured: {unlinked: [Attention, Token, "Layer, or block"]}

and but for pages that an entry leads to, which explain the term themselves. An entry may have several names,
each on a line of its own; whichever comes first on a page is linked. A link shows the entry's first clause when
pointed at. Links are made when a page is written: an edit of the glossary has no other page read anew.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import docname_join

from bookpress.chapters import front_matter
from bookpress.sphinx.page import warn

MOST = 15
"""Links on a page, beyond which further terms stay words."""
_GLOSSARY = "measured_glossary"
"""Page metadata: the terms of the page's glossary."""
_WRITTEN = "measured_glossary_written"
_AROUND = (
    nodes.section,
    nodes.bullet_list,
    nodes.enumerated_list,
    nodes.list_item,
    nodes.block_quote,
)
"""What a paragraph of running text may stand in: no note, exercise, table, caption or claim."""
_WITHIN = (nodes.emphasis, nodes.strong)
"""What a word of such a paragraph may stand in: no link, code, formula or measured value."""
_FIRST_CLAUSE = re.compile(r"^(.*?)(?:; see |[.?!](?=\s|$)|$)", re.DOTALL)

Term = Mapping[str, Any]
"""A name of an entry: the first name of that `entry`, the `id` of this one, what the entry `says`, where it
`leads` (kind and target), and whether the name is `unlinked`."""


def pattern_of(terms: Iterable[str]) -> re.Pattern[str]:
    """Return what finds terms as whole words, alone or in their plural, the longest first.

    Each group is one term, in the order of the names that `ordered` gives.
    """
    words = "|".join(f"({_forms(term)})" for term in ordered(terms))
    return re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)


def ordered(terms: Iterable[str]) -> list[str]:
    """Return terms with the longest first."""
    return sorted(terms, key=lambda term: (-len(term), term))


def _forms(term: str) -> str:
    words = r"\s+".join(map(re.escape, term.split()))
    if re.search(r"[^aeiou]y$", term):
        return rf"{words[:-1]}(?:y|ies)"
    return rf"{words}{'(?:es)?' if re.search(r'(?:s|x|z|ch|sh)$', term) else 's?'}"


# Reading the glossary -----------------------------------------------------------------------------


def _keep(app: Sphinx, doctree: nodes.document) -> None:
    """Keep the entries of a page that has a glossary."""
    found = {
        name: term
        for glossary in doctree.findall(addnodes.glossary)
        for item in glossary.findall(nodes.definition_list_item)
        for name, term in _entries(item)
    }
    if not found:
        return
    text = Path(app.env.doc2path(app.env.docname)).read_text("utf-8")
    unlinked = set((front_matter(text).get("measured") or {}).get("unlinked", ()))
    if strangers := sorted(unlinked - found.keys()):
        warn(
            f"unlinked: {', '.join(strangers)} is not in the glossary of this page; write the entry as "
            "it stands there",
            "glossary",
            doctree,
        )
    app.env.metadata[app.env.docname][_GLOSSARY] = {
        name: {**term, "unlinked": name in unlinked} for name, term in found.items()
    }


def _entries(item: nodes.definition_list_item) -> Iterator[tuple[str, Term]]:
    """Yield the names of an entry, each with what is said of it."""
    definition = next(iter(item.findall(nodes.definition)))
    clause = _FIRST_CLAUSE.match(" ".join(definition.astext().split()))
    leads = [
        (xref["reftype"], xref["reftarget"]) for xref in definition.findall(addnodes.pending_xref)
    ]
    says = clause[1] if clause else ""
    terms = list(item.findall(nodes.term))
    for term in terms:
        yield (
            term.astext(),
            {
                "entry": terms[0].astext(),
                "id": term["ids"][0],
                "says": f"{says}.",
                "leads": leads,
            },
        )


# Linking ------------------------------------------------------------------------------------------


class LinkTerms(SphinxPostTransform):
    """Link the first mention of each term on a numbered page."""

    default_priority = 20
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Link the page's terms, in the order of the text."""
        docname = self.env.docname
        glossary, terms = glossary_of(self.env)
        if not self.env.toc_secnumbers.get(docname) or docname == glossary:
            return
        if not terms:
            return
        uri = self.app.builder.get_relative_uri(docname, glossary)
        names, pattern = ordered(terms), pattern_of(terms)
        done = {
            term["entry"] for term in terms.values() if docname in _led_to(self.env, glossary, term)
        }
        most = len(done) + MOST

        def linked(text: str) -> Iterator[nodes.Node]:
            end = 0
            for match in pattern.finditer(text):
                name = names[(match.lastindex or 0) - 1]
                entry = terms[name]["entry"]
                if terms[name]["unlinked"] or entry in done or len(done) == most:
                    continue
                done.add(entry)
                if end < match.start():
                    yield nodes.Text(text[end : match.start()])
                link = nodes.reference("", match[0], internal=True, classes=["term-link"])
                link["refuri"] = f"{uri}#{terms[name]['id']}"
                link["reftitle"] = terms[name]["says"]
                yield link
                end = match.end()
            if end < len(text):
                yield nodes.Text(text[end:])

        for paragraph in list(_running(self.document)):
            _replace_words(paragraph, linked)


def glossary_of(env: BuildEnvironment) -> tuple[str, Mapping[str, Term]]:
    """Return the page of the glossary and the terms in it; none where there is none."""
    pages = (name for name in sorted(env.found_docs) if env.metadata[name].get(_GLOSSARY))
    page = next(pages, "")
    return page, env.metadata[page][_GLOSSARY] if page else {}


def _led_to(env: BuildEnvironment, glossary: str, term: Term) -> Iterator[str]:
    """Yield the pages that explain a term."""
    labels = env.get_domain("std").data["anonlabels"]
    for kind, target in term["leads"]:
        if kind == "doc":
            yield docname_join(glossary, target)
        elif target in labels:
            yield labels[target][0]


def _running(document: nodes.document) -> Iterator[nodes.paragraph]:
    """Yield the paragraphs of a page's running text."""
    for paragraph in document.findall(nodes.paragraph):
        above = paragraph.parent
        while type(above) in _AROUND:
            above = above.parent
        if type(paragraph) is nodes.paragraph and isinstance(above, nodes.document):
            yield paragraph


def _replace_words(node: nodes.Element, new: Callable[[str], Iterable[nodes.Node]]) -> None:
    """Put something new in place of all words, in their order; the end of a line divides none."""
    replaced: list[nodes.Node] = []
    for is_text, group in itertools.groupby(node.children, lambda c: isinstance(c, nodes.Text)):
        if is_text:
            replaced += new("".join(map(str, group)))
            continue
        for child in group:
            if isinstance(child, nodes.Element) and type(child) in _WITHIN:
                _replace_words(child, new)
            replaced.append(child)
    node[:] = replaced


def _write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Name the pages to write again when the glossary says something else than at the last print."""
    page, terms = glossary_of(env)
    if env.__dict__.get(_WRITTEN) == (page, terms):
        return []
    env.__dict__[_WRITTEN] = (page, terms)
    return [name for name in sorted(env.found_docs) if env.toc_secnumbers.get(name)]


def setup(app: Sphinx) -> None:
    """Register the events and the transform."""
    app.connect("doctree-read", _keep)
    app.connect("env-updated", _write_again)
    app.add_post_transform(LinkTerms)
