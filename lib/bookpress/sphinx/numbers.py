"""References to numbered figures and tables, looked up without reading a page again for each.

To turn a `numref` into a number, Sphinx loads the whole page that holds the figure from its store, one
load a reference; most references of a chapter lead to the chapter itself. Here the pages that were
loaded last are kept for the next reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment

_KEPT = 4  # pages


class _Reading:
    """A build environment whose pages are only looked at, so that one copy serves all who look."""

    def __init__(self, env: BuildEnvironment) -> None:
        self._env = env
        self.get_doctree: Callable[[str], nodes.document]
        self.get_doctree = functools.lru_cache(maxsize=_KEPT)(env.get_doctree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Standard(StandardDomain):
    """Sphinx's standard domain, with quicker references to numbers."""

    def resolve_xref(
        self,
        env: BuildEnvironment,
        fromdocname: str,
        builder: Builder,
        typ: str,
        target: str,
        node: pending_xref,
        contnode: nodes.Element,
    ) -> nodes.Element | None:
        """Resolve a reference as Sphinx does."""
        if typ == "numref":
            if getattr(self, "_reading_of", None) is not env:
                self._reading_of, self._reading = env, _Reading(env)
            env = cast("BuildEnvironment", self._reading)
        return super().resolve_xref(env, fromdocname, builder, typ, target, node, contnode)


def setup(app: Sphinx) -> None:
    """Take the place of the standard domain."""
    app.add_domain(Standard, override=True)
