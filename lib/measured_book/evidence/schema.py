"""Defines a claim: its fields, and the rules that can judge it.

How claims are written down and read is told in `declarations`; `registry` offers all names of this module too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from measured_book.evidence.verdicts import LEVELS, Verdict

SOURCES: Mapping[str, str] = {
    "CS": "case study on the components",
    "DA": "attention dissection report",
    "DD": "attention deep dive",
    "EX": "exercise sheet",
    "IW": "inner workings",
    "LT": "literature",
}
KINDS = ("identity", "arithmetic", "experiment", "pretrained", "cited")
STATUSES = ("covered", "planned")


@dataclass(frozen=True)
class Rule:
    """The base of all rules: a type, and parameters as plain data.

    Raises:
        ValueError: when a parameter is missing, out of range or at odds with another; each rule checks its
            own when it is made.
    """

    type: ClassVar[str]
    values: ClassVar[tuple[str, ...]]
    """Names of the values that a measurement must hand in."""

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the values that this rule takes."""
        return self.values

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Those of the names that expressions may leave out, because they follow from the others."""
        return ()

    @property
    def per_seed(self) -> bool:
        """True if each value is an array with one number a seed."""
        return False

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as a TOML table; parameters that are not set are left out."""
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
        raise ValueError(f"{name}: expected a number above 0, got {value!r}")


def _confidence(value: float) -> None:
    if not 0.5 < value < 1:
        raise ValueError(f"confidence: expected a number between 0.5 and 1, got {value!r}")


def _finite(name: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value!r}")


def _one_threshold(at_least: float | None, at_most: float | None) -> None:
    if (at_least is None) == (at_most is None):
        came = "neither" if at_least is None else "both"
        raise ValueError(f"at_least, at_most: expected exactly one of the two, got {came}")
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
                f"or the reason why there is no control; got {came}"
            )
        if self.control_above is not None and not self.control_above >= self.tolerance:
            raise ValueError(
                f"control_above: expected at least the tolerance {self.tolerance!r}, "
                f"got {self.control_above!r}"
            )
        if self.no_control is not None and not self.no_control.strip():
            raise ValueError("no_control: expected the reason in words, got an empty text")

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
            raise ValueError("stated: expected at least one number, got none")
        for stated in self.stated:
            _finite("stated", stated)
        if self.digits is None and self.within is None:
            raise ValueError("digits, within: expected at least one of the two, got neither")
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
            raise ValueError("at_least, above: expected at most one lower bound, got both")
        if self.at_most is not None and self.below is not None:
            raise ValueError("at_most, below: expected at most one upper bound, got both")
        lower = self.above if self.at_least is None else self.at_least
        upper = self.below if self.at_most is None else self.at_most
        if lower is None and upper is None:
            raise ValueError("expected one of at_least, above, at_most, below; got none")
        if lower is not None and upper is not None and lower > upper:
            raise ValueError(f"expected a lower bound below the upper, got {lower!r} > {upper!r}")

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

    With ``headroom = true`` values ``headroom`` come too, one a seed: how far the baseline is from the best
    that the measure allows. Where that is not above ``smallest_effect`` on average, the effect could not have
    shown, and what would be *not reproduced* is inconclusive.
    """

    type: ClassVar[str] = "difference"
    values: ClassVar[tuple[str, ...]] = ("treatment", "baseline")

    direction: str
    smallest_effect: float
    paired: bool = True
    confidence: float = 0.95
    headroom: bool | None = None

    def __post_init__(self) -> None:
        if self.direction not in ("greater", "less"):
            raise ValueError(f"direction: expected 'greater' or 'less', got {self.direction!r}")
        _positive("smallest_effect", self.smallest_effect)
        _confidence(self.confidence)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return the two arms, and ``headroom`` where the rule asks for it."""
        return (*self.values, "headroom") if self.headroom else self.values

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

    With ``control = true`` values ``control`` come too, one a seed: an arm that is known to differ. Where it
    is not shown to lie beyond the margin, the test cannot tell arms apart, and what would be confirmed is
    inconclusive.
    """

    type: ClassVar[str] = "equivalence"
    values: ClassVar[tuple[str, ...]] = ("treatment", "baseline")

    margin: float
    paired: bool = True
    confidence: float = 0.95
    control: bool | None = None

    def __post_init__(self) -> None:
        _positive("margin", self.margin)
        _confidence(self.confidence)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return the two arms, and ``control`` where the rule has one."""
        return (*self.values, "control") if self.control else self.values

    @property
    def per_seed(self) -> bool:
        """Each arm has one number a seed."""
        return True


