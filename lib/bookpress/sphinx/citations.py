"""Citations without a search through every installed package.

To print a citation, sphinxcontrib-bibtex asks pybtex for a plugin by name, and pybtex then reads the
metadata of all packages that are installed. A book has a thousand citations, and always the same plugins.
"""

from __future__ import annotations

import functools

import pybtex.plugin
from sphinx.application import Sphinx


def setup(app: Sphinx) -> None:
    """Have each plugin looked up once."""
    del app
    if not hasattr(pybtex.plugin.find_plugin, "cache_info"):
        pybtex.plugin.find_plugin = functools.cache(pybtex.plugin.find_plugin)
