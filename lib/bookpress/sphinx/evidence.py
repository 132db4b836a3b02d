"""Measured values and claims on the page, all from what the page's room keeps (`rooms`).

Roles:
    {measured}`floor:.2f`          a value of the room's results, in a format of Python
    {measured}`scale/floor:.3f`    one that another chapter's room measured
    {claim}`any words <CS-1.3>`    a claim called by its name, linked to where it stands
    {quoted}`12.4`                 a number that a source states
    {constant}`10000`              a definition or a setting

Directives:
    {claim} CS-1.3                 one line that unfolds: the statement, what came out, how it was tested
    {claims-table}                 all claims of the page, in a folded list

Nothing here trusts the prose: a value that the room does not have, a claim without evidence, a verdict
other than the one the registry expects, and a claim shown nowhere are warnings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from docutils import nodes
from measured_book.evidence import registry
from measured_book.evidence.registry import Claim
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import ReferenceRole, SphinxRole

from bookpress.sphinx import rooms
from bookpress.sphinx.claim_lines import Lines, link_items, word_of
from bookpress.sphinx.claim_nodes import (
    MARKUP,
    SOURCE_KEYS,
    Shows,
    claims_of,
    counted,
    note_registry,
)
from bookpress.sphinx.nodes import claim_line, measured_value
from bookpress.sphinx.page import page_of, warn
from bookpress.sphinx.rooms import room_of
from bookpress.sphinx.scores import keep_outcomes


def _doubt(env: BuildEnvironment, claim_id: str) -> str:
    """Why a claim of the page may not hold; nothing where it does, or where the page has no room."""
    own, claim = rooms.rooms_of(env), claims_of(env).get(claim_id)
    if not own:
        return ""
    room = claim.room if claim is not None and claim.room in own else own[0]
    return rooms.doubts_of(env, room, claim_id)


def _find(env: BuildEnvironment, claim_id: str) -> Claim:
    known = claims_of(env)
    if claim_id in known:
        return known[claim_id]
    if not env.config.measured_claims:
        return registry.claim(claim_id)  # raises, and names the nearest
    raise KeyError(f"no claim {claim_id!r} in the registry; it has {', '.join(known)}")


# Roles ------------------------------------------------------------------------------------------


class _Measured(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        room, expression = rooms.addressed(self.env, self.text.strip())
        if room is None:
            return _refused(
                self,
                f"{expression} is asked for on a page without a room; name the room in its front matter: "
                "measured: {room: ...}, or before the value: scale/floor",
            )
        try:
            text, doubt = rooms.value(self.env, room, expression)
        except (KeyError, ValueError) as error:
            warn(str(error.args[0]), "value", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{expression}: unknown]")], []
        value = measured_value("", text, classes=["measured"], expression=expression)
        if doubt:
            value["doubt"] = doubt
        return [value], []


def _refused(role: SphinxRole, why: str) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    warn(why, "value", role.get_location())
    return [nodes.problematic(role.rawtext, role.text)], []


class _Named(ReferenceRole):
    """A claim by its name: words of the page, or the registry's, that lead to where it stands."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claim_id, words = self.target.strip(), self.title
        try:
            claim = _find(self.env, claim_id)
        except KeyError as error:
            return _refused(self, str(error.args[0]))
        if not self.has_explicit_title:
            words = claim.statement.rstrip(".")
            if MARKUP.search(words):
                return _refused(
                    self,
                    f"the statement of {claim_id} holds more than words; say what to call it: "
                    f"{{claim}}`in a few words <{claim_id}>`",
                )
        anchor, where = target_of(claim_id), claim.chapter
        reference = nodes.reference("", words, internal=True, classes=["claim-name"])
        if where == self.env.docname:
            reference["refid"] = anchor
        elif where in self.env.found_docs:
            uri = self.env.app.builder.get_relative_uri(self.env.docname, where)
            reference["refuri"] = f"{uri}#{anchor}"
        else:
            return _refused(self, f"claim {claim_id} stands in {where}, which is not in the book")
        reference["reftitle"] = f"Claim {claim_id}"
        self.set_source_info(reference)
        return [reference], []


