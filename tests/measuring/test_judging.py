"""Numbers of the prose that a room declares, those that take arguments from it, and a chapter's verdicts."""

import re
from typing import Any

import pytest
from demo_room import CLAIMS, MEASURE, Inline, Room
from measured_book.evidence import registry
from measured_book.measuring.dependencies import results_of
from measured_book.measuring.judging import judge_room, value_of, with_chapter_verdicts
from measured_book.measuring.measurement import readings_of
from measured_book.measuring.scheduler import measure_all

ASKED = """

@number
def loss_of(losses, *, arm: str):
    return losses.loss.sel(arm=arm).mean()


@number
def quantile(losses, *, arm: str, share: float):
    return losses.loss.sel(arm=arm).quantile(share)


@number
def nth(draws, *, seed: int):
    return draws.error.isel(seed=seed)
"""


@pytest.fixture
def judged(room: Room, inline: Inline):
    room.write(MEASURE + ASKED)
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    return judge_room("demo")


def test_a_number_gets_what_the_prose_says_in_parentheses(judged) -> None:
    losses = judged.results["losses"].dataset.loss
    assert value_of(judged, "loss_of(pre):.6f") == f"{float(losses.sel(arm='pre').mean()):.6f}"
    assert value_of(judged, "loss_of( post ):.6f") == f"{float(losses.sel(arm='post').mean()):.6f}"
    lowest = float(losses.sel(arm="pre").min())
    assert value_of(judged, "quantile(pre, 0):.6f") == f"{lowest:.6f}"
    assert value_of(judged, "nth(1):.1e") == value_of(judged, "draws.error|max:.1e")
    assert results_of(judged, "loss_of(pre):.2f") == ("losses",)
    assert results_of(judged, "nth(0)") == ("draws",)


def test_readings_may_stand_in_a_file_of_their_own(room: Room, inline: Inline) -> None:
    at = MEASURE.index('@evidence("CS-1.3")')
    imports = "from measured_book.measuring import evidence, number\n\n\n"
    room.write(MEASURE[:at])
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert readings_of("demo") == []
    (room.folder / "reading.py").write_text(imports + MEASURE[at:])
    room.reload()
    assert [one.name for one in readings_of("demo")] == ["CS-1.3", "DD-7.7", "lowest"]
    assert set(judge_room("demo").records) == {"CS-1.3", "DD-7.7"}
    room.write(MEASURE)
    with pytest.raises(
        ValueError, match=r"in reading\.py, got CS-1\.3, DD-7\.7, lowest in measure"
    ):
        readings_of("demo")


def test_numbers_without_arguments_stay_as_they_are(judged) -> None:
    assert (
        value_of(judged, "lowest:.6f")
        == f"{float(judged.results['losses'].dataset.loss.min()):.6f}"
    )
    assert set(judged.values) == {"lowest"}
    asks = {one.name: (one.reads, one.asks) for one in readings_of("demo") if not one.is_claim}
    assert asks["quantile"] == (("losses",), ("arm", "share"))
    assert asks["lowest"] == (("losses",), ())


@pytest.mark.parametrize(
    ("expression", "error", "words"),
    [
        ("loss_of():.2f", ValueError, r"expected loss_of\(arm\), got 0 arguments"),
        ("loss_of(pre, post)", ValueError, r"expected loss_of\(arm\), got 2 arguments: pre, post"),
        ("nth(one)", ValueError, r"nth\(seed\): expected int for seed, got 'one'"),
        ("lowest(pre)", ValueError, r"lowest takes no arguments; name it without parentheses"),
        ("loss_off(pre)", ValueError, "no function 'loss_off'; the nearest is loss_of"),
        ("loss_of:.2f", ValueError, r"expected the arguments of loss_of\(arm\), got none"),
        ("losses.lost", ValueError, "losses has no variable 'lost'; the nearest is loss"),
        ("losses.loss[arms=pre]", ValueError, "losses.loss has no axis 'arms'; the nearest is arm"),
        ("losses.loss[arm=per]", ValueError, "losses.loss has no arm 'per'; the nearest is pre"),
        ("loses.loss", ValueError, "no result 'loses'; the nearest is losses"),
    ],
)
def test_bad_calls_say_what_was_expected(judged, expression, error, words) -> None:
    with pytest.raises(error, match=words):
        value_of(judged, expression)


WRITTEN = MEASURE[: MEASURE.index("@evidence")]
EXPRESSIONS = CLAIMS.replace(
    'expected = "confirmed"',
    'expected = "confirmed"\n[claim.evidence]\nerror = "draws.error"\ncontrol = "draws.control"',
).replace(
    'expected = "inconclusive"',
    'expected = "inconclusive"\n[claim.evidence]\n'
    'treatment = "of_arm[arm=pre]"\nbaseline = "of_arm[arm=post]"',
)
VALUES = 'of_arm = "losses.loss"\n'


