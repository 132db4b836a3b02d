r"""What the library's docstrings mean to Sphinx: their mathematics and the names in them.

A docstring is written to be read in an editor: mathematics between dollar signs, names and code between
single backticks.  reStructuredText has other signs for both, so they are rewritten here: ``$x_i$``
becomes the role ``math``, and a name that the library has becomes a link to its entry.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_INLINE = re.compile(
    r"(?P<kept>``.+?``|:[\w:]+:`[^`]+`)|`(?P<code>[^`]+)`|(?<!\\)\$(?P<math>[^$]+)\$|(?P<bar>\|)",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SEVERAL = re.compile(r"^:ivar (\w+(?:, \w+)+): ")
_RAISES = re.compile(r"^(\s*:raises )([\w.]+)(:.*)$", re.DOTALL)


@dataclass(frozen=True)
class Scope:
    """Where a docstring stands: its module, its class (or nothing), and the arguments it speaks of."""

    module: str
    cls: str = ""
    arguments: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Names:
    """The public names of a library, read from its source without importing it.

    Attributes:
        kinds: full name -> `module`, `class`, `function`, `method`, `property`,
            `attribute` or `data`.
        meanings: module -> each name that it defines or imports -> the full name.
    """

    kinds: dict[str, str]
    meanings: dict[str, dict[str, str]]

    def scope(self, name: str, arguments: Iterable[str] = ()) -> Scope:
        """Where the docstring of a full name stands."""
        module = name
        while module and self.kinds.get(module) != "module":
            module = module.rpartition(".")[0]
        inner = name[len(module) + 1 :].split(".")[0]
        cls = f"{module}.{inner}" if self.kinds.get(f"{module}.{inner}") == "class" else ""
        return Scope(module, cls, frozenset(arguments))

    def find(self, text: str, scope: Scope) -> str | None:
        """Return the full name that a text means in a scope; None where it is no public name.

        Looked for in this order: an argument (which has no entry), a member of the class, a name that
        the module defines or imports, a name counted from the package or from one at the top, a full name, and
        a class or function that the library has once. A single word means no module: `capture` is the
        function, not the file that it lives in.
        """
        text = text.removesuffix("()")
        if not _NAME.fullmatch(text) or text in scope.arguments:
            return None
        head, _, rest = text.partition(".")
        meant = self.meanings.get(scope.module, {}).get(head, "")
        for found in (
            f"{scope.cls}.{text}",
            f"{meant}.{rest}" if rest else meant,
            f"{scope.module.rpartition('.')[0]}.{text}",
            *(f"{package}.{text}" for package in self._packages),
            text,
        ):
            if found in self.kinds and (rest or self.kinds[found] != "module"):
                return found
        once = self._by_end.get(text, [])
        return once[0] if len(once) == 1 else None

    @functools.cached_property
    def _packages(self) -> list[str]:
        """The packages that the names are of."""
        return [name for name, kind in self.kinds.items() if kind == "module" and "." not in name]

    @functools.cached_property
    def _by_end(self) -> dict[str, list[str]]:
        """The end of a full name, `Tap` or `Tap.watched` -> the names that end like this."""
        found: dict[str, list[str]] = {}
        for name, kind in self.kinds.items():
            parts = name.split(".")
            if kind in ("class", "function", "data"):
                found.setdefault(parts[-1], []).append(name)
            elif kind in ("method", "property", "attribute"):
                found.setdefault(".".join(parts[-2:]), []).append(name)
        return found


def read_names(*packages: Path, without: str = "") -> Names:
    """Read the public names of the packages in some folders: those of their modules, and their members.

    A module's constants and type aliases count where a docstring stands below them.

    Args:
        packages: their folders.
        without: a folder in one whose own folders are left out.
    """
    kinds: dict[str, str] = {}
    meanings: dict[str, dict[str, str]] = {}
    files = [(folder, path) for folder in packages for path in sorted(folder.rglob("*.py"))]
    for folder, path in files:
        if without and folder / without in path.parent.parents:
            continue
        parts = path.relative_to(folder.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text("utf-8"))
        kinds[module] = "module"
        members = dict(_members(tree.body, "function"))
        meanings[module] = _imports(tree) | {name: f"{module}.{name}" for name in members}
        kinds |= {f"{module}.{name}": kind for name, kind in members.items()}
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in members:
                inner = _members(node.body, "method")
                kinds |= {f"{module}.{node.name}.{name}": kind for name, kind in inner}
    return Names(kinds, meanings)


def _members(body: list[ast.stmt], function: str) -> Iterator[tuple[str, str]]:
    """The public names that statements define and document, each with its kind."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef):
            name, kind = node.name, "class"
        elif isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            properties = {"property", "cached_property", "functools.cached_property"}
            name, kind = node.name, "property" if decorators & properties else function
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _is_text(after):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name, kind = ast.unparse(target), "data" if function == "function" else "attribute"
        else:
            continue
        if not name.startswith("_"):
            yield name, kind


def _is_text(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _imports(tree: ast.Module) -> dict[str, str]:
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }


def as_rst(lines: list[str], names: Names, scope: Scope) -> list[str]:
    """Rewrite the mathematics and the names of a docstring; examples and literal blocks stay.

    Args:
        lines: of reStructuredText, as Napoleon leaves them.
        names: the library's.
        scope: where the docstring stands.
    """
    blocks: list[list[str]] = []
    for line in lines:
        if not blocks or not line.strip() or not blocks[-1][-1].strip():
            blocks.append([])
        blocks[-1].append(line)
    literal: int | None = None  # how far the words were indented that announce a literal block
    written: list[str] = []
    for block in blocks:
        words = block[0].lstrip()
        indent = len(block[0]) - len(words)
        if literal is not None and words and indent <= literal:
            literal = None
        if literal is None and not words.startswith(">>>"):
            text = _INLINE.sub(lambda found: _rewrite(found, names, scope), "\n".join(block))
            block = [_link_error(line, names, scope) for line in text.split("\n")]
        if block[-1].rstrip().endswith("::") and literal is None:
            literal = indent
        written += block
    return written


def one_by_one(lines: list[str]) -> list[str]:
    """Give attributes that share a description an entry each, as Napoleon does for arguments."""
    written: list[str] = []
    shared: list[str] = []
    names: list[str] = []

    def flush() -> None:
        for name in names:
            written.extend([f":ivar {name}: {shared[0]}", *shared[1:]])
        names.clear()

    for line in lines:
        found = _SEVERAL.match(line)
        if found:
            flush()
            names[:], shared[:] = found[1].split(", "), [line[found.end() :]]
        elif names and line.startswith(" "):
            shared.append(line)
        else:
            flush()
            written.append(line)
    flush()
    return written


def _rewrite(found: re.Match[str], names: Names, scope: Scope) -> str:
    if found["kept"]:
        return found["kept"]
    if found["bar"]:  # an absolute value; to reStructuredText it would be a substitution
        return "\\|"
    # Markup must not touch a letter: what follows right after it is set off by an invisible blank.
    touches = found.string[found.end() : found.end() + 1].isalnum()
    blank = "\\ " if touches else ""
    if found["math"]:
        formula = " ".join(found["math"].split())
        return f":math:`{formula}`{blank}"
    code = " ".join(found["code"].split())
    target = names.find(code, scope)
    return (f":py:obj:`{code} <{target}>`" if target else f"``{code}``") + blank


def _link_error(line: str, names: Names, scope: Scope) -> str:
    """Name the library's own errors in full, so that they are found from any module."""
    match = _RAISES.match(line)
    target = names.find(match[2], scope) if match else None
    return f"{match[1]}{target}{match[3]}" if match and target else line
