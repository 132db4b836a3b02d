"""How claims and what came out for them stand on a page, whichever page it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from measured_book.evidence import registry
from measured_book.evidence.registry import Claim
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.nodes import fold, verdict_badge
from bookpress.sphinx.outcomes import Outcome
from bookpress.sphinx.rooms import rooms_of
from bookpress.sphinx.words import SYMBOLS, rule_in_words

SOURCE_KEYS: Mapping[str, str] = {
    "CS": "source-case-study",
    "DA": "source-dissecting",
    "DD": "source-deep-dive",
    "EX": "source-exercise",
    "IW": "source-inner-workings",
}
"""Source of a claim -> its key in references.bib."""

_MANY = 2
"""Parts of a claim beyond which a table folds their list."""
_FILES = "measured_registry"
"""Page metadata: the files of the registry, on a page that depends on all of them."""
MARKUP = re.compile(r"[$`*{\\\[<]|\]\(|://")


# The registry, from the library or from a folder that the book's settings name --------------------


def claims_of(env: BuildEnvironment, chapter: str | None = None) -> dict[str, Claim]:
    """Return the claims of the registry, of one chapter where it is named."""
    folder = env.config.measured_claims
    if not folder:
        return registry.claims(chapter)
    found = registry.read_claims(Path(env.srcdir) / folder)
    return {key: claim for key, claim in found.items() if chapter in (None, claim.chapter)}


def note_registry(env: BuildEnvironment, chapter: str | None = None) -> None:
    """Have the page being read read again when the registry changes.

    A page that shows one chapter's claims depends on the files that declare them: that of the chapter's name,
    and those of further rooms; any other page on all files.
    """
    files = _files(env)
    own = files.get(_room(chapter)) if chapter else None
    further = [files[room] for room in rooms_of(env) if room in files] if own else []
    for path in [own, *further] if own else files.values():
        env.note_dependency(str(path))
    if not own:
        env.metadata[env.docname][_FILES] = list(files)


def reread_for_registry(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Name the pages that depend on all files of the registry, when one came or went."""
    del added, changed, removed
    files = list(_files(env))
    return [name for name in env.all_docs if env.metadata[name].get(_FILES, files) != files]


def _files(env: BuildEnvironment) -> dict[str, Path]:
    """The registry's files by the rooms that they belong to."""
    if not env.config.measured_claims:
        return registry.claims_files()
    folder = Path(env.srcdir) / env.config.measured_claims
    return {_room(path.stem): path for path in sorted(folder.glob("*.toml"))}


def _room(chapter: str) -> str:
    return chapter.rpartition("/")[2].replace("-", "_")


# Pieces of a claim --------------------------------------------------------------------------------


def badge(word: str) -> verdict_badge:
    """Return a verdict as a sign and a word."""
    return verdict_badge("", word, classes=["verdict", f"verdict-{word.replace(' ', '-')}"])


def sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def counted(words: Iterable[str]) -> str:
    """Say how many of each verdict there are: ``2 confirmed, 1 refuted``."""
    counts = Counter(words)
    order = [*SYMBOLS, "not recorded"]
    return ", ".join(f"{counts[word]} {word}" for word in order if counts[word])


def measurement(
    outcome: Outcome | None, *, cited: bool = False, brief: bool = False
) -> nodes.Element:
    """Say what came out; `brief` folds a list of many parts."""
    if outcome is None:
        text = "Cited, not tested here." if cited else "Not recorded."
        return _plain(text)
    parts = outcome["parts"]
    if [part["name"] for part in parts] == [""]:
        return _plain(sentence(parts[0]["words"]))
    listed: nodes.Element = nodes.bullet_list()
    for part in parts:
        item = nodes.paragraph("", "", nodes.Text(f"{part['label']}: {part['words']} "))
        item += badge(part["verdict"])
        listed += nodes.list_item("", item)
    holder = nodes.container(classes=["claim-measured"])
    if outcome["axis"]:
        holder += nodes.paragraph("", f"It turns on {outcome['axis']}:")
    if brief and len(parts) > _MANY:
        verdicts = (part["verdict"] for part in parts)
        listed = fold("", listed, summary=f"{len(parts)} parts: {counted(verdicts)}")
    holder += listed
    return holder


def _plain(text: str) -> nodes.Element:
    return nodes.container("", nodes.paragraph("", text), classes=["claim-measured"])


class Shows(SphinxDirective):
    """A directive that shows texts of the registry."""

    def parse_into(self, text: str, node: nodes.Element) -> None:
        """Parse text of the registry, which may hold mathematics and citations."""
        if MARKUP.search(text) or text.startswith(("-", "#")):
            self.state.nested_parse(StringList(text.splitlines(), self.env.docname), 0, node)
        else:
            node += nodes.paragraph("", text)

    def paragraph(self, text: str, *classes: str) -> nodes.Element:
        """Return text of the registry as a paragraph in a box of its own."""
        holder = nodes.container(classes=list(classes))
        self.parse_into(text, holder)
        return holder

    def folded(self, summary: str, texts: Iterable[tuple[str, str]]) -> nodes.Element:
        """Return terms and what they mean, behind a summary."""
        return fold("", self.terms(texts), summary=summary)

    def terms(self, texts: Iterable[tuple[str, str]]) -> nodes.definition_list:
        """Return terms and what they mean."""
        listed = nodes.definition_list(classes=["claim-details"])
        for term, text in texts:
            item = nodes.definition_list_item("", nodes.term("", term))
            definition = nodes.definition()
            self.parse_into(text, definition)
            item += definition
            listed += item
        return listed


def declared(claim: Claim) -> Iterator[tuple[str, str]]:
    """Yield what was declared of a claim before it was measured: test, rule and scope."""
    yield "Test", claim.test
    if claim.rule is not None:
        yield "Rule, declared beforehand", rule_in_words(claim.rule.as_dict())
    elif claim.parts:
        rules = [(part.label, rule_in_words(part.rule.as_dict())) for part in claim.parts]
        same = len({words for _, words in rules}) == 1
        words = (
            f"For each part: {rules[0][1]}"
            if same
            else "\n".join(f"- {label}: {text}" for label, text in rules)
        )
        yield "Rule, declared beforehand", words
    yield "Scope", claim.scope
    if claim.said_of:
        yield "Said of", f"{claim.said_of}."
    if claim.misprint:
        yield "Misprint", f"The source's own words say {claim.misprint} ({claim.meant_in})."
