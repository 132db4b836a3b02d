"""A folder of submissions as a table: every kind of submission has its row, and none stops another."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from measured_book.exercises.__main__ import main
from measured_book.exercises.confined import confine
from measured_book.exercises.draws import draw
from measured_book.exercises.processes import Limits, Process, can_copy
from measured_book.exercises.submissions import submissions

pytestmark = pytest.mark.skipif(not can_copy(), reason="only Linux can copy a process")
HALF, EDGE = "learning_rate.half_life", "learning_rate.edge"
GOOD = f"""
import math
from measured_book import check

def half_life(beta):
    return math.log(0.5) / math.log(beta)

check({HALF!r}, half_life)
assert check({EDGE!r}, (0.02, 2 / 101)), "what is handed in is not judged here"
"""
SUBMISSIONS = {
    "ada": GOOD,
    "ben": f"answers = {{{HALF!r}: lambda beta: 1 / (1 - beta), {EDGE!r}: (0.02, 2 / 101)}}\n1 / 0\n",
    "carl": "def x(:",
    "dora": "import os\nos.kill(os.getppid(), 9)\n",
    "eve": "while True:\n    print('x' * 100)\n",
    "finn": "raise SystemExit\n",
    "gus": f"from measured_book import check\ndef f(b):\n    while True: pass\ncheck({HALF!r}, f)\n"
    f"check({EDGE!r}, (0.02, 2 / 101))\n",
    "hal": f"""
