"""Every claim of a document quotes it, and the quotation is found in the document, which is not here.

With the documents in a folder that MEASURED_SOURCES names, each quotation is compared with the text, too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from measured_book.evidence import quotations
from measured_book.evidence.quotations import (
    GAP,
    LONGEST,
    TITLES,
    digests,
    documents,
    main,
    not_found,
    read_windows,
    stretches,
    words,
    wrong_form,
)
from measured_book.evidence.registry import claims

WINDOWS = read_windows(Path(__file__).with_name("windows"))
OF_DOCUMENTS = {key: found for key, found in claims().items() if found.source in TITLES}
QUOTING = {key: found for key, found in OF_DOCUMENTS.items() if found.quote}
FOLDER = os.environ.get("MEASURED_SOURCES", "")


def test_each_claim_of_a_document_quotes_it_or_says_that_the_question_is_ours() -> None:
    silent = [key for key, found in OF_DOCUMENTS.items() if not found.quote and not found.ours]
    assert silent == [], "give them a quote, or say in `ours` why they are asked"


def test_few_claims_are_our_own_questions() -> None:
    ours = {key for key, found in OF_DOCUMENTS.items() if found.ours}
    assert 0 < len(ours) < len(OF_DOCUMENTS) / 10, sorted(ours)


def test_quotations_are_found_in_their_documents() -> None:
    missing = {key: not_found(found.quote, WINDOWS[found.source]) for key, found in QUOTING.items()}
    assert {key: stretch for key, stretch in missing.items() if stretch} == {}


def changed(told: list[str], place: int) -> list[str]:
    """A stretch with a word changed and one added; and one dropped, unless a run of it says the same."""
    less = " ".join([*told[:place], *told[place + 1 :]])
    texts = [
        " ".join([*told[:place], "otherwise", *told[place + 1 :]]),
        " ".join([*told[:place], "only", *told[place:]]),
    ]
    return texts if less in " ".join(told) else [*texts, less]


@pytest.mark.parametrize("source", TITLES)
def test_a_quotation_with_a_word_changed_dropped_or_added_is_not_found(source: str) -> None:
    own = [found for found in QUOTING.values() if found.source == source]
    for number, found in enumerate(own):
        for told in stretches(found.quote):
            places = range(len(told)) if number == 0 else [len(told) // 2]
            for place in places:
                for text in changed(told, place):
                    assert not_found(text, WINDOWS[source]) == text, found.id


def test_stretches_are_found_in_their_order_only() -> None:
    windows = digests(words("one two three four five six seven eight nine ten eleven twelve"))
    first, last = "one two three four five", "seven eight nine ten eleven"
    assert not_found(f"{first} {GAP} {last}", windows) == ""
    assert not_found(f"{last} {GAP} {first}", windows) == first
    assert not_found(f"{first} {GAP} {first}", windows) == first
    assert not_found(f"{first} {GAP} five six seven eight nine", windows) != ""


def test_signs_of_layout_are_no_words() -> None:
    arrow, mark = "\N{BLACK RIGHT-POINTING TRIANGLE}", "\N{RIGHT SINGLE QUOTATION MARK}"
    listed = f"- {arrow} It is *not* `x`:\n| a | b |\n|---|---|\n1. Here{mark}s  $d$ ."
    assert words(listed) == ["It", "is", "not", "x:", "a", "b", "Here's", "$d$."]
    assert words("x - y\n- z") == ["x", "-", "y", "z"]


@pytest.mark.parametrize(
    ("quote", "expected", "came"),
    [
        (" ".join(["word"] * 41), f"at most {LONGEST} words", "41"),
        ("four words of it", "at least 5 words in a row", "4: 'four words of it'"),
        (f"five words are enough here {GAP} these not", "at least 5 words", "2: 'these not'"),
    ],
)
def test_a_wrong_form_is_told(quote: str, expected: str, came: str) -> None:
    problem = wrong_form(quote)
    assert problem is not None
    assert problem[0].startswith(expected)
    assert problem[1] == came


def test_digests_are_written_from_a_folder_with_the_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, into = tmp_path / "given", tmp_path / "into"
    given.mkdir()
    assert main([str(given)]) == 2
    assert "usage: " in capsys.readouterr().err
    assert main([str(given), str(into)]) == 2
    assert "one .txt file that begins with 'Case Study 2" in capsys.readouterr().err
    for number, title in enumerate(TITLES.values()):
        (given / f"{number}.txt").write_text(f"# {title}\nThey say no more than this.", "utf-8")
    assert main([str(given), str(into)]) == 0
    assert {path.stem for path in into.iterdir()} == set(TITLES)
    for source, windows in read_windows(into).items():
        assert not_found("They say no more than this.", windows) == "", source
        assert not_found("They say much more than this.", windows) != "", source


@pytest.mark.skipif(not FOLDER, reason="MEASURED_SOURCES names no folder with the documents")
def test_quotations_stand_in_the_documents_word_for_word() -> None:
    texts = documents(Path(FOLDER))
    assert {key: digests(words(text)) for key, text in texts.items()} == WINDOWS
    told = {key: f" {' '.join(words(text))} " for key, text in texts.items()}
    wrong = [
        f"{key}: {' '.join(part)}"
        for key, found in QUOTING.items()
        for part in stretches(found.quote)
        if f" {' '.join(part)} " not in told[found.source]
    ]
    assert wrong == []


def test_no_document_comes_with_the_book() -> None:
    root = Path(quotations.__file__).parents[3]
    for path in (root / "tests" / "evidence" / "windows").iterdir():
        assert set(path.read_text("ascii")) <= set("0123456789abcdef \n"), path
