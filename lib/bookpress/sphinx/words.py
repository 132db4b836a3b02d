"""Rules and measurements in words, for claims and tables. Pure functions of a record's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from measured_book.evidence.records import number_text
from measured_book.evidence.verdicts import Verdict, named, parts_of

Part = Mapping[str, Any]

SYMBOLS: Mapping[str, str] = {
    "confirmed": "✓",
    "refuted": "✗",
    "conditional": "◐",
    "does not carry over": "⇸",
    "not reproduced": "∅",
    "underspecified": "≟",
    "inconclusive": "…",
    "misprint": "✎",
    "fact": "§",
}
"""A sign for each verdict, so that colour is never the only difference between two badges."""

SIGNS: Mapping[str, str] = {**SYMBOLS, "planned": "○"}
"""The signs of verdicts, and that of a claim which no chapter measures yet."""


def rule_in_words(rule: Mapping[str, Any]) -> str:
    """Say what a declared rule asks for.

    Args:
        rule: a rule as a record holds it, with its `type`.

    Raises:
        ValueError: a type of rule that has no words here.
    """
    return _of_type(_RULES, rule)(rule)


def measurement_in_words(part: Part, seeds: int | None) -> str:
    """Say what was measured: the value that decides, its interval and the sample it comes from.

    Args:
        part: a record of one rule, or one part of a record.
        seeds: how many seeds stand behind it; None where seeds play no role.

    Raises:
        ValueError: a type of rule that has no words here.
    """
    return _of_type(_MEASUREMENTS, part["rule"])(part, seeds)


def seeds_behind(part: Part, seeds: int) -> int:
    """How many of a claim's seeds stand behind one part: another part may read a longer measurement."""
    if part["rule"]["type"] not in _EFFECTS or part["rule"]["type"] == "proportion":
        return seeds
    return min(seeds, max(len(values) for values in part["values"].values()))


SEEDS = "the seeds"
"""What a verdict turns on that a second set of seeds alone makes conditional."""


def turns_on(record: Mapping[str, Any]) -> str | None:
    """Return what a verdict depends on that is conditional or underspecified; None for all others."""
    if record["verdict"] not in ("conditional", "underspecified"):
        return None
    own = record.get("verdict_own", record["verdict"])
    return record.get("axis") if own == record["verdict"] else SEEDS


def result_in_words(record: Mapping[str, Any]) -> str:
    """Say in a few words what came out: the value that decides, with its interval, or of the parts how many.

    Args:
        record: a record of one rule or of several parts.

    Raises:
        ValueError: a type of rule that has no words here.
    """
    parts = parts_of(record)
    turns = turns_on(record)
    if list(parts) == [""]:
        told = effect_in_words(parts[""])
        return f"{told}; it turns on {turns}" if turns else told
    verdicts = [word_of_part(part, record) for part in parts.values()]
    counts = {word: verdicts.count(word) for word in SYMBOLS if word in verdicts}
    if len(counts) > 1:
        told = ", ".join(f"{number} {word}" for word, number in counts.items())
        return f"{told}; it turns on {turns}" if turns else f"{told}, of {len(parts)} parts"
    kinds = {part["rule"]["type"] for part in parts.values()}
    if len(kinds) > 1 or not kinds <= set(_EFFECTS):
        return f"in each of {len(parts)} parts"
    effects = [part["statistics"]["effect"] for part in parts.values()]
    word, spec = _EFFECTS[kinds.pop()]
    low, high = number_text(min(effects), spec), number_text(max(effects), spec)
    return f"{word} {low} to {high} in {len(parts)} parts"


def word_of_part(part: Part, record: Mapping[str, Any]) -> str:
    """Return the verdict of a part, after Holm's correction where there is one, in its claim's words."""
    statistics = part["statistics"]
    return named(Verdict(statistics.get("verdict_holm", statistics["verdict"])), record).value


