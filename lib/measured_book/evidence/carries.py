"""What is asked of a real model: findings of the book's small models, declared before the model was run.

One TOML file, ``rooms/carry_over/carries.toml``. A row names a claim of the registry, or a part of one, and
says how the same is asked of the real model::

    scope = "SmolLM2-135M-Instruct, 4 bits. A seed is a draw of texts."    # of every row

    [[row]]
    claim = "CS-3.4a.twelve"                # a claim, or a claim and a part of it
    also = ["DD-2.13.distance_untrained"]   # optional: parts that stand on the same values
    theme = "stream"                        # one of THEMES
    question = "Does the stream grow with depth?"
    unit = "of the logarithm a block"       # of both effects, or of the real model's
    small_unit = "of the answers"           # of the small model's, where the row has a rule of its own
    scope = "The first token left out."     # what is particular to this row
    value = "stream.size|log|slope(state)"  # what the rule is judged by, over results of the room carry_over
    minilm = "LT-18.10.all"                 # optional: a part about all-MiniLM-L6-v2, shown beside
    literature = "Some et al. (2024): 0.3."  # optional: what others found in other models, shown beside

The values that a rule asks for stand in the row under their names. The rule is the claim's own; where the real
model is measured in another unit, the row has a ``rule`` of its own, a ``small_unit``, and says ``why``.

What is not asked stands below, by kind: chapters, or claims, and one reason for all of them::

    [[cannot]]
    reason = "It takes training."
    chapters = ["book/training/*"]
    claims = ["DD-9.7"]

Claims that are identities, arithmetic or cited, or about the real model itself, need no such entry: `UNASKED`
and `ABOUT_IT` are their reasons. Every other claim of the registry must be asked or have a reason; nothing
here says what came out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from measured_book.evidence.declarations import Lines, evidence_from, rule_from
from measured_book.evidence.grammar import nearest
from measured_book.evidence.registry import claims
from measured_book.evidence.schema import Claim, Evidence, Part, Rule
from measured_book.evidence.tables import Table, Words

ROOM = "carry_over"
"""The room whose results the expressions read."""
OVER, NOT, OPEN = "carries over", "does not", "undecided"
"""What a row can come to."""
THEMES: Mapping[str, str] = {
    "attention": "where heads look",
    "heads": "who is missed among heads",
    "blocks": "who is missed among blocks",
    "stream": "the stream",
    "lens": "reading early, and repair",
    "neurons": "neurons",
    "induction": "repeats and induction",
    "attribution": "attribution",
    "facts": "facts",
    "probes": "probes",
    "language": "text that is written",
    "counts": "counts",
}
"""A theme -> its words, in the order of the table."""
UNASKED: Mapping[str, str] = {
    "identity": "It is an identity, which holds for any weights.",
    "arithmetic": "It is arithmetic on a formula, on initial weights or on a source's own numbers.",
    "cited": "It is cited, and measured nowhere in the book.",
}
"""Kind of a claim -> why it is not asked, unless a row asks it all the same."""
PART = "book/real-language-model/"
ABOUT_IT = "It is a claim about this very model."
"""Why claims of the chapters of `PART` are not asked."""


@dataclass(frozen=True)
class Row:
    """One question to the real model.

    Attributes:
        claim: the claim's id.
        part: the name of its part; empty where the claim has none.
        also: further claims and parts that stand on the same values.
        theme: a key of `THEMES`.
        question: in one sentence.
        unit: of the real model's effect.
        small_unit: of the small model's, the same unless the row has a rule of its own.
        scope: of this row, behind that of all rows.
        rule: what the real model is judged by.
        why: why this is not the claim's own rule; empty where it is.
        evidence: the rule's values, as expressions over results of the room.
        minilm: a claim about all-MiniLM-L6-v2 and its part, whose effect stands beside.
        literature: what others found in other models; empty for nothing.
        where: file and line, for errors.
    """

    claim: str
    part: str
    also: tuple[tuple[str, str], ...]
    theme: str
    question: str
    unit: str
    small_unit: str
    scope: str
    rule: Rule
    why: str
    evidence: Evidence
    minilm: tuple[str, str] | None
    literature: str
    where: str

    @property
    def name(self) -> str:
        """Claim and part: ``CS-3.4a.twelve``."""
        return joined(self.claim, self.part)

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims that are asked by this row."""
        return (self.claim, *(claim for claim, _ in self.also))


