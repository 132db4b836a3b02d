"""Which edition is printed, and the addresses it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bookpress import bibtex
from bookpress.edition import COMMIT as COMMIT_VARIABLE
from bookpress.edition import EDITION, Edition, edition_of, note_text, read, site_of
from measured_book.evidence.registry import Claim
from pybtex.database import parse_string

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "_config.yml").write_text("repository:\n  url: https://github.com/Some/book/\n")
    (tmp_path / "CITATION.cff").write_text(
        'title: A Book\nversion: 0.2.0\ndate-released: "2027-03-01"\nauthors: [{name: Its authors}]\n'
    )
    return tmp_path


def test_no_test_knows_which_edition_is_published(root: Path):
    """Publishing sets both variables for its whole job, the tests included."""
    edition = edition_of(root)
    assert (edition.name, edition.commit) == ("latest", "")


def test_the_variables_of_publishing_are_taken_from_tests():
    named = f"{__file__}::{test_no_test_knows_which_edition_is_published.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", named]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, EDITION: "v0.2.0", COMMIT_VARIABLE: COMMIT},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_without_variables_the_latest_edition_is_printed_of_no_commit(root: Path):
    edition = edition_of(root, {})
    assert (edition.name, edition.commit, edition.released) == ("latest", "", False)
    assert edition.pinned("DD-3.9") == "DD-3.9@latest"
    assert edition.code_at == "main"
    assert edition.address("a.html") == "https://some.github.io/book/latest/a.html"


def test_a_release_is_named_by_its_tag(root: Path):
    edition = edition_of(root, {"MEASURED_EDITION": "v0.2", "MEASURED_COMMIT": COMMIT})
    assert edition.pinned("DD-3.9") == "DD-3.9@v0.2"
    assert edition.claim_address("DD-3.9") == "https://some.github.io/book/v0.2/claims/DD-3.9.html"
    assert edition.address("a.html", "latest") == "https://some.github.io/book/latest/a.html"
    assert edition.code_at == COMMIT
    assert (edition.year, edition.author) == ("2027", "Its authors")


def test_between_releases_the_commit_takes_the_place_of_the_tag(root: Path):
    assert edition_of(root, {"MEASURED_COMMIT": COMMIT}).pinned("CS-1.1") == "CS-1.1@0123456"


@pytest.mark.parametrize(
    "variables",
    [{"MEASURED_EDITION": "0.2"}, {"MEASURED_EDITION": "v2/../x"}, {"MEASURED_COMMIT": "main"}],
)
def test_a_variable_that_is_no_tag_or_commit_is_refused(root: Path, variables: dict[str, str]):
    with pytest.raises(ValueError, match="expected MEASURED_"):
        edition_of(root, variables)


def test_the_site_follows_from_the_repository_and_nothing_else_is_invented():
    assert site_of("https://github.com/Owner/name") == "https://owner.github.io/name"
    assert site_of("https://example.org/owner/name") == ""
    assert site_of("") == ""


def test_what_is_told_beside_the_pages_can_be_read_again(root: Path, tmp_path: Path):
    edition = edition_of(root, {"MEASURED_COMMIT": COMMIT})
    (tmp_path / "edition.json").write_text(note_text(edition))
    assert read(tmp_path) == edition
    with pytest.raises(ValueError, match="expected a printed book"):
        read(tmp_path / "nowhere")


# --- BibTeX ---------------------------------------------------------------------------------------


@pytest.fixture
def release(root: Path) -> Edition:
    return edition_of(root, {"MEASURED_EDITION": "v0.2", "MEASURED_COMMIT": COMMIT})


def only(entry: str):
    (found,) = parse_string(entry, "bibtex").entries.values()
    return found


def said(claim: str, statement: str, **more: str) -> Claim:
    return Claim(
        claim, "DD", "section 1", statement, "experiment", "Models of width 32 & less.", "book/a", "It.",
        **more,
    )  # fmt: skip


def test_the_note_of_a_claims_entry_names_both_sizes(release: Edition):
    claim = said("DD-3.9", "It is.", said_of="BERT, 110 million weights")
    note = only(bibtex.claim_entry(release, claim, "does not carry over")).fields["note"]
    assert note.startswith(
        "Claim DD-3.9@v0.2, verdict: does not carry over; scope: Models of width"
    )
    assert note.endswith("; said of: BERT, 110 million weights")


def test_a_claims_entry_names_claim_edition_verdict_and_address(release: Edition):
    found = only(
        bibtex.claim_entry(
            release, said("DD-3.9", "Heads *differ* by `50 %`, $x_1$ & all."), "refuted"
        )
    )
    assert found.type == "misc"
    assert found.fields["title"] == r"{Heads differ by 50 \%, $x_1$ \& all}"
    assert found.fields["note"] == (
        r"Claim DD-3.9@v0.2, verdict: refuted; scope: Models of width 32 \& less"
    )
    assert found.fields["url"] == "https://some.github.io/book/v0.2/claims/DD-3.9.html"
    assert [str(person) for person in found.persons["author"]] == ["{Its authors}"]


def test_a_chapters_entry_names_the_book_and_the_edition(release: Edition):
    found = only(bibtex.chapter_entry(release, "book/norms/placement", "Where to_put {it}?"))
    assert found.type == "incollection"
    assert found.key == "a-book:placement"
    assert found.fields["title"] == r"{Where to\_put \{it\}?}"
    assert found.fields["edition"] == "v0.2"
    assert found.fields["url"] == "https://some.github.io/book/v0.2/book/norms/placement.html"


def test_between_releases_an_entry_names_the_commit(root: Path):
    edition = edition_of(root, {"MEASURED_COMMIT": COMMIT})
    words = only(bibtex.chapter_entry(edition, "book/a", "A")).fields["edition"]
    assert words == "after version 0.2.0, commit 0123456789ab"


def test_a_key_has_no_letters_that_bibtex_refuses(release: Edition):
    from dataclasses import replace

    edition = replace(release, title="The Book, of: many {things}")
    assert (
        only(bibtex.claim_entry(edition, said("A-1.1", "It is."), "")).key
        == "book-of-many-things:A-1.1"
    )
