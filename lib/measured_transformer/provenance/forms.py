"""The form of a piece of code: its syntax tree as text, with outgoing names left open.

What changes no value is left out: docstrings, annotations of functions, the words of errors, imports.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
DECLARATIONS = ("measurement", "grid", "evidence", "number")
"""Decorators that declare what a function is for and leave what it computes alone."""
_SKIPPED = {"ctx", "type_comment", "kind", "type_params", "returns", "lineno"}
_ERRORS = frozenset(
    name
    for name, one in vars(builtins).items()
    if isinstance(one, type) and issubclass(one, Exception) and one is not StopIteration
)
"""Python's own errors, which carry words and nothing else."""
_ASKING = {"getattr", "methodcaller", "attrgetter"}
"""Functions that ask an object for an attribute whose name is a value."""
_NAMING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""Texts that may name a definition, ``package.module:name``."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Form:
    """A piece of code as normalised text.

    Attributes:
        text: the tree; a name that leads out of it stands as a hole with its number.
        holes: those names, each with the attributes that follow it: ``("norms", "RMSNorm")`` for
        `norms.RMSNorm`. A text that may name a definition is one as well: ``("parts.norms:RMSNorm",)``.
        keywords: all names under which it passes an argument.
        attributes: all names that it may ask an object for; ``*`` stands for what is only known at run time.
        patterns: texts with gaps, which are names of attributes where the code asks for such by `_ASKING`.
        imports: what imports inside of it bind: name -> what `imported` says.
        further: what they bind besides, where a name is imported in several places.
    """

    text: str = ""
    holes: list[tuple[str, ...]] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    keywords: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    further: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


def form_of(
    nodes: Iterable[ast.AST],
    imported: Callable[[ast.stmt], dict[str, tuple[str, ...]]],
    hidden: Sequence[str] = (),
) -> Form:
    """The form of some statements.

    Args:
        nodes: the statements.
        imported: what an import statement binds.
        hidden: names that stand for the piece itself: they are written as such.
    """
    writer = _Writer(imported, set(hidden))
    writer.form.text = "\n".join(writer.write(node, []) for node in nodes if not is_idle(node))
    return writer.finish()


def is_idle(node: ast.AST) -> bool:
    """Return whether a statement has no effect: a string or an ellipsis on a line of its own."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_import(node: ast.AST) -> bool:
    """Return whether a statement does nothing but import."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return all(is_import(one) for one in node.body)
    return False


