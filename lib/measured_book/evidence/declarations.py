"""Claims as a room declares them: what the sources say, and the rule each is judged by, declared beforehand.

One TOML file a chapter, ``rooms/<room>/claims.toml``, begins with the chapter's document name
and then lists claims::

    chapter = "book/positions/positional-encoding"

    [[claim]]
    id = "CS-1.3"                     # SOURCE-section.row, with a letter when a row was split
    source = "CS"                     # CS, DA, DD, EX or IW; LT for a paper, named by `reference`
    place = "section 1"               # where in the source
    quote = "The similarity depends primarily on the relative distance"    # its own words, 40 at most
    statement = "Similarity depends on the offset alone."     # in our own words
    kind = "identity"                 # identity | arithmetic | experiment | pretrained | cited
    scope = "Sinusoidal encodings themselves, before any learned projection."
    test = "Largest deviation of S[i, j] from s(|i - j|) in float64; a random table must fail."
    status = "covered"                # covered (the default) | planned
    section = "only-the-offset-counts"        # optional: a label on the chapter's page
    expected = "confirmed"            # the verdict that the prose discusses
    [claim.rule]
    type = "identity"
    tolerance = 1e-9
    control_above = 1e-3

A claim with several parts has no ``rule``; it names the ``axis`` and has one rule a part::

    [[claim]]
    id = "DD-7.7"
    source = "DD"
    place = "section 7"
    statement = "Rotary positions carry over to longer sequences better than the others."
    kind = "experiment"
    scope = "Two-layer decoders of width 64 on the lag task, trained at length 32."
    test = "Excess loss at length 64, paired by seed."
    seeds = 10
    expected = "conditional"
    axis = "the scheme that rotary is compared with"
    combine = "levels"                # levels (the default) | readings | every | majority
    [[claim.part]]
    name = "sinusoidal"
    label = "against sinusoidal"      # optional: what a reader sees; the name by default
    [claim.part.rule]
    type = "difference"
    direction = "less"
    smallest_effect = 0.1
    [[claim.part]]
    name = "alibi"
    [claim.part.rule]
    type = "difference"
    direction = "less"
    smallest_effect = 0.1

What most parts share stands once: a ``[claim.rule]`` beside parts is the rule of every part without one, and
in ``[claim.parts]`` each part is a line. This is the second claim above once more::

    axis = "the scheme that rotary is compared with"
    [claim.rule]
    type = "difference"
    direction = "less"
    smallest_effect = 0.1
    [claim.parts]
    sinusoidal = {label = "against sinusoidal"}
    alibi = {}

A part's own ``rule`` without a ``type`` changes parameters of the shared one.

What a rule is judged by stands beside it, as expressions over the room's results (`evidence.expressions`),
one for each value that the rule asks for, or a list of them, whose values are concatenated::

    [claim.evidence]
    treatment = "excess[scheme=rotary]"
    baseline = "excess[scheme={part}]"

In the evidence of a claim with parts, ``{part}`` stands for the name of each part, and ``{word}`` for what the
part gives that word: ``alibi = {label = "against ALiBi", word = "ALiBi"}``. A part may also hold values of its
own: ``alibi = {baseline = "excess[scheme=ALiBi]"}``. Where no expression says it, a function of the room does,
see `measuring.measurement.evidence`. A table at the top of the file names expressions that others use, and the
text of the page::

    [values]
    excess = "lengths.loss[length=64] - lengths.loss[length=32]"

Fields beside those of the examples:

- ``chapter`` may stand in a claim instead of at the top of the file.
- ``quote``: what the source says, letter by letter, with ``[...]`` for what is left out: see `quotations`.
  Where it says nothing of what is tested, ``ours`` says in its place why we ask; such a row is shown as *our
  check*, and counted apart. Each claim of a document has one of the two; a paper is named by its ``reference``.
- ``said_of``: of which models the source says it, with their size in numbers, where a claim was measured at
  another size: ``said_of = "BERT-base, 110 million weights"``. What its rule refutes is then called *does not
  carry over*. Only experiments and claims about pretrained models have a size.
- ``misprint``: what the source's own words say instead of a formula that it prints, and the claim of the same
  source, in the same file, that shows that those words hold:
  ``misprint = {says = "W_Q times the transpose of W_K", shown_by = "IW-4.5"}``. What is printed must be refuted
  by its rule, and is then called a *misprint*; only identities and arithmetic can be one.
- ``other_seeds``: the verdict by a second set of seeds (see `bookpress.second_seeds`), where that decides and
  is another one: ``other_seeds = "not reproduced"``. Both sets then count alike: confirmed by one alone is
  *conditional*, refuted by one and not reproduced by the other is *not reproduced*. Experiments alone have it.
- ``seeds``: required for experiments, and for any rule that takes one value a seed: the number of
  values that each arm has.
- ``reference``: a key of ``references.bib`` or a list of keys; required when ``kind = "cited"`` and when the
  source is ``LT``, a statement of the literature: the first one is where it is made.
- ``expected``: required for a covered claim that has a rule.
- A cited claim has no rule, no parts and the verdict *fact*. A planned claim is one that no chapter
  measures yet: its rule, parts and ``seeds`` are declared beforehand like those of a covered one,
  and only ``expected`` may be missing.

Rules (what each one means is written at its class): `Identity`, `Number`, `Bound`, `Difference`,
`Equivalence`, `Proportion`, `Threshold`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from measured_book.evidence.grammar import ExpressionError, parse
from measured_book.evidence.quotations import TITLES, wrong_form
from measured_book.evidence.schema import (
    KINDS,
    RULES,
    SOURCES,
    STATUSES,
    Claim,
    Evidence,
    Part,
    Rule,
    Written,
)
from measured_book.evidence.tables import Table, Words
from measured_book.evidence.verdicts import COMBINATIONS, LEVELS, Verdict

_ID = re.compile(r"(CS|DA|DD|EX|IW|LT)-[0-9]+\.[0-9]+[a-z]?")
_LABEL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DOCNAME = re.compile(r"[\w-]+(/[\w-]+)*")


def rule_from(data: object, where: str) -> Rule:
    """The rule that a table declares.

    Raises:
        ValueError: what stands there is no rule; the message names the place and the field.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where}, field rule: expected a table [rule], got {data!r}")
    table = Table(data, where + ", rule")
    kind = RULES[table.choice("type", tuple(RULES))]
    table.where = f"{where}, {kind.type} rule"
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        value = table.take(field.name)
        if value is None:
            if field.default is dataclasses.MISSING:
                raise table.error(field.name, _expected_type(field), Words("nothing"))
            continue
        arguments[field.name] = _typed(table, field, value)
    table.done()
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ValueError(f"{table.where}, field {error}") from None


