"""Tells tests of what the library does from tests that look at how it is written.

Two looks at a test: at its text, before it runs, and at what it does, while it runs. Whoever reads the code
of a function, loads the library a second time, or leaves notes for a later run outside of the folder in which
a test runs, tests nothing.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

import measured_transformer

_MODULES = frozenset(
    (
        "ast", "builtins", "code", "codeop", "ctypes", "dis", "gc", "importlib", "inspect",
        "linecache", "marshal", "measured_book", "multiprocessing", "pkgutil", "runpy",
        "subprocess", "symtable", "tokenize", "trace", "traceback", "zipimport",
    )
)  # fmt: skip
_PARTS = (
    "measured_transformer.provenance",
    "torch.fx",
    "torch.jit",
    "torch.package",
    "torch._dynamo",
)
_NAMES = frozenset(["__import__", "compile", "eval", "exec", "globals", "breakpoint"])
_ATTRIBUTES = frozenset(
    (
        "__builtins__", "__cached__", "__closure__", "__code__", "__file__", "__globals__",
        "__loader__", "__path__", "__spec__", "__subclasses__", "f_back", "f_code", "f_globals",
        "f_lineno", "gi_code", "gi_frame", "tb_frame", "tb_lineno", "tb_next",
    )
)  # fmt: skip
_INNER = frozenset(("__code__", "f_code", "gi_code", "cr_code", "ag_code", "tb_frame"))
_EVENTS = (
    "code.__new__", "ctypes", "cpython.", "gc.", "marshal.", "os.exec", "os.fork", "os.posix_spawn",
    "os.spawn", "os.system", "socket.", "subprocess.", "sys._current_frames", "sys._getframe",
    "sys.addaudithook", "sys.monitoring.", "sys.setprofile", "sys.settrace",
)  # fmt: skip
_MOVES = ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.utime", "os.remove", "os.truncate")
_LIBRARY = str(Path(measured_transformer.__file__).parent) + os.sep
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_THROUGH = (
    f"{os.sep}jaxtyping{os.sep}",
    f"{os.sep}beartype{os.sep}",
)  # they stand between any two functions
_OTHERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


# The text -----------------------------------------------------------------------------------------


def suspicions(source: str) -> tuple[str, dict[str, str]]:
    """Say what in a file of tests looks at code instead of at what it does.

    Returns:
        What stands outside of tests, "" when nothing does; and name of a test -> what stands in it.
    """
    tree = ast.parse(source)
    outside, inside = "", {}
    for node in tree.body:
        told = next((text for each in ast.walk(node) if (text := _suspicion(each))), "")
        if not told:
            continue
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            inside[node.name] = told
        else:
            outside = outside or told
    return outside, inside


def _suspicion(node: ast.AST) -> str:
    line = getattr(node, "lineno", 0)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [each.name for each in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        for name in names:
            if name.partition(".")[0] in _MODULES or any(
                name == part or name.startswith(f"{part}.") for part in _PARTS
            ):
                return f"it imports {name} (line {line})"
    if isinstance(node, ast.Name) and node.id in _NAMES | _ATTRIBUTES:
        return f"it uses {node.id} (line {line})"
    if isinstance(node, ast.Attribute):
        if node.attr in _ATTRIBUTES or node.attr.startswith("co_"):
            return f"it reads {node.attr} (line {line})"
        if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in _PARTS:
            return f"it uses {node.value.id}.{node.attr} (line {line})"
    if isinstance(node, ast.Constant) and node.value in _ATTRIBUTES:
        return f"it names {node.value} (line {line})"
    return ""


# What it does -------------------------------------------------------------------------------------


def watch(files: Collection[str], folder: Path, refuse: Callable[[str], None]) -> None:
    """From now on, refuse what a test must not do; for the rest of this process.

    Args:
        files: the files whose code is that of tests, as code objects name them.
        folder: the one in which tests may write.
        refuse: is told what was done, and does not return.
    """
    busy = False
    own, home, getframe = frozenset(files), str(folder) + os.sep, sys._getframe
    standard, others, library, events = _STANDARD, _OTHERS, _LIBRARY, _EVENTS
    through = _THROUGH
    moves, inner, devices = _MOVES, _INNER, ("/dev/", "/proc/")
    packages = (sys.prefix, sys.base_prefix, "/usr/", "/etc/", "/sys/", *standard)
    this = __file__

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
        if busy or not event.startswith(("object.", "open", "os.", *events)):
            return
        busy = True
        try:
            text = said(event, args)
        finally:
            busy = False
        if text:
            refuse(text)

    def said(event: str, args: tuple[Any, ...]) -> str:
        if event == "object.__getattr__":
            whose, name = args
            of_library = str(getattr(whose, "__module__", "")).startswith("measured_transformer")
            looks = name in inner and (of_library or name in ("tb_frame", "f_code"))
            return f"it reads {name} of a function" if looks and by_test() else ""
        if event == "open":
            return opened(args[0], args[1], args[2] if len(args) > 2 else 0)
        if event.startswith(moves):
            return moved(event, args)
        if not event.startswith(events):
            return ""
        # An import uses `marshal`, a named tuple asks for a frame: these count where a test calls them.
        inside = event.startswith(("code.", "cpython.", "ctypes", "gc.", "marshal.", "sys."))
        return f"it calls {event}" if by_test(direct=inside) else ""

    def opened(path: Any, mode: Any, flags: Any) -> str:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        at = os.path.realpath(os.fsdecode(path))
        if at.startswith(library) and at.endswith((".py", ".pyc")):
            return "it reads the library's source"
        writes = any(one in str(mode or "") for one in "wax+") or (
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if at.startswith((home, *devices)):
            return ""
        if not writes and (
            at.startswith(packages) or any(one in at for one in others) or not by_test()
        ):
            return ""
        return f"it {'writes' if writes else 'reads'} a file outside of the folder in which it runs"

    def moved(event: str, args: tuple[Any, ...]) -> str:
        at = os.path.realpath(os.fsdecode(args[0])) if isinstance(args[0], (str, bytes)) else home
        inside = at.startswith(home) or at + os.sep == home
        return "" if inside else f"it calls {event} outside of the folder in which it runs"

    def by_test(direct: bool = False) -> bool:
        """Return whether a test did it: itself or, unless that shall not count, by the standard library."""
        frame: FrameType | None = getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name in own:
                return True
            standing = name.startswith(("<", *standard)) and not any(one in name for one in others)
            between = standing and not direct
            if not between and name != this and not any(one in name for one in through):
                return False
            frame = frame.f_back
        return False

    sys.addaudithook(hook)
