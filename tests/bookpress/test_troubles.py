"""What stops a print from outside is said in a line, and leaves everything as it was."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from bookpress import disk, printed
from bookpress.cache import FOLDER, Cache
from bookpress.cli import main
from bookpress.lock import FILE, VARIABLE, alone
from filelock import FileLock
from jupyter_cache.cache.db import NbCacheRecord
from measured_book.evidence import registry
from small_book import SmallBook, interrupt, wait_for
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError


def files(book: SmallBook) -> dict[str, bytes]:
    """Everything that lies in a book's folder."""
    return {str(path): path.read_bytes() for path in book.root.rglob("*") if path.is_file()}


def test_a_registry_that_cannot_be_read_is_said_before_anything_runs(
    new_book: SmallBook,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broken, before = tmp_path / "claims.toml", files(new_book)
    broken.write_text('chapter = "book/norms/one"\nclaim = = 3\n', "utf-8")
    monkeypatch.setattr(registry, "claims_files", lambda: {"one_norm": broken})
    registry._packaged.cache_clear()
    assert main(["build", "--root", str(new_book.root)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: one_norm/claims.toml: expected TOML, got text that breaks")
    assert said.err.count("\n") == 1
    assert files(new_book) == before


# --- a disk that is full, or cannot be written to ---------------------------------------------------


def one_line(said: str) -> str:
    """The error of a press that ended: a line that begins with `error:`, and no traceback."""
    assert "Traceback" not in said
    (line,) = (line for line in said.splitlines() if line.startswith("error:"))
    return line


def full(book: SmallBook, blocks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the press where no file may grow beyond some blocks, which ends as on a full disk."""
    limited = ("sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh")
    return book.run(*limited, sys.executable, "-m", "bookpress", *arguments, "--root", ".")


def test_a_disk_that_is_full_from_the_start_is_said_in_a_line(new_book: SmallBook) -> None:
    done = full(new_book, 0, "build")
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert line.startswith(f"error: cannot write to {new_book.root}/_build")
    assert line.endswith("; free some and run the same command again")
    assert len(done.stderr.splitlines()) == 1
    assert new_book.runs() == []


def test_a_disk_that_is_full_while_pages_are_written_is_said_once_and_nothing_runs_again(
    book: SmallBook,
) -> None:
    done = full(book, 64, "build", "-q")
    assert done.returncode == 2, done.stdout + done.stderr
    assert one_line(done.stderr).startswith(f"error: cannot write to {book.root}/_build/html")
    assert "WARNING" not in done.stderr
    assert "There was an error in building" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert book.stale() == set()
    again = book.press("build", "-q")
    assert again.returncode == 0, again.stdout + again.stderr
    assert book.runs() == []
    assert "one sees 2" in book.page("book/one")
    assert printed.is_current(book.root)


@pytest.mark.parametrize("command", ["build", "execute"])
def test_a_folder_that_is_closed_is_said_in_a_line(book: SmallBook, command: str) -> None:
    (book.root / "_build").chmod(0o500)
    try:
        if os.access(book.root / "_build", os.W_OK):
            pytest.skip("no folder is closed to root")
        before = files(book)
        done = book.press(command)
        assert done.returncode == 2
        assert "Permission denied; make it writable" in one_line(done.stderr)
        assert files(book) == before
    finally:
        (book.root / "_build").chmod(0o700)


@pytest.mark.parametrize("command", ["build", "execute"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_refuses_is_said_in_a_line(
    book: SmallBook,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    number: int,
) -> None:
    def refuse(self: FileLock, **how: object) -> None:
        raise OSError(number, os.strerror(number), self.lock_file)

    monkeypatch.setattr(FileLock, "acquire", refuse)
    before = files(book)
    assert main([command, "--root", str(book.root)]) == 2
    assert capsys.readouterr().err == (
        f"error: cannot write to {book.root}/_build/print.lock: {os.strerror(number)}; "
        "make it writable and run the same command again\n"
    )
    assert files(book) == before


def sqlite_error(tmp_path: Path, kind: str) -> OperationalError:
    """An error as SQLAlchemy raises it for a database that is full, or may only be read."""
    path = tmp_path / "some.db"
    mode = "ro" if kind == "closed" else "rwc"
    sqlite3.connect(path).execute("create table if not exists t (x)").connection.close()
    with create_engine(f"sqlite:///file:{path}?mode={mode}&uri=true").connect() as database:
        database.execute(text("pragma max_page_count = 2"))
        with pytest.raises(OperationalError) as caught:
            database.execute(text("insert into t values (zeroblob(100000))"))
    return caught.value


@pytest.mark.parametrize(("kind", "number"), [("full", errno.ENOSPC), ("closed", errno.EROFS)])
def test_what_a_database_says_of_the_disk_leaves_its_store_as_it_was(
    book: SmallBook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, number: int
) -> None:
    error = sqlite_error(tmp_path, kind)

    def refuse(*given: object) -> None:
        raise RuntimeError("it may need to be cleared") from error

    before, warnings = files(book), list[str]()
    store = Cache(book.root / FOLDER, warnings.append)
    monkeypatch.setattr(NbCacheRecord, "record_from_hashkey", refuse)
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        store.find("some key", "book/one.md")
    assert caught.value.errno == number
    assert caught.value.filename == str(book.root / FOLDER)
    assert warnings == []
    assert files(book) == before


def test_an_error_that_no_disk_made_is_no_refusal(tmp_path: Path) -> None:
    assert disk.refusal(KeyError("page"), tmp_path) is None
    assert disk.refusal(FileNotFoundError(errno.ENOENT, "no such file", "x"), tmp_path) is None
    assert disk.refusal(InterruptedError("stopped"), tmp_path) is None
    assert disk.refusal_in("image file not readable: [Errno 2] no such file", tmp_path) is None
    locked = sqlite3.OperationalError("database is locked")
    assert disk.refusal(locked, tmp_path) is None


def test_of_a_copy_the_place_it_goes_to_is_named(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "source.md", None, "target.md")
    outer = RuntimeError("There was an error in building your book")
    outer.__cause__ = error
    found = disk.refusal(outer, tmp_path)
    assert found is not None
    assert found.filename == "target.md"


def test_half_of_a_file_is_taken_away_where_there_is_no_room_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "note.json").write_text("before", "utf-8")

    def half(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:2].encode(encoding))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        disk.write(tmp_path / "note.json", "after")
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]
    assert (tmp_path / "note.json").read_text("utf-8") == "before"


# --- two builds at once, and one that was killed ----------------------------------------------------


def let_two_wait(book: SmallBook) -> None:
    """Have chapter two say by a file `.waits` that it runs, and wait for a file `.go`.

    Files with a dot in front count as no sources of the book, so its log becomes one of these.
    """
    for page in ("book/one.md", "book/part/two.md"):
        book.replace(page, "runs.log", ".runs.log")
    waiting = f"from pathlib import Path\nimport time\nroot = Path({str(book.root)!r})\n"
    waiting += "(root / '.waits').touch()\nwhile not (root / '.go').exists():\n    time.sleep(0.05)"
    book.replace("book/part/two.md", "from tiny.mirror", f"{waiting}\nfrom tiny.mirror")


def logged(book: SmallBook) -> list[str]:
    """The chapters that ran so far, in alphabetical order."""
    log = book.root / ".runs.log"
    return sorted(log.read_text("utf-8").split()) if log.exists() else []


@pytest.mark.parametrize("command", ["build", "execute"])
def test_a_second_build_waits_for_the_first_and_finds_its_work_done(
    new_book: SmallBook, command: str
) -> None:
    let_two_wait(new_book)
    first = new_book.start_press(command)
    wait_for("chapter two to wait", (new_book.root / ".waits").exists)
    second = new_book.start_press(command)
    assert second.stdout is not None
    assert second.stdout.readline() == "another build is running; waiting for it\n"
    (new_book.root / ".go").touch()
    for process in (first, second):
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert "Running Jupyter-Book" not in said or process is first
        assert "running book" not in said or process is first
        assert command == "execute" or said.endswith(f"{new_book.root}/_build/html/index.html\n")
    assert logged(new_book) == ["one", "two"]


def test_a_build_that_waits_can_be_interrupted(new_book: SmallBook) -> None:
    with alone(new_book.root):
        os.environ.pop(VARIABLE)  # as in another terminal
        waits = new_book.start_press("build")
        assert waits.stdout is not None
        assert waits.stdout.readline().startswith("another build is running")
        said = interrupt(waits)
        os.environ[VARIABLE] = "x"
    assert said == "interrupted; the same command goes on from there\n"
    assert waits.returncode == 130
    assert new_book.runs() == []


def test_a_build_that_was_killed_leaves_no_lock(new_book: SmallBook) -> None:
    let_two_wait(new_book)
    killed = new_book.start_press("build", "-q")
    wait_for("chapter two to wait", (new_book.root / ".waits").exists)
    assert killed.stdout is not None
    assert any("book/one.md ... " in line for line in killed.stdout), "chapter one was kept"
    killed.kill()
    killed.communicate(timeout=60)
    assert (new_book.root / FILE).exists()
    assert logged(new_book) == ["one", "two"]
    (new_book.root / ".go").touch()
    done = new_book.press("build", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "another build" not in done.stdout
    assert logged(new_book) == ["one", "two", "two"]
    assert "two sees 20" in new_book.page("book/part/two")
    assert printed.is_current(new_book.root)


def test_after_a_print_that_was_killed_every_page_is_printed_again(book: SmallBook) -> None:
    assert book.press("build", "-q").returncode == 0
    page, read = "_build/html/book/one.html", book.root / "_build/.doctrees/environment.pickle"
    whole = book.read(page)
    # Sphinx keeps what it read, then writes pages one after another: killed, it leaves half of one.
    printed.begin(book.root)
    os.utime(read)
    book.write(page, whole[: len(whole) // 2])
    done = book.press("build", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the last print did not come to its end; all pages will be printed again" in done.stdout
    assert "one sees 2" in book.read(page)
    assert book.read(page).endswith("</html>")
    assert printed.is_current(book.root)
    assert not printed.is_cut_short(book.root)


def test_what_a_build_starts_does_not_wait_for_it(book: SmallBook, new_book: SmallBook) -> None:
    with alone(book.root):
        done = book.press("execute", "--force", "book/one.md")  # as Sphinx does
        assert (done.returncode, book.runs()) == (0, ["one"]), done.stderr
        other = new_book.press("execute", "book/one.md")
        assert (other.returncode, new_book.runs()) == (0, ["one"]), other.stderr
        assert "another build" not in done.stdout + other.stdout
        with alone(book.root) as waited:
            assert not waited
    assert VARIABLE not in os.environ


def test_a_folder_that_is_no_book_is_left_without_a_lock(tmp_path: Path) -> None:
    for command in ("build", "execute"):
        assert main([command, "--root", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_locked_the_build_goes_on_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileLock, **how: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with alone(tmp_path):
        pass
    assert "cannot be locked" in capsys.readouterr().err
