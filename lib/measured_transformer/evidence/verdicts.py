"""The seven verdicts, and how the verdicts of a claim's parts make the verdict of the claim.

Nothing here computes a statistic from values: `rules.judge` does that. This module imports neither
scipy nor torch, so pages can be printed from records without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Verdict(StrEnum):
    """What a measurement says about a claim, within the claim's scope."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    CONDITIONAL = "conditional"
    NOT_REPRODUCED = "not reproduced"
    UNDERSPECIFIED = "underspecified"
    INCONCLUSIVE = "inconclusive"
    FACT = "fact"


MEANING: Mapping[Verdict, str] = {
    Verdict.CONFIRMED: "the claim holds as measured here",
    Verdict.REFUTED: "the opposite is shown, or an identity fails",
    Verdict.CONDITIONAL: "it holds in some conditions and not in others",
    Verdict.NOT_REPRODUCED: "the effect does not appear at this scale; the opposite is not shown",
    Verdict.UNDERSPECIFIED: "the source leaves out a setting, and its readings disagree",
    Verdict.INCONCLUSIVE: "too little data at this profile to decide",
    Verdict.FACT: "cited, not tested here",
}

LEVELS, READINGS, EVERY = "levels", "readings", "every"
COMBINATIONS = (LEVELS, READINGS, EVERY)


def combine(parts: Mapping[str, Verdict], how: str = LEVELS) -> Verdict:
    """Return the verdict of a claim from the verdicts of its parts.

    Parts that all say the same give that verdict. Otherwise it depends on what the parts are:

    - ``"levels"`` of an axis (schemes, depths, tasks): confirmed at one level and refuted or not
      reproduced at another is *conditional*, whatever the remaining levels say.
    - ``"readings"`` of a setting that the source leaves out: decided readings that disagree make
      the claim *underspecified*.
    - ``"every"``: the claim says several things at once and each must hold, so one refuted part
      refutes it, and one that is not reproduced leaves it not reproduced.

    In all other cases an inconclusive part leaves the claim *inconclusive*; refuted beside not
    reproduced, with nothing confirmed, is *not reproduced*.

    Raises:
        ValueError: no parts, a part that is not one of confirmed, refuted, not reproduced and
            inconclusive, or an unknown way to combine.
    """
    if how not in COMBINATIONS:
        raise ValueError(f"expected one of {', '.join(COMBINATIONS)} as combination, came {how!r}")
    if not parts:
        raise ValueError("expected at least one part to combine, came none")
    decided = {Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED}
    for name, verdict in parts.items():
        if verdict not in decided | {Verdict.INCONCLUSIVE}:
            raise ValueError(
                f"part {name!r}: expected confirmed, refuted, not reproduced or inconclusive, "
                f"came {verdict.value!r}; only a whole claim can have that verdict"
            )
    seen = set(parts.values())
    if len(seen) == 1:
        return seen.pop()
    if how == EVERY:
        order = (Verdict.REFUTED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE)
        return next(verdict for verdict in order if verdict in seen)
    if how == READINGS and len(seen & decided) > 1:
        return Verdict.UNDERSPECIFIED
    if Verdict.CONFIRMED in seen and seen & {Verdict.REFUTED, Verdict.NOT_REPRODUCED}:
        return Verdict.CONDITIONAL
    if Verdict.INCONCLUSIVE in seen:
        return Verdict.INCONCLUSIVE
    return Verdict.NOT_REPRODUCED