class _Plain(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [nodes.inline(self.rawtext, self.text, classes=[self.name])], []


# Directives -------------------------------------------------------------------------------------


class _Shows(Shows):
    def lines(self) -> Lines:
        """What writes claims on the page."""
        doubt = functools.partial(_doubt, self.env)
        return Lines(self, rooms.records_of(self.env), doubt, self.source_words)

    def source_words(self, claim: Claim) -> str:
        if claim.kind == "cited":
            read = f"; see {' and '.join(f'{{cite:t}}`{key}`' for key in claim.references)}"
        else:
            read = ""
        key = SOURCE_KEYS.get(claim.source) or claim.references[0]
        return f"{{cite:t}}`{key}`, {claim.place}{read}"


class _Claim(_Shows):
    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        claim_id = self.arguments[0]
        try:
            claim = _find(self.env, claim_id)
        except KeyError as error:
            warn(str(error.args[0]), "claim", self.get_location())
            return []
        line = self.lines().line(claim, target_of(claim_id))
        if self.content:
            comment = nodes.container(classes=["claim-comment"])
            self.state.nested_parse(self.content, self.content_offset, comment)
            line += comment
        self.set_source_info(line)
        return [line]


class _ClaimsTable(_Shows):
    def run(self) -> list[nodes.Node]:
        claims = {
            key: claim
            for key, claim in claims_of(self.env, self.env.docname).items()
            if claim.status == "covered"
        }
        if not claims:
            warn("a table of claims on a page that covers none", "claim", self.get_location())
            return []
        records = rooms.records_of(self.env)
        verdicts = [word_of(claim, records.get(key)) for key, claim in claims.items()]
        many = f"{len(claims)} {'claim' if len(claims) == 1 else 'claims'}"
        listed = self.lines().listed(claims, f"{many}: {counted(verdicts)}.")
        self.set_source_info(listed)
        return [listed]


# Once the page is complete ----------------------------------------------------------------------


def target_of(claim_id: str) -> str:
    """Return the anchor under which a claim stands on its page."""
    return nodes.make_id(f"claim-{claim_id}")


def complete_page(app: Sphinx, doctree: nodes.document) -> None:
    """Link the listed claims to their places, and compare the page with the registry."""
    env = app.env
    docname = env.docname
    lines = _lines(doctree)
    claims = claims_of(env, docname)
    if claims or lines or page_of(env, doctree).notebook is not None:
        note_registry(env, docname)
    listed = link_items(doctree, lines, target_of)
    _check(env, docname, claims, shown=lines | listed.keys())
    doubts = {key: _doubt(env, key) for key in claims} if room_of(env) else {}
    anchors = {claim_id: target_of(claim_id) for claim_id in lines} | listed
    keep_outcomes(env, docname, claims, rooms.records_of(env), anchors, doubts)


def _lines(doctree: nodes.document) -> set[str]:
    """Return the claims that have a line of their own."""
    found: set[str] = set()
    for line in doctree.findall(claim_line):
        if line["claim"] in found:
            warn(f"claim {line['claim']} has a second line on this page", "claim", line)
            line["ids"] = []
        found.add(line["claim"])
    return found


def _check(
    env: BuildEnvironment, docname: str, claims: Mapping[str, Claim], *, shown: Iterable[str]
) -> None:
    records, room = rooms.records_of(env), room_of(env)
    for claim_id, claim in claims.items():
        if claim.status != "covered":
            continue
        if claim_id not in shown:
            warn(
                f"claim {claim_id} is covered by this page, but stands in no line and no list; "
                "add a {claims-table}",
                "claim",
                docname,
            )
        if claim.kind == "cited":
            continue
        record = records.get(claim_id)
        if record is None:
            if not room or not _doubt(env, claim_id):
                warn(_unrecorded(claim, claim.room or room), "record", docname)
        elif record["verdict"] != claim.expected:
            warn(
                f"claim {claim_id}: the prose discusses the verdict {str(claim.expected)!r}, but the "
                f"results give {record['verdict']!r}; explain what was measured, and change `expected` in "
                "the registry to match",
                "verdict",
                docname,
            )
    known, shared = claims_of(env), rooms.shared_with(env)
    for claim_id in sorted(records.keys() - claims.keys()):
        if claim_id in known and known[claim_id].chapter in shared:
            continue
        warn(
            f"the room of this page judges claim {claim_id}, which the registry gives to another chapter",
            "record",
            docname,
        )


def _unrecorded(claim: Claim, room: str | None) -> str:
    if room is None:
        return (
            f"claim {claim.id} is covered by {claim.chapter}, which has no room; name the room in its "
            "front matter: measured: {room: ...}"
        )
    return (
        f"claim {claim.id} is covered by {claim.chapter}, but its room gives no evidence for it; "
        f'declare it in rooms/{room}/reading.py: @evidence("{claim.id}")'
    )


def check_chapters(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of claims that are covered by a chapter which is not in the book."""
    covered: dict[str, list[str]] = {}
    for claim_id, claim in claims_of(env).items():
        if claim.status == "covered":
            covered.setdefault(claim.chapter, []).append(claim_id)
    for chapter, ids in sorted(covered.items()):
        if chapter not in env.found_docs:
            warn(
                f"{', '.join(ids)} {'is' if len(ids) == 1 else 'are'} covered by {chapter}, which "
                "is not in the book; put it into the table of contents, or mark the "
                f"{'claim' if len(ids) == 1 else 'claims'} planned",
                "claim",
                None,
            )


def setup(app: Sphinx) -> None:
    """Register roles, directives and checks."""
    app.add_config_value("measured_claims", "", "env", str)
    app.add_role("measured", _Measured())
    app.add_role("claim", _Named())
    app.add_role("quoted", _Plain())
    app.add_role("constant", _Plain())
    app.add_directive("claim", _Claim)
    app.add_directive("claims-table", _ClaimsTable)
    app.connect("doctree-read", complete_page, priority=90)
    app.connect("env-check-consistency", check_chapters)
