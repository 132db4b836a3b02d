"""A second set of seeds is judged where the code that measured it is what the book's own results come from."""

from pathlib import Path

import pytest
from bookpress.second_seeds import judged_again
from demo_room import Inline, Room
from measured_book.evidence.results import read_result
from measured_book.measuring.attesting import attest, keep_fingerprints
from measured_book.measuring.scheduler import measure_all


@pytest.fixture
def measured(room: Room, inline: Inline) -> Room:
    """A room whose own results are attested for code with another digest than theirs."""
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert keep_fingerprints(room.all, executor=inline, say=lambda _: None) == {}
    room.edit("for arm in ARMS]", "for arm in tuple(ARMS)]")
    assert not [
        one.problem for one in attest(room.all, executor=inline, say=lambda _: None) if one.problem
    ]
    return room


def other_seeds(room: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patched:
        patched.setenv("MEASURED_SEED_OFFSET", "1000")
        measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    return Path("_build/seeds-1000")


def test_seeds_measured_with_attested_code_count(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged_again(other_seeds(measured, inline, monkeypatch))
    assert set(found) == {"CS-1.3", "DD-7.7"}
    own = read_result(measured.results / "losses.json").provenance["digest"]
    assert found["DD-7.7"]["digests"] == {"demo/losses": own}
    assert found["DD-7.7"]["seeds"] == 3


def test_seeds_measured_with_other_code_do_not(
    measured: Room, inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.edit("RATE = 0.01", "RATE = 0.02")
    assert set(judged_again(other_seeds(measured, inline, monkeypatch))) == {"CS-1.3"}
