"""What students hand in: a file or a notebook, or a folder of these, and the answers that it holds.

An answer is what a submission gives to `check("learning_rate.half_life", half_life)`, as the pages have it,
or an entry of a dictionary named `answers`, by the exercise's name. Files run from a copy in a clean folder.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

_KINDS = (".py", ".ipynb")
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_noted: dict[str, Any] | None = (
    None  # answers of the submission that this process reads, if it reads one
)


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    Attributes:
        name: of the file without its ending, or of the folder.
        files: Python files and notebooks, in the order in which they run.
    """

    name: str
    files: tuple[Path, ...]

    def text(self) -> str:
        """All code, to look for names.

        Raises:
            ValueError: when a notebook is none.
        """
        return "\n".join(
            "\n".join(_pieces(path, path.read_text("utf-8", "replace"))) for path in self.files
        )


@dataclass
class Held:
    """What a submission holds.

    Attributes:
        answers: by name of the exercise.
        errors: what went wrong when it ran, in words.
    """

    answers: Mapping[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def submissions(folder: str | os.PathLike[str]) -> list[Submission]:
    """Return the submissions of a folder: each Python file, notebook and folder with some, by name.

    Raises:
        ValueError: when there is no such folder, it holds none, or two have the same name.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"expected a folder of submissions, got {root}, which is none")
    found = []
    for path in sorted(root.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            files = sorted(each for each in path.rglob("*") if _is_code(each.relative_to(path)))
            if any(each.is_file() for each in path.rglob("*")):
                found.append(Submission(path.name, tuple(files)))
        elif path.suffix in _KINDS:
            found.append(Submission(path.stem, (path,)))
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"expected one submission of each name, got two of {', '.join(twice)} in {root}"
        )
    if not found:
        raise ValueError(
            f"expected Python files, notebooks or folders of these in {root}, got none"
        )
    return found


def _is_code(path: Path) -> bool:
    return path.suffix in _KINDS and not any(part.startswith((".", "__")) for part in path.parts)


def copied(files: Iterable[Path], into: Path) -> list[Path]:
    """Copy files into a clean folder, and work there from now on; returns the copies in order."""
    copies = []
    for path in files:
        target = into / path.name
        count = 1
        while target.exists():
            count += 1
            target = into / f"{path.stem}_{count}{path.suffix}"
        shutil.copyfile(path, target)
        copies.append(target)
    os.chdir(into)
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = str(into)
    sys.path.insert(0, str(into))
    return copies


def read(files: Iterable[Path]) -> Held:
    """Run the files of a submission, in this process, and return what they hold.

    An error ends its file, or its cell of a notebook; what came before and what comes after is still there.
    """
    global _noted
    held, _noted = Held(), {}
    for path in files:
        module = ModuleType("__main__")
        module.__file__ = str(path)
        sys.modules["__main__"], sys.argv = module, [str(path)]
        try:
            pieces = _pieces(path, path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            held.errors.append(f"{path.name} cannot be read: {error}")
            continue
        for number, piece in enumerate(pieces, 1):
            name = str(path) if path.suffix == ".py" else f"{path} (cell {number})"
            linecache.cache[name] = (len(piece), None, piece.splitlines(keepends=True), name)
            try:
                exec(compile(piece, name, "exec", dont_inherit=True), vars(module))
            except BaseException as error:
                held.errors.append(f"{Path(name).name}{_place(error, name)}: {_told(error)}")
        own = vars(module).get("answers")
        if isinstance(own, dict):
            _noted |= {name: one for name, one in own.items() if isinstance(name, str)}
    held.answers, _noted = _noted, None
    return held


def note(name: str, answer: Any) -> bool:
    """Keep an answer when this process reads a submission; returns whether it does."""
    if _noted is None:
        return False
    _noted[name] = answer
    return True


def _pieces(path: Path, text: str) -> list[str]:
    """The code of a file: itself, or the cells of a notebook without what is no Python.

    Raises:
        ValueError: when a notebook is none.
    """
    if path.suffix == ".py":
        return [text]
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"expected a notebook, got a file that is none ({error})") from None
    return [_MAGIC.sub(r"\1pass", one) for one in sources if not one.lstrip().startswith("%%")]


def _place(error: BaseException, name: str) -> str:
    lines = [
        one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == name
    ]
    line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
    return f", line {line}" if line else ""


def _told(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
