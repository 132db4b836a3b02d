"""Runs a student's tests on the correct library, and on the library with one bug at a time."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measured_book.exercises.zoo.bugs import Bug, Sighting, bugs_of
from measured_book.exercises.zoo.infection import difference, infected

Test = Callable[[], object]
SECONDS = 60.0
"""What a file's tests may take for one bug."""


@dataclass(frozen=True)
class Grade:
    """The outcome of a set of tests.

    Attributes:
        caught: name of each bug that a test caught, with the first test that did.
        alive: names of the bugs that no test noticed.
        faulty: name of each test that fails on the library as it is, with its error. Where there is one, no bug
            was tried: such a test would catch everything.
    """

    caught: Mapping[str, str]
    alive: tuple[str, ...]
    faulty: Mapping[str, str] = field(default_factory=dict)

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
            "faulty": dict(self.faulty),
        }
        return json.dumps(told, indent=1)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        text = re.sub(r"https://\S+", r'<a href="\g<0>">\g<0></a>', escape(repr(self)))
        return f"<pre>{text}</pre>"

    def _lines(self) -> list[str]:
        if self.faulty:
            told = [f"  {name}: {error}" for name, error in self.faulty.items()]
            return ["These tests fail on the library as it is; mend them first:", *told]
        found = {bug.name: bug for bug in bugs_of()}
        lines = [f"caught {len(self.caught)} of {len(self.caught) + len(self.alive)}"]
        for name, test in self.caught.items():
            lines += ["", f"{name} (by {test})", *_wrapped(found[name].story)]
            lines += _sighting(found[name].seen)
            lines += [f"  {line}" for line in difference(found[name]).splitlines()]
        wings = [found[name].wing for name in self.alive]
        if wings:
            still = ", ".join(f"{wings.count(wing)} in {wing}" for wing in dict.fromkeys(wings))
            lines += ["", f"still alive: {still}"]
        return lines


def grade(tests: Iterable[Test], *, wing: str | None = None) -> Grade:
    """Run test functions on the correct library, and on every bug of a wing.

    Before each test, all random numbers start from the same seed.

    Args:
        tests: functions without arguments that raise when something is wrong.
        wing: attention, positions, layers, training or generation; all when None.

    Raises:
        ValueError: when there is no test, a test has arguments, or there is no such wing.
    """
    chosen, bugs = _checked(tests), bugs_of(wing)
    if faulty := _failures(chosen):
        return Grade({}, tuple(bug.name for bug in bugs), faulty)
    caught: dict[str, str] = {}
    for bug in bugs:
        with infected(bug):
            failed = _failures(chosen, first=True)
        if failed:
            caught[bug.name] = next(iter(failed))
    return Grade(caught, tuple(bug.name for bug in bugs if bug.name not in caught))


def grade_file(
    path: str | os.PathLike[str], *, wing: str | None = None, seconds: float = SECONDS
) -> Grade:
    """The same for the functions `test_*` of a file, each bug in a process of its own.

    A bug under which the tests take longer than allowed, or their process dies, is caught.

    Args:
        path: a Python file.
        wing: as for `grade`.
        seconds: how long all tests together may take for one bug.

    Raises:
        ValueError: when the file cannot be imported or holds no test; when its tests take too long on the
            library as it is; when there is no such wing.
    """
    file, bugs = Path(path), bugs_of(wing)
    if not file.is_file():
        raise ValueError(f"expected a file of tests, got {file}, which is none")
    told = _in_a_process(file, None, seconds)
    if isinstance(told, str):
        raise ValueError(f"{file}: expected tests that can be run on the library as it is; {told}")
    if told:
        return Grade({}, tuple(bug.name for bug in bugs), told)
    caught: dict[str, str] = {}
    for bug in bugs:
        found = _in_a_process(file, bug, seconds)
        if found:
            caught[bug.name] = found if isinstance(found, str) else next(iter(found))
    return Grade(caught, tuple(bug.name for bug in bugs if bug.name not in caught))


def tests_of(file: Path) -> list[Test]:
    """The functions `test_*` of a file, in its order.

    Raises:
        ValueError: when it cannot be imported, or has none.
    """
    spec = importlib.util.spec_from_file_location("zoo_tests", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected a Python file, got {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return _checked(
        each
        for name, each in vars(module).items()
        if name.startswith("test_") and inspect.isfunction(each)
    )


def run_and_tell(file: Path, bug: Bug | None) -> dict[str, str]:
    """Run a file's tests with a bug in place before the import; returns names and errors of failures."""
    if bug is None:
        return _failures(tests_of(file))
    with infected(bug):
        try:
            tests = tests_of(file)
        except Exception as error:
            return {"the import of the file": _told(error)}
        return _failures(tests, first=True)


def _in_a_process(file: Path, bug: Bug | None, seconds: float) -> dict[str, str] | str:
    """The failing tests; or a message that says why they are not known."""
    command = [sys.executable, "-m", "measured_book.exercises.zoo", "--tell", str(file)]
    if bug is not None:
        command += ["--bug", bug.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"the process ended with {done.returncode}"
    told: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return told


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


def _failures(tests: Sequence[Test], *, first: bool = False) -> dict[str, str]:
    """Names and errors of failing tests; only of the first one when that suffices."""
    failed: dict[str, str] = {}
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        for test in tests:
            random.seed(0)
            np.random.seed(0)
            torch.manual_seed(0)
            try:
                test()
            except Exception as error:
                failed[_name(test)] = _told(error)
                if first:
                    break
    random.setstate(python)
    np.random.set_state(numpy)
    return failed


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


def _told(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
