"""`python -m measured_book.exercises`: grade a folder of submissions, and draw exercises with other numbers."""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from measured_book.exercises.draws import draw
from measured_book.exercises.grading import (
    Row,
    exercise_grader,
    grade_folder,
    names_handed_in,
    zoo_grader,
)
from measured_book.exercises.processes import Limits
from measured_book.exercises.zoo import WINGS, bugs_of


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 when it did what it was asked for, 2 when that cannot be done."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "draw":
            return _draw(given)
        return _grade(given)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m measured_book.exercises", description="Exercises, for those who teach."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser(
        "grade", help="grade a folder of submissions into a table", description=_GRADE
    )
    grade.add_argument("folder", type=Path, help="Python files, notebooks, or a folder per student")
    grade.add_argument(
        "--out", type=Path, required=True, help="the table (CSV); it goes on where it ended"
    )
    grade.add_argument(
        "--exercises",
        metavar="NAMES",
        help="with commas; those that some submission names when not given",
    )
    grade.add_argument(
        "--drawn", action="store_true", help="numbers drawn from the name of each submission"
    )
    grade.add_argument(
        "--zoo", action="store_true", help="tests for the bug zoo instead of answers"
    )
    grade.add_argument("--wing", choices=WINGS, help="of the zoo; all when not given")
    grade.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="for one answer, or one test on one library (%(default)g)",
    )
    grade.add_argument(
        "--total", type=float, default=1800.0, help="seconds for one submission (%(default)g)"
    )
    grade.add_argument("--again", action="store_true", help="grade again what has been graded")
    drawn = commands.add_parser(
        "draw", help="draw exercises with other numbers, one for each student"
    )
    drawn.add_argument("exercises", nargs="+", help="names, such as learning_rate.edge")
    drawn.add_argument(
        "--for", dest="keys", required=True, metavar="NAMES", help="students, with commas"
    )
    return parser


_GRADE = (
    "A row for each submission, a column for each exercise: 1 where the answer is right, 0 "
    "where it is not, nothing "
    'where none was handed in. An answer is what a submission gives to check("name", answer), or an entry of '
    "its dictionary `answers`."
)


def _grade(given: argparse.Namespace) -> int:
    if given.zoo:
        columns = [bug.name for bug in bugs_of(given.wing)]
        grader = zoo_grader(wing=given.wing, seconds=given.seconds)
    else:
        listed = given.exercises.split(",") if given.exercises else names_handed_in(given.folder)
        columns = [name.strip() for name in listed]
        grader = exercise_grader(columns, drawn=given.drawn, limits=Limits(seconds=given.seconds))

    def tell(row: Row) -> None:
        mark = f", errors: {row.errors}" if row.errors else ""
        print(f"{row.submission}: {sum(row.cells.values())} of {len(columns)}{mark}", flush=True)

    rows = grade_folder(
        given.folder,
        given.out,
        columns,
        grader,
        settings=(given.zoo, given.drawn, given.seconds),
        seconds=given.total,
        again=given.again,
        tell=tell,
    )
    print(f"{len(rows)} submissions, written to {given.out}")
    return 0


def _draw(given: argparse.Namespace) -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(("student", "exercise", "asked"))
    for key in given.keys.split(","):
        for name in given.exercises:
            writer.writerow((key.strip(), name, draw(name, key.strip()).asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