_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "float": ("a number", (int, float)),
    "int": ("a whole number", (int,)),
    "bool": ("true or false", (bool,)),
    "str": ("a text", (str,)),
    "tuple[float, ...]": ("a number or a list of numbers", (int, float, list)),
}


def _annotation(field: dataclasses.Field[Any]) -> str:
    return str(field.type).removesuffix(" | None")


def _expected_type(field: dataclasses.Field[Any]) -> str:
    return _TYPES[_annotation(field)][0]


def _typed(table: Table, field: dataclasses.Field[Any], value: Any) -> Any:
    annotation = _annotation(field)
    words, types = _TYPES[annotation]
    fits = isinstance(value, types) and (annotation == "bool" or not isinstance(value, bool))
    if annotation == "tuple[float, ...]" and fits:
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in items):
            raise table.error(field.name, words, value)
        return tuple(float(x) for x in items)
    if not fits:
        raise table.error(field.name, words, value)
    return float(value) if annotation == "float" else value


_PLACE = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True)
class Lines:
    """A file of claims, by lines, in which expressions are found again."""

    file: str
    text: str
    claim: str = ""

    def where(self, expression: str) -> str:
        """File and line of an expression: the first behind the claim's id that holds it."""
        lines = self.text.splitlines()
        start = next((i for i, x in enumerate(lines) if f'"{self.claim}"' in x), 0)
        told = (expression, expression.replace('"', '\\"'))
        for number, line in enumerate(lines[start:], start=start + 1):
            if any(one in line for one in told):
                return f"{self.file}, line {number}"
        return f"{self.file}, line {start + 1}"


def evidence_from(
    given: Mapping[str, Any], rule: Rule, words: Mapping[str, str], where: str, lines: Lines
) -> Evidence:
    """What a rule is judged by, from one or more expressions for each value.

    Raises:
        ValueError: an expression is none, or cannot be read; the message names the place.
    """
    if not given:
        return {}
    table = Table(given, where)
    found: dict[str, tuple[Written, ...]] = {}
    for name in rule.value_names:
        value = table.take(name)
        texts = value if isinstance(value, list) else [value]
        if value is None and name in rule.optional_names:
            continue
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            came = Words("nothing") if value is None else value
            raise table.error(f"evidence.{name}", "an expression, or a list of them", came)
        found[name] = tuple(_written(text, words, table, lines) for text in texts)
    table.where = f"{where}, evidence"
    table.done()
    return found