@dataclass(frozen=True)
class Proportion(Rule):
    """Values ``successes`` and ``trials`` (counts, summed): a share against a threshold.

    The Clopper-Pearson interval decides: confirmed when it lies on the claimed side of the
    threshold, refuted when it lies on the other, else inconclusive. Where an expression names ``successes``
    alone, each of its values is one trial, true or false.
    """

    type: ClassVar[str] = "proportion"
    values: ClassVar[tuple[str, ...]] = ("successes", "trials")

    at_least: float | None = None
    at_most: float | None = None
    confidence: float = 0.95

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Return ``trials``: one for each value of ``successes``."""
        return ("trials",)

    def __post_init__(self) -> None:
        _one_threshold(self.at_least, self.at_most)
        threshold = self.at_most if self.at_least is None else self.at_least
        if threshold is None or not 0 < threshold < 1:
            raise ValueError(
                f"at_least, at_most: expected a share between 0 and 1, got {threshold!r}; no "
                "number of trials shows that all or none succeed (use a bound for exact counts)"
            )
        _confidence(self.confidence)


@dataclass(frozen=True)
class Threshold(Rule):
    """Value ``value``, one a seed: their mean against a threshold, or against a range.

    The t interval of the mean decides: confirmed when it lies on the claimed side of the threshold,
    refuted when it lies on the other, else inconclusive. With both ``at_least`` and ``at_most`` the
    claimed side is the range between them, and the other side is either side of it.
    """

    type: ClassVar[str] = "threshold"
    values: ClassVar[tuple[str, ...]] = ("value",)

    at_least: float | None = None
    at_most: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.at_least is None or self.at_most is None:
            _one_threshold(self.at_least, self.at_most)
        elif not self.at_least < self.at_most:
            raise ValueError(
                "at_least, at_most: expected a range from a smaller to a larger number, "
                f"got {self.at_least!r} to {self.at_most!r}"
            )
        _finite("at_least", self.at_least)
        _finite("at_most", self.at_most)
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
class Written:
    """An expression as a file of claims holds it; see `evidence.expressions`.

    Attributes:
        text: the expression.
        where: file and line, for errors.
    """

    text: str
    where: str


Evidence = Mapping[str, tuple[Written, ...]]
"""What a rule is judged by: name of a value -> expressions, whose values are concatenated."""


@dataclass(frozen=True)
class Part:
    """One level, reading or half of a claim, with its own rule.

    Attributes:
        name: of the part.
        rule: what it is judged by.
        label: what a reader sees.
        evidence: the rule's values as expressions; empty where a function of the room gives them.
    """

    name: str
    rule: Rule
    label: str
    evidence: Evidence = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Claim:
    """A row of the registry.

    Attributes:
        quote: the source's own words, see `quotations`; empty for papers, and where the source says nothing.
        ours: why we ask although the source says nothing of it; empty for what a source says.
        said_of: the models that the source speaks of, with their size, where those measured are of another;
            empty where they are not.
        misprint: what the source's own words say instead of the formula that it prints; empty for none.
        other_seeds: the verdict of a second set of seeds, where it decides and is another; empty where not.
        meant_in: the claim that shows that those words hold; empty without a misprint.
        seeds: how many values each arm has, where a rule takes one value a seed.
        evidence: the rule's values as expressions, for a claim without parts; empty where a function of the
            room gives them.
        expected: the verdict that the prose discusses; None for a planned claim.
        room: whose file holds it and whose results judge it; empty for a claim of another registry, whose room
            has its chapter's name.
    """

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
    seeds: int | None = None
    references: tuple[str, ...] = ()
    expected: Verdict | None = None
    evidence: Evidence = field(default_factory=dict, hash=False)
    quote: str = ""
    ours: str = ""
    said_of: str = ""
    misprint: str = ""
    meant_in: str = ""
    other_seeds: str = ""
    room: str = ""

    @property
    def is_written(self) -> bool:
        """True if what it is judged by stands in the file of claims, as expressions."""
        return bool(self.evidence) or any(part.evidence for part in self.parts)

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
