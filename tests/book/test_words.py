"""What cards say of rules and measurements, and which icons the pages get."""

# ruff: noqa: RUF001 (true minus and multiplication signs)

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bookpress.sphinx import offline
from bookpress.sphinx.words import (
    SYMBOLS,
    beside_in_words,
    measurement_in_words,
    rule_in_words,
)
from measured_book.evidence import registry
from measured_book.evidence.registry import (
    Bound,
    Difference,
    Equivalence,
    Identity,
    Number,
    Proportion,
    Threshold,
)
from measured_book.evidence.rules import judge
from measured_book.evidence.verdicts import Verdict


def part(rule, **values):
    """A part of a record, judged by the library's own rules."""
    judgement = judge(rule, values)
    return {
        "rule": rule.as_dict(),
        "values": {name: np.atleast_1d(value).tolist() for name, value in values.items()},
        "statistics": {
            **dataclasses.asdict(judgement),
            "interval": None if judgement.interval is None else list(judgement.interval),
        },
    }


def plain(text):
    return text.replace("\u00a0", " ")


def corrected(level: str) -> str:
    """What the rules of experiments end with."""
    return (
        f" A p above {level} after Holm's correction, over all experiments of the chapter, leaves it "
        "inconclusive."
    )


RULES = [
    (
        Identity(tolerance=1e-9, control_above=1e-3),
        "No error is larger than 1 × 10⁻⁹, and a negative control, which must fail, exceeds 0.001.",
    ),
    (
        Identity(tolerance=1e-9, no_control="The sum has one form."),
        "No error is larger than 1 × 10⁻⁹. No negative control: The sum has one form.",
    ),
    (
        Number(stated=(6.28, 12.57), digits=2),
        "The computed value rounds to the stated 6.28; 12.57; within 5 % of it, it counts as "
        "rounded by the source.",
    ),
    (Number(stated=(0.3,), within=0.1), "The computed value lies within 10 % of the stated 0.3."),
    (Bound(at_most=0.0), "Every number is at most 0."),
    (
        Bound(above=0.0, below=1.5, control=True),
        "Every number is above 0 and below 1.5, and a negative control breaks this bound.",
    ),
    (
        Difference(direction="greater", smallest_effect=0.1),
        "The mean difference, paired by seed, lies above 0.1, and its 95 % interval lies wholly "
        "above 0." + corrected("5 %"),
    ),
    (
        Difference(direction="less", smallest_effect=0.1, paired=False, confidence=0.9),
        "The mean difference, of independent seeds, lies below −0.1, and its 90 % interval lies "
        "wholly below 0." + corrected("10 %"),
    ),
    (
        Equivalence(margin=0.01),
        "The mean difference, paired by seed, is smaller than 0.01 either way, by two one-sided "
        "tests at 5 %." + corrected("5 %"),
    ),
    (
        Proportion(at_least=0.8),
        "The share is at least 0.8, with its whole exact 95 % interval." + corrected("5 %"),
    ),
    (
        Threshold(at_most=0.9),
        "The mean over seeds is at most 0.9, with its whole 95 % t interval." + corrected("5 %"),
    ),
    (
        Threshold(at_least=0.1, at_most=0.2),
        "The mean over seeds is from 0.1 to 0.2, with its whole 95 % t interval."
        + corrected("5 %"),
    ),
]


@pytest.mark.parametrize(("rule", "words"), RULES, ids=lambda value: getattr(value, "type", ""))
def test_rules(rule, words):
    assert plain(rule_in_words(rule.as_dict())) == words


def test_every_rule_of_the_registry_has_words():
    assert {rule.type for rule, _ in RULES} == set(registry.RULES)


def test_every_verdict_has_a_sign_of_its_own():
    assert set(SYMBOLS) == {verdict.value for verdict in Verdict}
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)


def test_a_rule_without_words_is_refused():
    with pytest.raises(ValueError, match=r"identity, number.*got 'oracle'"):
        rule_in_words({"type": "oracle"})


PAIRS = {"treatment": [1.0, 2.0, 3.0], "baseline": [0.0, 1.5, 2.0]}


