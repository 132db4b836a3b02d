"""Runs a student's tests on the correct library, on harmless rewrites of it, and with one bug at a time.

Each run of each test has a process and a clean folder of its own, so that no run knows of an earlier one. The
runs of a test come in an order of its own: first the library as it is, then bugs, rewrites and the library
again, mixed at random, and last the library once more. A test that does not pass on every right library earns
nothing, whatever bugs it fails on.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from measured_book.exercises.zoo.bugs import Sighting, bugs_of
from measured_book.exercises.zoo.copies import copies, source_of
from measured_book.exercises.zoo.infection import difference
from measured_book.exercises.zoo.running import Case, Outcome, Tests, right_cases, run, sick_case
from measured_book.exercises.zoo.watch import suspicions

Test = Callable[[], object]
_AT_TIMES = (
    "it fails at one time and passes at another on the same library: it depends on chance or on "
    "the clock"
)
SECONDS = 60.0
"""What one test may take on one library."""


@dataclass(frozen=True)
class Grade:
    """The outcome of a set of tests.

    Attributes:
        caught: name of each bug that a test caught, with the first test that did.
        alive: names of the bugs that no test noticed.
        refused: name of each test that earns nothing, with the reason: it fails on the library as it is, always
            or at times; it fails on a harmless rewrite; it looks at code; or it is one of the public tests.
    """

    caught: Mapping[str, str]
    alive: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the bugs that were caught, from 0 to 1."""
        count = len(self.caught) + len(self.alive)
        return len(self.caught) / count if count else 0.0

    def as_json(self) -> str:
        """The same as JSON, with the share."""
        told = {
            "share": self.share,
            "caught": dict(self.caught),
            "alive": len(self.alive),
            "refused": dict(self.refused),
        }
        return json.dumps(told, indent=1)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        text = re.sub(r"https://\S+", r'<a href="\g<0>">\g<0></a>', escape(repr(self)))
        return f"<pre>{text}</pre>"

    def _lines(self) -> list[str]:
        found = {bug.name: bug for bug in bugs_of()}
        lines = [f"caught {len(self.caught)} of {len(self.caught) + len(self.alive)}"]
        if self.refused:
            told = [f"  {name}: {why}" for name, why in self.refused.items()]
            lines = ["These tests earn nothing; mend them first:", *told, "", *lines]
        for name, test in self.caught.items():
            lines += ["", f"{name} (by {test})", *_wrapped(found[name].story)]
            lines += _sighting(found[name].seen)
            lines += [f"  {line}" for line in difference(found[name]).splitlines()]
        wings = [found[name].wing for name in self.alive]
        if wings:
            still = ", ".join(f"{wings.count(wing)} in {wing}" for wing in dict.fromkeys(wings))
            lines += ["", f"still alive: {still}"]
        return lines


def grade(
    tests: Iterable[Test],
    *,
    wing: str | None = None,
    seconds: float = SECONDS,
    public: bool = False,
) -> Grade:
    """Run test functions on the correct library, and on every bug of a wing.

    Before each run, all random numbers start from a seed.

    Args:
        tests: functions without arguments that raise when something is wrong.
        wing: attention, positions, layers, training or generation; all when None.
        seconds: how long one test may take on one library.
        public: whether the library's own public tests count as well, by which the zoo itself is tested.

    Raises:
        ValueError: when there is no test, a test has arguments, or there is no such wing.
    """
    chosen = _checked(tests)
    named = {_name(test): test for test in chosen}
    refused: dict[str, str] = {}
    for name, test in named.items():
        source = source_of(test)
        if source:  # what is made without a source is watched all the same
            refused |= _looked_at(source, public, name)
    files = {code.co_filename for test in chosen if (code := getattr(test, "__code__", None))}
    return _graded(Tests(tuple(named), lambda: named, frozenset(files)), refused, wing, seconds)


