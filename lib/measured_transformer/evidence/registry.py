"""The registry of claims: what the sources say, and the rule each is judged by, declared beforehand.

One TOML file a chapter lies in ``evidence/claims``. A file begins with the chapter's document name
and then lists claims::

    chapter = "book/positions/positional-encoding"

    [[claim]]
    id = "CS-1.3"                     # SOURCE-section.row, with a letter when a row was split
    source = "CS"                     # CS, DA, DD, EX or IW
    place = "section 1"               # where in the source
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
    seeds = {quick = 5, full = 10}
    expected = {quick = "inconclusive", full = "conditional"}
    axis = "the scheme that rotary is compared with"
    combine = "levels"                # levels (the default) | readings | every
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

Fields beside those of the examples:

- ``chapter`` may stand in a claim instead of at the top of the file.
- ``seeds``: required for experiments; the number of values each arm has at each profile.
- ``reference``: a key of ``references.bib`` or a list of keys; required when ``kind = "cited"``.
- ``expected`` is one verdict, or one for each profile. At ``quick`` only *inconclusive* may differ
  from ``full``; anything else needs the reason too: ``expected = {quick = "not reproduced",
  full = "confirmed", why = "..."}``. Required for a covered claim that has a rule.
- A cited claim has no rule, no parts and the verdict *fact*. A planned claim may lack its rule,
  ``expected`` and ``seeds``.

Rules (what each one means is written at its class): `Identity`, `Number`, `Bound`, `Difference`,
`Equivalence`, `Proportion`, `Threshold`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from measured_transformer.evidence.verdicts import COMBINATIONS, LEVELS, Verdict

SOURCES: Mapping[str, str] = {
    "CS": "case study on the components",
    "DA": "attention dissection report",
    "DD": "attention deep dive",
    "EX": "exercise sheet",
    "IW": "inner workings",
}
KINDS = ("identity", "arithmetic", "experiment", "pretrained", "cited")
STATUSES = ("covered", "planned")

_ID = re.compile(r"(CS|DA|DD|EX|IW)-[0-9]+\.[0-9]+[a-z]?")
_LABEL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DOCNAME = re.compile(r"[\w-]+(/[\w-]+)*")


@dataclass(frozen=True)
class Rule:
    """What all rules share: a type, and their parameters as plain data.

    Raises:
        ValueError: when a parameter is missing, out of range or at odds with another; each rule checks its
            own when it is made.
    """

    type: ClassVar[str]
    values: ClassVar[tuple[str, ...]]
    """Names of the values that a measurement must hand in."""

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the values that a measurement judged by this rule consists of."""
        return self.values

    @property
    def per_seed(self) -> bool:
        """Whether each value is an array with one number a seed."""
        return False

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as TOML would hold it; parameters that are not set are left out."""
        parameters = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        }
        for name, value in parameters.items():
            if isinstance(value, tuple):
                parameters[name] = list(value)
        return {"type": self.type, **parameters}


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: expected a number above 0, came {value!r}")


def _confidence(value: float) -> None:
    if not 0.5 < value < 1:
        raise ValueError(f"confidence: expected a number between 0.5 and 1, came {value!r}")


def _finite(name: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, came {value!r}")


def _one_threshold(at_least: float | None, at_most: float | None) -> None:
    if (at_least is None) == (at_most is None):
        came = "neither" if at_least is None else "both"
        raise ValueError(f"at_least, at_most: expected exactly one of the two, came {came}")
    _finite("at_least", at_least)
    _finite("at_most", at_most)


@dataclass(frozen=True)
class Identity(Rule):
    """Values ``error`` (one a draw) and ``control``: no error above ``tolerance``, each control is.

    Confirmed: every ``|error| <= tolerance`` and every ``|control| > control_above``. Refuted: one
    error is larger. Inconclusive: the errors are small, but a control is small too, so the test
    could not have failed. A rule without a control says why in ``no_control``.
    """

    type: ClassVar[str] = "identity"
    values: ClassVar[tuple[str, ...]] = ("error", "control")

    tolerance: float
    control_above: float | None = None
    no_control: str | None = None

    def __post_init__(self) -> None:
        _positive("tolerance", self.tolerance)
        if (self.control_above is None) == (self.no_control is None):
            came = "neither" if self.no_control is None else "both"
            raise ValueError(
                "control_above, no_control: expected a bound that the negative control exceeds, "
                f"or the reason why there is no control; came {came}"
            )
        if self.control_above is not None and not self.control_above >= self.tolerance:
            raise ValueError(
                f"control_above: expected at least the tolerance {self.tolerance!r}, "
                f"came {self.control_above!r}"
            )
        if self.no_control is not None and not self.no_control.strip():
            raise ValueError("no_control: expected the reason in words, came an empty text")

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return ``error``, and ``control`` where the rule has one."""
        return ("error",) if self.control_above is None else ("error", "control")