@pytest.mark.parametrize(
    ("measured", "seeds", "words"),
    [
        (
            part(Identity(tolerance=1e-9, control_above=1e-3), error=[1e-15, -2e-15], control=0.25),
            None,
            "largest error 2 × 10⁻¹⁵ in 2 draws; the control is off by 0.25",
        ),
        (
            part(Identity(tolerance=1e-9, no_control="why"), error=[1e-15]),
            None,
            "largest error 1 × 10⁻¹⁵ in 1 draw",
        ),
        (
            part(Number(stated=(62831.85,), digits=2), value=62831.853),
            None,
            "computed 62,831.853, stated 62,831.85",
        ),
        (
            part(Number(stated=(1.0, 2.0), digits=1), value=[1.0, 2.3]),
            None,
            "computed 2.30, stated 2.0 (the farthest of 2)",
        ),
        (part(Bound(at_most=0.0), value=3), None, "measured 3; the bound is at most 0"),
        (
            part(Bound(at_most=0.0), value=[-1, 3, -2]),
            None,
            "1 of 3 numbers breaks the bound (at most 0), the farthest at 3",
        ),
        (
            part(Bound(at_most=0.0), value=[2, 3, -2]),
            None,
            "2 of 3 numbers break the bound (at most 0), the farthest at 3",
        ),
        (
            part(Bound(at_most=0.0), value=[-1, -3]),
            None,
            "all 2 numbers keep the bound (at most 0), the nearest at −1",
        ),
        (
            part(Difference(direction="greater", smallest_effect=0.1), **PAIRS),
            3,
            "mean difference 0.833 (95 % interval 0.116 to 1.55, 3 seeds)",
        ),
        (
            part(Proportion(at_least=0.5), successes=[8], trials=[10]),
            5,
            "share 0.8 (95 % interval 0.444 to 0.975, 10 trials)",
        ),
        (
            part(Threshold(at_least=0.5), value=[1.0, 2.0, 3.0]),
            3,
            "mean 2 (95 % interval −0.484 to 4.48, 3 seeds)",
        ),
    ],
)
def test_measurements(measured, seeds, words):
    assert plain(measurement_in_words(measured, seeds)) == words


def test_an_equivalence_says_which_interval_it_uses():
    measured = part(Equivalence(margin=2.0), **PAIRS)
    words = plain(measurement_in_words(measured, 3))
    low, high = measured["statistics"]["interval"]
    assert words.startswith("mean difference 0.833 (90 % interval ")
    assert f"{low:.3g} to {high:.3g}, 3 seeds)" in words


SCRIPT = """x={"git-hub":[496,512,[],"f09b","M1 1z"]};%sy={file:[384,512,[1,2],"f15b","M2 2z"]};%s
z={"file":[384,512,["a"],"f15b","M3 3z"],sun:[512,512,[],"f185","M4 4z"]}"""


def test_icons_are_told_apart_by_their_set():
    icons = offline._icons(SCRIPT % (" " * 400, " " * 400))
    assert icons == {
        "fab": {"git-hub": (496, 512, "M1 1z")},
        "far": {"file": (384, 512, "M2 2z")},
        "fas": {  # "a" is a former name of the file
            "file": (384, 512, "M3 3z"),
            "a": (384, 512, "M3 3z"),
            "sun": (512, 512, "M4 4z"),
        },
    }


def test_a_script_of_an_unknown_form_stays_whole():
    assert offline._icons("(() => {})()") == {}


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [
        ("fa-solid fa-sun fa-lg", [("sun", "fas"), ("lg", "fas")]),
        ("fab fa-github", [("github", "fab")]),
        ("far fa-file", [("file", "far")]),
        ("btn", []),
    ],
)
def test_icons_that_a_page_wants(classes, wanted):
    assert list(offline._wanted(classes)) == wanted


def test_what_is_computed_beside_an_effect():
    rule = Difference(direction="greater", smallest_effect=0.1)
    of = part(rule, treatment=[1.0, 1.2, 1.1, 1.3], baseline=[0.0, 0.1, 0.2, 0.0])
    assert beside_in_words(of) == ""
    of["statistics"]["details"] |= {"bootstrap": [0.98, 1.21], "hedges_g": 2.0660}
    of["statistics"]["p_holm"] = 0.0123
    assert plain(beside_in_words(of)) == (
        "bootstrap interval 0.98 to 1.21, Hedges' g 2.07, p 0.012 after Holm's correction"
    )
    assert beside_in_words(part(Bound(at_most=0.0), value=[-1.0])) == ""


def test_what_nobody_asks_for_is_not_shipped(tmp_path: Path) -> None:
    static = tmp_path / "_static"
    for name in (
        "styles/a.css.map",
        "b.js.map",
        "fonts/one.ttf",
        "fonts/one.woff2",
        "fonts/two.ttf",
        "locales/pl/LC_MESSAGES/theme.mo",
    ):
        (static / name).parent.mkdir(parents=True, exist_ok=True)
        (static / name).write_text("")
    face = '@font-face{src:url(one.woff2) format("woff2")%s}'
    sheet = static / "styles/a.css"
    second = ',url(../fonts/one.ttf?4) format("truetype")'
    sheet.write_text(f"{face % second}\n/*# sourceMappingURL=a.css.map */")
    app: Any = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    offline._drop_what_nobody_asks_for(app, None)
    kept = {path.name for path in static.rglob("*") if path.is_file()}
    assert kept == {"a.css", "one.woff2", "two.ttf"}, "a font without a second format stays"
    assert sheet.read_text().strip() == face % ""