@dataclass(frozen=True)
class Carries:
    """All that is asked, and why the rest is not.

    Attributes:
        scope: of every row.
        rows: in the order of the file.
        unasked: claim -> the reason why it is not asked.
    """

    scope: str
    rows: tuple[Row, ...]
    unasked: Mapping[str, str]


def joined(claim: str, part: str) -> str:
    """The name of a part of a claim, or of a claim without parts."""
    return f"{claim}.{part}" if part else claim


@lru_cache(maxsize=1)
def carries() -> Carries:
    """What the library's own file asks.

    Raises:
        ValueError: the file breaks the schema; the message has file and line.
    """
    path = Path(str(resources.files("measured_book") / "rooms" / "carry_over" / "carries.toml"))
    return parse_carries(path.read_text("utf-8"), "carry_over/carries.toml", claims())


def parse_carries(text: str, file: str, known: Mapping[str, Claim]) -> Carries:
    """What a TOML text asks of the real model.

    Args:
        text: of the form that this module describes.
        file: its name, for errors.
        known: the registry.

    Raises:
        ValueError: the text breaks the schema, names a claim, part or theme that is not there, asks one thing
            twice, or leaves out a claim without a reason; the message has file and line, and the nearest name.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: expected TOML, got text that breaks it: {error}") from None
    top = Table(data, file)
    scope = top.needed_text("scope")
    rows = _tables(top, "row")
    cannot = _tables(top, "cannot")
    top.done()
    lines = Lines(file, text)
    found = tuple(_row(row, number, lines, known) for number, row in enumerate(rows, start=1))
    seen: dict[str, str] = {}
    for row in found:
        for name in (row.name, *(joined(*one) for one in row.also)):
            if name in seen:
                raise ValueError(
                    f"{row.where}: expected each part once, got {name} again ({seen[name]})"
                )
            seen[name] = row.where
    asked = {claim for row in found for claim in row.claims}
    return Carries(scope, found, _unasked(cannot, file, known, asked))


def _tables(table: Table, name: str) -> list[dict[str, Any]]:
    rows = table.take(name) or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise table.error(name, f"[[{name}]] tables", rows)
    return rows


def _row(data: dict[str, Any], number: int, lines: Lines, known: Mapping[str, Claim]) -> Row:
    name = data.get("claim")
    where = f"{lines.file}, row number {number}"
    if isinstance(name, str):
        where = f"{_line(lines, name)}, row {name}"
    table = Table(data, where)
    claim, part = _named(table, "claim", table.needed_text("claim"), known)
    also = table.take("also") or []
    if not isinstance(also, list) or not all(isinstance(one, str) for one in also):
        raise table.error("also", 'a list such as ["DD-2.9.distance"]', also)
    theme = table.needed_text("theme")
    if theme not in THEMES:
        raise table.error("theme", f"a theme; {nearest(theme, THEMES)}", theme)
    own = _rule_of(known[claim], part)
    changed, why = table.take("rule"), table.text("why", needed=False)
    if (changed is None) != (why is None):
        raise table.error(
            "why", "a reason beside a rule of the row's own", Words("only one of them")
        )
    small_unit = table.text("small_unit", needed=False)
    if (changed is None) != (small_unit is None):
        raise table.error(
            "small_unit",
            "the unit of the small model's effect beside a rule of the row's own",
            Words("only one of them"),
        )
    rule = own if changed is None else rule_from(changed, where)
    if rule is None:
        raise table.error("claim", f"a part of {claim} ({_parts(known[claim])})", name)
    minilm = table.text("minilm", needed=False)
    row = Row(
        claim=claim,
        part=part,
        also=tuple(_named(table, "also", one, known) for one in also),
        theme=theme,
        question=table.needed_text("question"),
        unit=(unit := table.needed_text("unit")),
        small_unit=small_unit or unit,
        scope=table.needed_text("scope"),
        rule=rule,
        why=why or "",
        evidence=evidence_from(
            {n: x for n in rule.value_names if (x := table.take(n)) is not None},
            rule,
            {},
            where,
            Lines(lines.file, lines.text, str(name)),
        ),
        minilm=None if minilm is None else _named(table, "minilm", minilm, known),
        literature=table.text("literature", needed=False) or "",
        where=where,
    )
    if not row.evidence:
        raise table.error(", ".join(rule.value_names), "expressions", Words("nothing"))
    if not row.question.endswith("?"):
        raise table.error("question", "a question", row.question)
    table.done()
    return row


def _line(lines: Lines, name: str) -> str:
    for number, line in enumerate(lines.text.splitlines(), start=1):
        if line.startswith("claim = ") and f'"{name}"' in line:
            return f"{lines.file}, line {number}"
    return lines.file


def _named(table: Table, field: str, name: str, known: Mapping[str, Claim]) -> tuple[str, str]:
    """The claim and the part that a name such as ``CS-3.4a.twelve`` stands for."""
    claim = next((one for one in _heads(name) if one in known), None)
    if claim is None:
        raise table.error(field, f"a claim of the registry; {nearest(name, known)}", name)
    part = name[len(claim) :].removeprefix(".")
    parts = [one.name for one in known[claim].parts]
    if part not in (parts or [""]):
        raise table.error(field, f"a part of {claim}; {nearest(part, parts)}", name)
    return claim, part


def _heads(name: str) -> Sequence[str]:
    words = name.split(".")
    return [".".join(words[:count]) for count in range(len(words), 0, -1)]


def _rule_of(claim: Claim, part: str) -> Rule | None:
    return claim.part(part).rule if part else claim.rule


def _parts(claim: Claim) -> str:
    names: list[Part] = list(claim.parts)
    return ", ".join(one.name for one in names) or "it has none"


def _unasked(
    tables: Sequence[dict[str, Any]], file: str, known: Mapping[str, Claim], asked: set[str]
) -> dict[str, str]:
    """Why each claim that no row asks is not asked; the first entry that fits gives the reason."""
    entries = []
    for number, data in enumerate(tables, start=1):
        table = Table(data, f"{file}, cannot number {number}")
        reason = table.needed_text("reason")
        patterns = {}
        for field, names in (("claims", known), ("chapters", {c.chapter for c in known.values()})):
            patterns[field] = table.take(field) or []
            for one in patterns[field]:
                if not any(fnmatchcase(name, one) for name in names):
                    raise table.error(field, f"a pattern that fits; {nearest(one, names)}", one)
        table.done()
        entries.append((reason, patterns))
    found: dict[str, str] = {}
    left: list[str] = []
    for claim_id, claim in known.items():
        if claim_id in asked:
            continue
        fits = [
            reason
            for reason, patterns in entries
            if any(fnmatchcase(claim_id, one) for one in patterns["claims"])
            or any(fnmatchcase(claim.chapter, one) for one in patterns["chapters"])
        ]
        about_it = [ABOUT_IT] if claim.chapter.startswith(PART) else []
        by_kind = [UNASKED[claim.kind]] if claim.kind in UNASKED else []
        reasons = [*about_it, *by_kind, *fits]
        if reasons:
            found[claim_id] = reasons[0]
        else:
            left.append(claim_id)
    if left:
        raise ValueError(
            f"{file}: expected every claim to be asked or to have a reason, got neither for {', '.join(left)}"
        )
    return found
