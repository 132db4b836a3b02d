"""`python -m measured_book.exercises.zoo my_tests.py`: grade a file of tests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from measured_book.exercises.zoo.bugs import WINGS
from measured_book.exercises.zoo.grading import SECONDS, grade_file


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when no test is refused and they catch as many bugs as demanded."""
    parser = argparse.ArgumentParser(
        prog="python -m measured_book.exercises.zoo",
        description="How many bugs do these tests of the library catch?",
    )
    parser.add_argument(
        "file", type=Path, help="Python file with functions test_*, without arguments"
    )
    parser.add_argument("--wing", choices=WINGS, help="one wing of the zoo; all when not given")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for one test on one library (%(default)g)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the grade there as well")
    parser.add_argument(
        "--demand", type=float, default=0.0, metavar="SHARE", help="fail below this share, 0 to 1"
    )
    given = parser.parse_args(arguments)
    try:
        found = grade_file(given.file, wing=given.wing, seconds=given.seconds)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(found)
    if given.json is not None:
        given.json.write_text(found.as_json() + "\n", "utf-8")
    return 0 if not found.refused and found.share >= given.demand else 1


if __name__ == "__main__":
    sys.exit(main())
