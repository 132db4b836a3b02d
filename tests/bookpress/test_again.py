"""A test run executes a share of the kept chapters again and compares their values with those kept."""

from __future__ import annotations

import copy
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bookpress import again, kept
from bookpress.again import Repeated, turn_of
from bookpress.chapters import load_book
from small_book import SmallBook


@pytest.fixture
def kept_book(book: SmallBook) -> SmallBook:
    """A small book that keeps what its chapters gave; nothing has run since."""
    assert book.press("keep").returncode == 0
    book.runs()
    return book


def rewrite(book: SmallBook, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a file says, with a checksum that fits."""
    import hashlib

    path = book.root / f"book/_executed/{name}.xz"
    told = dict(kept.read(path).told)
    change(told)
    content = json.dumps(told, sort_keys=True).encode() + b"\n"
    path.write_bytes(lzma.compress(hashlib.sha256(content).hexdigest().encode() + b"\n" + content))


def of_another_machine(told: dict[str, Any]) -> None:
    told["machine"]["processor"] = "another"


def saw(number: float) -> Callable[[dict[str, Any]], None]:
    """What is kept says that the chapter saw another number."""

    def change(told: dict[str, Any]) -> None:
        [output] = [
            o for c in told["cells"] for o in c["outputs"] if o.get("metadata", {}).get("measured")
        ]
        output["metadata"]["measured"]["values"]["seen"] = number

    return change


def test_values_that_come_back_pass_and_nothing_is_written(kept_book: SmallBook) -> None:
    before = kept_book.stored_notebook("one").read_bytes()
    done = kept_book.press("execute", "--again", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept_book.runs() == ["one", "two"]
    assert "to run: book/one.md (its turn to be compared)" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("book/one.md  ")]
    assert line.split()[1:-2] == ["executed", "again", "1", "equal", "0", "within", "0", "outside"]
    assert done.stdout.endswith(
        "2 chapters executed again: of 2 values 2 came back equal, 0 within what rounding explains, "
        "0 outside; 0 verdicts changed\n"
    )
    assert kept_book.stored_notebook("one").read_bytes() == before
    assert kept_book.stale() == set()


def test_another_value_fails_and_is_named(kept_book: SmallBook) -> None:
    rewrite(kept_book, "one", saw(2.0000001))
    done = kept_book.press("execute", "--again", "1")
    assert done.returncode == 1
    assert "book/one.md: 1 of 1 values outside: seen (1 of 1)" in done.stdout
    assert "1 failed: book/one.md" in done.stderr
    assert "1 came back equal, 0 within what rounding explains, 1 outside" in done.stdout


def test_on_another_machine_a_value_may_differ_as_rounding_does(kept_book: SmallBook) -> None:
    for change in (of_another_machine, saw(2.0000001)):
        rewrite(kept_book, "one", change)
    done = kept_book.press("execute", "--again", "1")
    assert done.returncode == 0, done.stdout
    assert "1 came back equal, 1 within what rounding explains, 0 outside" in done.stdout
    rewrite(kept_book, "one", saw(2.1))
    done = kept_book.press("execute", "--again", "1")
    assert done.returncode == 1
    assert "book/one.md: 1 of 1 values outside" in done.stdout


def test_what_is_compared_trains_from_nothing(kept_book: SmallBook) -> None:
    where = "import os, pathlib\npathlib.Path('runs').write_text(os.environ.get('MEASURED_RUNS_DIR', ''))"
    kept_book.replace("book/one.md", "from tiny.lens", f"{where}\nfrom tiny.lens")
    assert kept_book.press("execute").returncode == 0
    assert kept_book.read("book/runs") == ""
    assert kept_book.press("keep").returncode == 0
    assert kept_book.press("execute", "--again", "1").returncode == 0
    folder = Path(kept_book.read("book/runs"))
    assert folder.is_absolute()
    assert not folder.exists()


def test_a_chapter_that_is_stale_runs_and_is_kept_and_not_compared(kept_book: SmallBook) -> None:
    kept_book.replace("lib/tiny/glass.py", "return 1", "return 7")
    done = kept_book.press("execute", "--again", "1")
    assert done.returncode == 0, done.stdout
    assert "1 chapters executed again" in done.stdout
    assert json.loads(kept_book.read("_build/records/quick/one.json"))["values"] == {"seen": 8}


def test_chapters_with_a_room_always_run(kept_book: SmallBook) -> None:
    kept_book.replace("book/one.md", "kernelspec:", "measured: {room: one}\nkernelspec:")
    assert kept_book.press("execute").returncode == 0
    kept_book.runs()
    rewrite(kept_book, "two", lambda told: told.update(seconds=5))
    git(kept_book, "init", "-q")
    done = kept_book.press("execute", "--again", "1000")
    assert done.returncode == 0, done.stdout
    assert "one" in kept_book.runs()
    assert "to run: book/one.md (asked for)" in done.stdout


def git(book: SmallBook, *command: str) -> None:
    name = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = book.run("git", *name, *command)
    assert done.returncode == 0, done.stderr


def test_each_commit_has_another_share_and_all_have_their_turn(kept_book: SmallBook) -> None:
    def chosen() -> set[str]:
        turn = turn_of(load_book(kept_book.root), 2)
        return {chapter.path.stem for chapter in turn}

    first = chosen()
    assert first == {chosen().pop()}, "outside a repository the first share"
    git(kept_book, "init", "-q")
    assert chosen() == first
    turns = []
    for _ in range(4):
        git(kept_book, "commit", "-q", "--allow-empty", "-m", "change")
        turns.append(chosen())
    assert turns[0] == turns[2]
    assert turns[1] == turns[3] == first
    assert turns[0] | turns[1] == {"one", "two"}


def test_shares_are_equal_in_seconds(kept_book: SmallBook, monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"a": 50, "b": 30, "c": 20, "d": 10, "e": 9}
    for name in took:
        text = kept_book.read("book/one.md")
        kept_book.write(f"book/{name}.md", text)
        rewrite(kept_book, "one", lambda told, name=name: told.update(seconds=took[name]))
        (kept_book.root / f"book/_executed/{name}.xz").write_bytes(
            (kept_book.root / "book/_executed/one.xz").read_bytes()
        )
    names = "".join(f"- file: book/{name}\n" for name in took)
    kept_book.write("_toc.yml", f"format: jb-book\nroot: book/index\nchapters:\n{names}")
    shares = []
    for commits in (0, 1):
        monkeypatch.setattr(again, "_commits", lambda root, commits=commits: commits)
        shares.append({chapter.path.stem for chapter in turn_of(load_book(kept_book.root), 2)})
    assert shares == [{"a", "d"}, {"b", "c", "e"}]


def payload(values: dict[str, Any], verdict: str = "confirmed") -> dict[str, Any]:
    record = {
        "verdict": verdict,
        "rule": {},
        "statistics": {},
        "values": {"error": [1.0, 2.0]},
    }
    return {"values": values, "records": {"CS-1.1": record}}


@pytest.mark.parametrize(
    ("then", "now", "exact", "counts", "bad"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0]}, True, (4, 0, 0), False),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-15]}, True, (3, 1, 0), False),
        ({"a": [1e-16, 2e-16]}, {"a": [9e-16, 2e-16]}, True, (3, 1, 0), False),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-8]}, True, (3, 0, 1), True),
        ({"a": [1.0, 2.0]}, {"a": [3.9, -0.9]}, False, (2, 2, 0), False),
        ({"a": [1.0, 2.0]}, {"a": [4.1, 2.0]}, False, (3, 0, 1), True),
        ({"a": 5.0}, {"a": 5.049}, False, (2, 1, 0), False),
        ({"a": 5.0}, {"a": 5.051}, False, (2, 0, 1), True),
        ({"a": [1.0] * 17, "b": 1.0}, {"a": [1.0] * 17, "b": 9.0}, False, (19, 0, 1), False),
        ({"a": [1.0] * 6, "b": 1.0}, {"a": [1.0] * 6, "b": 9.0}, False, (8, 0, 1), True),
        ({"a": [1.0] * 17, "b": 1.0}, {"a": [1.0] * 17, "b": 9.0}, True, (19, 0, 1), True),
        ({"a": 1.0}, {"b": 1.0}, False, (2, 0, 2), True),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, False, (2, 0, 2), True),
    ],
)
def test_values_are_equal_within_or_outside(
    then: dict[str, Any], now: dict[str, Any], exact: bool, counts: tuple[int, ...], bad: bool
) -> None:
    found = Repeated("book/one.md", 1.0, exact)
    again._compare(payload(then), payload(now), found)
    assert (found.equal, found.within, found.outside) == counts
    assert bool(found.problem) == bad


def test_a_verdict_that_changes_fails_everywhere() -> None:
    for exact in (True, False):
        found = Repeated("book/one.md", 1.0, exact)
        before = payload({"a": 1.0})
        after = copy.deepcopy(before)
        after["records"]["CS-1.1"]["verdict"] = "refuted"
        again._compare(before, after, found)
        assert found.problem == "CS-1.1: confirmed becomes refuted"


def test_elsewhere_two_seeds_may_leave_open_what_they_decided_here() -> None:
    for then, now in (("confirmed", "inconclusive"), ("inconclusive", "not reproduced")):
        before, after = payload({"a": 1.0}, then), payload({"a": 1.0}, now)
        for exact in (True, False):
            found = Repeated("book/one.md", 1.0, exact)
            again._compare(before, after, found)
            told = f"CS-1.1: {then} becomes {now}"
            assert found.problem == (told if exact else "")
            assert found.line.endswith(told)