@dataclass(frozen=True)
class Number(Rule):
    """Value ``value``: computed numbers against those the source states, one for one.

    ``digits`` counts the decimals of the stated number (negative for rounded tens, hundreds, ...):
    a value that rounds to it agrees. A value that does not, yet differs by at most the share
    ``within`` of the stated number, agrees too, as *rounded*. Confirmed: all agree; refuted
    otherwise. Without ``digits`` the share alone decides, and ``within`` must be given.
    """

    type: ClassVar[str] = "number"
    values: ClassVar[tuple[str, ...]] = ("value",)

    stated: tuple[float, ...]
    digits: int | None = None
    within: float | None = None

    def __post_init__(self) -> None:
        if not self.stated:
            raise ValueError("stated: expected at least one number, came none")
        for stated in self.stated:
            _finite("stated", stated)
        if self.digits is None and self.within is None:
            raise ValueError("digits, within: expected at least one of the two, came neither")
        if self.within is not None:
            _positive("within", self.within)

    @property
    def tolerated_share(self) -> float:
        """The largest relative difference that still counts as rounding: 5 % unless declared."""
        return 0.05 if self.within is None else self.within


@dataclass(frozen=True)
class Bound(Rule):
    """Value ``value``: exact numbers that must all keep a bound.

    ``at_least`` and ``at_most`` include the bound, ``above`` and ``below`` do not; a lower and an
    upper one can be joined. Confirmed: all keep it; refuted: one does not. With ``control = true``
    values ``control`` come too, each of which must break the bound; if one keeps it, a measurement
    that would be confirmed is inconclusive, because the test could not have failed.
    """

    type: ClassVar[str] = "bound"
    values: ClassVar[tuple[str, ...]] = ("value",)

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    control: bool = False

    def __post_init__(self) -> None:
        for name in ("at_least", "above", "at_most", "below"):
            _finite(name, getattr(self, name))
        if self.at_least is not None and self.above is not None:
            raise ValueError("at_least, above: expected at most one lower bound, came both")
        if self.at_most is not None and self.below is not None:
            raise ValueError("at_most, below: expected at most one upper bound, came both")
        lower = self.above if self.at_least is None else self.at_least
        upper = self.below if self.at_most is None else self.at_most
        if lower is None and upper is None:
            raise ValueError("expected one of at_least, above, at_most, below; came none")
        if lower is not None and upper is not None and lower > upper:
            raise ValueError(f"expected a lower bound below the upper, came {lower!r} > {upper!r}")

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return ``value``, and ``control`` where the rule has one."""
        return ("value", "control") if self.control else ("value",)


@dataclass(frozen=True)
class Difference(Rule):
    """Values ``treatment`` and ``baseline``, one a seed: their mean difference in a direction.

    With d = treatment - baseline (its sign turned for ``direction = "less"``) and its t interval:
    confirmed when the interval lies above 0 and the mean above ``smallest_effect``; refuted when
    the same holds for -d; else not reproduced when the interval lies below ``smallest_effect``;
    else inconclusive. ``paired``: the same seed makes a pair; otherwise Welch's interval.
    """

    type: ClassVar[str] = "difference"
    values: ClassVar[tuple[str, ...]] = ("treatment", "baseline")

    direction: str
    smallest_effect: float
    paired: bool = True
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.direction not in ("greater", "less"):
            raise ValueError(f"direction: expected 'greater' or 'less', came {self.direction!r}")
        _positive("smallest_effect", self.smallest_effect)
        _confidence(self.confidence)

    @property
    def per_seed(self) -> bool:
        """Each arm has one number a seed."""
        return True


@dataclass(frozen=True)
class Equivalence(Rule):
    """Values ``treatment`` and ``baseline``, one a seed: no difference larger than ``margin``.

    Two one-sided t tests, each at level 1 - confidence, which is the same as the t interval of
    confidence 1 - 2 (1 - confidence): 90 % for 0.95. Confirmed: it lies inside (-margin, margin);
    refuted: it lies wholly beyond the margin on one side; else inconclusive.
    """

    type: ClassVar[str] = "equivalence"
    values: ClassVar[tuple[str, ...]] = ("treatment", "baseline")

    margin: float
    paired: bool = True
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _positive("margin", self.margin)
        _confidence(self.confidence)

    @property
    def per_seed(self) -> bool:
        """Each arm has one number a seed."""
        return True


@dataclass(frozen=True)
class Proportion(Rule):
    """Values ``successes`` and ``trials`` (counts, summed): a share against a threshold.

    The Clopper-Pearson interval decides: confirmed when it lies on the claimed side of the
    threshold, refuted when it lies on the other, else inconclusive.
    """

    type: ClassVar[str] = "proportion"
    values: ClassVar[tuple[str, ...]] = ("successes", "trials")

    at_least: float | None = None
    at_most: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _one_threshold(self.at_least, self.at_most)
        threshold = self.at_most if self.at_least is None else self.at_least
        if threshold is None or not 0 < threshold < 1:
            raise ValueError(
                f"at_least, at_most: expected a share between 0 and 1, came {threshold!r}; no "
                "number of trials shows that all or none succeed (use a bound for exact counts)"
            )
        _confidence(self.confidence)


@dataclass(frozen=True)
class Threshold(Rule):
    """Value ``value``, one a seed: their mean against a threshold.

    The t interval of the mean decides: confirmed when it lies on the claimed side of the threshold,
    refuted when it lies on the other, else inconclusive.
    """

    type: ClassVar[str] = "threshold"
    values: ClassVar[tuple[str, ...]] = ("value",)

    at_least: float | None = None
    at_most: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _one_threshold(self.at_least, self.at_most)
        _confidence(self.confidence)

    @property
    def per_seed(self) -> bool:
        """One number a seed."""
        return True


RULES: Mapping[str, type[Rule]] = {
    rule.type: rule
    for rule in (Identity, Number, Bound, Difference, Equivalence, Proportion, Threshold)
}


@dataclass(frozen=True)
class Part:
    """One level, reading or half of a claim, with its own rule."""

    name: str
    rule: Rule
    label: str


@dataclass(frozen=True)
class Claim:
    """A row of the registry."""

    id: str
    source: str
    place: str
    statement: str
    kind: str
    scope: str
    chapter: str
    test: str
    status: str = "covered"
    section: str | None = None
    rule: Rule | None = None
    parts: tuple[Part, ...] = ()
    axis: str | None = None
    combine: str = LEVELS
    seeds: Mapping[str, int] | None = None
    references: tuple[str, ...] = ()
    expected: Mapping[str, Verdict] | None = None
    expected_why: str | None = None

    def expected_at(self, profile: str) -> Verdict | None:
        """Return the verdict that the prose discusses at a profile, None for a planned claim."""
        return None if self.expected is None else self.expected[profile]

    def part(self, name: str) -> Part:
        """Return the part of this name.

        Raises:
            KeyError: no such part; the message gives the parts there are.
        """
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(
            f"claim {self.id} has no part {name!r}; "
            f"it has {', '.join(part.name for part in self.parts) or 'no parts'}"
        )


class _Table:
    """A TOML table that is taken apart field by field; errors say where they are."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = dict(data)
        self.where = where
        self.allowed: list[str] = []

    def error(self, field: str, expected: str, came: object) -> ValueError:
        came = came if isinstance(came, _Words) else repr(came)
        return ValueError(f"{self.where}, field {field}: expected {expected}, came {came}")

    def take(self, field: str) -> Any:
        self.allowed.append(field)
        return self.data.pop(field, None)

    def text(self, field: str, *, needed: bool = True) -> str | None:
        value = self.take(field)
        if value is None and not needed:
            return None
        if value is None:
            raise self.error(field, "a text", _Words("nothing"))
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "a text that is not empty", value)
        return " ".join(value.split())

    def needed_text(self, field: str) -> str:
        value = self.text(field)
        assert value is not None
        return value

    def choice(self, field: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.take(field)
        value = default if value is None else value
        if value not in choices:
            came = _Words("nothing") if value is None else value
            raise self.error(field, "one of " + ", ".join(choices), came)
        return str(value)

    def done(self) -> None:
        if self.data:
            field = next(iter(self.data))
            near = difflib.get_close_matches(field, self.allowed, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise self.error(field, "only the fields " + ", ".join(self.allowed), field + hint)


class _Words(str):
    """Words that an error message shows without quotes."""


def _rule(data: object, where: str) -> Rule:
    if not isinstance(data, dict):
        raise ValueError(f"{where}, field rule: expected a table [rule], came {data!r}")
    table = _Table(data, where + ", rule")
    kind = RULES[table.choice("type", tuple(RULES))]
    table.where = f"{where}, {kind.type} rule"
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        value = table.take(field.name)
        if value is None:
            if field.default is dataclasses.MISSING:
                raise table.error(field.name, _expected_type(field), _Words("nothing"))
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


def _typed(table: _Table, field: dataclasses.Field[Any], value: Any) -> Any:
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


def _parts(table: _Table) -> tuple[Part, ...]:
    rows = table.take("part")
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(r, dict) for r in rows):
        raise table.error("part", "two or more [[claim.part]] tables", rows)
    parts: list[Part] = []
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            raise table.error("part.name", "a name such as sinusoidal or layer_0", name)
        if name in (part.name for part in parts):
            raise table.error("part.name", "a name for each part", _Words(f"{name!r} twice"))
        inner = _Table(row, f"{table.where}, part {name}")
        inner.take("name")
        label = inner.text("label", needed=False) or name
        rule = _rule(inner.take("rule"), inner.where)
        inner.done()
        parts.append(Part(name, rule, label))
    return tuple(parts)


def _seeds(table: _Table) -> Mapping[str, int] | None:
    value = table.take("seeds")
    if value is None:
        return None
    fits = (
        isinstance(value, dict)
        and set(value) == {"quick", "full"}
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 1 for n in value.values())
    )
    if not fits:
        raise table.error("seeds", "{quick = 5, full = 10} with two seeds or more each", value)
    return dict(value)