def _written(text: str, words: Mapping[str, str], table: Table, lines: Lines) -> Written:
    where = lines.where(text)
    for word in _PLACE.findall(text):
        if word not in words:
            raise ValueError(
                f"{where}: expected one of the words {', '.join(words) or 'that parts give'} in braces, "
                f"got {{{word}}} in {text!r}"
            )
    filled = _PLACE.sub(lambda found: words[found[1]], text)
    try:
        parse(filled)
    except ExpressionError as error:
        raise ValueError(f"{where}: {error}") from None
    return Written(filled, where)


def _part_rows(table: Table) -> dict[str, dict[str, Any]]:
    """The parts by name, in either form."""
    rows, short = table.take("part"), table.take("parts")
    if rows is not None and short is not None:
        raise table.error("parts", "either [claim.parts] or [[claim.part]] tables", Words("both"))
    if rows is None and short is None:
        return {}
    if short is not None:
        if not isinstance(short, dict) or not all(isinstance(r, dict) for r in short.values()):
            raise table.error("parts", "a table for each part, such as alibi = {}", short)
        rows = [{"name": name, **row} for name, row in short.items()]
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(r, dict) for r in rows):
        raise table.error("part", "two or more [[claim.part]] tables", rows)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            raise table.error("part.name", "a name such as sinusoidal or layer_0", name)
        if name in found:
            raise table.error("part.name", "a name for each part", Words(f"{name!r} twice"))
        found[name] = row
    return found


def _parts(
    table: Table, shared: object, evidence: Mapping[str, Any], lines: Lines
) -> tuple[Part, ...]:
    """The parts of a claim.

    Args:
        table: of the claim.
        shared: the rule of those parts that have none; None for no such rule.
        evidence: expressions of those parts that have none for a value.
        lines: the file.
    """
    parts: list[Part] = []
    used = False
    rows = _part_rows(table)
    for name, row in rows.items():
        inner = Table(row, f"{table.where}, part {name}")
        inner.take("name")
        label = inner.text("label", needed=False) or name
        own = inner.take("rule")
        used |= own is None or (isinstance(own, dict) and "type" not in own)
        if isinstance(shared, dict) and isinstance(own, dict) and "type" not in own:
            own = {**shared, **own}
        rule = rule_from(shared if own is None else own, inner.where)
        values = {n: x for n in rule.value_names if (x := inner.take(n)) is not None}
        given = {**{n: x for n, x in evidence.items() if n in rule.value_names}, **values}
        texts = [x for v in given.values() for x in (v if isinstance(v, list) else [v])]
        asked = {word for text in texts for word in _PLACE.findall(str(text))} - {"part"}
        words = {"part": name, **{word: inner.needed_text(word) for word in sorted(asked)}}
        inner.done()
        parts.append(Part(name, rule, label, evidence_from(given, rule, words, inner.where, lines)))
    if parts and shared is not None and not used:
        raise table.error("rule", "no rule beside parts that all have their own", Words("one"))
    known = {name for part in parts for name in part.rule.value_names}
    if strange := [name for name in evidence if parts and name not in known]:
        raise table.error(
            "evidence", f"values of the parts' rules ({', '.join(sorted(known))})", strange[0]
        )
    return tuple(parts)


def _seeds(table: Table) -> int | None:
    value = table.take("seeds")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise table.error("seeds", "a whole number of two or more, such as 10", value)
    return value


def _expected(table: Table) -> Verdict | None:
    value = table.take("expected")
    if value is None:
        return None
    names = tuple(verdict.value for verdict in Verdict)
    if value not in names:
        raise table.error("expected", "one of " + ", ".join(names), value)
    return Verdict(value)


def _quotation(table: Table, source: str) -> tuple[str, str]:
    """The source's own words, or why the row is ours."""
    quote = table.text("quote", needed=False) or ""
    ours = table.text("ours", needed=False) or ""
    if quote and ours:
        raise table.error("quote, ours", "one of the two", Words("both"))
    if quote and source not in TITLES:
        raise table.error("quote", "none for a paper, which `reference` names", quote)
    if quote and (problem := wrong_form(quote)) is not None:
        expected, came = problem
        raise table.error("quote", expected, Words(came))
    return quote, ours


_SIZED = ("experiment", "pretrained")
_EXACT = ("identity", "arithmetic")


