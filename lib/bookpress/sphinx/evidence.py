"""Measured values, verdicts and claims on the page, all from what the page's own cells recorded.

Roles:
    {measured}`min_distance:.3f`   a value that the chapter measured, in a format of Python
    {verdict}`CS-1.3`              the verdict on a claim, linked to where the claim stands
    {quoted}`12.4`                 a number that a source states
    {constant}`10000`              a definition or a setting

Directives:
    {claim} CS-1.3                 a card: the statement, how it was tested, what came out
    {claims-table}                 all claims of the page

Nothing here trusts the prose: a value that no cell reported, a claim without a record, a verdict
other than the one the registry expects, and a claim shown nowhere are warnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from docutils import nodes
from docutils.statemachine import StringList
from measured_transformer.evidence import records, registry
from measured_transformer.evidence.registry import Claim
from measured_transformer.evidence.verdicts import MEANING, Verdict, parts_of
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookpress.sphinx.page import page_of, warn
from bookpress.sphinx.pieces import (
    claim_card,
    claims_table,
    fold,
    measured_value,
    verdict_badge,
    verdict_reference,
)
from bookpress.sphinx.words import SYMBOLS, measurement_in_words, rule_in_words

SOURCE_KEYS: Mapping[str, str] = {
    "CS": "source-case-study",
    "DA": "source-dissecting",
    "DD": "source-deep-dive",
    "EX": "source-exercise",
    "IW": "source-inner-workings",
}
"""Source of a claim -> its key in references.bib."""

_PAYLOADS = "bookpress.payloads"
_MANY = 2
"""Parts of a claim beyond which a table folds their list."""


# What the page's cells measured, and what the registry says ------------------------------------


def payloads_of(env: BuildEnvironment, document: nodes.document) -> dict[str, Any]:
    """Return the page's records and values as `records.payloads` gathers them."""
    kept = env.temp_data.get(_PAYLOADS)
    if kept is None:
        notebook = page_of(env, document).notebook
        try:
            kept = records.payloads(notebook if notebook is not None else {})
        except ValueError as error:
            warn(str(error), "record", env.docname)
            kept = records.payloads({})
        env.temp_data[_PAYLOADS] = kept
    return cast(dict[str, Any], kept)


def claims_of(env: BuildEnvironment, chapter: str | None = None) -> dict[str, Claim]:
    """Return the claims of the registry, of one chapter where it is named."""
    folder = env.config.measured_claims
    if not folder:
        return registry.claims(chapter)
    found = registry.read_claims(Path(env.srcdir) / folder)
    return {key: claim for key, claim in found.items() if chapter in (None, claim.chapter)}


def _find(env: BuildEnvironment, claim_id: str) -> Claim:
    known = claims_of(env)
    if claim_id in known:
        return known[claim_id]
    if not env.config.measured_claims:
        return registry.claim(claim_id)  # raises, and names the nearest
    raise KeyError(f"no claim {claim_id!r} in the registry; it has {', '.join(known)}")


def _note_registry(env: BuildEnvironment, docname: str) -> None:
    """Have the page read again when the file that declares its claims changes."""
    if env.config.measured_claims:
        folder = Path(env.srcdir) / env.config.measured_claims
    else:
        folder = Path(registry.__file__).parent / "claims"
    own = folder / f"{docname.rpartition('/')[2]}.toml"
    for path in [own] if own.exists() else [folder, *sorted(folder.glob("*.toml"))]:
        env.note_dependency(str(path))


# Roles ------------------------------------------------------------------------------------------