def _expected(table: _Table) -> tuple[Mapping[str, Verdict] | None, str | None]:
    value = table.take("expected")
    if value is None:
        return None, None
    data = {"quick": value, "full": value} if isinstance(value, str) else value
    fits = isinstance(data, dict) and {"quick", "full"} <= set(data) <= {"quick", "full", "why"}
    if not fits:
        raise table.error("expected", "a verdict, or {quick = verdict, full = verdict}", value)
    names = tuple(verdict.value for verdict in Verdict)
    for profile in ("quick", "full"):
        if data[profile] not in names:
            raise table.error("expected", "one of " + ", ".join(names), data[profile])
    verdicts = {profile: Verdict(data[profile]) for profile in ("quick", "full")}
    why = data.get("why")
    if why is not None and (not isinstance(why, str) or not why.strip()):
        raise table.error("expected.why", "a reason in words", why)
    explained = verdicts["quick"] in (verdicts["full"], Verdict.INCONCLUSIVE)
    if not explained and why is None:
        raise table.error(
            "expected",
            "the same verdict at both profiles, inconclusive at quick, or a reason in why",
            value,
        )
    return verdicts, why


def _references(table: _Table) -> tuple[str, ...]:
    value = table.take("reference")
    if value is None:
        return ()
    keys = value if isinstance(value, list) else [value]
    if not keys or not all(isinstance(key, str) and key.strip() for key in keys):
        raise table.error("reference", "a key of references.bib or a list of keys", value)
    return tuple(keys)