def _said_of(table: Table, kind: str) -> str:
    """The models that a source speaks of, with their size."""
    said_of = table.text("said_of", needed=False) or ""
    if said_of and kind not in _SIZED:
        raise table.error("said_of", f"none for the kind {kind}, which holds at any size", said_of)
    if said_of and not re.search(r"\d", said_of):
        raise table.error("said_of", "models with their size in numbers", said_of)
    return said_of


def _misprint(table: Table, kind: str) -> tuple[str, str]:
    """What the source's own words say instead of what it prints, and the claim that shows it."""
    told = table.take("misprint")
    if told is None:
        return "", ""
    if kind not in _EXACT:
        raise table.error("misprint", f"none for the kind {kind}: a formula is exact", told)
    if not isinstance(told, dict):
        raise table.error("misprint", 'a table such as {says = "...", shown_by = "IW-4.5"}', told)
    inner = Table(told, f"{table.where}, misprint")
    found = inner.needed_text("says"), inner.needed_text("shown_by")
    inner.done()
    return found


def _other_seeds(table: Table, kind: str) -> str:
    """What a second set of seeds says, where that is something else."""
    told = table.text("other_seeds", needed=False) or ""
    if told and kind != "experiment":
        raise table.error("other_seeds", f"none for the kind {kind}, which has no second set", told)
    decided = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED)
    if told and told not in decided:
        raise table.error("other_seeds", "one of " + ", ".join(one.value for one in decided), told)
    return told


def _words_fit(table: Table, expected: Verdict | None, said_of: str, misprint: str) -> None:
    """Have a verdict expected only where the claim declares what it takes."""
    if expected is Verdict.DOES_NOT_CARRY_OVER and not said_of:
        expects = "the field said_of beside it, with the models that the source speaks of"
        raise table.error("expected", expects, Words("none"))
    if expected is Verdict.REFUTED and said_of:
        raise table.error("expected", "does not carry over, beside said_of", expected.value)
    if (expected is Verdict.MISPRINT) != bool(misprint):
        expects = "misprint, and the field misprint beside it; or neither"
        raise table.error("expected", expects, Words("only one of them"))


def _check_meant(file: str, found: Mapping[str, Claim]) -> None:
    """Have the words of each misprint shown to hold by a claim of the same source."""
    for claim in found.values():
        if not claim.meant_in:
            continue
        where = f"{file}, claim {claim.id}, misprint, field shown_by"
        if claim.meant_in not in found:
            near = difflib.get_close_matches(claim.meant_in, found, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"{where}: expected a claim of this file, got {claim.meant_in}{hint}")
        other = found[claim.meant_in]
        if other.source != claim.source or other.expected is not Verdict.CONFIRMED:
            raise ValueError(
                f"{where}: expected a confirmed claim of the source {claim.source}, got {other.id}, "
                f"{other.expected}"
            )


def _references(table: Table) -> tuple[str, ...]:
    value = table.take("reference")
    if value is None:
        return ()
    keys = value if isinstance(value, list) else [value]
    if not keys or not all(isinstance(key, str) and key.strip() for key in keys):
        raise table.error("reference", "a key of references.bib or a list of keys", value)
    return tuple(keys)