def grade_file(
    path: str | os.PathLike[str],
    *,
    wing: str | None = None,
    seconds: float = SECONDS,
    public: bool = False,
) -> Grade:
    """The same for the functions `test_*` of a Python file, which is imported anew for each run.

    A bug under which a test takes longer than allowed, or its process dies, is caught.

    Args:
        path: a Python file; it finds no other file beside it.
        wing: as for `grade`.
        seconds: as for `grade`.
        public: as for `grade`.

    Raises:
        ValueError: when the file cannot be imported or holds no test, or there is no such wing.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"expected a file of tests, got {file}, which is none")
    try:
        source = file.read_text("utf-8")
        refused = _looked_at(source, public)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file}: expected a Python file that can be read; {error}") from None
    mine, alive = _names_in(source), tuple(bug.name for bug in bugs_of(wing))
    if mine and set(mine) <= set(refused):
        return Grade({}, alive, {name: refused[name] for name in mine})
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / file.name
        shutil.copyfile(file, copy)
        told = run(Tests.of_file(copy, ()), None, Case.untouched(), seconds)
        if told.kind == "refused":
            why = _said_of_right(told, Case.untouched())
            return Grade({}, alive, {name: refused.get(name, why) for name in mine})
        if told.kind != "names":
            raise ValueError(
                f"{file}: expected tests that can be run on the library as it is; {told.text}"
            )
        names = tuple(json.loads(told.text))
        if not names:
            raise ValueError(
                f"{file}: expected tests that can be run on the library as it is; expected at least one test, "
                "a function such as def test_it(): assert ..."
            )
        return _graded(Tests.of_file(copy, names), refused, wing, seconds)


def _graded(tests: Tests, refused: Mapping[str, str], wing: str | None, seconds: float) -> Grade:
    bugs = bugs_of(wing)
    caught: dict[str, str] = {}
    told = {name: text for name, text in refused.items() if name in tests.names}
    for name in tests.names:
        if name in told:
            continue
        chance = random.Random(random.SystemRandom().getrandbits(64))
        found: dict[str, str] = {}
        wrong = _said_of_right(
            run(tests, name, Case.untouched(), seconds), Case.untouched(), first=True
        )
        cases = [
            *right_cases(chance),
            *(sick_case(bug, chance) for bug in bugs if bug.name not in caught),
        ]
        chance.shuffle(cases)
        for case in [*cases, Case.untouched()]:
            if wrong:
                break
            outcome = run(tests, name, case, seconds)
            if case.bug is None or outcome.kind == "refused":
                wrong = _said_of_right(outcome, case)
                if wrong and case.kind != "untouched" and outcome.kind != "refused":
                    again = run(tests, name, case, seconds)
                    wrong = _AT_TIMES if again.kind == "passed" else wrong
            elif outcome.kind != "passed":
                again = run(tests, name, case, seconds)
                if again.kind == "passed":
                    wrong = _AT_TIMES
                found[case.bug] = name if outcome.kind == "failed" else outcome.text
        if wrong:
            told[name] = wrong
        else:
            caught |= found
    ordered = {bug.name: caught[bug.name] for bug in bugs if bug.name in caught}
    alive = tuple(bug.name for bug in bugs if bug.name not in caught)
    return Grade(ordered, alive, {name: told[name] for name in tests.names if name in told})


def _said_of_right(outcome: Outcome, case: Case, first: bool = False) -> str:
    """What is wrong with a test that does not pass on a right library; "" where it does."""
    if outcome.kind == "passed":
        return ""
    if outcome.kind == "refused":
        return f"it looks at how the library is written, or beyond its own run: {outcome.text}"
    if case.kind == "untouched":
        return (
            f"it fails on the library as it is: {outcome.text}"
            if first
            else "it fails on the library as it is when it runs again: it depends on chance, on the "
            f"clock or on what an earlier run left ({outcome.text})"
        )
    return f"it fails {case.words}: {outcome.text}"


def _looked_at(source: str, public: bool, only: str | None = None) -> dict[str, str]:
    """Name of a test -> why it earns nothing, as far as its text tells."""
    outside, inside = suspicions(source)
    names = [only] if only else _names_in(source)
    told = dict.fromkeys(names, f"its file looks at code: {outside}") if outside else {}
    told |= {name: f"it looks at code: {text}" for name, text in inside.items()}
    if not public:
        for name, same in copies(source, only).items():
            told.setdefault(
                name, f"it is {same} of the library's own public tests; write one yourself"
            )
    return told


def _names_in(source: str) -> list[str]:
    return re.findall(r"^def (test_\w+)", source, re.MULTILINE)


def _checked(tests: Iterable[Any]) -> list[Test]:
    chosen = list(tests)
    if not chosen:
        raise ValueError("expected at least one test, a function such as def test_it(): assert ...")
    for test in chosen:
        if not callable(test):
            raise ValueError(f"expected functions, got {test!r}")
        try:
            inspect.signature(test).bind()
        except TypeError:
            raise ValueError(
                f"expected tests without arguments, got {_name(test)}{inspect.signature(test)}; "
                "let it make what it needs itself"
            ) from None
    return chosen


def _wrapped(text: str) -> list[str]:
    return [f"  {line}" for line in textwrap.wrap(text, 70)]


def _sighting(seen: Sighting | None) -> list[str]:
    if seen is None:
        return []
    return [
        *_wrapped(f"{'A relative' if seen.kindred else 'Seen'}: {seen.what}"),
        f"  {seen.address}",
    ]


def _name(test: Any) -> str:
    return str(getattr(test, "__name__", test))
