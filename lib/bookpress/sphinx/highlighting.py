"""Code on pages without marks that nobody sees.

Pygments marks every name, comma and blank, and the styles of both themes show these as they show unmarked text.
Left unmarked, they make the pages of the library's source a third smaller.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Set
from typing import Any

from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.style import Style  # type: ignore[import-untyped]
from pygments.styles import get_style_by_name  # type: ignore[import-untyped]
from pygments.token import Text  # type: ignore[import-untyped]
from sphinx.application import Sphinx

_THEMES = ("pygments_light_style", "pygments_dark_style")


def unseen(styles: Iterable[type[Style]]) -> Set[Any]:
    """Return the kinds of tokens that each of these styles shows as it shows text."""
    found = [
        {kind for kind, shown in style if shown == style.style_for_token(Text)} for style in styles
    ]
    return set.intersection(*found) if found else set()


class Sparing(HtmlFormatter):  # type: ignore[misc]
    """Writes code as Pygments does, with some kinds of tokens as mere text.

    Args:
        unmarked: these kinds.
        options: as for Pygments.
    """

    def __init__(self, unmarked: Set[Any], **options: Any) -> None:
        super().__init__(**options)
        self._unmarked = unmarked

    def format_unencoded(self, tokensource: Any, outfile: Any) -> None:
        """Write tokens to a file of text."""
        super().format_unencoded(self._spared(tokensource), outfile)

    def _spared(self, tokens: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
        for kind, text in tokens:
            yield Text if kind in self._unmarked else kind, text


def _spare(app: Sphinx) -> None:
    """Have the pages' code written sparingly, where the theme names its styles."""
    names = [app.config.html_theme_options.get(name) for name in _THEMES]
    highlighter = getattr(app.builder, "highlighter", None)
    if app.builder.format == "html" and highlighter is not None and all(names):
        unmarked = unseen(get_style_by_name(str(name)) for name in names)
        highlighter.formatter = functools.partial(Sparing, unmarked)


def setup(app: Sphinx) -> None:
    """Connect where the builder is there."""
    app.connect("builder-inited", _spare)
