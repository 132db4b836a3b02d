"""What of a chapter's code a profile executes, reduced to one fingerprint.

A cell says in one place what each profile does: `p.choose(quick=a, full=b)`, `p.seeds(quick=2, full=10)`,
`if p.is_full:`. What a full run executes does not change with what stands after `quick=`. So the code is
evaluated in part, as far as the profile decides it, before its fingerprint is taken: arguments of the
other profile are dropped, choices are replaced by what is chosen, branches that cannot be reached are
left out. Comments, layout, cell boundaries and captions are no part of it either.

Two codes with the same fingerprint do the same at that profile. The reverse need not hold: what is not
recognised here counts as a change.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from measured_transformer.evidence.profile import PROFILES
from nbformat import NotebookNode

from bookpress.imports import cell_trees


def code_at(notebook: NotebookNode, profile: str) -> str:
    """Return the fingerprint of what a profile executes of a notebook's code cells.

    Raises:
        ValueError: a profile that there is none of.
    """
    if profile not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}, came {profile!r}")
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    listing = "\n".join(line for source in sources for line in _statements(source, profile))
    return hashlib.sha256(listing.encode()).hexdigest()[:32]


def _statements(source: str, profile: str) -> Iterator[str]:
    trees = list(cell_trees([source]))
    if not trees or source.lstrip().startswith(
        "%%"
    ):  # no Python, or not Python alone: as it stands
        yield repr(source)
        return
    for tree in trees:
        reached = _At(profile).visit(tree)
        assert isinstance(reached, ast.Module)
        yield from map(_text, reached.body)


class _At(ast.NodeTransformer):
    """Leaves of a syntax tree what a profile executes."""

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.others = {name for name in PROFILES if name != profile}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        names = {keyword.arg for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        whole = names == set(PROFILES) and not node.args
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in self.others]
        self.generic_visit(node)
        return node.keywords[0].value if called == "choose" and whole else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Constant(self.profile == "full") if node.attr == "is_full" else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        known = _known(node.operand)
        return (
            ast.Constant(not known) if isinstance(node.op, ast.Not) and known is not None else node
        )

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        known = _known(node.test)
        return node if known is None else node.body if known else node.orelse

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        known = _known(node.test)
        return node if known is None else node.body if known else node.orelse

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        # Python 3.12 puts empty texts between the fields of a format.
        node.values = [
            v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")
        ]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [test for test in node.ifs if _known(test) is not True]
        return node


def _known(node: ast.AST) -> bool | None:
    """Whether a condition is true, where the profile alone decides it."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _text(node: Any) -> str:
    """Write a syntax tree down, the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name != "kind")
        kept = [f"{name}={_text(value)}" for name, value in fields if value not in (None, [])]
        if isinstance(node, ast.Constant) and node.value is None:
            kept = ["None"]
        return f"{type(node).__name__}({', '.join(kept)})"
    return _list(node) if isinstance(node, list) else repr(node)


def _list(nodes: Iterable[Any]) -> str:
    return f"[{', '.join(map(_text, nodes))}]"
