"""Grades a folder of submissions into a table: a row for each, a column for each exercise or bug.

Each submission has a process and a clean folder of its own, with limits, and whatever it does, the next one is
graded all the same. The table is written after each of them; where it exists already, those that have not
changed since are kept as they are.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import measured_transformer

from measured_book.exercises.answers import Answer, Fault
from measured_book.exercises.draws import can_be_drawn
from measured_book.exercises.judging import verdict
from measured_book.exercises.processes import EndedError, Limits, Line, Process, can_copy
from measured_book.exercises.registry import Exercise, exercises, find
from measured_book.exercises.solver import Elsewhere, serve
from measured_book.exercises.state import settle, settled
from measured_book.exercises.submissions import Held, Submission, copied, read, submissions
from measured_book.exercises.zoo.grading import grade_file

_FIRST, _LAST = ("submission",), ("points", "of", "remarks", "errors", "seconds", "digest")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Row:
    """What one submission came to.

    Attributes:
        submission: its name.
        cells: column -> 1 where it is right or caught, 0 where it is not; none where nothing was handed in.
        remarks: what was wrong first, by exercise or test.
        errors: what could not be run.
        seconds: how long it took.
        digest: of the submission and of how it was graded.
    """

    submission: str
    cells: Mapping[str, int] = field(default_factory=dict)
    remarks: str = ""
    errors: str = ""
    seconds: float = 0.0
    digest: str = ""


Grader = Callable[[Submission], tuple[dict[str, int], list[str], list[str]]]
"""Returns cells, remarks and errors of a submission."""


def grade_folder(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    columns: Sequence[str],
    grader: Grader,
    *,
    settings: object = "",
    seconds: float = 600.0,
    again: bool = False,
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Grade what is in a folder, and write the table.

    Args:
        folder: of files, notebooks or folders, one for each student.
        out: the table, comma-separated.
        columns: exercises or bugs, in order.
        grader: grades one submission; it runs in a process of its own.
        settings: of the grader; a submission is graded again when they are others.
        seconds: that one submission may take.
        again: grade again what has been graded already.
        tell: is given each row as soon as it is there.

    Raises:
        ValueError: when there are no submissions, the table is another one, or this system cannot copy a
        process.
    """
    if not can_copy():
        raise ValueError(
            "expected Linux, where a submission can run in a process with limits, got another "
            "system; a container "
            "or WSL will do"
        )
    handed, path = submissions(folder), Path(out)
    done = {} if again else _read_table(path)
    rows: list[Row] = []
    for number, submission in enumerate(handed):
        digest = _digest(submission, columns, settings)
        kept = done.get(submission.name)
        row = kept if kept and kept.digest == digest else _row(submission, grader, digest, seconds)
        rows.append(row)
        later = [done[one.name] for one in handed[number + 1 :] if one.name in done]
        _write_table(path, columns, [*rows, *later])
        tell(row)
    return rows


def _row(submission: Submission, grader: Grader, digest: str, seconds: float) -> Row:
    begun = time.monotonic()

    def work(line: Line) -> None:
        line.send(json.dumps(grader(submission)).encode())

    # It is the grader's own code, which starts and ends the processes of the submission.
    limits = Limits(seconds=seconds, memory=None, file=None, confined=False)
    with Process(work, limits) as process:
        try:
            cells, remarks, errors = json.loads(process.receive())
        except EndedError as error:
            cells, remarks = {}, []
            errors = [f"the submission {error}"]
            process.close()
            if process.printed and not error.late:
                errors.append(process.printed.strip().splitlines()[-1][:500])
    taken = round(time.monotonic() - begun, 1)
    return Row(submission.name, cells, _one_line(remarks), _one_line(errors), taken, digest)


# Exercises ---------------------------------------------------------------------------------------


def names_handed_in(folder: str | os.PathLike[str]) -> list[str]:
    """The exercises that some submission of a folder names, in the order of the alphabet.

    Raises:
        ValueError: when there are no submissions, or none names an exercise.
    """
    known = {one.name for one in exercises()}
    found: set[str] = set()
    for submission in submissions(folder):
        try:
            found |= known & set(re.findall(r"""["']([\w.]+)["']""", submission.text()))
        except (OSError, ValueError):
            continue  # its row will say so
    if not found:
        raise ValueError(
            f'expected submissions with check("name", answer) or a dictionary `answers` in {folder}, got none '
            "that names an exercise"
        )
    return sorted(found)


def exercise_grader(
    names: Iterable[str], *, drawn: bool = False, limits: Limits | None = None
) -> Grader:
    """Return what grades the answers of a submission.

    Args:
        names: of the exercises.
        drawn: whether each submission has an exercise's numbers of its own, drawn from its name.
        limits: for the answer to one exercise, and for running the submission.

    Raises:
        ValueError: when no exercise has one of the names.
    """
    wanted = [find(name) for name in names]
    each = replace(limits or Limits(), times=len(wanted) + 1)

    def grader(submission: Submission) -> tuple[dict[str, int], list[str], list[str]]:
        return _graded(submission, wanted, drawn, each)

    return grader


