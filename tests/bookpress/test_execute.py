"""A chapter runs exactly when something it comes from changed, and only what passed is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from bookpress import kernel
from bookpress.cache import FOLDER, Cache
from small_book import SmallBook, interrupt, wait_for


def seen(book: SmallBook, name: str) -> str:
    """What the kept run of a chapter printed."""
    notebook = nbformat.read(book.stored_notebook(name), nbformat.NO_CONVERT)
    printed = [out.text for cell in notebook.cells for out in cell.get("outputs", ())]
    return "".join(printed).strip()


def test_the_first_run_executes_both_in_their_own_folders_and_keeps_them(book: SmallBook) -> None:
    assert seen(book, "one") == "one sees 2"
    assert seen(book, "two") == "two sees 20"
    assert book.stale() == set()


def test_the_seconds_of_each_cell_lie_beside_the_executed_notebook(book: SmallBook) -> None:
    (path,) = (book.root / "_build/executed").rglob("two.seconds.json")
    took = json.loads(path.read_text("utf-8"))
    notebook = json.loads(path.with_name("two.ipynb").read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    first = ["".join(cell["source"]).splitlines()[0] for cell in code]
    assert sorted(cell["cell"] for cell in took) == list(range(1, len(code) + 1))
    assert all(cell["code"] == first[cell["cell"] - 1] for cell in took)


def test_the_slowest_cell_comes_first() -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells.append(nbformat.v4.new_markdown_cell("no code"))
    for source, seconds in (("one()\nmore()", 2), ("two()", 61), ("three()", None)):
        cell = nbformat.v4.new_code_cell(source)
        if seconds is not None:
            ended = f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}.500000Z"
            start = "2026-01-01T00:00:00.000000Z"
            cell.metadata["execution"] = {
                "iopub.execute_input": start,
                "shell.execute_reply": ended,
            }
        notebook.cells.append(cell)
    assert kernel.timings_of(notebook) == [
        {"seconds": 61.5, "cell": 2, "code": "two()"},
        {"seconds": 2.5, "cell": 1, "code": "one()"},
    ]


def test_a_function_behind_another_module_runs_the_one_chapter_that_uses_it(
    book: SmallBook,
) -> None:
    book.replace("lib/tiny/glass.py", "return 1", "return 41")
    done = book.press("execute")
    assert done.returncode == 0, done.stderr
    assert book.runs() == ["one"]
    assert "to run: book/one.md (changed: tiny.glass:base)" in done.stdout
    assert "[1/1] book/one.md ... " in done.stdout
    assert seen(book, "one") == "one sees 42"
    assert book.stale() == set()


@pytest.mark.parametrize(
    ("path", "old", "new", "stale"),
    [
        ("lib/tiny/mirror.py", "20", "21", {"two"}),
        ("lib/tiny/lens.py", "+ 1", "+ 2", {"one"}),
        ("lib/tiny/__init__.py", "", "name = 'tiny'", set()),
        ("lib/tiny/glass.py", "return 1", '"""Say."""\n    return 1  # one', set()),
        ("lib/small_extension.py", "def setup", "def  setup", set()),
        ("requirements.txt", "numpy==2.0", "numpy==2.1", {"one", "two"}),
        ("requirements.txt", "numpy==2.0", "# arrays\nnumpy==2.0  # pinned\n", set()),
        ("data/numbers.csv", "1,2,3", "1,2,4", {"two"}),
        ("book/one.md", "Prose of", "Other prose of", set()),
        ("book/one.md", "# Chapter one", "# A new title", set()),
        ("book/one.md", "one sees", "one saw", {"one"}),
        ("book/one.md", "remove-input", "hide-input", {"one"}),
        ("_config.yml", "A small book", "Another title", set()),
    ],
)
def test_exactly_what_changed_is_stale(
    book: SmallBook, path: str, old: str, new: str, stale: set[str]
) -> None:
    book.replace(path, old, new)
    assert book.stale() == stale


def test_a_new_data_file_under_a_declared_pattern_is_a_change(book: SmallBook) -> None:
    book.write("data/more.csv", "4\n")
    assert book.stale() == {"two"}


def test_a_touched_file_is_no_change(book: SmallBook) -> None:
    for path in book.root.rglob("*.py"):
        path.touch()
    assert book.stale() == set()


def test_taking_an_edit_back_finds_the_earlier_run(book: SmallBook) -> None:
    book.replace("lib/tiny/lens.py", "+ 1", "+ 2")
    assert book.press("execute").returncode == 0
    assert seen(book, "one") == "one sees 3"
    book.replace("lib/tiny/lens.py", "+ 2", "+ 1")
    assert book.runs() == ["one"]
    assert book.press("execute").returncode == 0
    assert book.runs() == []
    assert seen(book, "one") == "one sees 2"


def test_another_set_of_seeds_runs_both_and_leaves_the_first_set_as_it_was(
    book: SmallBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = book.press("execute", MEASURED_SEED_OFFSET="1000")
    assert done.returncode == 0, done.stderr
    assert book.runs() == ["one", "two"]
    assert book.stale() == set()
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "2000")
    assert book.stale() == {"one", "two"}


def test_an_interrupt_between_two_chapters_keeps_the_finished_one(book: SmallBook) -> None:
    shutil.rmtree(book.root / "_build")
    waiting = "import os\nfrom pathlib import Path\nimport time\nPath('pid').write_text(str(os.getpid()))\n"
    waiting += "while not Path('go').exists():\n"
    waiting += "    time.sleep(0.05)"
    book.replace("book/part/two.md", "from tiny.mirror", f"{waiting}\nfrom tiny.mirror")
    process = book.start_press("execute")
    executed = book.root / "_build/executed/book/one.ipynb"
    log = book.root / "runs.log"
    wait_for("chapter one's notebook", executed.exists)
    wait_for("chapter one to be kept", lambda: "one" not in book.stale())
    wait_for("chapter two to run", lambda: "two" in log.read_text())
    kernel = book.root / "book/part/pid"
    wait_for("chapter two to wait", kernel.exists)
    output = interrupt(process)
    assert process.returncode == 130, output
    assert "interrupted; the chapters that had finished are kept" in output
    wait_for("the kernel to end", lambda: not Path("/proc", kernel.read_text()).exists(), 5)
    assert book.runs() == ["one", "two"]
    assert book.stale() == {"two"}
    (book.root / "book/part/go").touch()
    assert book.press("execute").returncode == 0
    assert book.runs() == ["two"]


def test_a_failing_cell_fails_every_time_and_touches_nothing_earlier(book: SmallBook) -> None:
    stored = [book.stored_notebook(name) for name in ("one", "two")]
    kept = {path: path.read_bytes() for path in stored}
    book.replace("lib/tiny/glass.py", "return 1", "raise RuntimeError('the glass is broken')")
    book.replace("lib/tiny/mirror.py", "20", "30")
    first = book.press("execute")
    assert first.returncode == 1
    for expected in (
        "book/one.md, code cell 2 (line 24)\n",
        "    from tiny.lens import seen\n",
        "  RuntimeError: the glass is broken\n",
        "lib/tiny/glass.py:2, in base()",
    ):
        assert expected in first.stdout, first.stdout
    assert "1 failed: book/one.md" in first.stderr
    assert book.runs() == ["one", "two"], "a failure stops no other chapter"
    assert seen(book, "two") == "two sees 30"
    second = book.press("execute")
    assert second.returncode == 1
    assert "RuntimeError: the glass is broken" in second.stdout
    assert book.runs() == ["one"]
    assert {path: path.read_bytes() for path in kept} == kept
    book.replace("lib/tiny/glass.py", "raise RuntimeError('the glass is broken')", "return 9")
    assert book.press("execute").returncode == 0
    assert book.runs() == ["one"]


def test_a_kernel_that_dies_is_a_failure_of_the_cell_it_died_in(book: SmallBook) -> None:
    book.replace("lib/tiny/glass.py", "return 1", "import os\n    os._exit(3)")
    done = book.press("execute")
    assert done.returncode == 1
    assert "book/one.md, code cell 2 (line 24)\n" in done.stdout
    assert "DeadKernelError" in done.stdout
    assert book.stale() == {"one"}


def test_kernels_share_no_ports(book: SmallBook) -> None:
    # Two kernels that pick their TCP ports at the same moment can pick the same one, and both hang.
    told = "import ipykernel; print(ipykernel.get_connection_info())"
    book.replace("book/one.md", "print('one sees', seen())", told)
    assert book.press("execute").returncode == 0
    assert '"transport": "ipc"' in book.stored_notebook("one").read_text().replace("\\", "")


def test_a_library_module_that_does_not_parse_names_the_module_and_the_chapter(
    book: SmallBook,
) -> None:
    book.replace("lib/tiny/glass.py", "def base():", "def base(:")
    book.replace("lib/tiny/mirror.py", "20", "31")
    for _ in range(2):
        done = book.press("execute")
        assert done.returncode == 1
        assert "FAILED" in done.stdout
        assert "book/one.md: " in done.stdout
        assert "lib/tiny/glass.py, line 1" in done.stdout
    assert book.runs() == ["two"]


def test_a_library_that_changes_while_a_chapter_runs_leaves_that_chapter_stale(
    book: SmallBook,
) -> None:
    change = "Path('../lib/tiny/glass.py').write_text('def base():\\n    return 8\\n')"
    book.replace("book/one.md", "from tiny.lens", f"{change}\nfrom tiny.lens")
    done = book.press("execute")
    assert "changed while it ran" in done.stderr
    assert book.stale() == {"one"}
    assert book.press("execute").returncode == 0
    assert book.stale() == set()


def test_the_status_says_what_is_stale_and_why(book: SmallBook) -> None:
    assert book.press("status").returncode == 0
    book.replace("lib/tiny/mirror.py", "20", "22")
    book.replace("book/one.md", "one sees", "one saw")
    status = book.press("status")
    assert status.returncode == 1
    assert "* book/one.md: its cells changed" in status.stdout
    assert "* book/part/two.md: changed: tiny.mirror:seen" in status.stdout
    assert book.runs() == []


def test_only_the_chapters_asked_for_run(new_book: SmallBook) -> None:
    done = new_book.press("execute", "book/one.md")
    assert done.returncode == 0, done.stderr
    assert new_book.runs() == ["one"]
    assert new_book.stale() == {"two"}
    strange = new_book.press("execute", "book/index.md")
    assert strange.returncode == 2
    assert "expected chapters of" in strange.stderr


@pytest.mark.parametrize("slow", ["one", "two"])
def test_what_took_longest_before_starts_first(book: SmallBook, slow: str) -> None:
    store = Cache(book.root / FOLDER, print)
    for name in ("one", "two"):
        notebook = nbformat.read(book.stored_notebook(name), nbformat.NO_CONVERT)
        file = {"one": "book/one.md", "two": "book/part/two.md"}[name]
        store.add(notebook, file, 900.0 if name == slow else 1.5, {})
    assert book.press("execute", "--force", "--jobs", "1").returncode == 0
    assert book.read("runs.log").split()[0] == slow


def test_a_chapter_that_never_ran_leads(book: SmallBook) -> None:
    text = book.read("book/one.md").replace('write("one', 'write("new')
    book.write("book/new.md", text)
    book.replace("_toc.yml", "- file: book/part/two", "- file: book/part/two\n- file: book/new")
    assert book.press("execute", "--force", "--jobs", "1").returncode == 0
    assert book.read("runs.log").split()[0] == "new"


def test_force_runs_what_is_up_to_date(book: SmallBook) -> None:
    done = book.press("execute", "--force", "book/one.md")
    assert done.returncode == 0
    assert book.runs() == ["one"]


def test_a_folder_that_is_no_book_is_refused(tmp_path) -> None:
    done = SmallBook(tmp_path).press("execute")
    assert done.returncode == 2
    assert "_toc.yml" in done.stderr
