"""Claims on a page: one line each, which unfolds; and all of the page's claims, folded at its end.

A line is the claim's sentence, the effect with its interval, and then its verdict. It unfolds to the source's
own words, which stand above it, and to what stands behind it: source, test, rule, scope, seeds, each part's own
effect, and the way to the Scorecard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from docutils import nodes
from measured_book.evidence.registry import SOURCES, Claim
from measured_book.evidence.verdicts import MEANING, Verdict, parts_of

from bookpress.sphinx.claim_nodes import MARKUP, Shows, badge, declared, measurement, sentence
from bookpress.sphinx.nodes import (
    claim_fold,
    claim_item,
    claim_line,
    claim_summary,
    claims_list,
    fold,
    score_outcome,
)
from bookpress.sphinx.outcomes import outcome_of
from bookpress.sphinx.page import warn
from bookpress.sphinx.quotes import quotation
from bookpress.sphinx.words import beside_in_words, result_in_words, seeds_behind

Record = Mapping[str, Any]


class Lines:
    """Writes the claims of a page.

    Args:
        directive: the directive that they stand in, which parses the registry's texts.
        records: claim -> its record.
        doubt: says why a claim's results may not hold; nothing where they do.
        source_words: says where a claim comes from.
    """

    def __init__(
        self,
        directive: Shows,
        records: Mapping[str, Record],
        doubt: Callable[[str], str],
        source_words: Callable[[Claim], str],
    ) -> None:
        self._directive = directive
        self._records = records
        self._doubt = doubt
        self._source_words = source_words

    def line(self, claim: Claim, anchor: str) -> claim_line:
        """Return a claim as a line that unfolds."""
        record = self._records.get(claim.id)
        word = word_of(claim, record)
        summary = claim_summary("", "", *self._sentence(claim), *self._effect(claim, record))
        summary += [nodes.Text(" "), badge(word)]
        body = nodes.container(classes=["claim-body"])
        if record is not None and "parts" in record:
            body += measurement(outcome_of(record))
        body += self._directive.terms(self._details(claim, record))
        body += score_outcome(claim=claim.id, what="link")
        unfolding = claim_fold("", summary, body)
        above = quotation(claim, f"{sentence(SOURCES[claim.source])[:-1]}, {claim.place}.")
        return claim_line("", *above, unfolding, claim=claim.id, verdict=word, ids=[anchor])

    def listed(self, claims: Mapping[str, Claim], summary: str) -> claims_list:
        """Return claims as a folded list, to be completed when the page is: see `link_items`."""
        items = nodes.bullet_list(classes=["claim-items"])
        for claim in claims.values():
            record = self._records.get(claim.id)
            words = nodes.paragraph("", "", *self._sentence(claim), *self._effect(claim, record))
            word = word_of(claim, record)
            words += [nodes.Text(" "), badge(word)]
            item = claim_item("", words, claim=claim.id, section=claim.section)
            item["statement"], item["verdict"] = claim.statement, word
            item[0:0] = quotation(claim)
            items += item
            if claim.kind == "cited":
                words += nodes.Text(" ")
                words += self._inline(f"{self._source_words(claim)}.")
            words += [nodes.Text(" "), score_outcome(claim=claim.id, what="inline link")]
        return claims_list("", fold("", items, summary=summary))

    def _sentence(self, claim: Claim) -> list[nodes.Node]:
        return [nodes.inline("", "", *self._inline(claim.statement), classes=["claim-says"])]

    def _inline(self, text: str) -> list[nodes.Node]:
        """Return a text of the registry without the paragraph around it."""
        holder = nodes.container()
        self._directive.parse_into(text, holder)
        children = [child for child in holder.children if isinstance(child, nodes.Element)]
        return [node for child in children for node in list(child.children)]

    def _effect(self, claim: Claim, record: Record | None) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        if record is not None:
            words = nodes.inline("", result_in_words(record), classes=["claim-effect"])
            found += [nodes.Text(" "), words]
        if why := self._doubt(claim.id):
            found += [nodes.Text(" "), nodes.inline("", f"({why})", classes=["claim-doubt"])]
        return found

    def _details(self, claim: Claim, record: Record | None) -> Iterator[tuple[str, str]]:
        """Yield what stands behind a claim."""
        if record is not None and "parts" not in record:
            yield "Measured", sentence(outcome_of(record)["parts"][0]["words"])
        yield "Source", f"{self._source_words(claim)}."
        if claim.kind == "cited":
            return
        yield from declared(claim)
        if record is None:
            return
        if record["seeds"]:
            parts = parts_of(record).values()
            counts = {seeds_behind(part, len(record["seeds"])) for part in parts}
            yield "Seeds", f"{' to '.join(map(str, sorted({min(counts), max(counts)})))}."
        meaning = MEANING[Verdict(record["verdict"])]
        yield "Verdict", f"{sentence(record['verdict'])[:-1]}: {meaning}."
        if others := record.get("other_seeds"):
            yield (
                "Other seeds",
                f"By the book's own seeds alone the verdict is {record['verdict_own']}, by a second set alone "
                f"{others}; the verdict above is what both together allow.",
            )
        alone = record.get("verdict_alone", record["verdict"])
        if alone != record.get("verdict_own", record["verdict"]):
            yield (
                "Holm's correction",
                f"By its own rule alone this claim would be {alone}; the correction over all "
                "experiments of the chapter takes that away.",
            )
        elif taken := _taken_away(record):
            yield (
                "Holm's correction",
                "By its own rule alone each of these parts would be decided; the correction over all "
                f"experiments of the chapter leaves it inconclusive: {taken}.",
            )
        beside = {n: (part, beside_in_words(part)) for n, part in parts_of(record).items()}
        lines = [f"- {p.get('label') or n}: {text}" for n, (p, text) in beside.items() if text]
        if list(beside) == [""]:
            lines = [sentence(beside[""][1])] if beside[""][1] else []
        if lines:
            yield "Computed beside", "\n".join(lines)


def _taken_away(record: Record) -> str:
    """Name the parts that the correction leaves inconclusive, with the verdicts of their rules alone."""
    found = []
    for name, part in parts_of(record).items():
        told = part["statistics"]
        if told.get("verdict_holm", told["verdict"]) != told["verdict"]:
            found.append(f"{part.get('label') or name} ({told['verdict']})")
    return ", ".join(found)


def word_of(claim: Claim, record: Record | None) -> str:
    """Return the verdict on a claim, or that there is none."""
    if claim.kind == "cited":
        return Verdict.FACT.value
    return "not recorded" if record is None else str(record["verdict"])


# Once the page is complete ------------------------------------------------------------------------


def link_items(
    doctree: nodes.document, lines: Collection[str], target_of: Callable[[str], str]
) -> dict[str, str]:
    """Link the folded list's items to their sections; those with a line of their own become links to it.

    Args:
        doctree: the page.
        lines: claims that have a line.
        target_of: names the anchor of a claim.

    Returns:
        Claim without a line -> the anchor under which the page discusses it.
    """
    anchors: dict[str, str] = {}
    for listed in list(doctree.findall(claims_list)):
        above = nodes.paragraph("", "", classes=["claim-above"])
        for item in list(listed.findall(claim_item)):
            claim_id = item["claim"]
            if claim_id in lines:
                above += nodes.Text(", " if above.children else "")
                link = nodes.reference("", claim_id, internal=True, refid=target_of(claim_id))
                if not MARKUP.search(item["statement"]):
                    link["reftitle"] = item["statement"]
                above += link
                item.parent.remove(item)
            else:
                anchors[claim_id] = _link_item(item, target_of(claim_id), doctree)
        folded = next(iter(listed.findall(fold)))
        items = next(iter(folded.findall(nodes.bullet_list)))
        if not items.children:
            folded.remove(items)
        if above.children:
            above.insert(0, nodes.Text("With a line of their own: "))
            above += nodes.Text(".")
            folded += above
        listed.replace_self(list(listed.children))
    return anchors


def _link_item(item: nodes.Element, anchor: str, doctree: nodes.document) -> str:
    item["ids"].append(anchor)
    label = item["section"]
    if not label:
        return anchor
    target = doctree.nameids.get(label)
    if target is None:
        warn(
            f"claim {item['claim']} is said to be measured in the section labelled {label!r}, but "
            "this page has no such label",
            "claim",
            item,
        )
        return anchor
    title = _title(doctree, target)
    words = next((child for child in item.children if isinstance(child, nodes.paragraph)), None)
    if words is not None:
        link = nodes.reference("", title, internal=True, refid=target, classes=["claim-where"])
        words[-1:-1] = [nodes.Text("\N{MIDDLE DOT} "), link, nodes.Text(" \N{MIDDLE DOT} ")]
    return target


def _title(doctree: nodes.document, target: str) -> str:
    for section in doctree.findall(nodes.section):
        if target in section["ids"]:
            return next(iter(section.findall(nodes.title))).astext()
    return "where it is measured"