def effect_in_words(part: Part) -> str:
    """Say in a few words what decides a rule: the effect with its interval, or how it was computed.

    Raises:
        ValueError: a type of rule that has no words here.
    """
    kind, statistics = part["rule"]["type"], part["statistics"]
    if kind not in _EFFECTS:
        return measurement_in_words(part, None).partition("; the control")[0]
    word, spec = _EFFECTS[kind]
    text = f"{word} {number_text(statistics['effect'], spec)}"
    if statistics["interval"] is None:
        return text
    low, high = (number_text(end, spec) for end in statistics["interval"])
    return f"{text}, interval {low} to {high}"


_EFFECTS: Mapping[str, tuple[str, str]] = {
    "difference": ("difference", "+.3g"),
    "equivalence": ("difference", "+.3g"),
    "proportion": ("share", ".3g"),
    "threshold": ("mean", ".3g"),
}


def _of_type(table: Mapping[str, Any], rule: Mapping[str, Any]) -> Callable[..., str]:
    if rule["type"] not in table:
        raise ValueError(f"expected one of the rules {', '.join(table)}, got {rule['type']!r}")
    found: Callable[..., str] = table[rule["type"]]
    return found


def _percent(share: float) -> str:
    return f"{number_text(100 * share, '.4g')}\N{NO-BREAK SPACE}%"


def _stated(value: float, rule: Mapping[str, Any], more: int = 0) -> str:
    """Return a number with the decimals that the source states, or some more."""
    digits = rule.get("digits")
    return number_text(value, ".6g" if digits is None else f",.{max(digits, 0) + more}f")


def _identity_rule(rule: Mapping[str, Any]) -> str:
    text = f"No error is larger than {number_text(rule['tolerance'])}"
    if "control_above" in rule:
        control = number_text(rule["control_above"])
        return f"{text}, and a negative control, which must fail, exceeds {control}."
    return f"{text}. No negative control: {rule['no_control']}"


def _number_rule(rule: Mapping[str, Any]) -> str:
    stated = "; ".join(_stated(value, rule) for value in rule["stated"])
    share = _percent(rule.get("within", 0.05))
    if "digits" not in rule:
        return f"The computed value lies within {share} of the stated {stated}."
    return (
        f"The computed value rounds to the stated {stated}; within {share} of it, it counts as "
        "rounded by the source."
    )


def _bounds(rule: Mapping[str, Any]) -> str:
    words = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}
    return " and ".join(
        f"{word} {number_text(rule[name])}" for name, word in words.items() if name in rule
    )


def _bound_rule(rule: Mapping[str, Any]) -> str:
    control = ", and a negative control breaks this bound" if rule.get("control") else ""
    return f"Every number is {_bounds(rule)}{control}."


def _corrected(rule: Mapping[str, Any]) -> str:
    """Say what all experiments of a chapter together demand; the rule alone is not the whole of it."""
    level = _percent(1 - rule["confidence"])
    return (
        f" A p above {level} after Holm's correction, over all experiments of the chapter, leaves it "
        "inconclusive."
    )


def _difference_rule(rule: Mapping[str, Any]) -> str:
    side = "above" if rule["direction"] == "greater" else "below"
    size = number_text(rule["smallest_effect"])
    size = size if side == "above" else f"\N{MINUS SIGN}{size}"
    paired = "paired by seed" if rule["paired"] else "of independent seeds"
    return (
        f"The mean difference, {paired}, lies {side} {size}, and its "
        f"{_percent(rule['confidence'])} interval lies wholly {side} 0." + _corrected(rule)
    )


def _equivalence_rule(rule: Mapping[str, Any]) -> str:
    paired = "paired by seed" if rule["paired"] else "of independent seeds"
    level = _percent(1 - rule["confidence"])
    return (
        f"The mean difference, {paired}, is smaller than {number_text(rule['margin'])} either way, "
        f"by two one-sided tests at {level}." + _corrected(rule)
    )


def _threshold_words(rule: Mapping[str, Any]) -> str:
    if "at_least" in rule and "at_most" in rule:
        return f"from {number_text(rule['at_least'])} to {number_text(rule['at_most'])}"
    if "at_least" in rule:
        return f"at least {number_text(rule['at_least'])}"
    return f"at most {number_text(rule['at_most'])}"


