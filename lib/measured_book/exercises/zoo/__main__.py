"""`python -m measured_book.exercises.zoo my_tests.py`: grade a file of tests."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path

from measured_book.exercises.zoo.bugs import WINGS, bugs_of
from measured_book.exercises.zoo.grading import SECONDS, grade_file, run_and_tell


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the tests pass on the correct library and catch as many bugs as demanded."""
    parser = argparse.ArgumentParser(
        prog="python -m measured_book.exercises.zoo",
        description="How many bugs do these tests of the library catch?",
    )
    parser.add_argument(
        "file", type=Path, help="Python file with functions test_*, without arguments"
    )
    parser.add_argument("--wing", choices=WINGS, help="one wing of the zoo; all when not given")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one bug (%(default)g)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the grade there as well")
    parser.add_argument(
        "--demand", type=float, default=0.0, metavar="SHARE", help="fail below this share, 0 to 1"
    )
    parser.add_argument("--tell", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bug", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.tell:
        bug = {each.name: each for each in bugs_of()}[given.bug] if given.bug else None
        with contextlib.redirect_stdout(io.StringIO()):  # what tests print is not the answer
            told = run_and_tell(given.file, bug)
        print(json.dumps(told))
        return 0
    try:
        found = grade_file(given.file, wing=given.wing, seconds=given.seconds)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(found)
    if given.json is not None:
        given.json.write_text(found.as_json() + "\n", "utf-8")
    return 0 if not found.faulty and found.share >= given.demand else 1


if __name__ == "__main__":
    sys.exit(main())