def _claim(row: object, file: str, number: int, chapter: object) -> Claim:
    if not isinstance(row, dict):
        raise ValueError(f"{file}, claim {number}: expected a table [[claim]], came {row!r}")
    claim_id = row.get("id")
    where = f"{file}, claim {claim_id if isinstance(claim_id, str) else f'number {number}'}"
    table = _Table({"chapter": chapter, **row} if chapter is not None else row, where)
    claim_id = table.needed_text("id")
    if not _ID.fullmatch(claim_id):
        raise table.error("id", "an id such as CS-1.3 or DA-2.1a", claim_id)
    source = table.choice("source", tuple(SOURCES))
    if not claim_id.startswith(source + "-"):
        raise table.error("source", f"{claim_id[:2]}, as in the id", source)
    place = table.needed_text("place")
    statement = table.needed_text("statement")
    kind = table.choice("kind", KINDS)
    scope = table.needed_text("scope")
    docname = table.needed_text("chapter")
    if not _DOCNAME.fullmatch(docname):
        raise table.error("chapter", "a document name such as book/part/chapter", docname)
    test = table.needed_text("test")
    status = table.choice("status", STATUSES, "covered")
    section = table.text("section", needed=False)
    if section is not None and not _LABEL.fullmatch(section):
        raise table.error("section", "a label of lower-case words joined by hyphens", section)
    expected, why = _expected(table)
    seeds = _seeds(table)
    references = _references(table)
    axis = table.text("axis", needed=False)
    combine = table.choice("combine", COMBINATIONS, LEVELS)
    has_combine = "combine" in row
    rule_data = table.take("rule")
    parts = _parts(table)
    table.done()
    rule = None if rule_data is None else _rule(rule_data, where)

    if rule is not None and parts:
        raise table.error("rule", "either one rule or parts with a rule each", _Words("both"))
    if parts and axis is None:
        raise table.error("axis", "what the parts differ in, in words", _Words("nothing"))
    if not parts and (axis is not None or has_combine):
        raise table.error("axis, combine", "these only beside parts", _Words("no part"))
    if kind == "cited":
        if rule is not None or parts:
            raise table.error("rule", "none, because a cited claim is not tested", _Words("one"))
        if not references:
            raise table.error("reference", "a key of references.bib", _Words("nothing"))
        if expected is None:
            expected = dict.fromkeys(("quick", "full"), Verdict.FACT)
        if set(expected.values()) != {Verdict.FACT}:
            raise table.error("expected", "fact, the verdict of cited claims", row["expected"])
    else:
        if expected is not None and Verdict.FACT in expected.values():
            raise table.error("expected", "a measured verdict; fact is for cited claims", "fact")
        if status == "covered":
            if rule is None and not parts:
                raise table.error("rule", "a rule or parts", _Words("nothing"))
            if expected is None:
                raise table.error("expected", "the verdict of the prose", _Words("nothing"))
            if kind == "experiment" and seeds is None:
                raise table.error("seeds", "{quick = 5, full = 10} or alike", _Words("nothing"))
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
        expected_why=why,
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
        raise ValueError(f"{file}: expected TOML, came text that breaks it: {error}") from None
    unknown = set(data) - {"chapter", "claim"}
    if unknown:
        raise ValueError(
            f"{file}: expected only chapter and [[claim]] tables at the top, "
            f"came {', '.join(sorted(unknown))}"
        )
    rows = data.get("claim", [])
    if not isinstance(rows, list):
        raise ValueError(
            f"{file}: expected [[claim]] tables, came one [claim]; double the brackets"
        )
    claims: dict[str, Claim] = {}
    for number, row in enumerate(rows, start=1):
        claim = _claim(row, file, number, data.get("chapter"))
        if claim.id in claims:
            raise ValueError(f"{file}, claim {claim.id}, field id: expected each id once, came two")
        claims[claim.id] = claim
    return claims