def _proportion_rule(rule: Mapping[str, Any]) -> str:
    confidence = _percent(rule["confidence"])
    return (
        f"The share is {_threshold_words(rule)}, with its whole exact {confidence} interval."
        + _corrected(rule)
    )


def _threshold_rule(rule: Mapping[str, Any]) -> str:
    confidence = _percent(rule["confidence"])
    return (
        f"The mean over seeds is {_threshold_words(rule)}, with its whole {confidence} t interval."
        + _corrected(rule)
    )


def _identity(part: Part, seeds: int | None) -> str:
    details = part["statistics"]["details"]
    text = (
        f"largest error {number_text(part['statistics']['effect'], '.2g')} in "
        f"{_count(details['draws'], 'draw')}"
    )
    if "smallest_control" in details:
        text += f"; the control is off by {number_text(details['smallest_control'], '.2g')}"
    return text


def _number(part: Part, seeds: int | None) -> str:
    details = part["statistics"]["details"]
    count = len(part["rule"]["stated"])
    worst = f" (the farthest of {count})" if count > 1 else ""
    return (
        f"computed {_stated(details['computed'], part['rule'], more=1)}, "
        f"stated {_stated(details['stated'], part['rule'])}{worst}"
    )


def _bound(part: Part, seeds: int | None) -> str:
    details = part["statistics"]["details"]
    effect = number_text(part["statistics"]["effect"])
    bound = _bounds(part["rule"])
    if details["numbers"] == 1:
        return f"measured {effect}; the bound is {bound}"
    if details["violations"]:
        return (
            f"{number_text(details['violations'])} of {number_text(details['numbers'])} numbers "
            f"{'breaks' if details['violations'] == 1 else 'break'} the bound ({bound}), "
            f"the farthest at {effect}"
        )
    return (
        f"all {number_text(details['numbers'])} numbers keep the bound ({bound}), the nearest at "
        f"{effect}"
    )


def _estimate(what: str) -> Callable[[Part, int | None], str]:
    def words(part: Part, seeds: int | None) -> str:
        statistics = part["statistics"]
        text = f"{what} {number_text(statistics['effect'], '.3g')}"
        inside = []
        if statistics["interval"] is not None:
            low, high = (number_text(end, ".3g") for end in statistics["interval"])
            confidence = _percent(statistics["details"].get("confidence", 0.95))
            inside.append(f"{confidence} interval {low} to {high}")
        if part["rule"]["type"] == "proportion":
            inside.append(_count(int(sum(part["values"]["trials"])), "trial"))
        elif seeds is not None:
            inside.append(_count(seeds_behind(part, seeds), "seed"))
        return f"{text} ({', '.join(inside)})" if inside else text

    return words


def beside_in_words(part: Part) -> str:
    """Say what else is known of an effect: bootstrap interval, effect size, adjusted p; or nothing."""
    statistics = part["statistics"]
    details, said = statistics["details"], []
    if "bootstrap" in details:
        low, high = (number_text(end, ".3g") for end in details["bootstrap"])
        said.append(f"bootstrap interval {low} to {high}")
    if "hedges_g" in details:
        said.append(f"Hedges' g {number_text(details['hedges_g'], '.2f')}")
    if statistics.get("p_holm") is not None:
        said.append(f"p {number_text(statistics['p_holm'], '.2g')} after Holm's correction")
    return ", ".join(said)


def _count(number: int, what: str) -> str:
    return f"{number_text(number, ',')} {what}{'' if number == 1 else 's'}"


_RULES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "identity": _identity_rule,
    "number": _number_rule,
    "bound": _bound_rule,
    "difference": _difference_rule,
    "equivalence": _equivalence_rule,
    "proportion": _proportion_rule,
    "threshold": _threshold_rule,
}

_MEASUREMENTS: Mapping[str, Callable[[Part, int | None], str]] = {
    "identity": _identity,
    "number": _number,
    "bound": _bound,
    "difference": _estimate("mean difference"),
    "equivalence": _estimate("mean difference"),
    "proportion": _estimate("share"),
    "threshold": _estimate("mean"),
}
