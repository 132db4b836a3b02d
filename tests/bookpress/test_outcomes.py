"""Whether a committed run is stale: against a book that was really executed and then changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from bookpress.chapters import load_book
from bookpress.fingerprint import digest_of
from bookpress.records import all_committed, committed, publish
from bookpress.sphinx.outcomes import CELLS, base_of, changed_since, full_outcomes, order
from measured_transformer.evidence.records import read_records
from measured_transformer.evidence.registry import claim
from small_book import SmallBook


@pytest.fixture
def published(book: SmallBook) -> SmallBook:
    """The executed small book with its records committed, by the profile that they were made at."""
    assert len(list(publish(load_book(book.root), "quick"))) == 2
    return book


def changes(book: SmallBook) -> dict[str, list[str] | None]:
    """Chapter -> what has changed since its records were written."""
    payloads = {
        path.parents[1].name: json.loads(path.read_text("utf-8"))
        for path in all_committed(book.root, "quick")
    }
    assert sorted(payloads) == ["one", "two"]
    return {name: changed_since(book.root, payload, {}) for name, payload in payloads.items()}


def test_nothing_has_changed_at_first(published: SmallBook) -> None:
    assert changes(published) == {"one": None, "two": None}


def test_prose_makes_nothing_stale(published: SmallBook) -> None:
    published.replace("book/one.md", "Prose of chapter one", "Better prose")
    assert changes(published) == {"one": None, "two": None}


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("lib/tiny/glass.py", "return 1", "return 3", {"one": ["lib/tiny/glass.py"], "two": None}),
        ("data/numbers.csv", "1,2,3", "1,2", {"one": None, "two": ["data/numbers.csv"]}),
        ("book/one.md", "'one sees'", "'one saw'", {"one": ["the chapter's cells"], "two": None}),
        (
            "requirements.txt",
            "numpy==2.0",
            "numpy==2.1",
            {"one": ["requirements.txt"], "two": ["requirements.txt"]},
        ),
    ],
)
def test_what_a_chapter_uses_makes_its_records_stale(
    published: SmallBook, path: str, old: str, new: str, expected: dict[str, list[str] | None]
) -> None:
    published.replace(path, old, new)
    assert changes(published) == expected
    published.replace(path, new, old)
    assert changes(published) == {"one": None, "two": None}


def test_the_profile_of_the_build_does_not_matter(
    published: SmallBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEASURED_PROFILE", "full")
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "1000")
    assert changes(published) == {"one": None, "two": None}


def test_records_that_do_not_say_what_they_used_are_stale_all_the_same(
    published: SmallBook,
) -> None:
    path = committed(published.root, "one", "quick")
    payload = json.loads(path.read_text("utf-8"))
    del payload["parts"]
    published.replace("lib/tiny/glass.py", "return 1", "return 3")
    assert changed_since(published.root, payload, {}) == []


def as_if_made_with(book: SmallBook, **others: str) -> dict[str, Any]:
    """The records of chapter one as they were if these files of the library had had other hashes."""
    payload: dict[str, Any] = read_records(committed(book.root, "one", "quick"))
    payload["parts"] |= {
        f"lib/measured_transformer/{name}": other for name, other in others.items()
    }
    return {**payload, "stamp": digest_of(payload["parts"])}


def test_a_new_way_to_declare_claims_leaves_records_that_are_judged_alike(
    published: SmallBook,
) -> None:
    declared, computed = "evidence/registry.py", "evidence/rules.py"
    payload = as_if_made_with(published, **{declared: "before"})
    assert payload["records"] == {}
    assert changed_since(published.root, payload, {}) is None
    names = [f"lib/measured_transformer/{name}" for name in (declared, computed)]
    both = as_if_made_with(published, **{declared: "before", computed: "before"})
    assert changed_since(published.root, both, {}) == names

    found = claim("CS-1.3")
    moved = replace(found, chapter="book/one")  # a claim that these records do not hold
    assert changed_since(published.root, payload, {found.id: moved}) == names[:1]

    published.replace("book/one.md", "'one sees'", "'one saw'")
    assert changed_since(published.root, payload, {}) == [names[0], CELLS]
    forged = {**payload, "parts": {**payload["parts"], "lib/tiny/glass.py": "other"}}
    assert changed_since(published.root, forged, {}) == [names[0], "lib/tiny/glass.py"]


def test_records_of_a_chapter_that_left_are_stale(published: SmallBook) -> None:
    (published.root / "book/one.md").unlink()
    assert changes(published) == {"one": ["the chapter"], "two": None}


def test_no_folder_no_outcomes(book: SmallBook) -> None:
    assert full_outcomes(book.root, {}) == {}


def test_damaged_records_are_named(book: SmallBook) -> None:
    book.write("lib/measured_transformer/chapters/one/results/legacy-full.json", "{")
    with pytest.raises(ValueError, match=r"one\.json: expected records in JSON"):
        full_outcomes(book.root, {})


def test_ids_stand_in_the_order_of_the_sources() -> None:
    ids = ["IW-1.1", "DA-4.12b", "DA-4.2", "DA-10.1", "CS-9.1", "DA-4.12a", "EX-1.1", "DD-1.1"]
    ordered = [
        "CS-9.1",
        "DA-4.2",
        "DA-4.12a",
        "DA-4.12b",
        "DA-10.1",
        "DD-1.1",
        "EX-1.1",
        "IW-1.1",
    ]
    assert sorted(ids, key=order) == ordered
    with pytest.raises(ValueError, match=r"expected an id.*came 'XX 1'"):
        order("XX 1")
    assert [base_of(claim_id) for claim_id in ("DA-4.12b", "DA-4.2")] == ["DA-4.12", "DA-4.2"]