def _graded(
    submission: Submission, wanted: Sequence[Exercise], drawn: bool, limits: Limits
) -> tuple[dict[str, int], list[str], list[str]]:
    cells: dict[str, int] = {}
    remarks: list[str] = []
    errors: list[str] = []
    process: Process | None = None
    with tempfile.TemporaryDirectory() as folder, settled():
        for exercise in wanted:
            if process is None:  # the first, or one after an answer that ended it
                process = Process(lambda line: _serve(line, submission, Path(folder)), limits)
            held = _told(process, errors)
            if held is None:
                process.close()
                break
            if exercise.name not in held:
                continue
            process.renew()
            key = submission.name if drawn and can_be_drawn(exercise) else None
            result = verdict(exercise, _answer(process, exercise.name), key)
            cells[exercise.name] = int(result.passed)
            if not result.passed:
                shown = f" (input: {result.input})" if result.input else ""
                remarks.append(f"{exercise.name}: {result.message}{shown}")
            if process.is_over():
                process.close()
                process = None
        if process is not None:
            process.close()
    return cells, remarks, errors


def _answer(process: Process, name: str) -> Callable[[], Answer]:
    return lambda: Elsewhere(process, name)


def _told(process: Process, errors: list[str]) -> list[str] | None:
    """The names of the answers that a submission holds; None when it cannot be run."""
    told: Any = None
    try:
        told = Elsewhere(process, "").value
    except Fault as fault:
        errors += [str(fault).replace("the function", "the submission")]
        return None
    names, wrong = told
    errors += [text for text in wrong if text not in errors]
    return list(names)


def _serve(line: Line, submission: Submission, folder: Path) -> None:
    """Run a submission when it is first asked for, and serve its answers."""
    held: list[Held] = []

    def given(name: str) -> Any:
        if not held:
            own = Path(tempfile.mkdtemp(dir=folder))  # goes with the folder
            held.append(read(copied(submission.files, own)))
        settle()  # whatever the submission, or its last answer, has set
        if not name:
            return sorted(held[0].answers), held[0].errors
        return held[0].answers[name]

    serve(line, given)


# The zoo -----------------------------------------------------------------------------------------


def zoo_grader(*, wing: str | None = None, seconds: float = 60.0) -> Grader:
    """Return what grades the tests of a submission by the bugs that they catch.

    Args:
        wing: of the zoo; all when None.
        seconds: that one test may take on one library.
    """

    def grader(submission: Submission) -> tuple[dict[str, int], list[str], list[str]]:
        cells: dict[str, int] = {}
        remarks: list[str] = []
        errors: list[str] = []
        for path in submission.files:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / f"{path.stem}.py"
                try:
                    file.write_text(Submission("", (path,)).text(), "utf-8")
                    found = grade_file(file, wing=wing, seconds=seconds)
                except (OSError, ValueError) as error:
                    errors.append(str(error).replace(str(file), path.name))
                    continue
            remarks += [f"{name}: {why}" for name, why in found.refused.items()]
            cells |= dict.fromkeys(found.caught, 1)
            for name in found.alive:
                cells.setdefault(name, 0)
        if not submission.files:
            errors.append("it holds no Python file and no notebook")
        return cells, remarks, errors

    return grader


# The table ---------------------------------------------------------------------------------------


def _digest(submission: Submission, columns: Sequence[str], settings: object) -> str:
    told = hashlib.sha256()
    for part in (measured_transformer.__version__, *columns, settings, submission.name):
        told.update(f"{part}\0".encode())
    for path in submission.files:
        told.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return told.hexdigest()[:16]


def _read_table(path: Path) -> dict[str, Row]:
    """The rows of an earlier run, by submission.

    Raises:
        ValueError: when the file is no such table.
    """
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        heads = list(reader.fieldnames or ())
        if heads and not {*_FIRST, *_LAST} <= set(heads):
            raise ValueError(
                f"expected a table of grades in {path}, got another file; name a new one"
            )
        columns = [head for head in heads if head not in (*_FIRST, *_LAST)]
        return {
            _as_it_was(each["submission"]): Row(
                _as_it_was(each["submission"]),
                {name: int(each[name]) for name in columns if each[name]},
                _as_it_was(each["remarks"]),
                _as_it_was(each["errors"]),
                float(each["seconds"]),
                each["digest"],
            )
            for each in reader
        }


def _write_table(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write the table aside and put it in place at once: whoever is interrupted keeps the last one."""
    aside = path.with_name(f".{path.name}.part")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*_FIRST, *columns, *_LAST])
        for row in rows:
            cells = [row.cells.get(name, "") for name in columns]
            points = sum(row.cells.get(name, 0) for name in columns)
            told = [_harmless(row.remarks), _harmless(row.errors), row.seconds, row.digest]
            writer.writerow([_harmless(row.submission), *cells, points, len(columns), *told])
    os.replace(aside, path)


def _harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _as_it_was(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _one_line(texts: Iterable[str]) -> str:
    return "; ".join(" ".join(text.split())[:1000] for text in texts)
