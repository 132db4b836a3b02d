"""Progress is plain lines where nobody watches, and a live display on a terminal."""

from __future__ import annotations

import io

from bookpress.kernel import Failure
from bookpress.progress import Progress


def test_lines_name_the_chapter_what_is_left_and_the_seconds() -> None:
    stream = io.StringIO()
    progress = Progress(2, stream)
    progress.plan([("a.md", "never executed"), ("b.md", "its cells changed")], fresh=3)
    progress.start("a.md")
    progress.start("b.md")
    progress.passed("b.md", 41.23)
    progress.failed(Failure("a.md", "ValueError: no", "Traceback ...", 2, 17, "f(x)"))
    progress.close()
    assert stream.getvalue().splitlines() == [
        "3 of 5 chapters are up to date",
        "to run: a.md (never executed)",
        "to run: b.md (its cells changed)",
        "running a.md",
        "running b.md",
        "[1/2] b.md ... 41.2 s, 1 left",
        "[2/2] a.md ... FAILED, 0 left",
        "a.md, code cell 2 (line 17)",
        "    f(x)",
        "  ValueError: no",
        "Traceback ...",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_results_stay_on_the_screen() -> None:
    stream = Terminal()
    progress = Progress(1, stream)
    progress.start("a.md")
    progress.passed("a.md", 1.0)
    progress.close()
    assert "[1/1] a.md ... 1.0 s, 0 left" in stream.getvalue()
    assert "running a.md" not in stream.getvalue()
