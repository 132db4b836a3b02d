"""Measured values, verdicts and claims on the page, all from what the page's own cells recorded.

Roles:
    {measured}`min_distance:.3f`   a value that the chapter measured, in a format of Python
    {measured}`scale/floor:.3f`    one that another chapter's room measured
    {full}`min_distance:.3f`       what the chapter's last full run measured for it, from its record
    {verdict}`CS-1.3`              the verdict on a claim, linked to where the claim stands
    {claim}`any tag <CS-1.3>`      a claim called by its name, linked to where it stands
    {quoted}`12.4`                 a number that a source states
    {constant}`10000`              a definition or a setting

Directives:
    {claim} CS-1.3                 a card: the statement, how it was tested, what came out, also in the
                                   last full run where this build is none
    {claims-table}                 all claims of the page

On the page of a chapter with a room (`rooms`), {claim} is one line that unfolds, {claims-table} a folded
list, and {full} and {verdict} are complaints: there is one value a number and one verdict a claim.

Nothing here trusts the prose: a value that no cell reported, a claim without a record, a verdict
other than the one the registry expects, and a claim shown nowhere are warnings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from docutils import nodes
from measured_transformer.evidence import records, registry
from measured_transformer.evidence.registry import Claim
from measured_transformer.evidence.verdicts import MEANING, Verdict, parts_of
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import ReferenceRole, SphinxRole

from bookpress.chapters import find_root
from bookpress.records import committed
from bookpress.sphinx import rooms
from bookpress.sphinx.claim_lines import Lines, link_items
from bookpress.sphinx.claim_nodes import (
    MARKUP,
    SOURCE_KEYS,
    Shows,
    badge,
    claims_of,
    counted,
    declared,
    measurement,
    note_registry,
    sentence,
)
from bookpress.sphinx.nodes import (
    claim_card,
    claim_line,
    claims_table,
    measured_value,
    score_outcome,
    verdict_reference,
)
from bookpress.sphinx.outcomes import outcome_of
from bookpress.sphinx.page import page_of, warn
from bookpress.sphinx.rooms import room_of
from bookpress.sphinx.scores import SHOWS_FULL, keep_outcomes
from bookpress.sphinx.words import beside_in_words

_PAYLOADS = "bookpress.payloads"


def _beside(record: Mapping[str, Any]) -> str:
    """Say what else was computed of each part of a record, a line a part; or nothing."""
    said = {name: (part, beside_in_words(part)) for name, part in parts_of(record).items()}
    if list(said) == [""]:
        return sentence(said[""][1]) if said[""][1] else ""
    return "\n".join(
        f"- {part.get('label') or name}: {text}" for name, (part, text) in said.items() if text
    )


# What the page's cells measured, and what the registry says ------------------------------------


def payloads_of(env: BuildEnvironment, document: nodes.document) -> dict[str, Any]:
    """Return the page's records and values as `records.payloads` gathers them."""
    kept = env.temp_data.get(_PAYLOADS)
    if kept is None and (room := room_of(env)):
        kept = env.temp_data[_PAYLOADS] = rooms.payloads(env, room)
    if kept is None:
        notebook = page_of(env, document).notebook
        try:
            kept = records.payloads(notebook if notebook is not None else {})
        except ValueError as error:
            warn(str(error), "record", env.docname)
            kept = records.payloads({})
        env.temp_data[_PAYLOADS] = kept
    return cast(dict[str, Any], kept)


def _find(env: BuildEnvironment, claim_id: str) -> Claim:
    known = claims_of(env)
    if claim_id in known:
        return known[claim_id]
    if not env.config.measured_claims:
        return registry.claim(claim_id)  # raises, and names the nearest
    raise KeyError(f"no claim {claim_id!r} in the registry; it has {', '.join(known)}")


def full_record_of(env: BuildEnvironment) -> Path:
    """Where the committed record of the page's last full run lies."""
    source = Path(env.srcdir).resolve()
    return committed(find_root(source) or source, Path(env.docname).name, "full")


# Roles ------------------------------------------------------------------------------------------