def read_claims(folder: Path) -> dict[str, Claim]:
    """Return the claims of all TOML files in a folder by their id.

    Raises:
        ValueError: a file breaks the schema, or two files hold the same id.
    """
    claims: dict[str, Claim] = {}
    origin: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml")):
        for claim_id, claim in parse_claims(path.read_text("utf-8"), path.name).items():
            if claim_id in claims:
                raise ValueError(
                    f"{path.name}, claim {claim_id}, field id: expected each id once, "
                    f"came one in {origin[claim_id]} too"
                )
            claims[claim_id] = claim
            origin[claim_id] = path.name
    return claims


@lru_cache(maxsize=1)
def _packaged() -> dict[str, Claim]:
    with resources.as_file(resources.files("measured_transformer.evidence") / "claims") as folder:
        return read_claims(folder)


def claims(chapter: str | None = None) -> dict[str, Claim]:
    """Return the claims that come with the library by their id; of one chapter where it is named.

    Raises:
        ValueError: a file of claims breaks the schema.
    """
    return {
        claim_id: claim
        for claim_id, claim in _packaged().items()
        if chapter is None or claim.chapter == chapter
    }


def claim(claim_id: str) -> Claim:
    """Return the claim of this id.

    Raises:
        KeyError: no such claim; the message gives the nearest ids.
    """
    known = _packaged()
    if claim_id not in known:
        near = difflib.get_close_matches(claim_id, known, n=3, cutoff=0.5)
        hint = f"nearest are {', '.join(near)}" if near else "none is near"
        raise KeyError(f"no claim {claim_id!r} in the registry; {hint}")
    return known[claim_id]