def _claim(row: object, lines: Lines, number: int, chapter: object) -> Claim:
    file = lines.file
    if not isinstance(row, dict):
        raise ValueError(f"{file}, claim {number}: expected a table [[claim]], got {row!r}")
    claim_id = row.get("id")
    where = f"{file}, claim {claim_id if isinstance(claim_id, str) else f'number {number}'}"
    table = Table({"chapter": chapter, **row} if chapter is not None else row, where)
    claim_id = table.needed_text("id")
    if not _ID.fullmatch(claim_id):
        raise table.error("id", "an id such as CS-1.3 or DA-2.1a", claim_id)
    source = table.choice("source", tuple(SOURCES))
    if not claim_id.startswith(source + "-"):
        raise table.error("source", f"{claim_id[:2]}, as in the id", source)
    place = table.needed_text("place")
    quote, ours = _quotation(table, source)
    statement = table.needed_text("statement")
    kind = table.choice("kind", KINDS)
    said_of = _said_of(table, kind)
    misprint, meant_in = _misprint(table, kind)
    other_seeds = _other_seeds(table, kind)
    scope = table.needed_text("scope")
    docname = table.needed_text("chapter")
    if not _DOCNAME.fullmatch(docname):
        raise table.error("chapter", "a document name such as book/part/chapter", docname)
    test = table.needed_text("test")
    status = table.choice("status", STATUSES, "covered")
    section = table.text("section", needed=False)
    if section is not None and not _LABEL.fullmatch(section):
        raise table.error("section", "a label of lower-case words joined by hyphens", section)
    expected = _expected(table)
    seeds = _seeds(table)
    references = _references(table)
    if source == "LT" and not references:
        raise table.error("reference", "the paper that says so", Words("nothing"))
    axis = table.text("axis", needed=False)
    combine = table.choice("combine", COMBINATIONS, LEVELS)
    has_combine = "combine" in row
    rule_data = table.take("rule")
    stated = table.take("evidence") or {}
    if not isinstance(stated, dict):
        raise table.error("evidence", "a table [claim.evidence] of expressions", stated)
    lines = dataclasses.replace(lines, claim=claim_id)
    _words_fit(table, expected, said_of, misprint)
    parts = _parts(table, rule_data, stated, lines)
    table.done()
    rule = None if rule_data is None or parts else rule_from(rule_data, where)
    if stated and rule is None and not parts:
        raise table.error("evidence", "none without a rule", Words("some"))
    evidence = {} if rule is None else evidence_from(stated, rule, {}, where, lines)

    if parts and axis is None:
        raise table.error("axis", "what the parts differ in, in words", Words("nothing"))
    if not parts and (axis is not None or has_combine):
        raise table.error("axis, combine", "these only beside parts", Words("no part"))
    if kind == "cited":
        if rule is not None or parts:
            raise table.error("rule", "none, because a cited claim is not tested", Words("one"))
        if not references:
            raise table.error("reference", "a key of references.bib", Words("nothing"))
        expected = Verdict.FACT if expected is None else expected
        if expected is not Verdict.FACT:
            raise table.error("expected", "fact, the verdict of cited claims", row["expected"])
    else:
        if expected is Verdict.FACT:
            raise table.error("expected", "a measured verdict; fact is for cited claims", "fact")
        if rule is None and not parts:
            raise table.error("rule", "a rule or parts", Words("nothing"))
        rules = [part.rule for part in parts] if rule is None else [rule]
        if seeds is None and (kind == "experiment" or any(rule.per_seed for rule in rules)):
            raise table.error("seeds", "a whole number such as 10", Words("nothing"))
        if expected is None and status == "covered":
            raise table.error("expected", "the verdict of the prose", Words("nothing"))
    return Claim(
        id=claim_id,
        source=source,
        place=place,
        statement=statement,
        kind=kind,
        scope=scope,
        chapter=docname,
        test=test,
        status=status,
        section=section,
        rule=rule,
        parts=parts,
        axis=axis,
        combine=combine,
        seeds=seeds,
        references=references,
        expected=expected,
        evidence=evidence,
        quote=quote,
        ours=ours,
        said_of=said_of,
        misprint=misprint,
        meant_in=meant_in,
        other_seeds=other_seeds,
    )


def parse_claims(text: str, file: str) -> dict[str, Claim]:
    """Return the claims of one TOML text by their id, in the order of the file.

    Raises:
        ValueError: the text breaks the schema of this module; the message names ``file``, the
            claim, the field, what was expected and what came.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: expected TOML, got text that breaks it: {error}") from None
    unknown = set(data) - {"chapter", "claim", "values"}
    if unknown:
        raise ValueError(
            f"{file}: expected only chapter, [values] and [[claim]] tables at the top, "
            f"got {', '.join(sorted(unknown))}"
        )
    rows = data.get("claim", [])
    if not isinstance(rows, list):
        raise ValueError(f"{file}: expected [[claim]] tables, got one [claim]; double the brackets")
    claims: dict[str, Claim] = {}
    for number, row in enumerate(rows, start=1):
        claim = _claim(row, Lines(file, text), number, data.get("chapter"))
        if claim.id in claims:
            raise ValueError(f"{file}, claim {claim.id}, field id: expected each id once, got two")
        claims[claim.id] = claim
    _check_meant(file, claims)
    return claims


def parse_values(text: str, file: str) -> dict[str, Written]:
    """Return the expressions that one TOML text names under ``[values]``.

    Raises:
        ValueError: a name or an expression that cannot be read; the message names ``file`` and line.
    """
    lines = Lines(file, text)
    found: dict[str, Written] = {}
    for name, value in tomllib.loads(text).get("values", {}).items():
        if not name.isidentifier() or not isinstance(value, str):
            raise ValueError(
                f'{file}, values: expected name = "expression", got {name} = {value!r}'
            )
        where = lines.where(value)
        try:
            parse(value)
        except ExpressionError as error:
            raise ValueError(f"{where}: {error}") from None
        found[name] = Written(value, where)
    return found
