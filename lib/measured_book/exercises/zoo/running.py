"""One run of one test: on a library as it is, rewritten or with a bug, in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import linecache
import os
import pkgutil
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import measured_transformer
import torch

from measured_book.exercises.processes import EndedError, Limits, Line, Process, can_copy
from measured_book.exercises.state import settled
from measured_book.exercises.zoo.bugs import BUGS, Bug, Edit
from measured_book.exercises.zoo.infection import edited, exchange
from measured_book.exercises.zoo.rewrites import REWRITES
from measured_book.exercises.zoo.watch import watch

_PLACES = tuple(dict.fromkeys(edit.where for edit in REWRITES))
_OTHER_DRAW = 1_000_003  # added to the seeds where random numbers are others


@dataclass(frozen=True)
class Case:
    """A library on which a test runs.

    Attributes:
        kind: untouched, rewritten, drawn (with other random numbers) or sick.
        edits: what is changed in it.
        seed: of the names that its local variables get; None where they keep theirs.
        bug: the name of its bug; None for a right library.
    """

    kind: str
    edits: tuple[Edit, ...] = ()
    seed: int | None = None
    bug: str | None = None

    @classmethod
    def untouched(cls) -> Case:
        """The library as it is."""
        return cls("untouched")

    @property
    def words(self) -> str:
        """The library in words, after "it fails"."""
        return {
            "untouched": "on the library as it is",
            "rewritten": "on a harmless rewrite of the library, which computes the same in other words",
            "drawn": "on the library as it is where random numbers are others",
        }.get(self.kind, "on a bug")


def right_cases(chance: random.Random) -> list[Case]:
    """Libraries on which a test has to pass: as it is once more, rewritten, and with other random numbers."""
    return [
        Case.untouched(),
        Case("rewritten", REWRITES, chance.getrandbits(32)),
        Case("rewritten", (), chance.getrandbits(32)),
        Case("drawn"),
    ]


def sick_case(bug: Bug, chance: random.Random) -> Case:
    """The library with a bug, disguised like a harmless rewrite."""
    return Case("sick", bug.edits, chance.getrandbits(32), bug.name)


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        kind: passed, failed, refused, ended (its process died or was late), or names (of a file's tests).
        text: why.
    """

    kind: str
    text: str = ""


@dataclass(frozen=True)
class Tests:
    """Tests that are there, or that a file makes.

    Attributes:
        names: in order.
        make: name -> test; for a file, by importing it.
        files: where their code is, as code objects have it.
    """

    names: tuple[str, ...]
    make: Callable[[], Mapping[str, Callable[[], object]]]
    files: frozenset[str]

    @classmethod
    def of_file(cls, file: Path, names: tuple[str, ...]) -> Tests:
        """The functions `test_*` of a file; ValueError, when they are made, where it is no Python file."""
        return cls(names, lambda: _imported(file), frozenset((str(file),)))


def run(tests: Tests, name: str | None, case: Case, seconds: float) -> Outcome:
    """Run one test on one library; or, without a name, say which tests a file has."""
    if not can_copy():
        return _run_here(tests, name, case)
    _warmed()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()

        def work(line: Line) -> None:
            def refuse(text: str) -> None:
                line.send(json.dumps(["refused", text]).encode())
                os._exit(0)

            _settle_in(folder)
            _become(case)
            watch(tests.files, folder, refuse)
            found = _outcome(tests, name, case)
            line.send(json.dumps([found.kind, found.text]).encode())

        with settled(), Process(work, Limits(seconds=seconds)) as process:
            try:
                kind, text = json.loads(process.receive())
            except (EndedError, ValueError) as error:
                late = isinstance(error, EndedError) and error.late
                return Outcome(
                    "ended", f"no answer within {seconds:g} s" if late else f"it {error}"
                )
    return Outcome(str(kind), str(text))


def _run_here(tests: Tests, name: str | None, case: Case) -> Outcome:
    """The same in this process, where a system cannot copy one: without limits, and unwatched."""
    codes = edited(case.edits, _disguised(case), random.Random(case.seed))
    healthy = {function: function.__code__ for function in codes}
    with settled(_OTHER_DRAW if case.kind == "drawn" else 0):
        try:
            exchange(codes)
            return _outcome(tests, name, case)
        finally:
            exchange(healthy)


def _disguised(case: Case) -> Iterable[str]:
    """The places whose variables get other names: all, or those of the bug and a few more."""
    if case.seed is None:
        return ()
    few = random.Random(case.seed).sample(_PLACES, 3)
    return _PLACES if case.bug is None else {*(edit.where for edit in case.edits), *few}


def _outcome(tests: Tests, name: str | None, case: Case) -> Outcome:
    try:
        made = tests.make()
        if name is None:
            faulty = [each for each, test in made.items() if _has_arguments(test)]
            if faulty:
                listed = ", ".join(faulty)
                text = (
                    f"expected tests without arguments, got {listed}; let them make what they need"
                )
                return Outcome("failed", text)
            return Outcome("names", json.dumps(list(made)))
        torch.manual_seed(_OTHER_DRAW if case.kind == "drawn" else 0)
        made[name]()
    except Exception as error:
        return Outcome("failed", _told(error))
    except SystemExit:
        return Outcome("failed", "it ends the program")
    return Outcome("passed")


def _has_arguments(test: Callable[[], object]) -> bool:
    try:
        inspect.signature(test).bind()
    except TypeError:
        return True
    return False


def _imported(file: Path) -> dict[str, Callable[[], object]]:
    spec = importlib.util.spec_from_file_location("zoo_tests", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected a Python file, got {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: each
        for name, each in vars(module).items()
        if name.startswith("test_") and inspect.isfunction(each)
    }


@cache
def _warmed() -> None:
    """Load and read all that runs need once, before this process is copied."""
    skipped = ("__main__",)
    for found in pkgutil.walk_packages(measured_transformer.__path__, "measured_transformer."):
        if found.name.rpartition(".")[2] not in skipped:
            with contextlib.suppress(ImportError):
                import_module(found.name)
    edited(REWRITES, _PLACES)
    for bug in BUGS:
        edited(bug.edits)


def _settle_in(folder: Path) -> None:
    """Make a clean folder the only place that a test knows."""
    os.chdir(folder)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")


def _become(case: Case) -> None:
    """Make the library of this process the one of a case, and forget that there was a choice."""
    if case.seed is not None:
        exchange(edited(case.edits, _disguised(case), random.Random(case.seed)))
    if case.kind == "drawn":
        plain = torch.manual_seed

        def manual_seed(seed: int) -> torch.Generator:
            return plain(int(seed) + _OTHER_DRAW)

        torch.manual_seed = manual_seed
    linecache.clearcache()
    for name in [name for name in sys.modules if name.startswith("measured_book")]:
        del sys.modules[name]


def _told(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