import torch
import measured_book.exercises.answers as answers
from measured_book import check
answers.close = answers.demand = torch.allclose = lambda *_, **__: True
class Agreeable(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
check({HALF!r}, lambda beta: Agreeable(3))
check({EDGE!r}, (Agreeable(3), Agreeable(4)))
""",
    "ida": "raise ValueError('=HYPERLINK(1)')\n",
    "jan": "import os\nos._exit(0)\n",
    "kim": "import sys\nsys.setrecursionlimit(10**8)\ndef f():\n    f()\nf()\n",
    "lea": "from measured_book import check\ncheck('learning_rate.halflife', 1)\n",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "submissions"
    made.mkdir()
    for name, text in SUBMISSIONS.items():
        (made / f"{name}.py").write_text(text)
    mine = made / "mia"
    mine.mkdir()
    (mine / "notes.txt").write_text("see the notebook")
    cells = ["needed = True\nif needed:\n    %pip install x\n", "1 / 0", GOOD, "%%bash\nexit 1"]
    told = {"cells": [{"cell_type": "code", "source": one} for one in cells]}
    (mine / "work.ipynb").write_text(json.dumps(told))
    (made / "nil").mkdir()
    (made / "nil" / "answer.docx").write_bytes(b"\xff")
    return made


def confining() -> bool:
    """Return whether a submission can be kept from ending what grades it; where not, its row says so."""
    with Process(lambda line: line.send(b"%d" % confine()), Limits(confined=False)) as process:
        return process.receive() == b"1"


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        return {row["submission"]: row for row in csv.DictReader(file)}


def test_a_folder_of_all_kinds_becomes_a_table(folder, tmp_path, capsys):
    out = tmp_path / "grades.csv"
    assert main(["grade", str(folder), "--out", str(out), "--seconds", "2"]) == 0
    rows = rows_of(out)
    assert list(rows) == [*SUBMISSIONS, "mia", "nil"]
    points = {name: (row[EDGE], row[HALF], row["points"]) for name, row in rows.items()}
    assert points == dict.fromkeys(rows, ("", "", "0")) | {
        "ada": ("1", "1", "2"),
        "ben": ("1", "0", "1"),
        "gus": ("1", "0", "1"),
        "hal": ("0", "0", "0"),
        "mia": ("1", "1", "2"),
    }
    said = {name: row["errors"] for name, row in rows.items()}
    for name, words in {
        "ada": "",
        "ben": "ben.py, line 2: ZeroDivisionError: division by zero",
        "carl": "carl.py, line 1: SyntaxError",
        "dora": "PermissionError" if confining() else "breaks down (SIGKILL)",
        "eve": "has not ended after 2 seconds",
        "finn": "finn.py, line 1: SystemExit",
        "gus": "",
        "ida": "ida.py, line 1: ValueError: =HYPERLINK(1)",
        "jan": "ends its process (with 0)",
        "lea": "near it: learning_rate.half_life",
        "mia": "work.ipynb (cell 2), line 1: ZeroDivisionError",
    }.items():
        assert words in said[name], (name, said[name])
        assert bool(words) == bool(said[name])
    assert "a weight is 1/e, not a half (input: beta = 0.5)" in rows["ben"]["remarks"]
    assert f"{HALF}: the function has not ended after 2 seconds" in rows["gus"]["remarks"]
    assert "14 submissions, written to" in capsys.readouterr().out


def test_it_goes_on_where_it_ended_and_grades_again_what_has_changed(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("=ada", "ben"):
        (folder / f"{name}.py").write_text(GOOD)
    out = tmp_path / "grades.csv"
    command = ["grade", str(folder), "--out", str(out)]
    assert main(command) == 0
    marked = out.read_text().replace(",2,2,,,", ",2,2,kept,,")
    out.write_text(marked)
    assert "'=ada," in marked, "no cell begins like a formula"
    (folder / "ben.py").write_text(GOOD + "\n")
    assert main(command) == 0
    assert [row["remarks"] for row in rows_of(out).values()] == ["kept", ""]
    assert main([*command, "--again"]) == 0
    assert [row["remarks"] for row in rows_of(out).values()] == ["", ""]


def test_each_submission_can_have_numbers_of_its_own(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("ada", "ben"):
        numbers = draw(EDGE, "ada").numbers  # ben copies
        right = (2 / numbers["most"], 2 / (numbers["least"] + numbers["most"]))
        (folder / f"{name}.py").write_text(f"answers = {{{EDGE!r}: {right}}}")
    out = tmp_path / "grades.csv"
    assert main(["grade", str(folder), "--out", str(out), "--drawn", "--exercises", EDGE]) == 0
    assert [row[EDGE] for row in rows_of(out).values()] == ["1", "0"]
    capsys.readouterr()
    assert main(["draw", EDGE, "--for", "ada,ben"]) == 0
    told = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["student"], row["asked"]) for row in told] == [
        (key, draw(EDGE, key).asked) for key in ("ada", "ben")
    ]


def test_a_folder_of_tests_for_the_zoo_becomes_a_table(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    good = (
        "import torch\nfrom measured_transformer.inference.sampling import with_temperature\n"
        "def test_it():\n    assert with_temperature(torch.ones(1), 2.0).item() == 0.5\n"
    )
    (folder / "ada.py").write_text(good)
    (folder / "ben.py").write_text(good.replace("0.5", "7"))
    (folder / "carl.py").write_text("no tests here")
    cells = [{"cell_type": "code", "source": good}]
    (folder / "dora.ipynb").write_text(json.dumps({"cells": cells}))
    out = tmp_path / "grades.csv"
    assert main(["grade", str(folder), "--out", str(out), "--zoo", "--wing", "generation"]) == 0
    rows = rows_of(out)
    assert [row["hot instead of cold"] for row in rows.values()] == ["1", "0", "", "1"]
    assert [row["points"] for row in rows.values()] == ["1", "0", "0", "1"]
    assert "test_it: it fails on the library as it is" in rows["ben"]["remarks"]
    assert "carl.py: expected a Python file that can be read" in rows["carl"]["errors"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "got none"),
        (["a.txt"], "got none"),
        (["a.py", "a.ipynb"], "got two of a"),
    ],
)
def test_folders_that_cannot_be_graded(names, words, tmp_path):
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=words):
        submissions(tmp_path)


def test_what_cannot_be_done_is_said_in_a_line(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").write_text(GOOD)
    (tmp_path / "other.csv").write_text("name,age\nada,3\n")
    out = str(tmp_path / "grades.csv")
    for arguments, words in [
        (["grade", str(tmp_path / "none"), "--out", out], "expected a folder of submissions"),
        (["grade", str(tmp_path / "in"), "--out", str(tmp_path / "other.csv")], "name a new one"),
        (
            ["grade", str(tmp_path / "in"), "--out", out, "--exercises", "x.y"],
            "the name of an exercise",
        ),
        (["draw", "initialisation.he_gains", "--for", "ada"], "of its page alone"),
    ]:
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
