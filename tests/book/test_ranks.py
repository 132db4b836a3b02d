"""What the Scorecard sorts by, and which claims the summary of a source shows."""

from __future__ import annotations

from bookpress.sphinx import ranks, summaries
from bookpress.sphinx.words import turns_on
from bs4 import BeautifulSoup


def row(verdict, *parts, chapter="book/a"):
    """A row whose parts are given as verdict, effect and half-width of the interval."""
    told = [
        {"verdict": word, "effect": effect, "interval": [effect - half, effect + half]}
        for word, effect, half in parts
    ]
    return {"verdict": verdict, "outcome": {"parts": told, "axis": None}, "chapter": chapter}


def test_the_sharper_contradiction_is_the_more_surprising():
    rows = [
        row("refuted", ("refuted", -3.0, 0.5)),
        row("refuted", ("refuted", -3.0, 1.0), ("confirmed", 9.0, 0.1)),
        row("refuted"),
        row("conditional", ("refuted", 90.0, 0.1)),
        row("confirmed", ("confirmed", 90.0, 0.1)),
        row("inconclusive", ("inconclusive", 0.1, 1.0)),
    ]
    found = [ranks.surprise_rank(one) for one in rows]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_sharpness_is_the_effect_in_half_widths_of_its_interval():
    assert ranks.sharpness(row("confirmed", ("confirmed", -3.0, 0.5))) == 6.0
    assert ranks.sharpness(row("confirmed")) is None
    assert ranks.sharpness({"verdict": "planned", "outcome": None}) is None
    assert ranks.sharpness(row("confirmed", ("confirmed", 1.0, 0.0))) is None


def test_the_size_of_an_effect_is_told_in_half_widths_of_its_interval():
    """Just beyond its interval it is small; the sharpest part counts, whatever its sign."""
    assert ranks.size(row("confirmed", ("confirmed", -30.0, 3.0))) == "large"
    assert ranks.size(row("confirmed", ("confirmed", 29.9, 3.0))) == "small"
    assert ranks.size(row("confirmed", ("confirmed", 1.001, 1.0))) == "small"
    assert ranks.size(row("inconclusive", ("inconclusive", 0.999, 1.0))) == "zero"
    several = row("conditional", ("inconclusive", 0.1, 1.0), ("confirmed", 30.0, 1.0))
    assert ranks.size(several) == "large"
    for without in (row("fact"), {"verdict": "planned", "outcome": None}):
        assert ranks.size(without) == "none"


def test_the_filter_names_each_size_that_there_is_and_counts_it():
    rows = {
        "CS-1.1": row("confirmed", ("confirmed", 30.0, 1.0)),
        "CS-1.2": row("refuted", ("refuted", -30.0, 1.0)),
        "CS-1.3": row("fact"),
    }
    soup = BeautifulSoup(ranks.selects_html(rows), "html.parser")
    select = soup.select_one("label select[name=size]")
    assert select.parent.find(string=True, recursive=False).strip() == "Effect"
    told = {option["value"]: option.get_text() for option in select.select("option")}
    assert told == {
        "": "any",
        "large": "large: from 10 half-widths on (2)",
        "none": "no interval (1)",
    }


def test_another_set_of_seeds_agrees_differs_or_is_unknown():
    kept = {
        "CS-1.1": ("confirmed", 10),
        "CS-1.2": ("refuted", 10),
        "CS-1.4": ("inconclusive", 5),
        "CS-1.5": ("confirmed", 5),
    }
    rows = {f"CS-1.{n}": row("confirmed") for n in range(1, 6)}
    found = [ranks.again(claim, one, kept) for claim, one in rows.items()]
    assert found == ["same", "other", "none", "open", "same"]
    words, differ = ranks.second_set(rows, [claim for claim in rows if claim != "CS-1.5"], kept)
    assert words.startswith("3 of 4 experiments have been measured once more")
    assert "1 get the same verdict, 1 are not decided by so few seeds, and 1 get another" in words
    assert differ == ["CS-1.2"]


def test_a_verdict_that_both_sets_allow_still_differs_from_that_of_the_own_seeds():
    one = row("not reproduced") | {"verdict_own": "refuted"}
    assert ranks.again("CS-1.1", one, {"CS-1.1": ("not reproduced", 5)}) == "other"
    assert ranks.again("CS-1.1", one, {"CS-1.1": ("refuted", 5)}) == "same"


def test_what_is_conditional_by_other_seeds_alone_turns_on_the_seeds():
    record = {"verdict": "conditional", "verdict_own": "conditional", "axis": "the task"}
    assert turns_on(record) == "the task"
    assert turns_on(record | {"verdict_own": "confirmed"}) == "the seeds"
    assert turns_on(record | {"verdict": "refuted"}) is None


def test_a_summary_takes_claims_of_many_chapters_and_never_two_rows_of_one():
    rows = {f"CS-1.{n}": row("refuted", chapter=f"book/{n % 3}") for n in range(1, 9)}
    rows |= {f"CS-2.1{letter}": row("refuted", chapter="book/9") for letter in "ab"}
    chosen = summaries.choose(list(rows), rows, dict.fromkeys(rows, "experiment"))
    assert len(chosen) == summaries.MANY
    assert {rows[claim]["chapter"] for claim in chosen} == {"book/0", "book/1", "book/2", "book/9"}
    assert len({claim.rstrip("ab") for claim in chosen}) == len(chosen)