class _Writer:
    def __init__(
        self, imported: Callable[[ast.stmt], dict[str, tuple[str, ...]]], hidden: set[str]
    ) -> None:
        self.form, self._imported, self._hidden = Form(), imported, hidden

    def finish(self) -> Form:
        """The form, when all is written."""
        if any(path[-1] in _ASKING for path in self.form.holes):
            self.form.attributes |= self.form.patterns
        return self.form

    def write(self, node: ast.AST, scopes: list[set[str]]) -> str:
        """The text of a node inside scopes that bind names."""
        if isinstance(node, ast.Name):
            return self._name((node.id,), scopes)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scopes)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Raise):
            return self._raise(node, scopes)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, bound in self._imported(node).items():
                if (before := self.form.imports.get(name, bound)) != bound:
                    self.form.further[name] = (*self.form.further.get(name, ()), before)
                self.form.imports[name] = bound
            return ""
        if isinstance(node, Function | ast.Lambda):
            return self._function(node, scopes)
        if isinstance(node, ast.ClassDef):
            return self._class(node, scopes)
        if isinstance(node, ast.JoinedStr):
            self._patterns(node)
        if isinstance(node, ast.keyword) and node.arg is not None:
            self.form.keywords.add(node.arg)
        if isinstance(node, _COMPREHENSIONS):
            own = {n.id for g in node.generators for n in _stored(g.target)}
            return self._fields(node, [*scopes, own])
        if isinstance(node, ast.AnnAssign):
            return self._annotated(node, scopes)
        return self._fields(node, scopes)

    def _fields(self, node: ast.AST, scopes: list[set[str]]) -> str:
        words = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name in _SKIPPED or value is None or value == []:
                continue
            if isinstance(value, list):
                items = (self._item(v, scopes) for v in value if not self._omitted(v))
                words.append(f"{name}=[{' '.join(item for item in items if item)}]")
            else:
                words.append(f"{name}={self._item(value, scopes)}")
        return f"({' '.join(words)})"

    def _item(self, value: object, scopes: list[set[str]]) -> str:
        return self.write(value, scopes) if isinstance(value, ast.AST) else repr(value)

    @staticmethod
    def _omitted(value: object) -> bool:
        return isinstance(value, ast.AST) and is_idle(value)

    def _name(self, path: tuple[str, ...], scopes: list[set[str]]) -> str:
        if any(path[0] in scope for scope in scopes):
            return f"local:{'.'.join(path)}"
        if path[0] in self._hidden:
            return f"self:{self._rest(path[1:])}"
        return self._hole(path)

    def _hole(self, path: tuple[str, ...]) -> str:
        self.form.holes.append(path)
        return f"\0{len(self.form.holes) - 1}\0"

    def _rest(self, attributes: Sequence[str]) -> str:
        self.form.attributes.update(attributes)
        return ".".join(attributes)

    def _attribute(self, node: ast.Attribute, scopes: list[set[str]]) -> str:
        self.form.attributes.add(node.attr)
        path, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            path.insert(0, inner.attr)
            self.form.attributes.add(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            return self._name((inner.id, *path), scopes)
        return f"({self.write(inner, scopes)}.{'.'.join(path)})"

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, str) and node.value.isidentifier():
            self.form.attributes.add(node.value)
        if isinstance(node.value, str) and _NAMING.fullmatch(node.value):
            return self._hole((node.value,))
        return f"{type(node.value).__name__}:{node.value!r}"

    def _patterns(self, node: ast.JoinedStr) -> None:
        """Note an f-string, which may be the name of an attribute: `getattr(self, f"_{kind}")`."""
        parts = [p.value if isinstance(p, ast.Constant) else "*" for p in node.values]
        pattern = "".join(map(str, parts))
        if pattern.strip("*_") and pattern.replace("*", "x").isidentifier():
            self.form.patterns.add(pattern)

    def _raise(self, node: ast.Raise, scopes: list[set[str]]) -> str:
        """A raise statement without the message; other arguments count, since a handler may use them."""
        raised, carried = node.exc, ""
        if isinstance(raised, ast.Call):
            given = [*raised.args, *(word.value for word in raised.keywords)]
            if isinstance(raised.func, ast.Name) and _may_carry(raised.func.id):
                carried = " ".join(self.write(one, scopes) for one in given if not _is_text(one))
            raised = raised.func
        told = "" if raised is None else self.write(raised, scopes)
        return f"(Raise {f'{told} {carried}'.strip()})"

    def _function(self, node: Function | ast.Lambda, scopes: list[set[str]]) -> str:
        arguments = node.args
        outside = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
        named = [
            *(f"/{a.arg}" for a in arguments.posonlyargs),
            *(a.arg for a in arguments.args),
            *([f"*{arguments.vararg.arg}"] if arguments.vararg else []),
            *(f"*,{a.arg}" for a in arguments.kwonlyargs),
            *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else []),
        ]
        given = [
            "-" if default is None else "="
            for default in (*arguments.defaults, None, *arguments.kw_defaults)
        ]
        nested = [node.name] if scopes and not isinstance(node, ast.Lambda) else []
        words = [
            type(node).__name__,
            *nested,
            *named,
            *given,
            *(self.write(d, scopes) for d in outside),
        ]
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        words += [f"@{self.write(d, scopes)}" for d in decorators if not _declares(d)]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        inner = [*scopes, {name.strip("/*,") for name in named} | self._bound(body)]
        words += [self.write(one, inner) for one in body if not is_idle(one)]
        return f"({' '.join(word for word in words if word)})"

    def _bound(self, body: Sequence[ast.AST]) -> set[str]:
        """The names that a function's body binds; those its imports bind lead out of it."""
        names: set[str] = set()
        outer: set[str] = set()
        waiting: list[ast.AST] = list(body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, Function | ast.ClassDef):
                names.add(node.name)
                waiting += node.decorator_list
                continue
            if isinstance(node, ast.Global | ast.Nonlocal):
                outer.update(node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                names.add(node.id)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                names.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                names.add(node.rest)
            if isinstance(node, ast.Lambda | Function):
                continue
            if isinstance(node, _COMPREHENSIONS):
                waiting += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
                continue
            waiting += ast.iter_child_nodes(node)
        return names - outer

    def _class(self, node: ast.ClassDef, scopes: list[set[str]]) -> str:
        """A nested class, whole and with its name."""
        words = [f"class {node.name}", *(f"@{self.write(d, scopes)}" for d in node.decorator_list)]
        words += [self.write(one, scopes) for one in (*node.bases, *node.keywords)]
        own = {n.id for one in node.body if not isinstance(one, Function) for n in _stored(one)}
        for one in node.body:
            if isinstance(one, Function):
                words.append(f"{one.name}:{self.write(one, scopes)}")
            elif not is_idle(one):
                words.append(self.write(one, [*scopes, own]))
        return f"({' '.join(words)})"

    def _annotated(self, node: ast.AnnAssign, scopes: list[set[str]]) -> str:
        value = "" if node.value is None else self.write(node.value, scopes)
        return f"({self.write(node.target, scopes)}={value})"


def _may_carry(name: str) -> bool:
    """Return whether an exception of that name may carry more than a message: any class but Python's own."""
    return name not in _ERRORS and name.strip("_")[:1].isupper()


def _is_text(node: ast.AST) -> bool:
    """Return whether an expression builds a text in place."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and _is_text(node.func.value)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _declares(decorator: ast.AST) -> bool:
    """Return whether a decorator only declares a function's purpose, and changes no value that it computes."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in DECLARATIONS


def _stored(node: ast.AST) -> list[ast.Name]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return [n for n in found if isinstance(n.ctx, ast.Store)]


@dataclass
class ClassForm:
    """A top-level class: its head, which always counts, and what counts when it is asked for.

    Attributes:
        head: its bases, decorators and what else stands in its body.
        bases: their dotted names.
        methods: its functions by name.
        optional: fields of a dataclass that have defaults, by name. One that nothing reads and nothing passes
            has its default wherever the class is used, so nothing depends on it.
    """

    head: Form
    bases: list[tuple[str, ...]]
    methods: dict[str, Form]
    optional: dict[str, Form] = field(default_factory=dict)


def class_form(
    node: ast.ClassDef, imported: Callable[[ast.stmt], dict[str, tuple[str, ...]]]
) -> ClassForm:
    """The form of a top-level class, its name left open."""
    hidden = [node.name]
    own = {n.id for one in node.body if not isinstance(one, Function) for n in _stored(one)}
    writer = _Writer(imported, set(hidden))
    words = [f"@{writer.write(d, [])}" for d in node.decorator_list]
    words += [writer.write(one, []) for one in (*node.bases, *node.keywords)]
    methods: dict[str, list[ast.AST]] = {}
    optional: dict[str, Form] = {}
    for one in node.body:
        if isinstance(one, Function):
            methods.setdefault(one.name, []).append(one)
        elif _is_optional(node, one):
            assert isinstance(one, ast.AnnAssign)
            assert isinstance(one.target, ast.Name)
            optional[one.target.id] = form_of([one], imported, hidden)
        elif isinstance(one, ast.AnnAssign):
            kind = "ClassVar" if "ClassVar" in ast.dump(one.annotation) else ""
            kind += "InitVar" if "InitVar" in ast.dump(one.annotation) else ""
            words.append(kind + writer.write(one, [own]))
        elif not is_idle(one):
            words.append(writer.write(one, [own]))
    writer.form.text = f"(class {' '.join(words)})"
    bases = [path for base in node.bases if (path := _dotted(base)) is not None]
    made = {name: form_of(nodes, imported, hidden) for name, nodes in methods.items()}
    return ClassForm(writer.finish(), bases, made, optional)


def _is_optional(made: ast.ClassDef, node: ast.stmt) -> bool:
    """Return whether a statement is a field of a dataclass that has a default of its own."""
    names = [
        path[-1]
        for one in made.decorator_list
        if (path := _dotted(one.func if isinstance(one, ast.Call) else one)) is not None
    ]
    return (
        "dataclass" in names
        and isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.value is not None
        and not any(word in ast.dump(node.annotation) for word in ("ClassVar", "InitVar"))
    )


def _dotted(node: ast.AST) -> tuple[str, ...] | None:
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (inner := _dotted(node.value)):
        return (*inner, node.attr)
    return ("?",)
