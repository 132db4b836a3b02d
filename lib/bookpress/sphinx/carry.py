"""What carries over to a real model: the table, a chapter's own rows, and its numbers.

Directives and role:
    {carry-over}            the rows of the page's own chapter, folded
    {carry-over} all        every row; a script sorts and filters them
    {carry-over} reasons    why the other claims are not asked, with how many each reason keeps out
    {carried}`over`         a number: over, findings, not, undecided, claims or of

What the small models say is taken from the chapters once all are read, as on the Scorecard; the real model's
room is judged then. Pages that show any of it are written again when it has changed.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from measured_book.evidence.carries import NOT, OPEN, OVER, ROOM, THEMES, carries
from measured_book.evidence.records import number_text
from measured_book.evidence.verdicts import Verdict
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from bookpress.sphinx.claim_nodes import claims_of
from bookpress.sphinx.nodes import fold
from bookpress.sphinx.page import warn
from bookpress.sphinx.rooms import judged
from bookpress.sphinx.scores import SCORECARD, page_with, rows_of
from bookpress.sphinx.words import rule_in_words

SHOWS = "measured_shows_carried"
"""Page metadata: the page shows rows or numbers of the table."""
TABLE = "measured_carry_table"
"""Page metadata: the page has the whole table."""
FORMS = ("own", "all", "reasons")
NUMBERS = ("over", "findings", "not", "undecided", "claims", "of")
"""What numbers are called on a page."""
Asked = dict[str, Any]
"""A row of the table as plain data, see `plain`."""
SIGNS = {OVER: "\N{CHECK MARK}", NOT: "\N{BALLOT X}", OPEN: "?"}


class carry_place(nodes.General, nodes.Element):  # noqa: N801 (docutils' own way)
    """Where a table will stand."""


class carry_number(nodes.Inline, nodes.TextElement):  # noqa: N801
    """Where a number will stand."""


class _CarryOver(SphinxDirective):
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        form = str(self.arguments[0]) if self.arguments else "own"
        if form not in FORMS:
            problem = f"expected {{carry-over}} with one of {', '.join(FORMS)}, got {form!r}"
            warn(problem, "carry", self.get_location())
            return []
        self.env.metadata[self.env.docname].update({SHOWS: True})
        if form == "all":
            self.env.metadata[self.env.docname].update({TABLE: True})
        place = carry_place(form=form)
        self.set_source_info(place)
        return [place]


def _number(
    name: str, rawtext: str, text: str, lineno: int, inliner: Inliner, *_: Any, **__: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    del name, lineno
    env: BuildEnvironment = inliner.document.settings.env
    if text not in NUMBERS:
        warn(f"expected one of {', '.join(NUMBERS)}, got {text!r}", "carry", env.docname)
        return [], []
    env.metadata[env.docname].update({SHOWS: True})
    return [carry_number(rawtext, "", what=text)], []


# What is known once all pages are read ------------------------------------------------------------


def gather(env: BuildEnvironment) -> list[Asked]:
    """Judge the rows: the small models as the chapters say, the real one from its room."""
    carrying = importlib.import_module("measured_book.measuring.carrying")
    rows, own = rows_of(env), judged(env, ROOM)
    apart = carrying.kept_parts()  # of chapters that this book does not have

    def small(claim: str, part: str) -> Any:
        outcome = rows[claim]["outcome"] if claim in rows else None
        for one in outcome["parts"] if outcome else ():
            if one["name"] == part:
                interval = one["interval"]
                ends = None if not interval else (interval[0], interval[1])
                return carrying.Said(one["effect"], ends, Verdict(one["verdict"]))
        return apart(claim, part)

    try:
        return [plain(one) for one in carrying.asked_rows(small=small, real=own)]
    except (ValueError, KeyError, AttributeError) as error:
        warn(f"what carries over: {error.args[0] if error.args else error}", "carry", None)
        return []


def counts_of(env: BuildEnvironment, asked: Sequence[Asked]) -> dict[str, int]:
    """The numbers of `NUMBERS`, for rows of the table."""
    outcomes = Counter(one["outcome"] for one in asked)
    return {
        "over": outcomes[OVER],
        "findings": len(asked),
        "not": outcomes[NOT],
        "undecided": outcomes[OPEN],
        "claims": len({claim for one in asked for claim in one["claims"]}),
        "of": len(claims_of(env)),
    }


def _asked(env: BuildEnvironment) -> list[Asked]:
    found: list[Asked] = getattr(env, "measured_carried", [])
    return found


def _write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    pages = sorted(name for name in env.found_docs if env.metadata[name].get(SHOWS))
    if not pages:
        return []
    env.measured_carried = gather(env)  # type: ignore[attr-defined]
    return [] if _digest(env) == _written(app) else pages


def _digest(env: BuildEnvironment) -> str:
    told = [*_asked(env), sorted(carries().unasked.items())]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _note(app: Sphinx) -> Path:
    return Path(app.doctreedir) / f"carried-{app.builder.name}.txt"


def _written(app: Sphinx) -> str:
    return _note(app).read_text("utf-8") if _note(app).is_file() else ""


# Filling pages -------------------------------------------------------------------------------------


class FillCarried(SphinxPostTransform):
    """Put tables and numbers into the places that were left for them."""

    default_priority = 10

    def run(self, **kwargs: object) -> None:
        """Replace every placeholder of the page."""
        asked = _asked(self.env)
        for number in list(self.document.findall(carry_number)):
            value = counts_of(self.env, asked)[number["what"]] if asked else "?"
            number.replace_self(nodes.inline("", str(value), classes=["measured"]))
        for place in list(self.document.findall(carry_place)):
            place.replace_self(list(self._filled(place["form"], asked)) if asked else [])

    def _filled(self, form: str, asked: Sequence[Asked]) -> Iterator[nodes.Node]:
        if form == "reasons":
            yield self._reasons()
        elif form == "all":
            if self.app.builder.format == "html":
                name = self.env.docname.rpartition("/")[2]
                files = " and ".join(
                    f'<a href="{name}.{end}" download>{end.upper()}</a>' for end in ("json", "csv")
                )
                text = f'<p class="score-files">Take all rows with you as {files}.</p>'
                yield nodes.raw("", text, format="html")
            yield self._table(asked, whole=True)
        else:
            yield from self._own(asked)

    def _own(self, asked: Sequence[Asked]) -> Iterator[nodes.Node]:
        known = claims_of(self.env)
        own = [
            one
            for one in asked
            if any(known[c].chapter == self.env.docname for c in one["claims"] if c in known)
        ]
        if not own:
            warn("no finding of this chapter is asked of the real model", "carry", self.env.docname)
            return
        counts = counts_of(self.env, own)
        words = f"{counts['over']} of {counts['findings']} findings of this chapter carry over"
        summary = f"In a real model, SmolLM2-135M-Instruct in 4 bits: {words}"
        table = self._table(own, whole=False)
        page = page_with(self.env, TABLE)
        body: list[nodes.Node] = [table]
        if page is not None:
            uri = self.app.builder.get_relative_uri(self.env.docname, page)
            link = nodes.reference("", "", nodes.Text("All rows"), internal=True, refuri=uri)
            body.append(nodes.paragraph("", "", link))
        yield fold("", *body, summary=summary)

    def _table(self, asked: Sequence[Asked], *, whole: bool) -> nodes.table:
        header, body = nodes.row(), nodes.tbody()
        for title in ("Question", "Small model", "Real model", "Carries over?"):
            header += nodes.entry("", nodes.paragraph("", title))
        order = list(THEMES)
        for one in sorted(asked, key=lambda each: order.index(each["theme"])):
            body += self._row(one, whole=whole)
        widths = (nodes.colspec(colwidth=width) for width in (46, 20, 20, 14))
        group = nodes.tgroup("", *widths, nodes.thead("", header), body, cols=4)
        return nodes.table("", group, classes=["carry-table", "whole" if whole else "own"])

    def _row(self, one: Asked, *, whole: bool) -> nodes.row:
        slug = one["finding"].replace(".", "-").replace("_", "-")
        kind = one["outcome"].replace(" ", "-")
        line = nodes.row(classes=[f"theme-{one['theme']}", f"outcome-{kind}"])
        if whole:
            line["ids"] = [f"carry-{slug}"]
        said = nodes.entry("", nodes.paragraph("", one["question"]))
        names = nodes.paragraph("", "", classes=["claim-source"])
        if whole:
            names += nodes.Text(f"{THEMES[one['theme']]}: ")
        for index, claim in enumerate(one["claims"]):
            if index:
                names += nodes.Text(", ")
            names += self._claim(claim)
        if whole:
            to = {"refuri": f"#carry-{slug}", "reftitle": f"Link to the row {one['finding']}"}
            names += nodes.Text(" \N{MIDDLE DOT} ")
            names += nodes.reference("", "", nodes.Text("link"), internal=True, **to)
        said += names
        if whole:
            said += fold("", self._details(one), summary="Scope and rule")
        line += said
        line += self._effect(one["small"], one["small unit"])
        line += self._effect(one["real"], one["unit"])
        words = f"{SIGNS[one['outcome']]} {one['outcome']}"
        badge = nodes.inline("", words, classes=["carry-outcome", f"carry-{kind}"])
        line += nodes.entry("", nodes.paragraph("", "", badge))
        return line

    def _claim(self, claim: str) -> nodes.Node:
        page = page_with(self.env, SCORECARD)
        if page is None:
            return nodes.Text(claim)
        uri = f"{self.app.builder.get_relative_uri(self.env.docname, page)}#{claim}"
        return nodes.reference("", "", nodes.Text(claim), internal=True, refuri=uri)

    @staticmethod
    def _effect(said: Mapping[str, Any] | None, unit: str) -> nodes.entry:
        if said is None:
            return nodes.entry("", nodes.paragraph("", "not measured"))
        text = nodes.paragraph("", effect_in_words(said))
        word = nodes.paragraph("", f"{unit}; {said['verdict']}", classes=["claim-source"])
        return nodes.entry("", text, word)

    @staticmethod
    def _details(one: Asked) -> nodes.definition_list:
        listed = nodes.definition_list(classes=["claim-details"])
        for term, text in details(one):
            item = nodes.definition_list_item("", nodes.term("", term))
            item += nodes.definition("", nodes.paragraph("", text))
            listed += item
        return listed

    def _reasons(self) -> nodes.bullet_list:
        listed = nodes.bullet_list()
        for reason, count in Counter(carries().unasked.values()).most_common():
            words = f"{reason} {count} {'claim' if count == 1 else 'claims'}."
            listed += nodes.list_item("", nodes.paragraph("", words))
        return listed


def effect_in_words(said: Mapping[str, Any]) -> str:
    """An effect with its interval."""
    text = number_text(said["effect"], ".3g")
    if said["interval"] is None:
        return text
    return f"{text} ({' to '.join(number_text(end, '.3g') for end in said['interval'])})"


def details(one: Asked) -> Iterator[tuple[str, str]]:
    """What was declared of a row, and what stands beside it."""
    yield "Asked of the real model", one["scope"]
    yield "Rule, declared beforehand", one["rule"]
    if one["why"]:
        yield "Why not the claim's own rule", one["why"]
    if beside := one["all-MiniLM-L6-v2"]:
        yield "all-MiniLM-L6-v2", f"{effect_in_words(beside)}, {beside['verdict']}"
    if one["literature"]:
        yield "Literature, other models", one["literature"]
    if one["problem"]:
        yield "Not measured", one["problem"]


# Files ----------------------------------------------------------------------------------------------


def exported(env: BuildEnvironment, asked: Sequence[Asked]) -> dict[str, Any]:
    """All rows as plain data: counts, what was declared, and what both models say."""
    return {
        "title": "What carries over",
        "scope": carries().scope,
        "counts": counts_of(env, asked),
        "rows": list(asked),
        "not asked": dict(carries().unasked),
    }


def plain(one: Any) -> Asked:
    """A row of `measuring.carrying` as plain data."""
    row = one.row
    return {
        "finding": row.name,
        "claims": list(row.claims),
        "theme": row.theme,
        "question": row.question,
        "unit": row.unit,
        "small unit": row.small_unit,
        "scope": row.scope,
        "rule": rule_in_words(row.rule.as_dict()),
        "why": row.why,
        "literature": row.literature,
        "small": _said(one.small),
        "real": _said(one.real),
        "all-MiniLM-L6-v2": _said(one.minilm),
        "outcome": one.outcome,
        "problem": one.problem,
    }


def _said(said: Any) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "effect": said.effect,
        "interval": None if said.interval is None else list(said.interval),
        "verdict": said.verdict.value,
    }


def as_csv(data: Mapping[str, Any]) -> str:
    """The rows as a table, a line each."""
    names = ["finding", "claims", "theme", "question", "unit", "small unit", "scope", "rule", "why"]
    names.append("literature")
    sides = ("small", "real", "all-MiniLM-L6-v2")
    numbers = [f"{side} {what}" for side in sides for what in ("effect", "low", "high", "verdict")]
    text = io.StringIO()
    table = csv.DictWriter(text, [*names, *numbers, "outcome"], extrasaction="ignore")
    table.writeheader()
    for row in data["rows"]:
        line = {**row, "claims": " ".join(row["claims"])}
        for side in sides:
            if (said := row[side]) is not None:
                low, high = said["interval"] or (None, None)
                told = {"effect": said["effect"], "low": low, "high": high}
                line |= {f"{side} {k}": v for k, v in (told | {"verdict": said["verdict"]}).items()}
        table.writerow(line)
    return text.getvalue()


def _write_files(app: Sphinx, error: Exception | None) -> None:
    if error is not None or not _asked(app.env):
        return
    _note(app).write_text(_digest(app.env), "utf-8")
    page = page_with(app.env, TABLE)
    if page is None or app.builder.format != "html":
        return
    data = exported(app.env, _asked(app.env))
    for end, text in (
        ("json", json.dumps(data, indent=1, ensure_ascii=False) + "\n"),
        ("csv", as_csv(data)),
    ):
        path = Path(app.outdir) / f"{page}.{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))


def _add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, object], doctree: object
) -> None:
    if app.env.metadata.get(pagename, {}).get(TABLE):
        app.add_js_file("carry-over.js", loading_method="defer")


def setup(app: Sphinx) -> None:
    """Register directive, role, nodes and events."""
    app.add_node(carry_place)
    app.add_node(carry_number)
    app.add_directive("carry-over", _CarryOver)
    app.add_role("carried", _number)
    app.add_post_transform(FillCarried)
    app.connect("env-updated", _write_again, priority=600)
    app.connect("html-page-context", _add_script)
    app.connect("build-finished", _write_files)
