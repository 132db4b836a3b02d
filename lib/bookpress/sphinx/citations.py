"""Citations without the same work for each of them, and for each print.

To print a citation, sphinxcontrib-bibtex asks pybtex for a plugin by name, and pybtex then reads the metadata
of all packages that are installed. A book has a thousand citations, and always the same plugins. And at every
print it forms the words of every entry, which are the same as long as the entry is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pybtex.plugin
from pybtex.style.formatting import BaseStyle
from sphinx.application import Sphinx

_WORDS = "bookpress_citations"
_PYBTEX = version("pybtex")


def _remembered(words: dict[tuple[str, ...], Any], form: Callable[..., Any]) -> Callable[..., Any]:
    """Form each entry once, by its style, its label and all that it says."""

    @functools.wraps(form)
    def format_entry(self: Any, label: str, entry: Any, bib_data: Any = None) -> Any:
        style = f"{type(self).__module__}.{type(self).__qualname__}"
        key = (_PYBTEX, style, label, entry.key, repr(entry))
        if key not in words:
            words[key] = form(self, label, entry, bib_data)
        return words[key]

    return format_entry


def _take_up(app: Sphinx) -> None:
    """Begin with the entries of the last print, which Sphinx keeps with its pages."""
    words = app.env.__dict__.setdefault(_WORDS, {})
    plain = getattr(BaseStyle.format_entry, "__wrapped__", BaseStyle.format_entry)
    BaseStyle.format_entry = _remembered(words, plain)


def setup(app: Sphinx) -> None:
    """Have each plugin looked up once, and each entry formed once."""
    if not hasattr(pybtex.plugin.find_plugin, "cache_info"):
        pybtex.plugin.find_plugin = functools.cache(pybtex.plugin.find_plugin)
    app.connect("builder-inited", _take_up)
