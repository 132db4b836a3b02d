"""The registry covers the list of the source documents' checkable claims, each row of it, and nothing else."""

import re
from collections import Counter
from pathlib import Path

import pytest
from bookpress.chapters import front_matter, rooms_of
from measured_book.evidence.registry import Claim, claims, claims_files

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("claim_ids.txt")


def read_list(text: str) -> tuple[dict[str, int], dict[str, int], dict[str, list[str]]]:
    """The list as counts by source, counts by theme, and ids by theme."""
    sources: dict[str, int] = {}
    counts: dict[str, int] = {}
    ids: dict[str, list[str]] = {}
    theme = ""
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        if header := re.fullmatch(r"(source|theme) (.+): (\d+)", line):
            if header[1] == "source":
                sources[header[2]] = int(header[3])
            else:
                theme = header[2]
                counts[theme], ids[theme] = int(header[3]), []
        else:
            assert re.fullmatch(r"(CS|DA|DD|EX|IW)-\d+\.\d+", line), line
            ids[theme].append(line)
    return sources, counts, ids


SOURCES, COUNTS, IDS = read_list(LIST.read_text("utf-8"))
PAPERS = "LT-"
"""What begins so is a statement of a paper, of which there is no list."""
LISTED = [claim_id for listed in IDS.values() for claim_id in listed]


def base(claim_id: str) -> str:
    """The row of the list that a claim belongs to: its id without the letter of a split."""
    return claim_id.rstrip("abcdefgh")


def test_the_list_agrees_with_its_own_counts() -> None:
    assert len(LISTED) == len(set(LISTED)) == sum(SOURCES.values()) == 327
    assert Counter(claim_id[:2] for claim_id in LISTED) == SOURCES
    assert {theme: len(listed) for theme, listed in IDS.items()} == COUNTS


def test_every_row_of_the_list_is_in_the_registry_and_nothing_else() -> None:
    registered = {base(claim_id) for claim_id in claims() if not claim_id.startswith(PAPERS)}
    assert sorted(set(LISTED) - registered) == []
    assert sorted(registered - set(LISTED)) == []
    assert Counter(claim_id[:2] for claim_id in registered) == SOURCES


def test_split_rows_are_lettered_from_a_on_and_replace_the_whole_row() -> None:
    scoped: dict[str, list[str]] = {}
    for claim_id in claims():
        scoped.setdefault(base(claim_id), []).append(claim_id.removeprefix(base(claim_id)))
    for row, letters in scoped.items():
        assert sorted(letters) in ([""], *(list("abcdefgh"[:n]) for n in range(2, 9))), row


# Rows that a chapter of another theme measures, because a reader needs the answer there.
GUESTS = {
    **dict.fromkeys(("EX-2.7", "DD-14.7"), "attention"),
    **dict.fromkeys(("CS-3.9", "DD-4.9", "DD-14.14"), "residual stream"),
    "DD-4.8": "norms",
    **dict.fromkeys(("DA-1.1", "DA-2.2"), "language models"),
}


def test_each_room_belongs_to_one_theme() -> None:
    theme_of = {claim_id: theme for theme, listed in IDS.items() for claim_id in listed} | GUESTS
    themes: dict[str, set[str]] = {}
    for claim_id, found in claims().items():
        if claim_id.startswith(PAPERS):
            continue
        themes.setdefault(found.room, set()).add(theme_of[base(claim_id)])
    assert {room: found for room, found in themes.items() if len(found) > 1} == {}


@pytest.mark.parametrize("found", claims().values(), ids=claims().keys())
def test_each_claim_declares_what_will_judge_it(found: Claim) -> None:
    if found.kind == "cited":
        return
    assert (found.rule is None) == bool(found.parts)
    if found.kind == "experiment":
        assert found.seeds is not None
    if found.status == "planned":
        assert found.expected is None


def test_each_reference_is_in_the_bibliography() -> None:
    keys = set(re.findall(r"^@\w+\{([^,]+),", (ROOT / "references.bib").read_text("utf-8"), re.M))
    missing = {key for found in claims().values() for key in found.references} - keys
    assert missing == set()


def test_a_room_is_named_after_its_chapter_or_feeds_it_beside_one_that_is() -> None:
    files = claims_files()
    claiming = {room for room, path in files.items() if "[[claim]]" in path.read_text("utf-8")}
    assert claiming == {found.room for found in claims().values()}
    silent = {"carry_over", "mixture_of_experts", "one_sitting", "workbench"}
    assert set(files) - claiming == silent, "about which the sources say nothing"
    for room, path in files.items():
        lines = path.read_text("utf-8").splitlines()
        chapter = next(line for line in lines if not line.startswith("#"))
        named = re.fullmatch(r'chapter = "(book/[a-z-]+/([a-z-]+))"', chapter)
        assert named, room
        feeding = rooms_of(front_matter((ROOT / f"{named[1]}.md").read_text("utf-8")))
        assert feeding[0] == named[2].replace("-", "_")
        assert room in feeding