class _Measured(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        doubt = ""
        room, expression = rooms.addressed(self.env, self.text.strip())
        try:
            if room:
                text, doubt = rooms.value(self.env, room, expression)
            else:
                payloads = payloads_of(self.env, self.inliner.document)
                text = records.format_value(payloads, expression)
        except (KeyError, ValueError) as error:
            warn(str(error.args[0]), "value", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{expression}: unknown]")], []
        value = measured_value("", text, classes=["measured"], expression=expression)
        if doubt:
            value["doubt"] = doubt
        return [value], []


class _Full(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        expression = self.text.strip()
        if room_of(self.env):
            return _refused(
                self, "there is one value a number, so write {measured} instead of {full}"
            )
        path = full_record_of(self.env)
        self.env.note_dependency(str(path))
        try:
            text = records.format_value(records.read_records(path), expression)
        except FileNotFoundError:
            complaint = f"this page has no record of a full run ({path}), and asks for {expression}"
        except (KeyError, ValueError) as error:
            complaint = f"in the last full run: {error.args[0]}"
        else:
            value = measured_value("", text, classes=["measured"], expression=expression, full=True)
            return [value], []
        warn(complaint, "value", self.get_location())
        return [nodes.problematic(self.rawtext, f"[{expression}: unknown]")], []


def _refused(role: SphinxRole, why: str) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    warn(why, "value", role.get_location())
    return [nodes.problematic(role.rawtext, role.text)], []


class _Verdict(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claim_id = self.text.strip()
        if room_of(self.env):
            return _refused(
                self, f"call the claim by its name: {{claim}}`in a few words <{claim_id}>`"
            )
        try:
            claim = _find(self.env, claim_id)
        except KeyError as error:
            warn(str(error.args[0]), "claim", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{claim_id}: unknown]")], []
        word = _verdict_word(claim, payloads_of(self.env, self.inliner.document))
        if word is None:
            warn(_unrecorded(claim, None), "record", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{claim_id}: not recorded]")], []
        reference = verdict_reference("", "", claim=claim_id)
        reference += badge(word)
        self.set_source_info(reference)
        return [reference], []


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


def _verdict_word(claim: Claim, payloads: Mapping[str, Any]) -> str | None:
    if claim.kind == "cited":
        return Verdict.FACT.value
    record = payloads["records"].get(claim.id)
    return None if record is None else str(record["verdict"])


def _unrecorded(claim: Claim, room: str | None) -> str:
    if room:
        return (
            f"claim {claim.id} is covered by {claim.chapter}, but its room gives no evidence for it; "
            f'declare it in chapters/{room}/measure.py: @evidence("{claim.id}")'
        )
    return (
        f"claim {claim.id} is covered by {claim.chapter}, but no cell of this page records it; "
        f'call record("{claim.id}", ...) in a cell'
    )


# Directives -------------------------------------------------------------------------------------


class _Shows(Shows):
    def lines(self) -> Lines:
        """What writes claims on the page of a room."""
        payloads = payloads_of(self.env, self.state.document)
        doubt = functools.partial(rooms.doubts_of, self.env, room_of(self.env) or "")
        return Lines(self, payloads["records"], doubt, self.source_words)

    def source_words(self, claim: Claim) -> str:
        if claim.kind == "cited":
            read = f"; see {' and '.join(f'{{cite:t}}`{key}`' for key in claim.references)}"
        else:
            read = ""
        key = SOURCE_KEYS.get(claim.source) or claim.references[0]
        return f"{{cite:t}}`{key}`, {claim.place}{read}"

    def measurement(
        self, claim: Claim, record: Mapping[str, Any] | None, *, brief: bool = False
    ) -> nodes.Element:
        """Say what came out; `brief` folds a list of many parts."""
        outcome = None if record is None else outcome_of(record)
        return measurement(outcome, cited=claim.kind == "cited", brief=brief)


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
        if room_of(self.env):
            line = self.lines().line(claim, target_of(claim_id))
            if self.content:
                comment = nodes.container(classes=["claim-comment"])
                self.state.nested_parse(self.content, self.content_offset, comment)
                line += comment
            self.set_source_info(line)
            return [line]
        record = payloads_of(self.env, self.state.document)["records"].get(claim_id)
        word = _verdict_word(claim, payloads_of(self.env, self.state.document)) or "not recorded"
        card = claim_card(claim=claim_id, verdict=word, ids=[target_of(claim_id)])
        self.set_source_info(card)
        head = nodes.paragraph("", "", classes=["claim-head"])
        head += nodes.strong("", f"Claim {claim_id}")
        head += nodes.Text(" ")
        head += badge(word)
        card += head
        card += self.paragraph(claim.statement, "claim-statement")
        if self.content:
            words = nodes.container(classes=["claim-comment"])
            self.state.nested_parse(self.content, self.content_offset, words)
            card += words
        card += self.measurement(claim, record)
        self.env.metadata[self.env.docname][SHOWS_FULL] = True
        card += score_outcome(claim=claim_id, what="beside")
        card += self.folded("Source, test and rule", self._detail_texts(claim, record))
        return [card]

    def _detail_texts(
        self, claim: Claim, record: Mapping[str, Any] | None
    ) -> Iterable[tuple[str, str]]:
        yield "Source", f"{self.source_words(claim)}."
        if claim.kind == "cited":
            return
        yield from declared(claim)
        if record is not None:
            meaning = MEANING[Verdict(record["verdict"])]
            yield "Verdict", f"{sentence(record['verdict'])[:-1]}: {meaning}."
            alone = record.get("verdict_alone", record["verdict"])
            if alone != record["verdict"]:
                yield (
                    "Holm's correction",
                    f"By its own rule alone this claim would be {alone}; the correction over all "
                    "experiments of the chapter takes that away.",
                )
            if texts := _beside(record):
                yield "Computed beside", texts
        if claim.expected_why:
            yield "Between the profiles", claim.expected_why


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
        payloads = payloads_of(self.env, self.state.document)
        words = {key: _verdict_word(claim, payloads) for key, claim in claims.items()}
        if room_of(self.env):
            listed = self.lines().listed(claims, _summary(words.values()))
            self.set_source_info(listed)
            return [listed]
        self.env.metadata[self.env.docname][SHOWS_FULL] = True
        table = claims_table()
        self.set_source_info(table)
        table += nodes.paragraph("", _summary(words.values()), classes=["claims-summary"])
        table += self._rows(claims, payloads, words)
        return [table]

    def _rows(
        self,
        claims: Mapping[str, Claim],
        payloads: Mapping[str, Any],
        words: Mapping[str, str | None],
    ) -> nodes.table:
        body = nodes.tbody()
        for key, claim in claims.items():
            said = nodes.entry(classes=["claim-said"])
            head = nodes.paragraph("", "", classes=["claim-head"])
            head += nodes.strong("", key)
            said += head
            said += self.paragraph(claim.statement)
            said += self.paragraph(f"{self.source_words(claim)}.", "claim-source")
            measured = nodes.entry()
            measured += nodes.paragraph("", "", badge(words[key] or "not recorded"))
            measured += self.measurement(claim, payloads["records"].get(key), brief=True)
            measured += score_outcome(claim=key, what="beside, brief")
            row = nodes.row("", said, measured)
            row["claim"], row["section"] = key, claim.section
            body += row
        header = nodes.row()
        for title in ("What the source says", "What was measured"):
            header += nodes.entry("", nodes.paragraph("", title))
        group = nodes.tgroup(
            "",
            nodes.colspec(colwidth=55),
            nodes.colspec(colwidth=45),
            nodes.thead("", header),
            body,
            cols=2,
        )
        return nodes.table("", group, classes=["claims-table"])


def _summary(words: Iterable[str | None]) -> str:
    known = [word or "not recorded" for word in words]
    return f"{len(known)} {'claim' if len(known) == 1 else 'claims'}: {counted(known)}."


# Once the page is complete ----------------------------------------------------------------------


def target_of(claim_id: str) -> str:
    """Return the anchor under which a claim stands on its page."""
    return nodes.make_id(f"claim-{claim_id}")


def complete_page(app: Sphinx, doctree: nodes.document) -> None:
    """Link badges and rows to their claims, and compare the page with the registry."""
    env = app.env
    docname = env.docname
    cards = _cards(doctree)
    tables = list(doctree.findall(claims_table))
    claims = claims_of(env, docname)
    if claims or cards or page_of(env, doctree).notebook is not None:
        note_registry(env, docname)
    rows = {
        row["claim"]: row for table in tables for row in table.findall(nodes.row) if "claim" in row
    }
    anchors = {claim_id: target_of(claim_id) for claim_id in cards}
    listed = link_items(doctree, cards.keys(), target_of)
    anchors |= listed
    for claim_id, row in rows.items():
        anchors[claim_id] = _link_row(row, claim_id, cards, doctree)
    for reference in list(doctree.findall(verdict_reference)):
        claim_id = reference["claim"]
        if claim_id in cards or claim_id in rows:
            link = nodes.reference("", "", *reference.children, internal=True)
            link["refid"] = target_of(claim_id)
            link["classes"].append("verdict-link")
            reference.replace_self(link)
        else:
            reference.replace_self(reference.children)
    for table in tables:
        table.replace_self(table.children)
    _check(env, docname, claims, shown=cards.keys() | rows.keys() | listed.keys(), doctree=doctree)
    room = room_of(env)
    doubts = {key: rooms.doubts_of(env, room, key) for key in claims} if room else {}
    keep_outcomes(env, docname, claims, payloads_of(env, doctree)["records"], anchors, doubts)


def _cards(doctree: nodes.document) -> dict[str, nodes.Element]:
    cards: dict[str, nodes.Element] = {}
    for card in doctree.findall(nodes.Element):
        if not isinstance(card, claim_card | claim_line):
            continue
        if card["claim"] in cards:
            what = "card" if isinstance(card, claim_card) else "line"
            warn(f"claim {card['claim']} has a second {what} on this page", "claim", card)
            card["ids"] = []
        else:
            cards[card["claim"]] = card
    return cards


def _link_row(
    row: nodes.row, claim_id: str, cards: Mapping[str, nodes.Element], doctree: nodes.document
) -> str:
    """Link a row of the table to where its claim is discussed, and return that place's anchor."""
    target = None
    if claim_id in cards:
        target = target_of(claim_id)
    else:
        row["ids"].append(target_of(claim_id))
        if row["section"]:
            target = doctree.nameids.get(row["section"])
            if target is None:
                warn(
                    f"claim {claim_id} is said to be measured in the section labelled "
                    f"{row['section']!r}, but this page has no such label",
                    "claim",
                    row,
                )
    if target is not None:
        strong = next(iter(row.findall(nodes.strong)))
        link = nodes.reference("", "", *strong.children, internal=True, refid=target)
        strong.children = []
        strong += link
    return target or target_of(claim_id)


def _check(
    env: BuildEnvironment,
    docname: str,
    claims: Mapping[str, Claim],
    *,
    shown: Iterable[str],
    doctree: nodes.document,
) -> None:
    recorded = payloads_of(env, doctree)["records"]
    for claim_id, claim in claims.items():
        if claim.status != "covered":
            continue
        if claim_id not in shown:
            warn(
                f"claim {claim_id} is covered by this page, but stands in no card and no table; "
                "add a {claims-table}",
                "claim",
                docname,
            )
        if claim.kind == "cited":
            continue
        record = recorded.get(claim_id)
        if record is None:
            room = room_of(env)
            if not room or not rooms.doubts_of(env, room, claim_id):
                warn(_unrecorded(claim, room), "record", docname)
            continue
        accepted = [verdict.value for verdict in claim.accepted_at(record["profile"] or "full")]
        if accepted and record["verdict"] not in accepted:
            measured = (
                f"profile {record['profile']} measured" if record["profile"] else "the results give"
            )
            warn(
                f"claim {claim_id}: the prose discusses the verdict "
                f"{' or '.join(map(repr, accepted))}, but {measured} "
                f"{record['verdict']!r}; explain what was measured, and change `expected` in "
                "the registry to match",
                "verdict",
                docname,
            )
    for claim_id in sorted(recorded.keys() - claims.keys()):
        warn(
            f"this page records claim {claim_id}, which the registry gives to another chapter",
            "record",
            docname,
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
    """Register roles, directives, nodes and checks."""
    app.add_config_value("measured_claims", "", "env", str)
    app.add_role("measured", _Measured())
    app.add_role("full", _Full())
    app.add_role("verdict", _Verdict())
    app.add_role("claim", _Named())
    app.add_role("quoted", _Plain())
    app.add_role("constant", _Plain())
    app.add_directive("claim", _Claim)
    app.add_directive("claims-table", _ClaimsTable)
    app.connect("doctree-read", complete_page, priority=90)
    app.connect("env-check-consistency", check_chapters)
