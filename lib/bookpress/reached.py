"""What a change reaches: the tests and pages that `make check` runs.

The nearest come first, so that a limit of pages or of time leaves out what is farthest.

A change is what differs from a commit, uncommitted and new files included. Of Python files of the library it is
the definitions whose code differs; docstrings and comments do not count. A test is reached when its file or a
module beside it changed, when what it imports leads to such a definition, or when it names another file that
changed; a page when its text, its room or its results changed, or its cells lead to such a definition.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measured_transformer.provenance import names_of_source, unchanging

from bookpress.tests_code import TestFile

LIBRARY, TESTS, PAGES = Path("lib"), Path("tests"), Path("book")
ROOMS = LIBRARY / "measured_book" / "rooms"
EVERYWHERE = (
    "pyproject.toml",
    "requirements.txt",
    "requirements-torch.txt",
    "conftest.py",
    "tests/conftest.py",
)
"""Files on which every test depends."""


@dataclass(frozen=True)
class Change:
    """What differs from a commit.

    Attributes:
        files: paths from the root.
        definitions: of the library, ``module:name``.
    """

    files: frozenset[Path]
    definitions: frozenset[str] = field(default_factory=frozenset)

    @property
    def rooms(self) -> set[str]:
        """The rooms in which a file changed."""
        inside = [path.relative_to(ROOMS) for path in self.files if path.is_relative_to(ROOMS)]
        return {path.parts[0] for path in inside if len(path.parts) > 1}


def change(root: Path, since: str) -> Change:
    """What differs from a commit.

    Raises:
        ValueError: there is no such commit; the sentence says what to name instead.
    """
    try:
        differing = _git(root, "diff", "--name-only", "--no-renames", since, "--").splitlines()
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines()[:1]
        raise ValueError(
            f"expected a commit or branch to compare with, got {since!r} ({'; '.join(told)}); name one: make "
            "check SINCE=HEAD~1"
        ) from None
    new = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    files = frozenset(map(Path, [*differing, *new]))
    found: set[str] = set()
    for path in files:
        if path.suffix == ".py" and path.is_relative_to(LIBRARY):
            found |= _definitions(root, path, since)
    return Change(files, frozenset(found))


def _definitions(root: Path, path: Path, since: str) -> set[str]:
    """The definitions of a module that are not what they were."""
    parts = path.relative_to(LIBRARY).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    try:
        before = _forms(_git(root, "show", f"{since}:{path.as_posix()}"))
    except subprocess.CalledProcessError:
        before = {}
    now = _forms((root / path).read_text("utf-8")) if (root / path).is_file() else {}
    names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return {f"{module}:{name}" for name in names}


def _forms(text: str) -> dict[str, str]:
    """Each name that a module defines at its top, with the code that defines it, docstrings left out."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
                ast.get_docstring(inner, clean=False) is not None
            ):
                inner.body = inner.body[1:] or [ast.Pass()]
        for name in _names(node):
            found[name] = found.get(name, "") + ast.dump(node)
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return []
    return [
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


def tests(root: Path, changed: Change) -> list[str]:
    """The tests, and modules with examples in their docstrings, that a change reaches, the nearest first.

    A file all of whose tests are reached stands for them; of others each test has a line, ``file::test``. Near
    are examples of what changed, tests that changed, and those that import a module that changed.
    """
    if any(Path(name) in changed.files for name in EVERYWHERE):
        return ["tests", "lib/measured_transformer", "lib/measured_book"]
    found: list[str] = []
    for path in sorted((root / TESTS).rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        if _is_file_reached(root, path, changed):
            found.append(name)
        elif changed.definitions:
            found += [name + one for one in _tests_reached(root, path, changed.definitions)]
    modules = [
        path.as_posix()
        for path in sorted(changed.files)
        if path.suffix == ".py"
        and path.is_relative_to(LIBRARY)
        and path.parts[1] != "bookpress"
        and (root / path).is_file()
        and ">>> " in (root / path).read_text("utf-8")
    ]
    return modules + sorted(found, key=lambda name: not _is_near(root, name, changed))


def _is_near(root: Path, name: str, changed: Change) -> bool:
    """Return whether a file of tests changed, or imports a module of which a definition changed."""
    path = Path(name.partition("::")[0])
    if path in changed.files or not changed.definitions:
        return True
    modules = {definition.partition(":")[0] for definition in changed.definitions}
    text = (root / path).read_text("utf-8")
    return any(re.search(rf"\b{re.escape(module)}\b", text) for module in modules)


def _is_file_reached(root: Path, path: Path, changed: Change) -> bool:
    """Return whether all tests of a file are reached, whatever definitions they lead to."""
    folder = path.parent.relative_to(root)
    beside = [one for one in changed.files if one.suffix == ".py" and one.parent in (folder, TESTS)]
    if path.relative_to(root) in changed.files or any(
        not one.name.startswith("test_") for one in beside
    ):
        return True
    if folder.parent == TESTS / "rooms" and folder.name in changed.rooms:
        return True
    text = path.read_text("utf-8")
    others = [
        one.name
        for one in changed.files
        if one.suffix != ".py" and not one.is_relative_to(ROOMS) and not one.is_relative_to(PAGES)
    ]
    return any(name in text for name in others)


def _tests_reached(root: Path, path: Path, definitions: frozenset[str]) -> list[str]:
    """The tests of a file that lead to a definition, as ``::test``; an empty word where all of them do."""
    try:
        file = TestFile(path, root / TESTS)
        if not _leads(file.code(), definitions):
            return []
        found = [test for test in file.tests if _leads(file.code(test), definitions)]
    except SyntaxError:
        return [""]  # its own message comes when it runs
    return [""] if len(found) == len(file.tests) else [f"::{test}" for test in found]


def _leads(pieces: Iterable[str], definitions: frozenset[str]) -> bool:
    return any(not definitions.isdisjoint(_reach(piece)) for piece in pieces)


def _reach(text: str) -> Iterable[str]:
    return names_of_source([text])


def pages(root: Path, changed: Change) -> list[str]:
    """The chapters that a change reaches: those whose text or room changed first."""
    from bookpress.chapters import front_matter, load_book, notebook, rooms_of

    near, far = [], []
    for chapter in load_book(root).chapters:
        text = chapter.path.read_text("utf-8")
        own = rooms_of(front_matter(text))
        if Path(chapter.source) in changed.files or not changed.rooms.isdisjoint(own):
            near.append(chapter.source)
            continue
        cells = [cell.source for cell in notebook(chapter).cells if cell.cell_type == "code"]
        if changed.definitions and not changed.definitions.isdisjoint(names_of_source(cells)):
            far.append(chapter.source)
    return near + far


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what a change reaches, a line each; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m bookpress.reached", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=("tests", "pages"))
    parser.add_argument(
        "--since", default="main", help="the commit to compare with (default: main)"
    )
    parser.add_argument(
        "--at-most", type=int, metavar="N", help="the N nearest; what is left out is said"
    )
    options = parser.parse_args(arguments)
    root = Path()
    try:
        changed = change(root, options.since)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with unchanging():
        found = (tests if options.what == "tests" else pages)(root, changed)
    now = found[: options.at_most]
    print(*now, sep="\n", end="\n" if now else "")
    left = (
        f"; the nearest {len(now)} are run now, `make test` runs all"
        if len(now) < len(found)
        else ""
    )
    print(
        f"{len(changed.files)} files and {len(changed.definitions)} definitions differ from "
        f"{options.since}: {len(found)} {options.what} reached{left}",
        file=sys.stderr,
    )
    return 0


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