def written(room: Room, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """A room whose evidence stands in its file of claims, in which one text is another."""
    text = EXPRESSIONS.replace("\n\n[[claim]]", f"\n\n[values]\n{VALUES}\n[[claim]]", 1)
    assert old in text
    text = text.replace(old, new, 1)
    (room.folder / "claims.toml").write_text(text)
    known = registry.parse_claims(text, "demo/claims.toml")
    monkeypatch.setattr(registry, "_packaged", lambda: known)
    room.write(WRITTEN)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("draws.error", "drawn.error", 'error = "', "no result 'drawn'; the nearest is draws"),
        ("draws.error", "draws.errors", 'error = "', "no variable 'errors'; the nearest is error"),
        ("[arm=pre]", "[arms=pre]", 'treatment = "', "no axis 'arms'; the nearest is arm"),
        ("[arm=pre]", "[arm=per]", 'treatment = "', "no arm 'per'; the nearest is pre"),
        ("[arm=pre]", "[arm=pre]|meen", 'treatment = "', "function 'meen'; the nearest is mean"),
        ("of_arm[arm=pre]", "off_arm", 'treatment = "', "'off_arm'; the nearest is of_arm"),
        ("draws.error", "draws", 'error = "', "expected a variable of draws (error, control)"),
        ("draws.error", "draws.error|first(seed, 2)", 'error = "', "expected first(axis), got 2"),
        ("draws.error", "draws.error|maximum(draws.)", 'error = "', "the name of a variable after"),
        ("losses.loss", "losses.loss|mean(arm, 'x", 'of_arm = "', "expected a closing )"),
        ("losses.loss", "loses.loss", 'of_arm = "', "no result 'loses'; the nearest is losses"),
        ("losses.loss", "lok(losses.loss)", 'of_arm = "', "function 'lok'; the nearest is log"),
        ("losses.loss", "losses.lost", 'of_arm = "', "no variable 'lost'; the nearest is loss"),
        ("losses.loss", "losses.loss|sum(arms)", 'of_arm = "', "axis 'arms'; the nearest is arm"),
    ],
)
def test_a_wrong_name_in_the_file_of_claims_is_told_with_its_line(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch, old, new, line, words
) -> None:
    written(room, monkeypatch, old, new)
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    lines = (room.folder / "claims.toml").read_text().splitlines()
    number = next(n for n, text in enumerate(lines, 1) if text.startswith(line))
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        judge_room("demo")
    assert f"demo/claims.toml, line {number}" in str(told.value)
    assert "\n" not in str(told.value)


def test_evidence_of_the_file_of_claims_is_judged(
    room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(room, monkeypatch, VALUES, VALUES)
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert set(judge_room("demo").records) == {"CS-1.3", "DD-7.7"}


def test_a_number_of_a_missing_result_says_which(room: Room) -> None:
    room.write(MEASURE + ASKED)
    with pytest.raises(ValueError, match="losses"):
        value_of(judge_room("demo"), "loss_of(pre):.2f")


def compared(name: str, verdict: str, p: float, shift: float = 0.0) -> dict[str, Any]:
    values = {"treatment": [1.0 + shift, 2.0], "baseline": [2.0, 4.0]}
    statistics = {"verdict": verdict, "effect": 1.0, "interval": [0.5, 1.5], "p": p, "details": {}}
    rule = {"type": "difference", "confidence": 0.95}
    return {"name": name, "rule": rule, "values": values, "statistics": statistics}


def records(*shifts: float) -> dict[str, Any]:
    """Claims that compare the same two arms: the same comparisons where they are not shifted."""
    return {
        f"DD-7.{number}": {
            "verdict": "conditional",
            "parts": [
                compared("rotary", "confirmed", 0.03, shift),
                compared("alibi", "refuted", 0.02, shift),
            ],
        }
        for number, shift in enumerate(shifts)
    }


def test_a_second_set_of_seeds_changes_the_verdict_and_not_what_the_own_seeds_say() -> None:
    both = records(0.0)
    both["DD-7.0"] |= {"verdict": "refuted", "parts": both["DD-7.0"]["parts"][1:]}
    both["DD-7.0"]["other_seeds"] = "confirmed"
    found = with_chapter_verdicts(both)["DD-7.0"]
    assert (found["verdict"], found["verdict_own"]) == ("conditional", "refuted")
    both["DD-7.0"]["other_seeds"] = ""
    found = with_chapter_verdicts(both)["DD-7.0"]
    assert (found["verdict"], found["verdict_own"]) == ("refuted", "refuted")


def test_verdicts_are_those_after_holms_correction_and_the_rules_own_stand_beside() -> None:
    # 0.02 counts twice and stands; 0.03 is then at least as large and stands too.
    found = with_chapter_verdicts(records(0.0))["DD-7.0"]
    assert (found["verdict"], found["verdict_alone"]) == ("conditional", "conditional")
    assert [part["statistics"]["p_holm"] for part in found["parts"]] == pytest.approx([0.04, 0.04])
    # the same two comparisons in another claim: each counts once
    assert with_chapter_verdicts(records(0.0, 0.0))["DD-7.0"]["verdict"] == "conditional"
    found = with_chapter_verdicts(records(0.0, 1e-9))["DD-7.0"]
    assert (found["verdict"], found["verdict_alone"]) == ("inconclusive", "conditional")
    assert [part["statistics"]["verdict"] for part in found["parts"]] == ["confirmed", "refuted"]
    assert {part["statistics"]["verdict_holm"] for part in found["parts"]} == {"inconclusive"}
