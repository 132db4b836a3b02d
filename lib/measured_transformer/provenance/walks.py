"""The walk from a definition to all live code that it reaches, and the digest of what was found."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from measured_transformer.provenance.forms import ClassForm, Form
from measured_transformer.provenance.modules import (
    LOOSE,
    Source,
    Target,
    file_of,
    is_comparing,
    lead,
    links_in_memory,
    source_of,
)

Node = tuple[str, str]
"""A definition: its module and its name."""
_HOLE = re.compile("\0([0-9]+)\0")


@dataclass(frozen=True)
class Walked:
    """What a walk found; of a kept one, `own` is empty."""

    digest: str
    own: dict[str, str]
    stamps: tuple[tuple[str, int, int], ...]
    packages: frozenset[str]


def stamp_of(module: str) -> tuple[str, int, int]:
    """When the file of a module was written, and its size, beside the module's name."""
    path = file_of(module)
    if path is None:
        return module, 0, 0
    at = path.stat()
    return module, at.st_mtime_ns, at.st_size


class Walk:
    """Finds the live code: definitions that are reached, and the methods of classes that may be called."""

    def __init__(self, roots: Sequence[Node], extra: Mapping[str, Source]) -> None:
        self._extra, self._roots = extra, list(roots)
        self._live: dict[Node, None] = {}
        self._attributes: set[str] = set()
        self._passed: set[str] = set()
        self._pieces: dict[Node, list[tuple[str, Form]]] = {}
        self._methods: dict[Node, set[str]] = {}
        self._links: dict[int, list[Target]] = {}
        waiting, asked = list(roots), -1
        while waiting or asked != len(self._attributes) + len(self._passed):
            while waiting:
                waiting += self._enter(waiting.pop())
            asked = len(self._attributes) + len(
                self._passed
            )  # a method that becomes live may ask for one seen before
            for node in list(self._methods):
                waiting += self._ask(node)

    def _source(self, module: str) -> Source:
        found = self._extra.get(module) or source_of(module)
        assert found is not None
        return found

    def _enter(self, node: Node) -> list[Node]:
        if node in self._live:
            return []
        self._live[node] = None
        source = self._source(node[0])
        self._pieces[node] = []
        if node[1] == LOOSE:
            return [] if source.loose is None else self._add(node, "", source.loose)
        found: list[Node] = []
        if source.loose is not None:
            found.append((node[0], LOOSE))
        if node[1] in source.functions:
            return found + self._add(node, "", source.functions[node[1]])
        self._methods[node] = set()
        return found + self._add(node, "", source.classes[node[1]].head)

    def _add(self, node: Node, name: str, form: Form) -> list[Node]:
        self._pieces[node].append((name, form))
        self._attributes |= form.attributes
        self._passed |= form.keywords
        links = self._links[id(form)] = self._links_of(node[0], form)
        found: list[Node] = []
        for target in links:
            self._attributes.update(target.rest.split(".") if target.module else ())
            found += self._nodes(target)
        return found

    def _links_of(self, module: str, form: Form) -> list[Target]:
        """What each name in a piece of code leads to; looked for once while files do not change."""
        memory = None if module in self._extra else links_in_memory()
        if memory is not None and id(form) in memory:
            return memory[id(form)]
        source = self._source(module)
        links = [lead(source, path, form.imports, form.further) for path in form.holes]
        if memory is not None:
            memory[id(form)] = links
        return links

    def _nodes(self, target: Target) -> list[Node]:
        own = self._own_nodes(target)
        for other in target.others:
            own += self._own_nodes(other)
        return list(dict.fromkeys(own))

    def _own_nodes(self, target: Target) -> list[Node]:
        if not target.module:
            return []
        if target.name:
            return [(target.module, target.name)]
        names = self._source(target.module).names
        if target.rest:  # made at run time, by a function that says how; or how code is compared
            made = "__getattr__" in names and not is_comparing(f"{target.module}.{target.rest}")
            return [(target.module, "__getattr__")] if made else []
        return [(target.module, name) for name in names]

    def _ask(self, node: Node) -> list[Node]:
        """Add the methods of a live class that have become live; returns what they reach."""
        made = self._source(node[0]).classes[node[1]]
        every = self._is_used_from_outside(node, set())
        patterns = [name for name in self._attributes if "*" in name]
        found: list[Node] = []
        for name, form in made.methods.items():
            if name in self._methods[node]:
                continue
            dunder = name.startswith("__") and name.endswith("__")
            asked = name in self._attributes or any(fnmatch.fnmatch(name, p) for p in patterns)
            if every or dunder or asked:
                self._methods[node].add(name)
                found += self._add(node, name, form)
        for name, form in made.optional.items():
            wanted = name in self._attributes or name in self._passed
            if wanted and f"{name}=" not in self._methods[node]:
                self._methods[node].add(f"{name}=")
                found += self._add(node, f"{name}=", form)
        return found

    def _is_used_from_outside(self, node: Node, seen: set[Node]) -> bool:
        """Return whether a class inherits from another package, which may then call any of its methods."""
        if node in seen:
            return False
        source = self._source(node[0])
        made: ClassForm = source.classes[node[1]]
        for base in made.bases:
            target = lead(source, base, {}, {})
            if not target.module:
                if target.rest not in ("object", "typing.Generic", "Generic"):
                    return True
            elif target.name in self._source(target.module).classes and self._is_used_from_outside(
                (target.module, target.name), seen | {node}
            ):
                return True
        return False

    @property
    def reached(self) -> frozenset[str]:
        """All live definitions, as ``module:name``."""
        return frozenset(f"{module}:{name}" for module, name in self._live)

    # Hashing --------------------------------------------------------------------------------------

    def finish(self) -> Walked:
        """The digest of all live code, with each reference replaced by what it leads to."""
        hashes: dict[Node, str] = {}
        for group in _groups(list(self._live), self._edges()):
            names = {node: f"{i}" for i, node in enumerate(sorted(group, key=lambda n: n[1]))}
            inner = {node: self._text(node, hashes, names) for node in group}
            for node in group:
                told = sorted(inner.values()) if len(group) > 1 else []
                hashes[node] = hash_of([inner[node], *told])
        own = {f"{m}:{n}": hash_of([self._text((m, n), {}, {})]) for m, n in self._live}
        modules = sorted({m for m, _ in self._live} - set(self._extra))
        whole = hash_of([hashes[root] for root in self._roots])
        return Walked(whole, own, tuple(map(stamp_of, modules)), self._packages())

    def _packages(self) -> frozenset[str]:
        """The first components of all names that lead out of the project: packages and built-ins."""
        links = [t for links in self._links.values() for one in links for t in (one, *one.others)]
        return frozenset(t.rest.partition(".")[0] for t in links if not t.module)

    def _edges(self) -> dict[Node, list[Node]]:
        edges = {}
        for node, pieces in self._pieces.items():
            targets = [t for _, form in pieces for t in self._links[id(form)]]
            loose = self._source(node[0]).loose is not None and node[1] != LOOSE
            found = [n for target in targets for n in self._nodes(target)]
            edges[node] = list(dict.fromkeys([*found, *([(node[0], LOOSE)] if loose else [])]))
        return edges

    def _text(self, node: Node, hashes: Mapping[Node, str], names: Mapping[Node, str]) -> str:
        told = []
        for name, form in sorted(self._pieces[node], key=lambda piece: piece[0]):
            links = self._links[id(form)]

            def fill(match: re.Match[str], links: list[Target] = links) -> str:
                target = links[int(match[1])]
                if target.text and not target.module:
                    return f"str:{target.text!r}"
                words = " ".join([*self._words(target, hashes, names), target.rest])
                return f"text:{words}" if target.text else words

            told.append(f"{name}:{_HOLE.sub(fill, form.text)}")
        if node in self._methods:  # the order of a dataclass's fields is that of its arguments
            made = self._source(node[0]).classes[node[1]]
            told.append(" ".join(n for n in made.optional if f"{n}=" in self._methods[node]))
        loose = (node[0], LOOSE)
        if loose in self._live and loose != node:
            told.append(hashes.get(loose, names.get(loose, "")))
        return "\n".join(told)

    def _words(
        self, target: Target, hashes: Mapping[Node, str], names: Mapping[Node, str]
    ) -> list[str]:
        nodes = self._nodes(target)
        if not nodes:
            return ["ext" if not target.module else "made"]
        return sorted(hashes.get(node) or f"#{names.get(node, '')}" for node in nodes)


def _groups(nodes: Sequence[Node], edges: Mapping[Node, list[Node]]) -> list[list[Node]]:
    """The strongly connected groups of definitions, each after those it leads to (Tarjan 1972)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on: set[Node] = set()
    groups: list[list[Node]] = []
    for start in nodes:
        if start in index:
            continue
        work: list[tuple[Node, int]] = [(start, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
            for k in range(position, len(edges[node])):
                other = edges[node][k]
                if other not in index:
                    work += [(node, k + 1), (other, 0)]
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                if low[node] == index[node]:
                    group: list[Node] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on.discard(group[-1])
                    groups.append(group)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return groups


def hash_of(told: Iterable[str]) -> str:
    """One digest of several texts in their order."""
    return hashlib.sha256("\0".join(told).encode()).hexdigest()