class _Measured(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        expression = self.text.strip()
        payloads = payloads_of(self.env, self.inliner.document)
        try:
            text = records.format_value(payloads, expression)
        except (KeyError, ValueError) as error:
            warn(str(error.args[0]), "value", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{expression}: unknown]")], []
        return [measured_value("", text, classes=["measured"], expression=expression)], []


class _Verdict(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claim_id = self.text.strip()
        try:
            claim = _find(self.env, claim_id)
        except KeyError as error:
            warn(str(error.args[0]), "claim", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{claim_id}: unknown]")], []
        word = _verdict_word(claim, payloads_of(self.env, self.inliner.document))
        if word is None:
            warn(_unrecorded(claim), "record", self.get_location())
            return [nodes.problematic(self.rawtext, f"[{claim_id}: not recorded]")], []
        reference = verdict_reference("", "", claim=claim_id)
        reference += _badge(word)
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


def _unrecorded(claim: Claim) -> str:
    return (
        f"claim {claim.id} is covered by {claim.chapter}, but no cell of this page records it; "
        f'call record("{claim.id}", ...) in a cell'
    )


def _badge(word: str) -> verdict_badge:
    return verdict_badge("", word, classes=["verdict", f"verdict-{word.replace(' ', '-')}"])


# Directives -------------------------------------------------------------------------------------


class _Shows(SphinxDirective):
    def parse_into(self, text: str, node: nodes.Element) -> None:
        """Parse text of the registry, which may hold mathematics and citations."""
        self.state.nested_parse(StringList(text.splitlines(), self.env.docname), 0, node)

    def paragraph(self, text: str, *classes: str) -> nodes.Element:
        holder = nodes.container(classes=list(classes))
        self.parse_into(text, holder)
        return holder

    def source_words(self, claim: Claim) -> str:
        if claim.kind == "cited":
            read = f"; see {' and '.join(f'{{cite:t}}`{key}`' for key in claim.references)}"
        else:
            read = ""
        return f"{{cite:t}}`{SOURCE_KEYS[claim.source]}`, {claim.place}{read}"

    def measurement(
        self, claim: Claim, record: Mapping[str, Any] | None, *, brief: bool = False
    ) -> nodes.Element:
        """Say what came out; `brief` folds a list of many parts."""
        if record is None:
            text = "Cited, not tested here." if claim.kind == "cited" else "Not recorded."
            return self.paragraph(text, "claim-measured")
        seeds = None if record.get("seeds") is None else len(record["seeds"])
        parts = parts_of(record)
        if set(parts) == {""}:
            text = _sentence(measurement_in_words(parts[""], seeds))
            return self.paragraph(text, "claim-measured")
        listed: nodes.Element = nodes.bullet_list()
        for part in parts.values():
            words = f"{part['label']}: {measurement_in_words(part, seeds)} "
            item = nodes.paragraph("", "", nodes.Text(words))
            item += _badge(_of_part(part))
            listed += nodes.list_item("", item)
        holder = nodes.container(classes=["claim-measured"])
        if record["verdict"] in ("conditional", "underspecified"):
            holder += nodes.paragraph("", f"It turns on {record['axis']}:")
        if brief and len(parts) > _MANY:
            verdicts = (_of_part(part) for part in parts.values())
            listed = fold("", listed, summary=f"{len(parts)} parts: {_counted(verdicts)}")
        holder += listed
        return holder


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
        record = payloads_of(self.env, self.state.document)["records"].get(claim_id)
        word = _verdict_word(claim, payloads_of(self.env, self.state.document)) or "not recorded"
        card = claim_card(claim=claim_id, verdict=word, ids=[target_of(claim_id)])
        self.set_source_info(card)
        head = nodes.paragraph("", "", classes=["claim-head"])
        head += nodes.strong("", f"Claim {claim_id}")
        head += nodes.Text(" ")
        head += _badge(word)
        card += head
        card += self.paragraph(claim.statement, "claim-statement")
        if self.content:
            words = nodes.container(classes=["claim-comment"])
            self.state.nested_parse(self.content, self.content_offset, words)
            card += words
        card += self.measurement(claim, record)
        card += self._details(claim, record)
        return [card]

    def _details(self, claim: Claim, record: Mapping[str, Any] | None) -> nodes.Element:
        details = fold(summary="Source, test and rule")
        listed = nodes.definition_list(classes=["claim-details"])
        for term, text in self._detail_texts(claim, record):
            item = nodes.definition_list_item("", nodes.term("", term))
            definition = nodes.definition()
            self.parse_into(text, definition)
            item += definition
            listed += item
        details += listed
        return details

    def _detail_texts(
        self, claim: Claim, record: Mapping[str, Any] | None
    ) -> Iterable[tuple[str, str]]:
        yield "Source", f"{self.source_words(claim)}."
        if claim.kind == "cited":
            return
        yield "Test", claim.test
        if claim.rule is not None:
            yield "Rule, declared beforehand", rule_in_words(claim.rule.as_dict())
        else:
            rules = [(part.label, rule_in_words(part.rule.as_dict())) for part in claim.parts]
            same = len({words for _, words in rules}) == 1
            words = (
                f"For each part: {rules[0][1]}"
                if same
                else "\n".join(f"- {label}: {text}" for label, text in rules)
            )
            yield "Rule, declared beforehand", words
        yield "Scope", claim.scope
        if record is not None:
            meaning = MEANING[Verdict(record["verdict"])]
            yield "Verdict", f"{_sentence(record['verdict'])[:-1]}: {meaning}."
            alone = record.get("verdict_alone", record["verdict"])
            if alone != record["verdict"]:
                yield (
                    "Holm's correction",
                    f"By its own rule alone this claim would be {alone}; the correction over all "
                    "experiments of the chapter takes that away.",
                )
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
        table = claims_table()
        self.set_source_info(table)
        words = {key: _verdict_word(claim, payloads) for key, claim in claims.items()}
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
            measured += nodes.paragraph("", "", _badge(words[key] or "not recorded"))
            measured += self.measurement(claim, payloads["records"].get(key), brief=True)
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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _of_part(part: Mapping[str, Any]) -> str:
    """Return the verdict of a part, after Holm's correction where there is one."""
    statistics = part["statistics"]
    return str(statistics.get("verdict_holm", statistics["verdict"]))


def _counted(words: Iterable[str]) -> str:
    counts = Counter(words)
    order = [*SYMBOLS, "not recorded"]
    return ", ".join(f"{counts[word]} {word}" for word in order if counts[word])


def _summary(words: Iterable[str | None]) -> str:
    known = [word or "not recorded" for word in words]
    return f"{len(known)} {'claim' if len(known) == 1 else 'claims'}: {_counted(known)}."


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
        _note_registry(env, docname)
    rows = {
        row["claim"]: row for table in tables for row in table.findall(nodes.row) if "claim" in row
    }
    for claim_id, row in rows.items():
        _link_row(row, claim_id, cards, doctree)
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
    _check(env, docname, claims, shown=cards.keys() | rows.keys(), doctree=doctree)


def _cards(doctree: nodes.document) -> dict[str, claim_card]:
    cards: dict[str, claim_card] = {}
    for card in doctree.findall(claim_card):
        if card["claim"] in cards:
            warn(f"claim {card['claim']} has a second card on this page", "claim", card)
            card["ids"] = []
        else:
            cards[card["claim"]] = card
    return cards


def _link_row(
    row: nodes.row, claim_id: str, cards: Mapping[str, claim_card], doctree: nodes.document
) -> None:
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
            warn(_unrecorded(claim), "record", docname)
            continue
        expected = claim.expected_at(record["profile"])
        if expected is not None and record["verdict"] != expected.value:
            warn(
                f"claim {claim_id}: the prose discusses the verdict {expected.value!r}, but "
                f"profile {record['profile']} measured {record['verdict']!r}; explain what was "
                "measured, and change `expected` in the registry to match",
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
    for chapter in sorted({c.chapter for c in claims_of(env).values() if c.status == "covered"}):
        if chapter not in env.found_docs:
            warn(f"the registry has claims for {chapter}, which is not in the book", "claim", None)


def setup(app: Sphinx) -> None:
    """Register roles, directives, nodes and checks."""
    app.add_config_value("measured_claims", "", "env", str)
    app.add_role("measured", _Measured())
    app.add_role("verdict", _Verdict())
    app.add_role("quoted", _Plain())
    app.add_role("constant", _Plain())
    app.add_directive("claim", _Claim)
    app.add_directive("claims-table", _ClaimsTable)
    app.connect("doctree-read", complete_page, priority=90)
    app.connect("env-check-consistency", check_chapters)
